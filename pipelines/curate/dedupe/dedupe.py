"""Run the stage ``dedupe``: drop near-duplicates of earlier items or of published split members, and write clusters.

An item is dropped only if it is a near-duplicate of an earlier item that is *kept* (keep-first star). Items connected
by a chain of near-duplicates form one cluster, which no split separates. Captions and posts are decrypted in memory and
never written.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config.params import Params
from pipelines.curate.dedupe import opened_items
from pipelines.curate.dedupe.image_pairs import Ints, Kinds, Pairs, kinds, pairs_of_items, pairs_of_kinds
from pipelines.curate.dedupe.text_pairs import text_kinds_and_pairs
from pipelines.curate.grouping.hamming_search import components, keepers
from pipelines.curate.grouping.items import among, read_posts
from pipelines.curate.grouping.published_split import members
from pipelines.storage import tables
from pipelines.storage.metrics_file import write_metrics
from pipelines.storage.tables import Item
from pipelines.vault.vault import Vault

STEP, REASON = "dedupe", "near_duplicate"


def run(corpus: str, *, params: Params, vault: Vault, root: Path = Path()) -> dict[str, Any]:
    """Find the near-duplicates among all items of a corpus.

    Reads the posts and items of every month. Writes below ``snapshot/<corpus>/dedupe/``: ``pairs`` (near-duplicates),
    ``clusters`` (every item that a chain of pairs connects to another, named after the earliest; ``hamming`` and
    ``word_difference`` are the distances to the kept item that it repeats, null if it is kept itself) and ``drops``;
    also writes ``metrics/<corpus>/dedupe.json``. Items of records that were taken down are left out.

    Returns:
        ``items``, ``taken_down``, ``pairs``, ``clusters``, ``largest_cluster``, ``dropped``, ``kept``, and for
        pictures ``without_hash``.

    Raises:
        SchemaMismatch: an item has no post, or the fingerprints are of two kinds, which cannot be compared.
    """
    promised = members(corpus, params=params.split[corpus], vault=vault, root=root)
    more = {}
    if params.corpora[corpus].content == "images":
        live, taken_down = opened_items.read_images(corpus, params=params, vault=vault, root=root)
        items = _in_order_of_keeping(corpus, live, promised=promised, root=root)
        pictures = opened_items.pictures(items)
        known: Kinds = (drawn := kinds(pictures))
        found = pairs_of_kinds(pictures, drawn, params=params.dedupe)
        more["without_hash"] = int((~pictures.hashed).sum())
    else:
        live, signatures, taken_down = opened_items.read_signatures(corpus, vault=vault, root=root)
        items = _in_order_of_keeping(corpus, live, promised=promised, root=root)
        known, found = text_kinds_and_pairs(
            signatures,
            items["row"].to_numpy(),
            opened=partial(opened_items.open_texts, corpus, live["record_id"], vault=vault, root=root),
            similarity=params.dedupe.similarity,
            shingle_words=params.texts.shingle_words,
        )
    pairs = pairs_of_items(found, known, listed=params.dedupe.listed_copies)
    clusters = _clusters(items, found, known)

    folder = root / "snapshot" / corpus / "dedupe"
    dropped = clusters.filter(pc.invert(clusters["keeper"])).select(["record_id", "image"])
    tables.write(_pair_table(items, pairs), folder / "pairs.parquet", name="pairs")
    tables.write(clusters, folder / "clusters.parquet", name="clusters")
    for column, value in (("step", STEP), ("reason", REASON)):
        dropped = dropped.append_column(column, pa.repeat(value, dropped.num_rows))
    tables.write(dropped, folder / "drops.parquet", name="drops")

    sizes = clusters["cluster"].value_counts().field("counts").to_numpy()
    metrics = {
        "items": items.num_rows,
        "taken_down": taken_down,
        "pairs": len(pairs.left),
        "clusters": len(sizes),
        "largest_cluster": int(sizes.max(initial=0)),
        "dropped": dropped.num_rows,
        "kept": items.num_rows - dropped.num_rows,
        **more,
    }
    return write_metrics(metrics, root / "metrics" / corpus / "dedupe.json")


def _in_order_of_keeping(corpus: str, live: pa.Table, *, promised: Collection[Item], root: Path) -> pa.Table:
    """Return the items sorted by the time of their post, after the items of an assigned or published split.

    A backfill of an earlier month must not replace a member of the test set by its original.
    """
    posts = read_posts(corpus, of=live, columns=["created"], root=root)
    joined = live.join(posts, keys="record_id", join_type="left outer")
    later = pa.array(~among(joined, promised)).cast(pa.int8())
    order = [(column, "ascending") for column in ("later", "created", "record_id", "image")]
    return joined.append_column("later", later).sort_by(order)


def _pair_table(images: pa.Table, pairs: Pairs) -> pa.Table:
    left, right = (images.select(["record_id", "image"]).take(pa.array(side)) for side in (pairs.left, pairs.right))
    return pa.table(
        {
            "record_id": left["record_id"],
            "image": left["image"],
            "other_id": right["record_id"],
            "other_image": right["image"],
            "hamming": pairs.hamming,
            "word_difference": pairs.words,
        }
    )


def _clusters(images: pa.Table, found: Pairs, known: Kinds) -> pa.Table:
    """Return every item of a group of two or more, with its distances to the kept item that it repeats."""
    count = len(known.first)
    keeper = keepers(np.arange(count), found.left, found.right)
    group = components(count, found.left, found.right)[known.kind]
    kept = (keeper[known.kind] == known.kind) & (known.first[known.kind] == np.arange(len(known.kind)))
    members = np.flatnonzero(np.bincount(group, minlength=count)[group] > 1)
    hamming, words = _apart(found, keeper)
    items = images.select(["record_id", "image"])
    names = items.take(pa.array(known.first[group[members]]))
    name = pc.binary_join_element_wise(names["record_id"], names["image"].cast(pa.string()), "#")
    item = items.take(pa.array(members))
    return pa.table(
        {
            "record_id": item["record_id"],
            "image": item["image"],
            "cluster": name,
            "keeper": kept[members],
            "hamming": pa.array(hamming[known.kind[members]], mask=kept[members]),
            "word_difference": pa.array(words[known.kind[members]], mask=kept[members]),
        }
    )


def _apart(found: Pairs, keeper: Ints) -> tuple[Ints, Ints]:
    """Return the bits and words by which each kind differs from the kept kind that it repeats; 0 if it is kept."""
    count = len(keeper)
    hamming, words = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    direct = keeper[found.right] == found.left
    hamming[found.right[direct]], words[found.right[direct]] = found.hamming[direct], found.words[direct]
    return hamming, words
