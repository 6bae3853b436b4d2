"""Read the items of a corpus (images or texts of posts) with their links and strata (classes such as the month)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipelines.config.params import Params
from pipelines.errors import SchemaMismatch
from pipelines.storage import tables
from pipelines.storage.exclusions import WHOLE
from pipelines.storage.tables import Item, items_of

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Links:
    """The links between items: near-duplicate pairs by item position, and each item's author as a number."""

    left: Ints
    right: Ints
    author: Ints

    def edges(self) -> tuple[Ints, Ints]:
        """Return all links as edges of one graph, whose nodes are the items followed by the authors."""
        n = len(self.author)
        return np.concatenate([self.left, np.arange(n)]), np.concatenate([self.right, n + self.author])


@dataclass(frozen=True)
class CorpusItems:
    """All items of a corpus sorted by id, with their links to each other and their strata (such as month and kind)."""

    items: list[Item]
    links: Links
    strata: dict[str, list[str]]


def kept_items(corpus: str, *, params: Params, root: Path) -> pa.Table:
    """Return the items (``record_id``, ``image``) that deduplication kept."""
    items = read_items(corpus, params=params, columns=[], root=root)
    drops = tables.read(root / "snapshot" / corpus / "dedupe" / "drops.parquet", name="drops")
    whole = drops.filter(pc.equal(drops["image"], WHOLE))["record_id"].combine_chunks()
    out = among(items, set(items_of(drops))) | pc.is_in(items["record_id"], value_set=whole).to_numpy()
    return items.filter(pa.array(~out))


def among(items: pa.Table, wanted: Collection[Item]) -> NDArray[np.bool_]:
    """Return which rows of a table are the wanted items; takes memory for these only."""
    ids = tables.strings(list({record_id for record_id, _ in wanted}))
    rows = np.flatnonzero(pc.is_in(items["record_id"], value_set=ids).to_numpy())
    found = np.zeros(items.num_rows, np.bool_)
    found[rows] = [item in wanted for item in items_of(items.select(["record_id", "image"]).take(pa.array(rows)))]
    return found


def read_items(corpus: str, *, params: Params, columns: list[str], root: Path) -> pa.Table:
    """Read the columns ``record_id``, ``image`` and ``columns`` of all items; a text has image number 0."""
    content = params.corpora[corpus].content
    shards = sorted((root / "data" / corpus).glob(f"*/{content}/*.parquet"))
    if content == "images":
        return tables.concat(shards, name=content, columns=["record_id", "image", *columns])
    texts = tables.concat(shards, name=content, columns=["record_id", *columns])
    return texts.add_column(1, "image", pa.array(np.zeros(texts.num_rows), pa.int16()))


def read_posts(corpus: str, *, of: pa.Table, columns: list[str], root: Path) -> pa.Table:
    """Read the columns ``record_id`` and ``columns`` of the posts of all months.

    Raises:
        SchemaMismatch: an item of the table ``of`` has no post.
    """
    months = sorted((root / "data" / corpus).glob("*/posts.parquet"))
    posts = tables.concat(months, name="posts", columns=["record_id", *columns])
    there = pc.is_in(of["record_id"].unique(), value_set=posts["record_id"].combine_chunks())
    if orphans := len(there) - there.true_count:
        raise SchemaMismatch(table="posts", detail=f"{orphans} records have items and no post")
    return posts


def load(corpus: str, *, params: Params, root: Path) -> CorpusItems:
    """Read every item of a corpus, including dropped near-duplicates, because these link kept items.

    Raises:
        SchemaMismatch: an item has no post.
    """
    rows = read_items(corpus, params=params, columns=["words"], root=root)
    rows = rows.sort_by([("record_id", "ascending"), ("image", "ascending")])
    wanted = ["author_id", "created", "kind", "subreddit"]
    post = {row["record_id"]: row for row in read_posts(corpus, of=rows, columns=wanted, root=root).to_pylist()}
    items = items_of(rows)
    authors = np.unique([post[r]["author_id"] for r, _ in items], return_inverse=True)[1] if items else []
    strata = {
        "month": [f"{post[r]['created']:%Y-%m}" for r, _ in items],
        "kind": [post[r]["kind"] for r, _ in items],
        "subreddit": [post[r]["subreddit"].lower() for r, _ in items],
        "has_text": ["yes" if n else "no" for n in rows["words"].to_pylist()],
    }
    left, right = _pairs(corpus, items, root=root)
    return CorpusItems(items, Links(left, right, np.asarray(authors, np.int64)), strata)


def _pairs(corpus: str, items: list[Item], *, root: Path) -> tuple[Ints, Ints]:
    """Return the near-duplicate pairs as positions in ``items``; clusters would not show the individual links."""
    table = tables.read(root / "snapshot" / corpus / "dedupe" / "pairs.parquet", name="pairs")
    at = {item: i for i, item in enumerate(items)}
    others = zip(table["other_id"].to_pylist(), table["other_image"].to_pylist(), strict=True)
    found = [
        (at[one], at[other]) for one, other in zip(items_of(table), others, strict=True) if one in at and other in at
    ]
    both = np.array(found, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]
