"""Decrypt posts and pictures in memory as annotation tasks, for transfer to an annotation backend."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from pipelines.annotate.backends.backend import AnnotationTask, Item
from pipelines.annotate.rounds.adjudicate import AdjudicationCase
from pipelines.core.config.params import Params
from pipelines.store import tables
from pipelines.store.seal import open_column, open_posts
from pipelines.store.vault.vault import Vault

# Formats that every browser shows, with the first bytes from their specifications.
_MAGIC = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png", b"GIF8": "image/gif", b"RIFF": "image/webp"}
_OTHER = "application/octet-stream"


def tasks(
    corpus: str,
    *,
    items: Mapping[Item, int],
    cases: Mapping[Item, AdjudicationCase] | None,
    params: Params,
    vault: Vault,
    root: Path,
) -> list[AnnotationTask]:
    """Decrypt ``items`` (item to position in a queue) as annotation tasks, in the order of their positions.

    The task of a meme has only the picture (FigSIM 3.3: annotators see the meme); the task of a post has title and
    body. With ``cases``, a task also has the disputed categories and the conflicting answers. Records that were taken
    down and items without content below ``root`` are left out.
    """
    images = params.corpora[corpus].content == "images"
    opened = (_images if images else _posts)(root / "data" / corpus, items=items, vault=vault)
    shown = cases or {}
    complete = (
        replace(task, sides=shown[task.item].sides, disputed=shown[task.item].categories)
        if task.item in shown
        else task
        for task in opened
    )
    return sorted(complete, key=lambda task: task.position)


def _images(folder: Path, *, items: Mapping[Item, int], vault: Vault) -> Iterator[AnnotationTask]:
    for path in sorted(folder.glob("*/images/*.parquet")):
        table = _of(path, name="images", columns=["record_id", "image", "bytes"], items=items)
        images = open_column(table, name="images", column="bytes", vault=vault)
        for item, image in zip(tables.items_of(table), images, strict=True):
            if image is not None:
                yield AnnotationTask(item, items[item], image=image, media_type=media_type(image))


def _posts(folder: Path, *, items: Mapping[Item, int], vault: Vault) -> Iterator[AnnotationTask]:
    for path in sorted(folder.glob("*/posts.parquet")):
        table = _of(path, name="posts", columns=["record_id", "title", "body"], items=items)
        for record_id, title, body in open_posts(table, vault=vault):
            item = (record_id, 0)
            yield AnnotationTask(item, items[item], text={"title": title, "body": body})


def _of(path: Path, *, name: str, columns: list[str], items: Collection[Item]) -> pa.Table:
    identity: list[str] = [column for column in ("record_id", "image") if column in columns]
    rows = tables.read(path, name=name, columns=identity).to_pylist()
    wanted = pa.array([(row["record_id"], row.get("image", 0)) in items for row in rows], pa.bool_())
    if not any(wanted.to_pylist()):
        columns_of = tables.SCHEMAS[name]
        return pa.schema([columns_of.field(c) for c in tables.with_bound(name, columns)]).empty_table()
    return tables.read(path, name=name, columns=columns).filter(wanted)


def media_type(image: bytes) -> str:
    """Return the media type of a picture, such as ``image/png``, from its first bytes."""
    return next((kind for magic, kind in _MAGIC.items() if image.startswith(magic)), _OTHER)
