"""Compute metrics of a snapshot, and compare it with the sandbox's ground truth, if any."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.collect.read.words import words
from pipelines.collect.scrub import scrub
from pipelines.core.config.params import Params
from pipelines.curate.items import read_items
from pipelines.store import tables
from pipelines.store.exclusions import CLOSED, by_reason
from pipelines.store.metrics_file import write_metrics
from pipelines.store.seal import open_column
from pipelines.store.stage import CONTENT, Context, Stage
from pipelines.store.tables import Item, items_of
from pipelines.store.vault.vault import Vault

Pair = frozenset[Item]


STAGE = Stage(reads=("data", "dedupe", "split"), params=("quality", "sandbox", CONTENT), writes=())


def run(ctx: Context) -> dict[str, Any]:
    """Write ``metrics/<corpus>/quality.json``, the quality metrics of a snapshot, and return the metrics.

    ``collect`` has counts, and as ``closed`` the subreddits that a month lacks because the source did not show them. If
    the truth is known (``score.truth``), ``ocr`` has the word recall on English, and ``truth`` precision and recall of
    near-duplicate pairs (missed mirrored copies are counted separately), ``unexpected`` items and ``missing`` ones.
    """
    corpus, params, settings, vault, root = ctx.corpus, ctx.params, ctx.settings, ctx.vault, ctx.root
    months = root / "data" / corpus
    posts = tables.concat(list(months.glob("*/records.parquet")), name="records", columns=["record_id"])
    drops = tables.concat(list(months.glob("*/drops.parquet")), name="drops")
    items = read_items(corpus, params=params, columns=[], root=root)
    special = pc.starts_with(drops["record_id"], CLOSED)
    closed, dropped = drops.filter(special), drops.filter(pc.invert(special))
    names = (record_id.removeprefix(CLOSED) for record_id in closed["record_id"].to_pylist())
    why = dict(zip(names, closed["reason"].to_pylist(), strict=True))
    ids = pa.concat_tables([posts, dropped.select(["record_id"])])["record_id"]
    numbers: dict[str, Any] = {
        "collect": {
            "submissions": len(ids.unique()),
            "kept": posts.num_rows,
            "items": items.num_rows,
            "dropped": by_reason(dropped["reason"].to_pylist()),
        }
        | ({"closed": why} if why else {})
    }
    content = params.corpora[corpus].content
    truth = _truth(settings.sandbox / f"truth_{content}.json", vault=vault) if params.quality.truth else None
    if content == "images":
        numbers["ocr"] = _ocr(corpus, params=params, vault=vault, root=root, truth=truth)
    if truth:
        count = _pairs(root / "snapshot" / corpus / "dedupe" / "pairs.parquet")
        numbers["truth"] = truth.compare(set(items_of(items)), count)
    return write_metrics(numbers, root / "metrics" / corpus / "quality.json")


def _ocr(corpus: str, *, params: Params, vault: Vault, root: Path, truth: Truth | None) -> dict[str, Any]:
    columns = ["text", "language", "ocr_engine"]
    images = read_items(corpus, params=params, columns=columns, root=root)
    numbers: dict[str, Any] = {"engine": " ".join(sorted(set(images["ocr_engine"].to_pylist())))}
    if truth:
        texts = open_column(images, name="images", column="text", vault=vault)
        read = {
            item: text.decode()
            for item, text, language in zip(items_of(images), texts, images["language"].to_pylist(), strict=True)
            if text is not None and language == "en"
        }
        numbers["word_recall"] = truth.word_recall(read, kinds=params.collect.scrub)
    return numbers


@dataclass(frozen=True)
class Truth:
    """The sandbox's ground truth about its simulated content, with the record ids of the corpus's vault."""

    texts: dict[Item, str]
    kept: set[Item]
    pairs: set[Pair]
    mirrored: set[Pair]

    def word_recall(self, read: dict[Item, str], *, kinds: tuple[str, ...]) -> float | None:
        """Return the share of the true caption words that OCR found, or ``None`` if there are no true words."""
        read_words = total = 0
        for item, text in read.items():
            true = Counter(words(scrub(self.texts.get(item, ""), kinds=kinds)[0]))
            read_words += (true & Counter(words(text))).total()
            total += true.total()
        return round(read_words / total, 4) if total else None

    def compare(self, present: set[Item], listed: set[Pair]) -> dict[str, Any]:
        """Compare the ``present`` items and the ``found`` near-duplicate pairs with the truth."""
        true = {pair for pair in self.pairs if pair <= present}
        mirrored = {pair for pair in self.mirrored if pair <= present}
        right = len(true & listed)
        claimed = len(listed - mirrored)
        return {
            "pairs": len(true),
            "precision": round(right / claimed, 4) if claimed else None,
            "recall": round(right / len(true), 4) if true else None,
            "mirrored": len(mirrored),
            "mirrored_missed": len(mirrored - listed),
            "unexpected": len(present - self.kept),
            "missing": len(self.kept - present),
        }


def _truth(path: Path, *, vault: Vault) -> Truth:
    known, record_id = json.loads(path.read_text()), cache(vault.record_id)
    rows = known.get("images", known["submissions"])
    items = {(record_id(row["fullname"]), row.get("image", 0)): row for row in rows}

    def pairs(name: str) -> set[Pair]:
        return {frozenset((record_id(post), image) for post, image in pair) for pair in known.get(name, ())}

    return Truth(
        texts={item: row["text"] for item, row in items.items() if "text" in row},
        kept={item for item, row in items.items() if row["expected"] == "kept"},
        pairs=pairs("pairs"),
        mirrored=pairs("mirrored_pairs"),
    )


def _pairs(path: Path) -> set[Pair]:
    table = tables.read(path, name="pairs")
    other = table.select(["other_id", "other_image"]).rename_columns(["record_id", "image"])
    return {frozenset(pair) for pair in zip(items_of(table), items_of(other), strict=True)}
