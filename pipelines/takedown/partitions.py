"""Look up unencrypted columns of the corpus's records, such as subreddit and source."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipelines.config.settings import Settings
from pipelines.storage import tables
from pipelines.workspace.clone import Workspace, workspace


def check_out(clone: Workspace, *, corpora: Iterable[str]) -> None:
    """Check out only the table ``posts`` of every month of these corpora in a clone."""
    for corpus in corpora:
        clone.checkout_months(corpus, "posts.parquet")


def by_record(root: Path, *, corpus: str, column: str) -> dict[str, str]:
    """Return a column of the table ``posts`` by record id, from every month that is checked out under ``root``."""
    paths = sorted((root / "data" / corpus).glob("*/posts.parquet"))
    posts = tables.concat(paths, name="posts", columns=["record_id", column])
    return dict(zip(posts["record_id"].to_pylist(), posts[column].to_pylist(), strict=True))


def published(settings: Settings, *, corpus: str, column: str) -> dict[str, str]:
    """Return a column of the table ``posts`` by record id, from the newest commit of the corpus branch."""
    with workspace(settings) as clone:
        check_out(clone, corpora=[corpus])
        return by_record(clone.path, corpus=corpus, column=column)
