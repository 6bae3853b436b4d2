"""Load the memes of each split as examples, decrypted in memory only.

Gold labels are mapped to the task's label space (``Task.seen``), which merges some labels and leaves others out;
:mod:`pipelines.datasets.example` hides those of test.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa

from pipelines.core.config.params import Params
from pipelines.core.errors import BadParams, DataError
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import SPLITS, Example, Item, Material, NoGold, groups_apart, material
from pipelines.store import tables
from pipelines.store.seal import open_column
from pipelines.store.vault.vault import Vault


def load(corpus: str, *, task: Task, params: Params, vault: Vault, root: Path = Path()) -> Material:
    """Read all memes with gold labels of the task as examples; records that were taken down are only counted."""
    folder = root / "snapshot" / corpus
    if not (folder / "gold" / "gold.parquet").is_file():
        raise NoGold(corpus=corpus)
    placed = _placed(corpus, params=params, root=root, missing=NoGold(corpus=corpus))
    gold = {item: task.seen(labels) for item, labels in tables.gold(folder).get(task.key, {}).items()}
    content, gone = opened(corpus, items=placed.keys() & gold.keys(), placed=placed, vault=vault, root=root)
    return material(task, placed=placed, gold=gold, opened=content, gone=gone)


def memes(corpus: str, *, params: Params, vault: Vault, root: Path = Path()) -> tuple[tuple[Example, ...], int]:
    """Return all memes of train, validation and test, with or without gold, and how many were taken down."""
    placed = _placed(corpus, params=params, root=root, missing=NoGold("NoSplit", corpus=corpus))
    content, gone = opened(corpus, items=placed.keys(), vault=vault, root=root)
    live = sorted(item for item in placed if item[0] not in gone)
    examples = tuple(Example(i, placed[i][0], *content[i], labels=None, group=placed[i][1]) for i in live)
    return examples, len(placed) - len(examples)


def _placed(corpus: str, *, params: Params, root: Path, missing: NoGold) -> dict[Item, tuple[str, str]]:
    """Return the split and group of each item; check the groups and the names of the splits."""
    path = root / "snapshot" / corpus / "split" / "splits.parquet"
    if not path.is_file():
        raise missing
    placed = groups_apart(tables.read(path, name="splits").to_pylist(), corpus=corpus)
    if {*params.split[corpus].ratios, *(split for split, _ in placed.values())} != set(SPLITS):
        raise BadParams(where=f"split.{corpus}.ratios", detail=f"models need the splits {', '.join(SPLITS)}")
    return placed


def opened(
    corpus: str, *, items: Collection[Item], vault: Vault, root: Path = Path(), placed: Collection[Item] | None = None
) -> tuple[dict[Item, tuple[str, bytes | None]], Collection[str]]:
    """Return text and picture of some items, and which records of ``placed`` (default: of these) were taken down."""
    content = dict(open_images(root / "data" / corpus, items=items, vault=vault))
    # queried after the opening: a record taken down meanwhile opens as empty and must be excluded
    gone = vault.tombstoned({record_id for record_id, _ in placed or items})
    lost = sum(item[0] not in gone and item not in content for item in items)
    if lost:
        raise DataError("SchemaMismatch", table="images", detail=f"{lost} items of the split are missing")
    return content, gone


def open_images(
    folder: Path, *, items: Collection[Item], vault: Vault
) -> Iterator[tuple[Item, tuple[str, bytes | None]]]:
    """Yield the text and picture of ``items``; the content of a file with none of them is never loaded."""
    for path in sorted(folder.glob("*/images/*.parquet")):
        wanted = [
            item in items for item in tables.items_of(tables.read(path, name="images", columns=["record_id", "image"]))
        ]
        if not any(wanted):
            continue
        table = tables.read(path, name="images", columns=["record_id", "image", "bytes", "text"])
        table = table.filter(pa.array(wanted, pa.bool_()))
        texts, pictures = (open_column(table, name="images", column=c, vault=vault) for c in ("text", "bytes"))
        for item, text, picture in zip(tables.items_of(table), texts, pictures, strict=True):
            yield item, ((text or b"").decode(), picture)
