"""Read the labels that others published of their models' votes, from the file that an import wrote."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import cast

from pipelines.core.errors import BadParams, DataError
from pipelines.core.taxonomy import Scheme, tiers_of
from pipelines.core.taxonomy.task import Task
from pipelines.curate.items import read_csv, tracked
from pipelines.label.aggregate import UNDECIDED, Agreement, Decision, LabelSet
from pipelines.label.silver_statistics import AGREEMENTS
from pipelines.store.tables import Item

HEADER = ["record_id", "image", "category", "labels", "agreement"]


def read(path: str, *, corpus: str, root: Path) -> dict[str, dict[Item, tuple[LabelSet, Agreement]]]:
    """Return the labels that others published, with the agreement of their models, by category and item."""
    if not tracked(root / path):
        raise DataError("NoLabels", corpus=corpus)
    told: dict[str, dict[Item, tuple[LabelSet, Agreement]]] = defaultdict(dict)
    for place, line in read_csv(root / path, root=root, header=HEADER, where=f"ensembles.published ({path})"):
        if len(line) != len(HEADER) or not line[1].isdecimal() or line[4] not in AGREEMENTS:
            detail = f"not {len(HEADER)} fields, or its agreement is not one of {', '.join(AGREEMENTS)}"
            raise BadParams(where=place, detail=detail)
        item = line[0], int(line[1])
        if item in told[line[2]]:
            raise BadParams(where=place, detail="this item has this category already")
        told[line[2]][item] = frozenset(label for label in line[3].split("|") if label), cast(Agreement, line[4])
    return told


def decided(
    told: Mapping[Item, tuple[LabelSet, Agreement]], *, task: Task, scheme: Scheme, within: Collection[Item]
) -> dict[Item, Decision]:
    """Return the published labels of the task's category as decisions on the items of ``within``."""
    decisions = {}
    for item, (labels, agreement) in sorted(told.items()):
        checked = scheme.categories[task.key].check(labels, mode="strict", tiers=tiers_of("paper"), task=False)
        wrong = ["unknown labels"] * bool(checked.unknown) + [*checked.violations]
        if wrong and agreement != "none":
            detail = f"a label set of {task.key} breaks the scheme's rules: {', '.join(wrong)}"
            raise BadParams(where="ensembles.published", detail=detail)
        if item in within:
            chosen = Decision(task.seen(checked.labels), agreement, "published")
            decisions[item] = UNDECIDED if agreement == "none" else chosen
    return decisions
