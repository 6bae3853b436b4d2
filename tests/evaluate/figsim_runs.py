"""A snapshot that is FigSIM's own in its numbers: gold with the counts of Table 8, runs with the scores of Table 4.

The paper prints no counts, but means and deviations. ``BEST`` holds true and false positives of three runs whose F1 by
label, macro-F1 and weighted-F1 all print as the paper's, each as mean±deviation; they were found by search and are not
the only ones. That three runs suffice is a finding of its own: the paper does not say how many it made.
"""

from __future__ import annotations

from pathlib import Path

from pipelines.core.taxonomy import load
from pipelines.report import figsim
from tests.small_corpus import write_examples, write_table

SCHEME = load("figsim")
Item = tuple[str, int]
Sets = dict[Item, frozenset[str]]
STYLIZED = "Suicide methods/locations: stylized depiction"
NATURALISTIC = "Suicide methods/locations: naturalistic depiction"
DEGREES = ["None", "Wish to be dead", "Suicide ideation", "Suicide planning", "Suicide attempt/death"]
# task -> model, and for each run the true and false positives of each label
BEST: dict[str, tuple[str, list[dict[str, tuple[int, int]]]]] = {
    "figurative": (
        "claude-sonnet-4-5-zero",
        [
            {"Irony/sarcasm": (152, 29), "Metaphor": (21, 10), "Pun/Double meaning": (20, 23)},
            {"Irony/sarcasm": (148, 27), "Metaphor": (21, 10), "Pun/Double meaning": (19, 23)},
            {"Irony/sarcasm": (150, 25), "Metaphor": (29, 29), "Pun/Double meaning": (19, 24)},
        ],
    ),
    "severity": (
        "gemini-3-pro-few",
        [
            dict(zip(DEGREES, counts, strict=True))
            for counts in (
                [(21, 5), (33, 10), (55, 29), (21, 7), (23, 4)],
                [(20, 4), (28, 7), (58, 34), (21, 7), (25, 4)],
                [(19, 4), (28, 12), (53, 37), (19, 8), (24, 4)],
            )
        ],
    ),
    "related": (
        "gemini-3-pro-zero",
        [
            {"Protective factors": (9, 9), "Harmful factors": (23, 17), STYLIZED: (32, 5), NATURALISTIC: (7, 4)},
            {"Protective factors": (9, 8), "Harmful factors": (29, 40), STYLIZED: (52, 50), NATURALISTIC: (8, 7)},
            {"Protective factors": (11, 6), "Harmful factors": (19, 3), STYLIZED: (44, 26), NATURALISTIC: (9, 4)},
        ],
    ),
}


def paper_gold() -> tuple[dict[Item, str], dict[str, Sets]]:
    """Return the split of 1,049 items, and for each category their sets, with Table 8's counts in every split."""
    paper = figsim.published()["table_8"]
    split: dict[Item, str] = {}
    gold: dict[str, Sets] = {key: {} for key in paper["categories"]}
    for place, name in enumerate(paper["splits"]):
        items = [(f"{name}-{i:04d}", 0) for i in range(paper["items"][place])]
        split |= dict.fromkeys(items, name)
        for key, counts in paper["categories"].items():
            names = {label.code: label.name for label in SCHEME.category(key).labels}
            carried = {names[code]: numbers[place] for code, numbers in counts.items()}
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


def answers(gold: Sets, counts: dict[str, tuple[int, int]], *, single: bool) -> Sets:
    """Return predictions with the true and false positives of each label asked for; ``gold`` is what models see."""
    right = {label: [item for item in gold if label in gold[item]][:tp] for label, (tp, _) in counts.items()}
    if not single:
        wrong = {label: [item for item in gold if label not in gold[item]][:fp] for label, (_, fp) in counts.items()}
        said_of = {label: {*right[label], *wrong[label]} for label in counts}
        return {item: frozenset(label for label in counts if item in said_of[label]) for item in gold}
    given = {item: label for label, items in right.items() for item in items}
    rest = sorted((item for item in gold if item not in given), key=lambda item: min(gold[item]))
    said = sorted(label for label, (_, fp) in counts.items() for _ in range(fp))
    turns = (said[i:] + said[:i] for i in range(len(said)))
    turned = next(t for t in turns if all(x not in gold[item] for item, x in zip(rest, t, strict=True)))
    return {item: frozenset({label}) for item, label in {**given, **dict(zip(rest, turned, strict=True))}.items()}


def best_runs(split: dict[Item, str], gold: dict[str, Sets]) -> list[tuple[str, str, int, Sets]]:
    """Return task, model, seed and predictions of the paper's best models."""
    found = []
    for key, (model, runs) in BEST.items():
        test = seen({item: labels for item, labels in gold[key].items() if split[item] == "test"}, key)
        single = SCHEME.category(key).kind == "single"
        found += [(key, model, seed, answers(test, counts, single=single)) for seed, counts in enumerate(runs, 1)]
    return found


def write_gold(
    root: Path, split: dict[Item, str], gold: dict[str, Sets], *, groups: dict[Item, str] | None = None
) -> None:
    folder = root / "snapshot" / "memes"
    rows = [
        {"record_id": r, "image": i, "group": (groups or {}).get((r, i), r), "split": name}
        for (r, i), name in split.items()
    ]
    write_table(folder / "split" / "splits.parquet", rows, name="splits")
    rows = [
        {"record_id": r, "image": i, "category": key, "labels": sorted(labels), "how": "agreed"}
        for key, sets in gold.items()
        for (r, i), labels in sets.items()
    ]
    write_table(folder / "gold" / "gold.parquet", rows, name="gold")
    write_examples(folder)


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
) -> Path:
    """Write one run's predictions; ``outcomes`` names the items that were not answered."""
    lost = outcomes or {}
    rows = [
        {
            **{"record_id": r, "image": i, "task": task, "model": model, "seed": seed, "split": split},
            **{"outcome": lost.get((r, i), "vote"), "scores": None},
            "labels": [] if (r, i) in lost else sorted(labels),
        }
        for (r, i), labels in sets.items()
    ]
    path = root / "snapshot" / "memes" / "predictions" / source / task / model / str(seed) / "predictions.parquet"
    write_table(path, rows, name="predictions")
    return path
