"""Look up unencrypted columns of the corpus's records, such as subreddit and source."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipelines.collect.refresh_store import RefreshStore
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


def waiting(url: str | None, *, corpus: str, column: str) -> dict[str, str]:
    """Return ``source`` or ``subreddit`` by record id of the posts that wait in the store of refreshes, if any."""
    if url is None:
        return {}
    with RefreshStore.existing(url) as store:
        return store.origins(corpus, column=column) if store else {}


def published(settings: Settings, *, corpus: str, column: str) -> dict[str, str]:
    """Return ``source`` or ``subreddit`` by record id, from the corpus branch's newest commit and unpublished posts."""
    with workspace(settings) as clone:
        check_out(clone, corpora=[corpus])
        of_months = by_record(clone.path, corpus=corpus, column=column)
    return waiting(settings.refresh_url, corpus=corpus, column=column) | of_months
