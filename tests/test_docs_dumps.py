"""The pages of a corpus from dumps run as printed, block after block, in a scratch checkout with dumps and labels."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.small_corpus import MONTHS
from tests.small_sandbox import MORE_POSTS
from tests.small_sandbox import folder as sandbox
from tests.test_docs_commands import Block, Place, environment_of, run_page, scratch

CORPUS = "forum"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    code = scratch(tmp_path)
    reddit = sandbox(MORE_POSTS)
    posts = json.loads((reddit / "truth_texts.json").read_text())["submissions"]
    with (code / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "label"])
        # not chosen at random, because an ensemble that learns nothing is refused
        writer.writerows(
            [post["fullname"], "asks" if post["labels"]["cradle"]["labels"] == ["no_crisis"] else "tells"]
            for post in posts
        )
    return code, environment_of(code) | {"CORPUS_DUMPS": str(reddit / "dumps")}


def task(place: Place, *argv: str, given: Any = None) -> dict[str, Any]:
    """Run a command as the Dags of a month do."""
    code, environment = place
    done = subprocess.run(["corpus", "task", *argv], cwd=code, env=environment, input=json.dumps(given or {}),
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-600:]
    found: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return found


def collect(place: Place, key: str) -> None:
    """Collect and publish one month as `forum_collect` does."""
    month, pointers = ("--month", key), ("--pointers", "-")
    found = task(place, "step", "collect", CORPUS, *month, "--out", f"work/{CORPUS}/{key}/*.parquet")
    given = dict(found["pointers"])
    for shard in range(found["result"]["shards"]):
        out = ("--out", f"data/{CORPUS}/{key}/texts/*.parquet", "--out", f"work/{CORPUS}/{key}/drops/*.parquet")
        argv = ("texts", CORPUS, *month, "--shard", str(shard))
        given |= task(place, "step", *pointers, *out, *argv, given=found["pointers"])["pointers"]
    out = ("--out", f"data/{CORPUS}/{key}/*.parquet")
    given |= task(place, "step", *pointers, *out, "partition", CORPUS, *month, given=given)["pointers"]
    data = {path: text for path, text in given.items() if path.startswith("data/")}
    task(place, "publish-partition", CORPUS, *month, *pointers, given=data)


@pytest.mark.faults
def test_dumps_are_read(place: Place) -> None:
    code, environment = place
    (code / "dumps").mkdir()
    shutil.copy(Path(environment["CORPUS_DUMPS"]) / "SuicideMeme_submissions.zst", code / "dumps" / "RS_2022-11.zst")
    run_page("docs/howto/dumps.md", place, needs={"dump"})


@pytest.mark.faults  # two minutes
def test_a_third_corpus_is_collected_labelled_and_trained(place: Place) -> None:
    def between(block: Block) -> None:
        if "corpus import" in block.text:
            for key in MONTHS:
                collect(place, key)

    run_page("docs/howto/own.md", place, needs={"dump"}, before=between)
    code, _ = place
    report = (code / "lab" / "snapshot" / CORPUS / "report" / "report.html").read_text()
    assert "knn" in report and "asks" in report
