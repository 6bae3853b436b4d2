"""A snapshot that is FigSIM's own in its numbers: gold with the counts of Table 8, and runs of any answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import yaml

from pipelines.core import rows
from pipelines.core.rows import Answer
from pipelines.core.taxonomy import load
from pipelines.store import tables
from tests.evaluate.printed import paper
from tests.small_corpus import write_examples, write_table

SCHEME = load("figsim")
Item = tuple[str, int]
Sets = dict[Item, frozenset[str]]


def paper_gold() -> tuple[dict[Item, str], dict[str, Sets]]:
    """Return the split of 1,049 items, and for each category their sets, with Table 8's counts in every split."""
    tables, splits = paper("figsim").tables, ("train", "validation", "test")
    split: dict[Item, str] = {}
    gold: dict[str, Sets] = {key: {} for key in SCHEME.categories}
    for place, name in enumerate(splits):
        items = [(f"{name}-{i:04d}", 0) for i in range(tables["table_8_total"].rows["Memes"][place])]
        split |= dict.fromkeys(items, name)
        for key in gold:
            carried = {label: numbers[place] for label, numbers in tables[f"table_8_{key}"].rows.items()}
            none = 0 if SCHEME.category(key).kind == "single" else carried.pop("None")
            sets: dict[Item, set[str]] = {item: set() for item in items}
            # label after label around the items that are not None, so that each gets one before any gets two
            given = (label for label, n in carried.items() for _ in range(n))
            for i, label in enumerate(given):
                sets[items[none + i % (len(items) - none)]].add(label)
            gold[key] |= {item: frozenset(labels) or frozenset({"None"}) for item, labels in sets.items()}
    return split, gold


def seen(gold: Sets, key: str) -> Sets:
    return {item: SCHEME.category(key).check(s, mode="repair", tiers=["base"]).labels for item, s in gold.items()}


def paper_test(gold: dict[str, Sets], split: dict[Item, str], key: str) -> Sets:
    """Return what models should say of the test memes."""
    return seen({item: labels for item, labels in gold[key].items() if split[item] == "test"}, key)


def write_gold(
    root: Path,
    split: dict[Item, str],
    gold: dict[str, Sets],
    *,
    groups: dict[Item, str] | None = None,
    corpus: str = "memes",
    examples: Sequence[str] = (),
) -> None:
    folder = root / "snapshot" / corpus
    if not (root / rows.FILE).is_file():
        (root / rows.FILE).write_text("format: 1\nrows: {votes: {}, silver: {}, fits: {}, answers: {}}\n")
    placed = [
        {"record_id": r, "image": i, "group": (groups or {}).get((r, i), r), "split": name}
        for (r, i), name in split.items()
    ]
    write_table(folder / "split" / "splits.parquet", placed, name="splits")
    labelled = [
        {"record_id": r, "image": i, "category": key, "labels": sorted(labels), "how": "agreed"}
        for key, sets in gold.items()
        for (r, i), labels in sets.items()
    ]
    write_table(folder / "gold" / "gold.parquet", labelled, name="gold")
    write_examples(folder, sorted(examples))


def write_answers(
    path: Path,
    sets: dict[str, Sets],
    *,
    lost: Mapping[Any, str] = MappingProxyType({}),
    scores: Mapping[str, list[float]] = MappingProxyType({}),
    **run: Any,
) -> Path:
    """Write one run's predictions (task, model, seed) for each split; ``lost`` are the items without an answer."""
    rows = [
        {
            **run,
            **{"record_id": r, "image": i, "split": split, "scores": scores.get(r, [])},
            "outcome": lost.get((r, i), "vote"),
            "labels": [] if (r, i) in lost else sorted(labels),
        }
        for split, own in sets.items()
        for (r, i), labels in own.items()
    ]
    write_table(path, rows, name="predictions")
    return path


def add_row(root: Path, corpus: str, task: str, model: str, *, subset: str | None, seed: int | None) -> Path:
    """Add a row of answers to ``rows.yaml``; return the folder of its predictions."""
    parts = (task, model) if subset is None else (task, model, subset, str(seed))
    name = "-".join(parts)
    paths: dict[str, Any] = {"source": "snapshot/a", "labels": "snapshot/d", "reads": "snapshot/b", "code": ()}
    row = Answer(corpus=corpus, name=name, task=task, model=model, subset=subset, seed=seed, **paths)
    there = rows.read(root).answers if (root / rows.FILE).is_file() else {}
    known = rows.Rows(votes={}, silver={}, fits={}, answers={**there, f"{corpus}-{name}": row})
    (root / rows.FILE).write_text(
        yaml.safe_dump({"format": 1, "rows": known.model_dump(mode="json", exclude_none=True)})
    )
    return root / "snapshot" / corpus / "predictions" / name


def write_run(
    root: Path,
    task: str,
    model: str,
    seed: int,
    sets: Sets,
    *,
    outcomes: dict[Item, str] | None = None,
    source: str = "train",
    split: str = "test",
    scores: Mapping[str, list[float]] = MappingProxyType({}),
) -> Path:
    """Write one run's predictions of memes; ``outcomes`` names the items that were not answered."""
    subset = "gold" if source == "train" else None
    path = add_row(root, "memes", task, model, subset=subset, seed=seed if subset else None) / "predictions.parquet"
    before = tables.read(path, name="predictions") if path.is_file() else None
    write_answers(path, {split: sets}, lost=outcomes or {}, scores=scores, task=task, model=model, seed=seed)
    if before is not None:
        tables.write(pa.concat_tables([before, tables.read(path, name="predictions")]), path, name="predictions")
    return path
