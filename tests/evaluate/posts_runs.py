"""A snapshot of posts: gold on its splits, and predictions as the stages ``predict`` and ``untuned`` write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from tests.small_corpus import write_examples, write_table

TASK = task_of(load("cradle"), "labels")
SETS = [
    *(frozenset({"no_crisis"}), frozenset({"selfharm_ongoing"})),
    frozenset({"suicideideation_active_ongoing", "selfharm_past"}),
    frozenset({"rape_past", "childabuse_endangerment_past"}),
    *(frozenset({"suicideideation_passive_ongoing"}), frozenset({"no_crisis"})),
]
Sets = dict[str, frozenset[str]]


def gold_of(split: str, *, n: int) -> Sets:
    return {f"{split}{i:03d}": SETS[i % len(SETS)] for i in range(n)}


def write_gold(root: Path, gold: dict[str, Sets], *, examples: frozenset[str] = frozenset(), train: int = 6) -> None:
    """Write gold of each split and, beside it, ``train`` posts without any."""
    folder = root / "snapshot" / "posts"
    placed = {r: split for split, sets in gold.items() for r in sets} | {f"silver{i}": "train" for i in range(train)}
    rows = [{"record_id": r, "image": 0, "group": r, "split": split} for r, split in placed.items()]
    write_table(folder / "split" / "splits.parquet", rows, name="splits")
    rows = [
        {
            "record_id": r, "image": 0, "category": "labels", "labels": sorted(labels), "how": "truth", "round": None,
        }
        for sets in gold.values()
        for r, labels in sets.items()
    ]  # fmt: skip
    write_table(folder / "gold" / "gold.parquet", rows, name="gold")
    write_examples(folder, sorted(examples))


def write_run(
    root: Path,
    place: str,
    said: dict[str, Sets],
    *,
    lost: dict[str, str] | None = None,
    scores: dict[str, list[float]] | None = None,
    spent: Any = None,
) -> Path:
    """Write a model's predictions for each split; ``place``: ``finetuned/<subset>/<model>`` or ``untuned/<model>``."""
    parts = place.split("/")
    model = f"{parts[2]}-{parts[1]}" if parts[0] == "finetuned" else parts[1]
    rows = [
        {
            "record_id": r, "image": 0, "task": "labels", "model": model, "seed": 7, "split": split,
            "outcome": (lost or {}).get(r, "vote"), "scores": (scores or {}).get(r, []),
            "labels": [] if r in (lost or {}) else sorted(labels),
        }
        for split, sets in said.items()
        for r, labels in sets.items()
    ]  # fmt: skip
    folder = root / "snapshot" / "posts" / "predictions" / place
    write_table(folder / "predictions.parquet", rows, name="predictions")
    if spent is not None:
        (folder / "spent.json").write_text(spent if isinstance(spent, str) else json.dumps(spent))
    return folder
