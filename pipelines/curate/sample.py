"""Draw the items to annotate: a seeded sample of fixed size, which keeps its items as the corpus grows.

FigSIM 3.1 samples 1,050 of 1,967 memes; CRADLE has 5,307 posts (its Tables 1 and 5). The sample is the ``size``
smallest keyed hashes, so that it does not depend on the order of the items, and a larger sample contains a smaller one.
Items that are already assigned to a split come before all others.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from pipelines.curate.items import kept_items, split_members
from pipelines.store import tables
from pipelines.store.metrics_file import write_metrics
from pipelines.store.stage import CONTENT, PUBLISHED, Context, Stage
from pipelines.store.tables import Item

STAGE = Stage(reads=("data", "dedupe", PUBLISHED), params=("sample.{corpus}", CONTENT, "split.{corpus}"))


def run(ctx: Context) -> dict[str, Any]:
    """Write ``snapshot/<corpus>/sample/sample.parquet`` and its metrics; return the metrics."""
    corpus, params, vault, root = ctx.corpus, ctx.params, ctx.vault, ctx.root
    section, split = params.sample[corpus], params.split[corpus]
    kept = kept_items(corpus, params=params, root=root)
    # all tombstones, which are fewer than the records to ask about
    alive = tables.without(kept, vault.tombstones().keys())
    promised = split_members(corpus, params=split, vault=vault, root=root)
    items = chain.from_iterable(tables.items_of(pa.Table.from_batches([batch])) for batch in alive.to_batches())
    taken = draw(items, size=section.size, seed=section.seed, members=promised)
    columns = {"record_id": [r for r, _ in taken], "image": [i for _, i in taken]}
    table = pa.table(columns, schema=tables.SCHEMAS["sample"])
    tables.write(table, root / "snapshot" / corpus / "sample" / "sample.parquet", name="sample")
    metrics = {
        "size": section.size,
        "candidates": alive.num_rows,
        "taken": len(taken),
        "missing": max(0, section.size - len(taken)),
    }
    return write_metrics(metrics, root / "metrics" / corpus / "sample.json")


def draw(items: Iterable[Item], *, size: int, seed: int, members: Collection[Item] = ()) -> list[Item]:
    """Return those ``items`` that are in ``members``, then those with the smallest keyed hashes, up to ``size``.

    All members, items already in a split, are kept even if they are more than ``size``. Items are distinct.
    """
    key, stay = f"sample/{seed}".encode(), list[Item]()

    def others() -> Iterator[tuple[bytes, Item]]:
        for item in items:
            if item in members:
                stay.append(item)
            else:
                yield hashlib.blake2b(f"{item[0]}/{item[1]}".encode(), key=key, digest_size=16).digest(), item

    smallest = heapq.nsmallest(max(1, size), others())
    return sorted([*stay, *(item for _, item in smallest[: max(0, size - len(stay))])])
