"""A corpus of one's own from a dump and a CSV of labels to its split by `corpus run`, interrupted and repeated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

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


def test_a_killed_run_goes_on_and_waits_for_labels_that_come_later(
    place: Nearby, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    step = tasks.step

    def killed(argv: list[str], **options: object) -> object:
        if argv[0] == "partition" and "partition" not in ran:
            ran.append("partition")
            raise KeyboardInterrupt
        ran.append(" ".join(argv))
        return step(argv, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(tasks, "step", killed)
    with pytest.raises((KeyboardInterrupt, world.CommandFailed)):
        place.run("run", NAME, "--to", "split")
    assert "partition" in ran and subjects(place) == []
    found = place.call("run", NAME, "--to", "split")
    assert found["waits"], "no label is imported yet"
    assert subjects(place) == [f"data({NAME}): {MONTH}"]
    lock = git("--git-dir", str(place.home / "corpus.git"), "show", "corpus:dvc.lock")
    assert f"sample@{NAME}" in lock and f"split@{NAME}" not in lock, "people can label the sample"
    assert len(ran) == len(set(ran)), "no step ran twice"

    labels = str(place.home.parent / "labels.csv")
    found = place.call("run", NAME, "--to", "split", "--labels", labels)
    assert not found["waits"]
    assert len(ran) == len(set(ran)), "the published month is not collected again"
    clone = place.clone()
    split = json.loads((clone / "metrics" / NAME / "split.json").read_text())
    assert split["leakage"] == 0 and all(split["sizes"].values())
    assert json.loads((clone / "metrics" / NAME / "gold.json").read_text())["records"] > 50
    before = git("--git-dir", str(place.home / "corpus.git"), "rev-parse", "corpus")
    assert place.call("run", NAME, "--to", "split")["commit"] == before.strip(), "nothing is left to do"
