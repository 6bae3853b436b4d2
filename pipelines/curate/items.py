"""Read the items of a corpus, an item being one image of a submission, with what links and describes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines.curate.units import Ints, Links
from pipelines.errors import SchemaMismatch
from pipelines.store import tables

Item = tuple[str, int]


@dataclass(frozen=True)
class Corpus:
    """All images of a corpus in the order of their ids, with what links and stratifies them."""

    items: list[Item]
    links: Links
    strata: dict[str, list[str]]


def kept_items(corpus: str, *, root: Path) -> set[Item]:
    """Return the images that are left after dedupe, as (record_id, image)."""
    images = tables.concat(image_files(corpus, root=root), name="images", columns=["record_id", "image"])
    drops = tables.read(root / "snapshot" / corpus / "dedupe" / "drops.parquet", name="drops")
    dropped = set(keys(drops))
    return {item for item in keys(images) if item not in dropped and (item[0], -1) not in dropped}


def keys(table: pa.Table) -> list[Item]:
    """Return the identity of each row."""
    return list(zip(table["record_id"].to_pylist(), table["image"].to_pylist(), strict=True))


def image_files(corpus: str, *, root: Path) -> list[Path]:
    """Return the image shards of all partitions."""
    return sorted((root / "data" / corpus).glob("*/images/*.parquet"))


def load(corpus: str, *, root: Path) -> Corpus:
    """Read every image of the corpus, dropped near-duplicates too: they link what is kept.

    Raises:
        SchemaMismatch: an image without its post.
    """
    shards = image_files(corpus, root=root)
    images = tables.concat(shards, name="images", columns=["record_id", "image", "words"])
    images = images.sort_by([("record_id", "ascending"), ("image", "ascending")])
    months = sorted((root / "data" / corpus).glob("*/posts.parquet"))
    posts = tables.concat(months, name="posts", columns=["record_id", "author_id", "created", "kind"])
    post = {row["record_id"]: row for row in posts.to_pylist()}
    items = keys(images)
    missing = {record_id for record_id, _ in items} - post.keys()
    if missing:
        raise SchemaMismatch(table="images", detail=f"{len(missing)} records have images and no post")
    authors = np.unique([post[r]["author_id"] for r, _ in items], return_inverse=True)[1] if items else []
    strata = {
        "month": [f"{post[r]['created']:%Y-%m}" for r, _ in items],
        "kind": [post[r]["kind"] for r, _ in items],
        "has_text": ["yes" if n else "no" for n in images["words"].to_pylist()],
    }
    left, right = _pairs(corpus, items, root=root)
    return Corpus(items, Links(left, right, np.asarray(authors, np.int64)), strata)


def _pairs(corpus: str, items: list[Item], *, root: Path) -> tuple[Ints, Ints]:
    """Return the near-duplicates as positions in ``items``: pairs, not clusters, to tell who links whom."""
    table = tables.read(root / "snapshot" / corpus / "dedupe" / "pairs.parquet", name="pairs")
    at = {item: i for i, item in enumerate(items)}
    others = zip(table["other_id"].to_pylist(), table["other_image"].to_pylist(), strict=True)
    found = [(at[one], at[other]) for one, other in zip(keys(table), others, strict=True) if one in at and other in at]
    both = np.array(found, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]
