"""Run the step ``texts``: filter one shard of a month's posts by length and language and compute signatures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.collect.collect import work
from pipelines.collect.month import Window, first_post
from pipelines.collect.read.language import LanguageGate
from pipelines.collect.read.shingles import signature
from pipelines.collect.read.words import words
from pipelines.core.config.params import Params
from pipelines.store import tables
from pipelines.store.exclusions import WHOLE, write_exclusions
from pipelines.store.seal import open_posts, write_rows
from pipelines.store.tables import Item
from pipelines.store.vault.vault import Vault

STEP = "texts"


def run(
    corpus: str, *, window: Window, shard: int, params: Params, vault: Vault, root: Path = Path()
) -> dict[str, Any]:
    """Keep the English posts of one shard whose length is within ``texts.min_words`` and ``texts.max_words``.

    A shard holds ``shard_size`` posts of the month in the order of ``record_id``, from that of :func:`first_post` on.
    Writes ``data/<corpus>/<month>/texts/<shard>.parquet`` and the shard's drops under ``work/``.

    Returns:
        ``texts`` (kept) and ``dropped`` by reason: ``too_short``, ``too_long``, ``not_english``.
    """
    folder, size = work(root, corpus=corpus, month=window.key), params.collect.shard_size
    columns = ["record_id", "title", "body"]
    first = first_post(shard, size=size)
    posts = tables.part(folder / "records.parquet", name="records", columns=columns, start=first, count=size)
    gate = LanguageGate(params.language)
    rows: list[dict[str, Any]] = []
    drops: dict[Item, str] = {}
    for record_id, title, body in open_posts(posts, vault=vault):
        row = _row(record_id, text=f"{title}\n{body}", gate=gate, params=params)
        if isinstance(row, str):
            drops[record_id, WHOLE] = row
        else:
            rows.append(row)
    name = f"{shard:03d}.parquet"
    kept = write_rows(rows, root / "data" / corpus / window.key / "texts" / name, name="texts", vault=vault)
    return {"texts": kept, "dropped": write_exclusions(drops, folder / "drops" / name, step=STEP)}


def _row(record_id: str, *, text: str, gate: LanguageGate, params: Params) -> dict[str, Any] | str:
    """Return the post's row of ``texts``, or the reason to drop it."""
    spoken = words(text)
    if len(spoken) < params.texts.min_words:
        return "too_short"
    if len(spoken) > params.texts.max_words:
        return "too_long"
    verdict = gate.judge(text)
    if verdict.language != "en":
        return "not_english"
    return {
        "record_id": record_id,
        "words": len(spoken),
        "language": verdict.language,
        "signature": signature(spoken, params=params.texts),
    }
