"""The stage ``dedupe``: drop what repeats an earlier picture, or one of a published split, and remember who belongs.

What is dropped repeats a *kept* earlier picture (keep-first star); chains of likeness drop nothing, but stay together
as a cluster, so that no split separates them. Captions are opened in memory and never written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.curate.items import Item, image_files, keys
from pipelines.curate.near_duplicates import components, keepers
from pipelines.curate.pairing import Ints, Kinds, Pairs, Pictures, kinds, pairs_of_items, pairs_of_kinds
from pipelines.errors import SchemaMismatch
from pipelines.params import Params
from pipelines.privacy.vault import Vault
from pipelines.store import tables
from pipelines.store.seal import open_column

STEP, REASON = "dedupe", "near_duplicate"
COLUMNS = ["record_id", "image", "sha256", "text", "fingerprint", "fingerprint_id"]


def run(corpus: str, *, params: Params, vault: Vault, root: Path = Path()) -> dict[str, Any]:
    """Find the near-duplicates among all images of a corpus.

    Reads the posts and images of every month. Writes below ``snapshot/<corpus>/dedupe/``: ``pairs`` (near-duplicates),
    ``clusters`` (every item that a chain of pairs joins to another, under the name of the earliest; ``hamming`` and
    ``word_difference`` are those to the keeper it repeats, null where it is kept) and ``drops``; and
    ``metrics/<corpus>/dedupe.json``. Images of records that were taken down are left out.

    Returns:
        ``images``, ``taken_down``, ``without_hash``, ``pairs``, ``clusters``, ``largest_cluster``, ``dropped``,
        ``kept``.

    Raises:
        SchemaMismatch: an image without its post, or fingerprints of two kinds, which cannot be compared.
    """
    promised = set(vault.assignments(corpus, version=params.split.version))
    images, taken_down = _images(corpus, promised=promised, vault=vault, root=root)
    pictures = _pictures(images)
    known = kinds(pictures)
    found = pairs_of_kinds(pictures, known, params=params.dedupe)
    pairs = pairs_of_items(found, known, listed=params.dedupe.listed_copies)
    clusters = _clusters(images, found, known)

    folder = root / "snapshot" / corpus / "dedupe"
    dropped = clusters.filter(pc.invert(clusters["keeper"])).select(["record_id", "image"])
    drops = dropped.append_column("step", pa.array([STEP] * dropped.num_rows, pa.string()))
    drops = drops.append_column("reason", pa.array([REASON] * dropped.num_rows, pa.string()))
    tables.write(_pair_table(images, pairs), folder / "pairs.parquet", name="pairs")
    tables.write(clusters, folder / "clusters.parquet", name="clusters")
    tables.write(drops, folder / "drops.parquet", name="drops")

    sizes = clusters["cluster"].value_counts().field("counts").to_numpy()
    metrics = {
        "images": images.num_rows,
        "taken_down": taken_down,
        "without_hash": int((~pictures.hashed).sum()),
        "pairs": len(pairs.left),
        "clusters": len(sizes),
        "largest_cluster": int(sizes.max(initial=0)),
        "dropped": drops.num_rows,
        "kept": images.num_rows - drops.num_rows,
    }
    path = root / "metrics" / corpus / "dedupe.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(metrics, indent=2, sort_keys=True) + "\n")
    return metrics


def _images(corpus: str, *, promised: set[Item], vault: Vault, root: Path) -> tuple[pa.Table, int]:
    """Return the live images with their opened ``text`` in the order of keeping, and how many were taken down.

    The earliest comes first, after those that a published split holds: a backfill of an earlier month must not
    replace a member of the test set by its own original.
    """
    images = tables.concat(image_files(corpus, root=root), name="images", columns=COLUMNS)
    months = sorted((root / "data" / corpus).glob("*/posts.parquet"))
    posts = tables.concat(months, name="posts", columns=["record_id", "created"])
    texts = open_column(images, name="images", column="text", vault=vault)
    words = pa.array([None if text is None else text.decode() for text in texts], pa.string())
    images = images.drop_columns("text").append_column("words", words)
    live = images.filter(pc.is_valid(images["words"]))
    joined = live.join(posts, keys="record_id", join_type="left outer")
    if orphans := joined["created"].null_count:
        raise SchemaMismatch(table="images", detail=f"{orphans} images have no post")
    identities = live["fingerprint_id"].drop_null().unique()
    if len(identities) > 1:
        raise SchemaMismatch(table="images", detail=f"fingerprints of {len(identities)} kinds cannot be compared")
    later = pa.array([item not in promised for item in keys(joined)], pa.bool_())
    order = [(column, "ascending") for column in ("later", "created", "record_id", "image")]
    ordered = joined.append_column("later", later.cast(pa.int8())).sort_by(order)
    return ordered, images.num_rows - live.num_rows


def _pictures(images: pa.Table) -> Pictures:
    return Pictures(
        hashes=images["fingerprint"].fill_null(0).to_numpy(),
        hashed=images["fingerprint"].is_valid().to_numpy(),
        digests=images["sha256"].to_pylist(),
        texts=images["words"].to_pylist(),
    )


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
    """Return every item of a group of two or more, with what sets it apart from the kept item it repeats."""
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
    """Return bits and words between each kind and the kept kind that it repeats; 0 where it is kept itself."""
    count = len(keeper)
    hamming, words = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    direct = keeper[found.right] == found.left
    hamming[found.right[direct]], words[found.right[direct]] = found.hamming[direct], found.words[direct]
    return hamming, words
