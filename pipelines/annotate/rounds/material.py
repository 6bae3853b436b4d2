"""Decrypt posts and pictures in memory as annotation tasks, for transfer to an annotation backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.annotate.backend import AnnotationTask, Item
from pipelines.annotate.rounds.adjudicate import AdjudicationCase
from pipelines.core.config.params import Params
from pipelines.datasets.items import open_images, opened_posts
from pipelines.datasets.post import media_type
from pipelines.store.vault.vault import Vault


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
    contents: Iterator[tuple[Item, dict[str, Any]]]
    if params.corpora[corpus].content == "images":
        pictures = open_images(root / "data" / corpus, items=items, vault=vault)
        contents = (
            (item, {"image": image, "media_type": media_type(image) or "application/octet-stream"})
            for item, (_, image) in pictures
            if image is not None
        )
    else:
        ids = {record_id for record_id, image in items if image == 0}
        posts = opened_posts(corpus, ids=ids, vault=vault, root=root)
        contents = (((record_id, 0), {"text": {"title": title, "body": body}}) for record_id, title, body in posts)
    tasks = []
    for item, content in contents:
        if case := (cases or {}).get(item):
            content |= {"sides": case.sides, "disputed": case.categories}
        tasks.append(AnnotationTask(item, items[item], **content))
    return sorted(tasks, key=lambda task: task.position)
