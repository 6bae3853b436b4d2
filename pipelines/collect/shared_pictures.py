"""List pictures that many authors posted: popular memes, or what a host shows in place of removed pictures."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config.params import load
from pipelines.config.settings import Settings
from pipelines.errors import UnknownName
from pipelines.storage import tables
from pipelines.workspace.clone import workspace

# Ours: the most frequent ones, few enough to look at each.
SHOWN = 20


def shared(items: pa.Table, *, posts: pa.Table, by: int) -> list[dict[str, Any]]:
    """Return the pictures of at least ``by`` authors, those of most authors first: ``sha256``, ``authors``, ``posts``.

    The digest of a picture of so many authors tells nothing about one of them. It is not committed, since git's history
    would keep it after a takedown.
    """
    pictures = items.join(posts.select(["record_id", "author_id"]), keys="record_id", join_type="inner")
    found = pictures.group_by("sha256").aggregate([("author_id", "count_distinct"), ("record_id", "count_distinct")])
    found = found.rename_columns({"author_id_count_distinct": "authors", "record_id_count_distinct": "posts"})
    found = found.filter(pc.greater_equal(found["authors"], by))
    found = found.sort_by([("authors", "descending"), ("sha256", "ascending")])
    shown: list[dict[str, Any]] = found.slice(0, SHOWN).to_pylist()
    return shown


def of_corpus(settings: Settings, *, corpus: str) -> list[dict[str, Any]]:
    """Return the shared pictures of all published months of a corpus; see :func:`shared`.

    Raises:
        UnknownName: there is no such corpus of pictures.
    """
    with workspace(settings) as clone:
        params = load(clone.path)
        known = params.matrix.images
        if corpus not in known:
            raise UnknownName(kind="corpus of pictures", name=corpus, known=", ".join(known) or "none")
        clone.checkout_months(corpus, "images")
        clone.checkout_months(corpus, "posts.parquet")
        data = clone.path / "data" / corpus
        items = tables.concat(sorted(data.glob("*/images/*.parquet")), name="images", columns=["record_id", "sha256"])
        posts = tables.concat(sorted(data.glob("*/posts.parquet")), name="posts", columns=["record_id", "author_id"])
        return shared(items, posts=posts, by=params.images.fetch.shared_by)
