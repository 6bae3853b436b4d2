"""The stage ``score``: the numbers of a snapshot, and how they compare with the truth where one exists."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipelines.curate.words import words
from pipelines.params import Params, Settings
from pipelines.privacy.scrub import scrub
from pipelines.privacy.vault import Vault
from pipelines.store import tables
from pipelines.store.seal import open_column

Item = tuple[str, int]
Pair = frozenset[Item]


def run(corpus: str, *, params: Params, settings: Settings, vault: Vault, root: Path = Path()) -> dict[str, Any]:
    """Count what a snapshot holds and write ``metrics/<corpus>/score.json``.

    Returns:
        ``collect`` (submissions, kept, dropped by reason), ``ocr`` (engine, and ``word_recall`` on English where the
        truth is known) and, with ``score.truth``, ``truth``: pair ``precision`` and ``recall`` of the near-duplicates
        (mirrored copies apart, as ``mirrored_missed``), ``unexpected`` (items in the corpus that the truth leaves
        out) and ``missing`` (items that the truth keeps and the corpus lacks).
    """
    months = root / "data" / corpus
    posts = tables.concat(list(months.glob("*/posts.parquet")), name="posts", columns=["record_id"])
    drops = tables.concat(list(months.glob("*/drops.parquet")), name="drops")
    images = tables.concat(
        list(months.glob("*/images/*.parquet")),
        name="images",
        columns=["record_id", "image", "text", "language", "ocr_engine"],
    )
    seen = set(posts["record_id"].to_pylist()) | set(drops["record_id"].to_pylist())
    numbers: dict[str, Any] = {
        "collect": {
            "submissions": len(seen),
            "kept": posts.num_rows,
            "images": images.num_rows,
            "dropped": dict(sorted(Counter(drops["reason"].to_pylist()).items())),
        },
        "ocr": {"engine": " ".join(sorted(set(images["ocr_engine"].to_pylist())))},
    }
    if params.score.truth:
        truth = Truth(settings.sandbox / "truth.json", vault=vault, kinds=params.collect.scrub)
        texts = open_column(images, name="images", column="text", vault=vault)
        read = {
            item: text.decode()
            for item, text, language in zip(_items(images), texts, images["language"].to_pylist(), strict=True)
            if text is not None and language == "en"
        }
        numbers["ocr"]["word_recall"] = truth.word_recall(read)
        numbers["truth"] = truth.compare(
            set(_items(images)), _pairs(root / "snapshot" / corpus / "dedupe" / "pairs.parquet")
        )
    path = root / "metrics" / corpus / "score.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(numbers, indent=2, sort_keys=True) + "\n")
    return numbers


class Truth:
    """What the sandbox knows about its own content, under this vault's record ids."""

    def __init__(self, path: Path, *, vault: Vault, kinds: tuple[str, ...]) -> None:
        known = json.loads(path.read_text())
        ids = {i["fullname"]: vault.record_id(i["fullname"]) for i in known["submissions"]}
        self.texts = {(ids[i["fullname"]], i["image"]): scrub(i["text"], kinds=kinds)[0] for i in known["images"]}
        self.kept = {(ids[i["fullname"]], i["image"]) for i in known["images"] if i["expected"] == "kept"}
        self.pairs = self._pairs(known["pairs"], ids=ids)
        self.mirrored = self._pairs(known["mirrored_pairs"], ids=ids)

    @staticmethod
    def _pairs(pairs: list[list[list[Any]]], *, ids: dict[str, str]) -> set[Pair]:
        return {frozenset((ids[name], image) for name, image in pair) for pair in pairs}

    def word_recall(self, read: dict[Item, str]) -> float | None:
        """Return the share of the true words that were read, over English items; ``None`` without any word."""
        found = total = 0
        for item, text in read.items():
            true = Counter(words(self.texts.get(item, "")))
            found += (true & Counter(words(text))).total()
            total += true.total()
        return round(found / total, 4) if total else None

    def compare(self, present: set[Item], found: set[Pair]) -> dict[str, Any]:
        """Return pair precision and recall over the items present, and what is there or not against the truth."""
        true = {pair for pair in self.pairs if pair <= present}
        mirrored = {pair for pair in self.mirrored if pair <= present}
        right = len(true & found)
        claimed = len(found - mirrored)
        return {
            "pairs": len(true),
            "precision": round(right / claimed, 4) if claimed else None,
            "recall": round(right / len(true), 4) if true else None,
            "mirrored": len(mirrored),
            "mirrored_missed": len(mirrored - found),
            "unexpected": len(present - self.kept),
            "missing": len(self.kept - present),
        }


def _items(table: Any) -> list[Item]:
    return list(zip(table["record_id"].to_pylist(), table["image"].to_pylist(), strict=True))


def _pairs(path: Path) -> set[Pair]:
    table = tables.read(path, name="pairs")
    columns: Iterable[Any] = zip(
        *(table[c].to_pylist() for c in ("record_id", "image", "other_id", "other_image")), strict=True
    )
    return {frozenset(((a, i), (b, j))) for a, i, b, j in columns}
