"""Read the items of a corpus (images or texts of posts) with their links and strata, and a published split."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipelines.core.config.collect import Split
from pipelines.core.config.params import Params
from pipelines.core.errors import BadParams, DataError
from pipelines.store import tables
from pipelines.store.blind import COMMENT
from pipelines.store.exclusions import WHOLE
from pipelines.store.tables import Item, items_of
from pipelines.store.vault.vault import Vault

Ints = NDArray[np.int64]
ITEM = ["record_id", "image"]


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
    """All items of a corpus sorted by id, one row each with the columns of its post, and their links to each other."""

    table: pa.Table
    links: Links

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def at(self, wanted: Collection[Item]) -> dict[Item, int]:
        """Return the positions of those wanted items that the corpus has, in ascending order."""
        rows = np.flatnonzero(among(self.table, wanted))
        return dict(zip(self.items(rows), rows.tolist(), strict=True))

    def items(self, rows: Ints) -> list[Item]:
        return items_of(self.table.select(ITEM).take(pa.array(rows)))

    def strata(self, rows: Ints) -> dict[str, list[str]]:
        """Return the strata of the items at these positions: month, kind, subreddit, and whether there is text."""
        columns = self.table.select(["created", "kind", "subreddit", "words"]).take(pa.array(rows)).to_pydict()
        return {
            "month": [f"{created:%Y-%m}" for created in columns["created"]],
            "kind": columns["kind"],
            "subreddit": [name.lower() for name in columns["subreddit"]],
            "has_text": ["yes" if n else "no" for n in columns["words"]],
        }


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
    chosen = np.zeros(items.num_rows, np.bool_)
    chosen[rows] = [item in wanted for item in items_of(items.select(ITEM).take(pa.array(rows)))]
    return chosen


def read_items(corpus: str, *, params: Params, columns: list[str], root: Path) -> pa.Table:
    """Read the columns ``record_id``, ``image`` and ``columns`` of all items; a text has image number 0."""
    content = params.corpora[corpus].content
    shards = sorted((root / "data" / corpus).glob(f"*/{content}/*.parquet"))
    if content == "images":
        return tables.concat(shards, name=content, columns=["record_id", "image", *columns])
    texts = tables.concat(shards, name=content, columns=["record_id", *columns])
    return texts.add_column(1, "image", pa.array(np.zeros(texts.num_rows), pa.int16()))


def read_posts(corpus: str, *, items: pa.Table, columns: list[str], root: Path) -> pa.Table:
    """Read the columns ``record_id`` and ``columns`` of the posts of all months."""
    months = sorted((root / "data" / corpus).glob("*/records.parquet"))
    posts = tables.concat(months, name="records", columns=["record_id", *columns])
    there = pc.is_in(items["record_id"].unique(), value_set=posts["record_id"].combine_chunks())
    if orphans := len(there) - there.true_count:
        raise DataError("SchemaMismatch", table="records", detail=f"{orphans} records have items and no post")
    return posts


def load(corpus: str, *, params: Params, root: Path) -> CorpusItems:
    """Read every item of a corpus, including dropped near-duplicates, because these link kept items."""
    rows = read_items(corpus, params=params, columns=["words"], root=root)
    wanted = ["author_id", "created", "kind", "subreddit"]
    posts = read_posts(corpus, items=rows, columns=wanted, root=root)
    table = rows.join(posts, keys="record_id", join_type="left outer")
    table = table.sort_by([("record_id", "ascending"), ("image", "ascending")])
    authors = table["author_id"].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
    left, right = _pairs(corpus, table, root=root)
    return CorpusItems(table.drop_columns("author_id"), Links(left, right, authors.astype(np.int64)))


def _pairs(corpus: str, items: pa.Table, *, root: Path) -> tuple[Ints, Ints]:
    """Return the near-duplicate pairs as positions in ``items``; clusters would not show the individual links."""
    table = tables.read(root / "snapshot" / corpus / "dedupe" / "pairs.parquet", name="pairs")
    keys = _keys(items, *ITEM)
    left, right = (pc.index_in(_keys(table, *side), value_set=keys) for side in (ITEM, ["other_id", "other_image"]))
    there = pc.and_(left.is_valid(), right.is_valid())
    one, other = (side.filter(there).to_numpy().astype(np.int64) for side in (left, right))
    return one, other


def _keys(table: pa.Table, record_id: str, image: str) -> pa.Array:
    columns = (table[record_id].combine_chunks(), table[image].combine_chunks().cast(pa.string()))
    return pc.binary_join_element_wise(*columns, "/")


HEADER = ["record_id", "image", "split"]


def published_split(params: Split, *, root: Path) -> dict[Item, str]:
    """Return the split of each item in the CSV file ``split.published``, nothing if none is configured."""
    if params.published is None:
        return {}
    where = f"split.published ({params.published})"
    rows: dict[Item, str] = {}
    for place, line in read_csv(root / params.published, root=root, header=HEADER, where=where):
        item, split = _published_row(line, params=params, where=place)
        if item in rows:
            raise BadParams(where=place, detail="this item is in the file twice")
        rows[item] = split
    return rows


def split_members(corpus: str, *, params: Split, vault: Vault, root: Path) -> set[Item]:
    """Return the items that no later step may drop: of the published split and all versions of the split."""
    versions = (vault.assignments(corpus, version=number) for number in range(1, params.version + 1))
    return set().union(*versions, published_split(params, root=root))


def _published_row(line: list[str], *, params: Split, where: str) -> tuple[Item, str]:
    if len(line) != len(HEADER) or not line[1].isdecimal():
        raise BadParams(where=where, detail=f"not of the form {','.join(HEADER)} with a whole number for the image")
    record_id, image, split = line
    if split not in params.ratios:
        raise BadParams(where=where, detail=f"its split is not one of {', '.join(params.ratios)}")
    return (record_id, int(image)), split


def tracked(path: Path) -> bool:
    """Return whether a checkout has a file, or a pointer to it."""
    return path.exists() or path.with_name(f"{path.name}.dvc").exists()


def read_tracked(path: Path, *, root: Path) -> str:
    """Return the text of a UTF-8 file of a checkout, from DVC's cache or remote if only its pointer is there.

    Without the bytes that hide deleted records (:mod:`pipelines.store.blind`).
    """
    if path.exists() or not tracked(path):
        return path.read_bytes().partition(COMMENT)[0].decode()
    import dvc.api
    from dvc.exceptions import DvcException

    try:
        data: bytes = dvc.api.read(str(path.relative_to(root)), repo=str(root), mode="rb")
    except DvcException as error:
        raise FileNotFoundError(path.name) from error
    return data.partition(COMMENT)[0].decode()


def read_csv(path: Path, *, root: Path, header: Sequence[str], where: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each line of a CSV file in a checkout after the header, with its place (``where line n``) for errors."""
    if not tracked(path):
        detail = "the corpus has no such file. `corpus import` writes it; `corpus params set` with null does without it"
        raise BadParams(where=where, detail=detail)
    try:
        lines = csv.reader(StringIO(read_tracked(path, root=root), newline=""))
        if next(lines, None) != header:
            raise BadParams(where=where, detail=f"its first line is not {','.join(header)}")
        for number, line in enumerate(lines, start=2):
            yield f"{where} line {number}", line
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadParams(where=where, detail=type(error).__name__) from None
