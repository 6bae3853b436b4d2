"""A corpus of one's own from a dump and a CSV of labels to its split by `corpus run`, interrupted and repeated."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
import zstandard

from crisis_corpus_sandbox.reddit.listing import DECLARED, frame, live
from crisis_corpus_sandbox.reddit.post_world import PostWorld
from pipelines.core.config.collect import Sandbox
from pipelines.operate import tasks
from pipelines.workspace.git import git
from tests.golden import world
from tests.golden.nearby import UNREAD, Nearby

ROOT = Path(__file__).resolve().parents[2]
MONTH, NAME = "2022-11", "forum"
SCHEME = {
    "name": NAME,
    "version": 1,
    "title": "Posts of a forum",
    "item": "post",
    "role": "You read posts.",
    "purpose": "Research.",
    "categories": {
        "labels": {
            "kind": "single",
            "task": "Is the post long?",
            "labels": [
                {"name": "long", "code": "A", "definition": "It has many words."},
                {"name": "short", "code": "B", "definition": "It has few words."},
            ],
        }
    },
}
MAPPING = {
    "dataset": NAME,
    "title": "Posts of a forum",
    "source": "our annotators",
    "scheme": NAME,
    "level": "item",
    "format": "csv",
    "columns": {"reddit": ["id"]},
    "labels": {"labels": {"columns": ["label"]}},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nearby]:
    home = tmp_path_factory.mktemp("own")
    posts = PostWorld(Sandbox(seed=4117, months=(MONTH,), submissions=1, posts=120, port=1)).build()
    (home / "dumps").mkdir()
    data = b"".join(json.dumps(live(post, port=1)).encode() + b"\n" for post in posts)
    dump, content = f"RS_{MONTH}.zst", frame(data, declared=DECLARED)
    (home / "dumps" / dump).write_bytes(content)
    (home / "dumps" / f"{dump}.sha256").write_text(f"{hashlib.sha256(content).hexdigest()}  {dump}\n")
    lines = [f"{post.fullname},{'long' if len(post.body) > 400 else 'short'}" for post in posts]
    (home / "labels.csv").write_text("\n".join(["id,label", *lines]) + "\n")
    profile = {
        "corpora": {
            "memes": None,
            "posts": None,
            NAME: {
                "content": "texts",
                "scheme": NAME,
                "subreddits": sorted({post.subreddit for post in posts}),
                "source": "dump",
                "first_month": MONTH,
                "last_month": MONTH,
            },
        },
        "sources": {"dump": {"ethics": "board, reference"}},
        "collect": {"shard_size": 70},
        "split": {NAME: {"proposals": 2000}},
        "gold": {NAME: {"splits": None, "published": f"annotations/{NAME}/{NAME}/gold.csv"}},
        "votes": {"labellers": {NAME: []}},
        "silver": {"ensembles": {NAME: []}},
        "train": {"rows": {NAME: {"models": ["knn"], "subsets": ["gold"], "ensemble": None, "seeds": [1]}}},
        "predict": {"rows": {NAME: []}},
        "few_shot": {"examples": {NAME: 0}},
    }
    own = {"profile": profile, "scheme": SCHEME, "mapping": MAPPING}
    files = {f"corpora/{NAME}/{key}.yaml": yaml.safe_dump(value, sort_keys=False) for key, value in own.items()}
    checkout = world.check_out(ROOT, home / "checkout", profile={}, files=files, without=UNREAD)
    made = Nearby(checkout, home / "var", corpora={NAME: "texts"}, rounds={})
    made.environment |= {"CORPUS_DUMPS": str(home / "dumps"), "CORPUS_ROOT": str(checkout)}
    made.home.mkdir()
    yield made


def subjects(place: Nearby) -> list[str]:
    return git(
        "--git-dir", str(place.home / "corpus.git"), "log", "--format=%s", "corpus", "--", f"data/{NAME}"
    ).splitlines()


MISTAKES = {
    "another name": (["forums"], "known: forum"),
    "months in the wrong order": ([NAME, "--months", "2022-12..2022-11"], "2022-11, is before"),
    "no month": ([NAME, "--months", "2022/11"], "YYYY-MM"),
    "a month to come": ([NAME, "--months", "2099-01"], "2099-01 has not ended"),
    "a month without a dump": ([NAME, "--months", "2021-01"], "collect"),
    "another corpus's labels": ([NAME, "--labels", "../other.csv"], "columns of the file: mark, post"),
}


def killed(place: Nearby, *argv: str, after: Path) -> None:
    """Run a command in a process of its own, and kill it with all of its children once a file exists."""
    with (place.home / "killed.log").open("w") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "pipelines", *argv],
            cwd=place.checkout,
            stdout=log,
            stderr=log,
            env=place.environment | {"PYTHONPATH": str(place.checkout)},
            start_new_session=True,
        )
        try:
            end = time.monotonic() + 300
            while not after.exists() and child.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert after.exists(), (place.home / "killed.log").read_text()


def test_a_killed_run_goes_on_and_waits_for_labels_that_come_later(
    place: Nearby, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(place, "run", NAME, "--to", "split", after=place.home / "run" / f"{NAME}-{MONTH}.json")
    assert subjects(place) == [], "the month is not published"
    ran: list[str] = []
    step = tasks.step

    def noted(argv: list[str], **options: object) -> object:
        ran.append(" ".join(argv))
        return step(argv, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(tasks, "step", noted)
    found = place.call("run", NAME, "--to", "split")
    assert found["waits"], "no label is imported yet"
    assert subjects(place) == [f"data({NAME}): {MONTH}"]
    assert not any(line.startswith("collect") for line in ran), "the step that had ended is not repeated"
    lock = git("--git-dir", str(place.home / "corpus.git"), "show", "corpus:dvc.lock")
    assert f"sample@{NAME}" in lock and f"split@{NAME}" not in lock, "people can label the sample"

    labels = str(place.home.parent / "labels.csv")
    ran.clear()
    found = place.call("run", NAME, "--to", "split", "--labels", labels)
    assert not found["waits"] and not ran, "the published month is not collected again"
    clone = place.clone()
    split = json.loads((clone / "metrics" / NAME / "split.json").read_text())
    assert split["leakage"] == 0 and all(split["sizes"].values())
    assert json.loads((clone / "metrics" / NAME / "gold.json").read_text())["records"] > 50
    before = git("--git-dir", str(place.home / "corpus.git"), "rev-parse", "corpus")

    (place.home.parent / "other.csv").write_text("post,mark\nzz0001,long\n")
    (place.checkout / "corpora" / "other").mkdir()
    (place.checkout / "corpora" / "other" / "profile.yaml").write_text("half: written")
    for argv, words in MISTAKES.values():
        with pytest.raises(world.CommandFailed, match=words):
            place.run("run", *argv, "--to", "split")
    assert place.call("run", NAME, "--to", "split")["commit"] == before.strip(), "nothing was left to do"

    dump = place.home.parent / "dumps" / f"RS_{MONTH}.zst"
    dump.write_bytes(dump.read_bytes() + zstandard.compress(b""))
    dump.with_name(f"{dump.name}.sha256").write_text(f"{hashlib.sha256(dump.read_bytes()).hexdigest()}  {dump.name}\n")
    ran.clear()
    assert place.call("run", NAME, "--to", "split")["commit"] == before.strip() and not ran
    assert place.call("run", NAME, "--dry-run", "--months", "none")["months"] == []
    assert place.call("run", NAME, "--dry-run", "--months", MONTH)["months"] == [MONTH]
    place.run("run", NAME, "--to", "split", "--months", MONTH)
    assert ran, "a month that is named is collected again from another dump"
    shown = git("--git-dir", str(place.home / "corpus.git"), "show", f"corpus:metrics/{NAME}/split.json")
    assert json.loads(shown)["sizes"] == split["sizes"], "no item has moved"
