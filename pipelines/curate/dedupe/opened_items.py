"""Decrypt what the near-duplicate search compares: captions and hashes of pictures, or texts and their signatures."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config.params import Params
from pipelines.curate.dedupe.image_pairs import Pictures
from pipelines.curate.grouping.items import read_items, read_posts
from pipelines.errors import SchemaMismatch
from pipelines.storage.seal import open_column, open_posts
from pipelines.storage.tables import Item, items_of
from pipelines.vault.vault import Vault

HASHES = ["fingerprint", "inner_fingerprint", "outer_fingerprint"]
IMAGES = ["sha256", "text", *HASHES, "fingerprint_id", "energy"]
TEXTS = ["signature"]


def read(
    corpus: str, *, params: Params, vault: Vault, root: Path, wanted: Collection[Item] | None = None
) -> tuple[pa.Table, int]:
    """Return the live items (all, or the wanted ones), with their text as ``words``, and how many were taken down.

    Raises:
        SchemaMismatch: an item has no post, or the fingerprints are of two kinds, which cannot be compared.
    """
    columns, opened = (IMAGES, _images) if params.corpora[corpus].content == "images" else (TEXTS, _texts)
    rows = read_items(corpus, params=params, columns=columns, root=root)
    if wanted is not None:
        rows = rows.filter(pa.array([item in wanted for item in items_of(rows)], pa.bool_()))
    rows, texts = opened(corpus, rows, vault=vault, root=root)
    rows = rows.append_column("words", pa.array(texts, pa.string()))
    live = rows.filter(pc.is_valid(rows["words"]))
    return live, rows.num_rows - live.num_rows


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


def _images(corpus: str, images: pa.Table, *, vault: Vault, root: Path) -> tuple[pa.Table, list[Any]]:
    texts = [text and text.decode() for text in open_column(images, name="images", column="text", vault=vault)]
    identities = (
        images.filter(pa.array([text is not None for text in texts], pa.bool_()))["fingerprint_id"].drop_null().unique()
    )
    if len(identities) > 1:
        raise SchemaMismatch(
            table="images", detail=f"fingerprints of {len(identities)} different methods cannot be compared"
        )
    return images.drop_columns("text"), texts


def _texts(corpus: str, rows: pa.Table, *, vault: Vault, root: Path) -> tuple[pa.Table, list[Any]]:
    signatures = open_column(rows, name="texts", column="signature", vault=vault)
    posts = read_posts(corpus, of=rows, columns=["title", "body"], root=root)
    posts = posts.filter(pc.is_in(posts["record_id"], value_set=rows["record_id"].combine_chunks()))
    said = {record_id: f"{title}\n{body}" for record_id, title, body in open_posts(posts, vault=vault)}
    rows = rows.drop_columns("signature").append_column("signature", pa.array(signatures, pa.binary()))
    return rows, [said.get(record_id) for record_id in rows["record_id"].to_pylist()]
