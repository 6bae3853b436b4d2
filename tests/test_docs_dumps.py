"""The page of dumps runs as printed, block after block, in a scratch checkout."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.small_sandbox import MORE_POSTS
from tests.small_sandbox import folder as sandbox
from tests.test_docs_commands import Place, environment_of, run_page, scratch


@pytest.fixture
def place(tmp_path: Path) -> Place:
    code = scratch(tmp_path)
    reddit = sandbox(MORE_POSTS)
    return code, environment_of(code) | {"CORPUS_DUMPS": str(reddit / "dumps")}


@pytest.mark.faults
def test_dumps_are_read(place: Place) -> None:
    code, environment = place
    (code / "dumps").mkdir()
    shutil.copy(Path(environment["CORPUS_DUMPS"]) / "SuicideMeme_submissions.zst", code / "dumps" / "RS_2022-11.zst")
    run_page("docs/howto/dumps.md", place, needs={"dump"})
