"""What the published partitions say of a record in plain columns: which subreddit and which source it is from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipelines.config.settings import Settings
from pipelines.storage import tables
from pipelines.workspace.clone import Workspace, workspace


def check_out(clone: Workspace, *, corpora: Iterable[str]) -> None:
    """Bring the posts, and nothing else, of every month of these corpora into a clone."""
    for corpus in corpora:
        clone.checkout_months(corpus, "posts.parquet")


def by_record(root: Path, *, corpus: str, column: str) -> dict[str, str]:
    """Return a column of ``posts`` by record, from every month that is checked out under ``root``."""
    paths = sorted((root / "data" / corpus).glob("*/posts.parquet"))
    posts = tables.concat(paths, name="posts", columns=["record_id", column])
    return dict(zip(posts["record_id"].to_pylist(), posts[column].to_pylist(), strict=True))


def published(settings: Settings, *, corpus: str, column: str) -> dict[str, str]:
    """Return a column of ``posts`` by record, as the tip of the corpus has it."""
    with workspace(settings) as clone:
        check_out(clone, corpora=[corpus])
        return by_record(clone.path, corpus=corpus, column=column)
