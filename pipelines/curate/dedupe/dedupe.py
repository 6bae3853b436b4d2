"""Drop near-duplicates of earlier items or of published split members, and write clusters.

An item is dropped only if it is a near-duplicate of an earlier item that is *kept* (keep-first star), and never if it
is in a split: only a deletion takes it out. Items connected by a chain of near-duplicates form one cluster, which no
split of ours separates. Captions and posts are decrypted in memory and never written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipelines.core.config.params import Params
from pipelines.core.errors import DataError
from pipelines.curate.dedupe.hamming_search import components, keepers
from pipelines.curate.dedupe.image_pairs import Ints, Kinds, Pairs, Pictures, kinds, pairs_of_items, pairs_of_kinds
from pipelines.curate.dedupe.text_pairs import Signatures, text_kinds_and_pairs
from pipelines.curate.items import among, read_items, read_posts, split_members
from pipelines.store import tables
from pipelines.store.metrics_file import write_metrics
from pipelines.store.seal import open_column, opener
from pipelines.store.stage import CONTENT, PUBLISHED, Context, Stage
from pipelines.store.tables import Item
from pipelines.store.vault.vault import Vault

STEP, REASON = "dedupe", "near_duplicate"


STAGE = Stage(
    reads=("data", PUBLISHED), params=("dedupe", "texts", CONTENT, "split.{corpus}.version", "split.{corpus}.published")
)


def run(ctx: Context) -> dict[str, Any]:
    """Find the near-duplicates among all items of a corpus.

    Reads the posts and items of every month. Writes the tables ``pairs``, ``clusters`` and ``drops`` below
    ``snapshot/<corpus>/dedupe/``, and ``metrics/<corpus>/dedupe.json``. Items of records that were taken down are left
    out.
    """
    corpus, params, vault, root = ctx.corpus, ctx.params, ctx.vault, ctx.root
    promised = split_members(corpus, params=params.split[corpus], vault=vault, root=root)
    more = {}
    if params.corpora[corpus].content == "images":
        live, taken_down = read_images(corpus, params=params, vault=vault, root=root)
        items = _in_order_of_keeping(corpus, live, promised=promised, root=root)
        pictures = picture_columns(items)
        known: Kinds = (drawn := kinds(pictures))
        near = pairs_of_kinds(pictures, drawn, params=params.dedupe)
        more["without_hash"] = int((~pictures.hashed).sum())
    else:
        live, signatures, taken_down = read_signatures(corpus, vault=vault, root=root)
        items = _in_order_of_keeping(corpus, live, promised=promised, root=root)
        known, near = text_kinds_and_pairs(
            signatures,
            items["row"].to_numpy(),
            opened=partial(open_texts, corpus, live["record_id"], vault=vault, root=root),
            similarity=params.dedupe.similarity,
            shingle_words=params.texts.shingle_words,
        )
    pairs = pairs_of_items(near, known, listed=params.dedupe.listed_copies)
    clusters = _clusters(items, near, known, promised=among(items, promised))

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
    posts = read_posts(corpus, items=live, columns=["created"], root=root)
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


def _clusters(images: pa.Table, pairs: Pairs, known: Kinds, *, promised: NDArray[np.bool_]) -> pa.Table:
    """Return every item of a group of two or more, with its distances to the kept item that it repeats."""
    count = len(known.first)
    free = ~np.isin(pairs.right, known.kind[promised])
    keeper = keepers(np.arange(count), pairs.left[free], pairs.right[free])
    group = components(count, pairs.left, pairs.right)[known.kind]
    kept = (keeper[known.kind] == known.kind) & (known.first[known.kind] == np.arange(len(known.kind))) | promised
    members = np.flatnonzero(np.bincount(group, minlength=count)[group] > 1)
    # the bits and words by which each kind differs from the kept kind that it repeats
    hamming, words = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    direct = keeper[pairs.right] == pairs.left
    hamming[pairs.right[direct]], words[pairs.right[direct]] = pairs.hamming[direct], pairs.words[direct]
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


HASHES = ["fingerprint", "inner_fingerprint", "outer_fingerprint"]
IMAGES = ["sha256", "text", *HASHES, "fingerprint_id", "energy"]
POSTS = ["title", "body"]
# Signatures decrypted at once, about 100 MB, and the bytes of each of their values.
OPENED, VALUE = 50_000, 4


def read_images(
    corpus: str, *, params: Params, vault: Vault, root: Path, wanted: Collection[Item] | None = None
) -> tuple[pa.Table, int]:
    """Return the live images (all, or the wanted ones), with their text as ``words``, and how many were taken down."""
    images = read_items(corpus, params=params, columns=IMAGES, root=root)
    if wanted is not None:
        images = images.filter(among(images, wanted))
    texts = [text and text.decode() for text in open_column(images, name="images", column="text", vault=vault)]
    images = images.drop_columns("text").append_column("words", pa.array(texts, pa.string()))
    live = images.filter(pc.is_valid(images["words"]))
    identities = live["fingerprint_id"].drop_null().unique()
    if len(identities) > 1:
        detail = f"fingerprints of {len(identities)} different methods cannot be compared"
        raise DataError("SchemaMismatch", table="images", detail=detail)
    return live, images.num_rows - live.num_rows


def read_signatures(corpus: str, *, vault: Vault, root: Path) -> tuple[pa.Table, Signatures, int]:
    """Return the live texts (``record_id``, ``image``, ``row``), each row's signature, and how many are not live."""
    shards = sorted((root / "data" / corpus).glob("*/texts/*.parquet"))
    sizes = [pq.read_metadata(path).num_rows for path in shards]
    total = sum(sizes)
    ids, made, signatures = list[pa.Table](), 0, np.empty((total, 1), np.uint32)
    number = (np.cumsum(sizes) - sizes) // OPENED
    for numbers in np.split(np.arange(len(shards)), 1 + np.flatnonzero(np.diff(number))):
        rows = tables.concat([shards[i] for i in numbers], name="texts", columns=["record_id", "signature"])
        opened = open_column(rows, name="texts", column="signature", vault=vault)
        ids.append(rows.select(["record_id"]).filter(pa.array([data is not None for data in opened], pa.bool_())))
        present = [data for data in opened if data is not None]
        if present and not made:
            signatures = np.empty((total, len(present[0]) // VALUE), np.uint32)
        if any(len(data) != VALUE * signatures.shape[1] for data in present):
            raise DataError("SchemaMismatch", table="texts", detail="signatures of two lengths cannot be compared")
        values = np.frombuffer(b"".join(present), "<u4").reshape(-1, signatures.shape[1])
        signatures[made : made + len(values)] = values
        made += len(values)
    live = pa.concat_tables(ids).append_column("image", pa.array(np.zeros(made, np.int16)))
    return live.append_column("row", pa.array(np.arange(made))), signatures[:made], total - made


def open_texts(
    corpus: str, record_ids: pa.ChunkedArray, batches: Sequence[Ints], *, vault: Vault, root: Path
) -> Callable[[int], list[str | None]]:
    """Read the sealed posts of batches of rows; return a function that opens one batch, ``None`` for a taken-down post.

    The sealed posts and the encrypted keys of all batches are in memory at once. The function may run in a fork.
    """
    wanted = record_ids.take(pa.array(np.concatenate([np.empty(0, np.int64), *batches]))).combine_chunks()
    posts = _sealed_posts(corpus, wanted, root=root)
    ends = np.cumsum([len(batch) for batch in batches]).tolist()
    opened = opener(posts, name="records", columns=POSTS, vault=vault)

    def texts(number: int) -> list[str | None]:
        cells = opened(ends[number] - len(batches[number]), ends[number])
        return [
            None if title is None or body is None else f"{title.decode()}\n{body.decode()}"
            for title, body in zip(*cells, strict=True)
        ]

    return texts


def _sealed_posts(corpus: str, wanted: pa.Array, *, root: Path) -> pa.Table:
    """Read the sealed posts of the wanted records, in their order."""
    parts = [tables.SCHEMAS["records"].empty_table().select(tables.with_bound("records", POSTS))]
    for path in sorted((root / "data" / corpus).glob("*/records.parquet")):
        posts = tables.read(path, name="records", columns=POSTS)
        parts.append(posts.filter(pc.is_in(posts["record_id"], value_set=wanted)))
    posts = pa.concat_tables(part.replace_schema_metadata(None) for part in parts)
    place = pc.index_in(wanted, value_set=posts["record_id"].combine_chunks())
    if orphans := place.null_count:
        raise DataError("SchemaMismatch", table="records", detail=f"{orphans} records have items and no post")
    return posts.take(place).combine_chunks()


def picture_columns(items: pa.Table) -> Pictures:
    """Return the hashes and captions of the rows of an image corpus, in their order."""
    hashes, inner, outer = (pc.coalesce(items[name], items["fingerprint"]).fill_null(0).to_numpy() for name in HASHES)
    return Pictures(
        hashes=hashes,
        hashed=items["fingerprint"].is_valid().to_numpy(),
        digests=items["sha256"].to_pylist(),
        texts=items["words"].to_pylist(),
        energies=items["energy"].to_numpy(),
        inner=inner,
        outer=outer,
    )
