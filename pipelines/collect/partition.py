"""Run the step ``partition``: merge the shards of a month into its tables, and list widely shared pictures."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.collect.collect import TOMBSTONED, nameless, work
from pipelines.collect.month import Window
from pipelines.collect.month_ledger import DROPS, GAPS, PUBLISHED, RECORDS
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError, DataError
from pipelines.store import tables
from pipelines.store.exclusions import WHOLE, by_reason, exclusion_rows
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import workspace

STEP = "partition"


def run(corpus: str, *, window: Window, params: Params, vault: Vault, root: Path = Path()) -> dict[str, Any]:
    """Keep submissions that have a kept item, merge all drops, and leave out records that were taken down since.

    An item is a picture or the text, depending on the corpus's ``content``. Reads the month's ``work/`` tables and the
    shards of its items; writes ``records``, ``drops`` and, if the step ``collect`` wrote them, ``gaps`` of
    ``data/<corpus>/<month>/``. Content columns stay sealed. An addition is joined with the published posts and drops.
    Of the returned counts, ``shared_pictures`` are popular memes, or what a host shows in place of removed pictures,
    for ``images.fetch.placeholders``.
    """
    folder, month = work(root, corpus=corpus, month=window.key), root / "data" / corpus / window.key
    content = params.corpora[corpus].content
    columns = ["record_id", "sha256"] if content == "images" else ["record_id"]
    items = tables.concat(sorted((month / content).glob("*.parquet")), name=content, columns=columns)
    before = {name: [path] for name in (RECORDS, DROPS) if (path := folder / f"{PUBLISHED}{name}").exists()}
    new = [folder / DROPS, *(folder / "drops").glob("*.parquet")]
    drops = tables.concat([*new, *before.get(DROPS, ())], name="drops")
    gone = vault.tombstoned({*items["record_id"].to_pylist(), *drops["record_id"].to_pylist()})
    with_item = [r for r in items["record_id"].unique().to_pylist() if r not in gone]
    posts = tables.read(folder / "records.parquet", name="records")
    if lost := _lost(posts, items, drops, vault=vault):
        raise DataError("ShardMissing", corpus=corpus, month=window.key, count=lost)
    posts = posts.filter(pc.is_in(posts["record_id"], value_set=tables.strings(with_item)))
    if before:
        published = _untouched(before[RECORDS][0], posts, vault=vault)
        posts = pa.concat_tables([posts.cast(tables.SCHEMAS["records"]), published])
    drops = tables.without(drops, gone)
    # numbers of an addition must not be those of the published drops
    earlier = pc.sum(pc.equal(drops["step"], STEP)).as_py()
    where = f"{window.key}/{STEP}/{earlier}" if earlier else f"{window.key}/{STEP}"
    named = nameless(dict.fromkeys(sorted(gone), TOMBSTONED), month=where)
    rows = exclusion_rows({(r, WHOLE): why for r, why in named.items()}, step=STEP)
    drops = pa.concat_tables([drops, pa.Table.from_pylist(rows, schema=drops.schema)])
    tables.write(posts, month / "records.parquet", name="records")
    tables.write(drops, month / "drops.parquet", name="drops")
    if (folder / GAPS).exists():
        shutil.copyfile(folder / GAPS, month / GAPS)
    counts = {
        "records": posts.num_rows,
        "items": items.num_rows,
        "adds": bool(before),
        "dropped": by_reason(drops["reason"].to_pylist()),
    }
    if content == "images":
        counts["shared_pictures"] = shared_pictures(items, posts=posts, by=params.images.fetch.shared_by)
    return counts


def _lost(posts: pa.Table, items: pa.Table, drops: pa.Table, *, vault: Vault) -> int:
    """Return the number of posts that neither table has, without those that were taken down since."""
    ids = posts["record_id"]
    known = (pc.is_in(ids, value_set=tables.strings(table["record_id"].to_pylist())) for table in (items, drops))
    lost = ids.filter(pc.invert(pc.or_(*known))).to_pylist()
    return len(set(lost) - vault.tombstoned(lost))


def _untouched(path: Path, added: pa.Table, *, vault: Vault) -> pa.Table:
    """Return the published posts without those that were taken down since or are added again."""
    posts = tables.read(path, name="records")
    out = vault.tombstoned(posts["record_id"].to_pylist()) | set(added["record_id"].to_pylist())
    return tables.without(posts, out).cast(tables.SCHEMAS["records"])


# Ours: the most frequent ones, few enough to look at each.
SHOWN = 20


def shared_pictures(items: pa.Table, *, posts: pa.Table, by: int) -> list[dict[str, Any]]:
    """Return the pictures of at least ``by`` authors, by falling number: ``sha256``, ``authors``, ``records``.

    Not committed: git's history would keep a digest after a takedown.
    """
    pictures = items.join(posts.select(["record_id", "author_id"]), keys="record_id", join_type="inner")
    ranking = pictures.group_by("sha256").aggregate([("author_id", "count_distinct"), ("record_id", "count_distinct")])
    ranking = ranking.rename_columns({"author_id_count_distinct": "authors", "record_id_count_distinct": "records"})
    ranking = ranking.filter(pc.greater_equal(ranking["authors"], by))
    ranking = ranking.sort_by([("authors", "descending"), ("sha256", "ascending")])
    shown: list[dict[str, Any]] = ranking.slice(0, SHOWN).to_pylist()
    return shown


def shared_pictures_of(settings: Settings, *, corpus: str) -> list[dict[str, Any]]:
    """Return the shared_pictures pictures of all published months of a corpus; see :func:`shared_pictures`."""
    with workspace(settings) as clone:
        params = load(clone.path)
        known = [name for name, described in params.corpora.items() if described.content == "images"]
        if corpus not in known:
            raise ConfigError("UnknownName", kind="corpus of pictures", name=corpus, known=", ".join(known) or "none")
        clone.checkout_months(corpus, "images")
        clone.checkout_months(corpus, "records.parquet")
        data = clone.path / "data" / corpus
        items = tables.concat(sorted(data.glob("*/images/*.parquet")), name="images", columns=["record_id", "sha256"])
        posts = tables.concat(
            sorted(data.glob("*/records.parquet")), name="records", columns=["record_id", "author_id"]
        )
        return shared_pictures(items, posts=posts, by=params.images.fetch.shared_by)
