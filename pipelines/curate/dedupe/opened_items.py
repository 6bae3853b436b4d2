"""Decrypt what the near-duplicate search compares: captions and hashes of pictures, or texts and their signatures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.config.params import Params
from pipelines.curate.dedupe.image_pairs import Pictures
from pipelines.curate.dedupe.signature_search import Ints, Signatures
from pipelines.curate.grouping.items import among, read_items
from pipelines.errors import SchemaMismatch
from pipelines.storage import tables
from pipelines.storage.seal import open_column, opener
from pipelines.storage.tables import Item
from pipelines.vault.vault import Vault

HASHES = ["fingerprint", "inner_fingerprint", "outer_fingerprint"]
IMAGES = ["sha256", "text", *HASHES, "fingerprint_id", "energy"]
POSTS = ["title", "body"]
# Signatures decrypted at once, about 100 MB, and the bytes of each of their values.
OPENED, VALUE = 50_000, 4


def read_images(
    corpus: str, *, params: Params, vault: Vault, root: Path, wanted: Collection[Item] | None = None
) -> tuple[pa.Table, int]:
    """Return the live images (all, or the wanted ones), with their text as ``words``, and how many were taken down.

    Raises:
        SchemaMismatch: the fingerprints are of two kinds, which cannot be compared.
    """
    images = read_items(corpus, params=params, columns=IMAGES, root=root)
    if wanted is not None:
        images = images.filter(among(images, wanted))
    texts = [text and text.decode() for text in open_column(images, name="images", column="text", vault=vault)]
    images = images.drop_columns("text").append_column("words", pa.array(texts, pa.string()))
    live = images.filter(pc.is_valid(images["words"]))
    identities = live["fingerprint_id"].drop_null().unique()
    if len(identities) > 1:
        raise SchemaMismatch(
            table="images", detail=f"fingerprints of {len(identities)} different methods cannot be compared"
        )
    return live, images.num_rows - live.num_rows


def read_signatures(corpus: str, *, vault: Vault, root: Path) -> tuple[pa.Table, Signatures, int]:
    """Return the live texts (``record_id``, ``image``, ``row``), the signature of each row, and how many are not live.

    Signatures are opened some files at a time, because those of millions of posts fit in memory only as numbers.

    Raises:
        SchemaMismatch: signatures differ in length, so they cannot be compared.
    """
    shards = sorted((root / "data" / corpus).glob("*/texts/*.parquet"))
    sizes = [pq.read_metadata(path).num_rows for path in shards]
    total = sum(sizes)
    ids, made, signatures = list[pa.Table](), 0, np.empty((total, 1), np.uint32)
    number = (np.cumsum(sizes) - sizes) // OPENED
    for some in np.split(np.arange(len(shards)), 1 + np.flatnonzero(np.diff(number))):
        rows = tables.concat([shards[i] for i in some], name="texts", columns=["record_id", "signature"])
        opened = open_column(rows, name="texts", column="signature", vault=vault)
        ids.append(rows.select(["record_id"]).filter(pa.array([data is not None for data in opened], pa.bool_())))
        found = [data for data in opened if data is not None]
        if found and not made:
            signatures = np.empty((total, len(found[0]) // VALUE), np.uint32)
        if any(len(data) != VALUE * signatures.shape[1] for data in found):
            raise SchemaMismatch(table="texts", detail="signatures of two lengths cannot be compared")
        values = np.frombuffer(b"".join(found), "<u4").reshape(-1, signatures.shape[1])
        signatures[made : made + len(values)] = values
        made += len(values)
    live = pa.concat_tables(ids).append_column("image", pa.array(np.zeros(made, np.int16)))
    return live.append_column("row", pa.array(np.arange(made))), signatures[:made], total - made


def open_texts(
    corpus: str, record_ids: pa.ChunkedArray, batches: Sequence[Ints], *, vault: Vault, root: Path
) -> Callable[[int], list[str | None]]:
    """Read the sealed posts of some batches of rows of ``record_ids``; return a function that opens those of one batch.

    The sealed posts and the encrypted keys of all batches are in memory at once. The function may be called in a forked
    process. It returns ``None`` for a post that was taken down.

    Raises:
        SchemaMismatch: an item has no post.
    """
    wanted = record_ids.take(pa.array(np.concatenate([np.empty(0, np.int64), *batches]))).combine_chunks()
    posts = _sealed_posts(corpus, wanted, root=root)
    ends = np.cumsum([len(batch) for batch in batches]).tolist()
    opened = opener(posts, name="posts", columns=POSTS, vault=vault)

    def texts(number: int) -> list[str | None]:
        cells = opened(ends[number] - len(batches[number]), ends[number])
        return [
            None if title is None or body is None else f"{title.decode()}\n{body.decode()}"
            for title, body in zip(*cells, strict=True)
        ]

    return texts


def _sealed_posts(corpus: str, wanted: pa.Array, *, root: Path) -> pa.Table:
    """Read the sealed posts of the wanted records, in their order."""
    parts = [tables.SCHEMAS["posts"].empty_table().select(tables.with_bound("posts", POSTS))]
    for path in sorted((root / "data" / corpus).glob("*/posts.parquet")):
        posts = tables.read(path, name="posts", columns=POSTS)
        parts.append(posts.filter(pc.is_in(posts["record_id"], value_set=wanted)))
    posts = pa.concat_tables(part.replace_schema_metadata(None) for part in parts)
    place = pc.index_in(wanted, value_set=posts["record_id"].combine_chunks())
    if orphans := place.null_count:
        raise SchemaMismatch(table="posts", detail=f"{orphans} records have items and no post")
    return posts.take(place).combine_chunks()


def pictures(items: pa.Table) -> Pictures:
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
