"""A snapshot of posts: gold on its splits, and predictions as the stage ``predict`` writes them."""

import json
from pathlib import Path
from typing import Any

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from tests.evaluate import figsim_runs

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


def write_gold(
    root: Path,
    gold: dict[str, Sets],
    *,
    examples: frozenset[str] = frozenset(),
    train: int = 6,
    category: str = "labels",
) -> None:
    """Write gold of each split and, beside it, ``train`` posts without any."""
    placed = {(r, 0): split for split, sets in gold.items() for r in sets}
    placed |= {(f"silver{i}", 0): "train" for i in range(train)}
    sets = {(r, 0): labels for sets in gold.values() for r, labels in sets.items()}
    figsim_runs.write_gold(root, placed, {category: sets}, corpus="posts", examples=sorted(examples))


def write_run(
    root: Path,
    place: str,
    said: dict[str, Sets],
    *,
    lost: dict[str, str] | None = None,
    scores: dict[str, list[float]] | None = None,
    spent: Any = None,
    task: str = "labels",
) -> Path:
    """Write a model's predictions for each split; ``place``: ``finetuned/<subset>/<model>`` or ``untuned/<model>``."""
    *subsets, name = place.split("/")[1:]
    subset = subsets[0] if subsets else None
    model = name if subset in (None, "gold") else f"{name}-{subset}"
    folder = figsim_runs.add_row(root, "posts", task, name, subset=subset, seed=7 if subset else None)
    figsim_runs.write_answers(
        folder / "predictions.parquet",
        {split: {(r, 0): labels for r, labels in sets.items()} for split, sets in said.items()},
        lost={(r, 0): outcome for r, outcome in (lost or {}).items()},
        scores=scores or {},
        **{"task": task, "model": model, "seed": 7},
    )
    if spent is not None:
        (folder / "spent.json").write_text(spent if isinstance(spent, str) else json.dumps(spent))
    return folder
