"""Provide the smallest offline Reddits, each built once for all tests; tests never write to them."""

from __future__ import annotations

from pathlib import Path

from crisis_corpus_sandbox.reddit.build import build
from crisis_corpus_sandbox.reddit.generated_posts import SMALLEST
from crisis_corpus_sandbox.reddit.post_world import SMALLEST as FEWEST
from pipelines.core.config.collect import Sandbox
from tests.built_once import built_once
from tests.small_corpus import MONTHS

SMALL = Sandbox(seed=3, months=MONTHS, submissions=SMALLEST, posts=FEWEST, port=8123)
# With as many posts as fill a split.
MORE_POSTS = Sandbox(seed=7, months=MONTHS, submissions=SMALLEST, posts=300, port=8124)


def folder(sandbox: Sandbox = SMALL) -> Path:
    """Return the folder of one of the sandboxes above."""
    return built_once(f"sandbox-{sandbox.seed}-{sandbox.posts}", lambda root: build(root, sandbox=sandbox))
