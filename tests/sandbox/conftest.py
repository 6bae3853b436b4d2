"""One small sandbox for all of these tests, built once a session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crisis_corpus_sandbox.reddit.generated_posts import SandboxPost
from crisis_corpus_sandbox.reddit.post_world import PostWorld
from pipelines.core.config.params import load
from tests import small_corpus, small_sandbox


@pytest.fixture(scope="session")
def built() -> Path:
    return small_sandbox.folder()


@pytest.fixture(scope="session")
def known(built: Path) -> dict[str, Any]:
    return json.loads((built / "truth_images.json").read_text())


@pytest.fixture(scope="session")
def known_posts(built: Path) -> dict[str, Any]:
    return json.loads((built / "truth_texts.json").read_text())


@pytest.fixture(scope="session")
def posts() -> list[SandboxPost]:
    """The text posts of the sandbox's profile."""
    return PostWorld(load(small_corpus.ROOT, profile="sandbox").sandbox).build()


@pytest.fixture(scope="session")
def listed(built: Path) -> dict[str, dict[str, Any]]:
    """Everything that the offline Reddit lists: memes and posts."""
    lines = (built / "submissions.jsonl").read_text().splitlines()
    return {item["name"]: item for item in map(json.loads, lines)}


@pytest.fixture(scope="session")
def items(listed: dict[str, dict[str, Any]], known: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The memes' community and the posts around it."""
    return {s["fullname"]: listed[s["fullname"]] for s in known["submissions"]}
