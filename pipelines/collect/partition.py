"""Run the step ``partition``: merge the shards of a month into its committed tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.collect.collect import TOMBSTONED, nameless, work
from pipelines.collect.month import Window
from pipelines.collect.shared_pictures import shared
from pipelines.config.params import Params
from pipelines.storage import tables
from pipelines.storage.exclusions import WHOLE, by_reason, exclusion_rows
from pipelines.vault.vault import Vault

STEP = "partition"


def run(corpus: str, *, window: Window, params: Params, vault: Vault, root: Path = Path()) -> dict[str, Any]:
    """Keep submissions that have a kept item, merge all drops, and leave out records that were taken down since.

    An item is a picture or the text, depending on the corpus's ``content``. Reads the month's ``work/`` tables and the
    shards of its items; writes ``posts`` and ``drops`` of ``data/<corpus>/<month>/``. Content columns stay sealed.

    Returns:
        ``posts``, ``items`` and ``dropped`` by reason; for images also ``shared_pictures``: digests of pictures that at
        least ``images.fetch.shared_by`` authors of the month posted, with the numbers of authors and posts. They are
        popular memes, or what a host shows in place of removed pictures, for ``images.fetch.placeholders``.
    """
    folder, month = work(root, corpus=corpus, month=window.key), root / "data" / corpus / window.key
    content = params.corpora[corpus].content
    columns = ["record_id", "sha256"] if content == "images" else ["record_id"]
    items = tables.concat(sorted((month / content).glob("*.parquet")), name=content, columns=columns)
    drops = tables.concat([folder / "drops.parquet", *(folder / "drops").glob("*.parquet")], name="drops")
    gone = vault.tombstoned({*items["record_id"].to_pylist(), *drops["record_id"].to_pylist()})
    with_item = [r for r in items["record_id"].unique().to_pylist() if r not in gone]
    posts = tables.read(folder / "posts.parquet", name="posts")
    posts = posts.filter(pc.is_in(posts["record_id"], value_set=tables.strings(with_item)))
    drops = drops.filter(pc.invert(pc.is_in(drops["record_id"], value_set=tables.strings(sorted(gone)))))
    named = nameless(dict.fromkeys(sorted(gone), TOMBSTONED), month=f"{window.key}/{STEP}")
    rows = exclusion_rows({(r, WHOLE): why for r, why in named.items()}, step=STEP)
    drops = pa.concat_tables([drops, pa.Table.from_pylist(rows, schema=drops.schema)])
    tables.write(posts, month / "posts.parquet", name="posts")
    tables.write(drops, month / "drops.parquet", name="drops")
    return {
        "posts": posts.num_rows,
        "items": items.num_rows,
        "dropped": by_reason(drops["reason"].to_pylist()),
        **({"shared_pictures": shared(items, posts=posts, by=params.images.fetch.shared_by)} if columns[1:] else {}),
    }
