"""The page *Your corpus* as printed, from dumps and a file of labels to a loaded model, for texts and for pictures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.own import content, pictures
from tests.test_docs_commands import SHELL, Place, environment_of, run_block, scratch

pytestmark = pytest.mark.faults  # three minutes each
PAGE = "docs/corpus.md"
# of pictures on loopback, which no real corpus reads
LOOPBACK = "images: {fetch: {hosts: [127.0.0.1], allow_http: true, allow_loopback: true, timeout_seconds: 5}}\n"
PRINTED = ("texts", "depression,lonely", "post", "kind")
# macro-F1 of the largest of four classes with a third of the items
MAJORITY = 0.125
ASKED = """
import json, sys
from crisis_corpus import load
print(json.dumps([row["labels"] for row in load("forum-labels")(json.loads(sys.argv[1]))]))
"""


@dataclass(frozen=True)
class Team:
    """What a team has beside its checkout, and the words that it types in place of the page's."""

    typed: tuple[str, str, str, str]
    inputs: Callable[[Path], list[str]]
    profile: str = ""
    beats: bool = True


TEXTS = Team(("texts", content.BOARD, "post", "kind"), lambda folder: ["The chain slipped again.", "It works now."])
IMAGES = Team(
    ("images", pictures.PICTURES, "item", "arrangement"),
    lambda folder: [str(path) for path in sorted((folder / "pictures").glob("*.png"))[:2]],
    profile=LOOPBACK,
    beats=False,
)


@pytest.fixture(params=[TEXTS, IMAGES], ids=["texts", "images"])
def ran(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Team, Place, Path]]:
    """Run the page; yield the team, its checkout and the folder with its files."""
    team: Team = request.param
    code = scratch(tmp_path)
    place = code, environment_of(code)
    folder = code.parent / "dumps"
    folder.mkdir()
    with ExitStack() as stack:
        if team is TEXTS:
            content.texts(folder, seed=11)
        else:
            pictures.images(folder, port=stack.enter_context(pictures.serving(folder, 0)), seed=11)
        (folder / "labels.csv").rename(code.parent / "labels.csv")
        state = tmp_path / "shell"
        for block in (block for block in SHELL if block.page == PAGE and block.needs == "own"):
            text = block.text
            for printed, typed in zip(PRINTED, team.typed, strict=True):
                option = {"texts": "--content", "post": "--id-column", "kind": "--label-column"}.get(
                    printed, "--subreddits"
                )
                text = text.replace(f"{option} {printed}", f"{option} {typed}")
            run_block(replace(block, text=text), place, state=state, timeout=900)
            profile = code / "corpora" / "forum" / "profile.yaml"
            if "corpus new" in text:
                profile.write_text(profile.read_text() + team.profile)
        yield team, place, folder


def test_a_model_is_trained_registered_promoted_and_loaded(ran: tuple[Team, Place, Path]) -> None:
    team, (code, environment), folder = ran
    scores: dict[str, Any] = json.loads((code / "lab" / "metrics" / "forum" / "evaluate.json").read_text())
    models = scores["tasks"]["labels"]["models"]
    if team.beats:
        found = models["small-text"]["valid"]["figures"]["macro_f1"]
        assert found["low"] > MAJORITY, "the interval is above what the majority reaches"
    inputs = team.inputs(folder)
    done = subprocess.run(
        [sys.executable, "-c", ASKED, json.dumps(inputs)], cwd=code, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-800:]
    assert [len(labels) for labels in json.loads(done.stdout)] == [1] * len(inputs)
