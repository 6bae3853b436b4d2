"""Group the annotators' answers by category and item, to compute their agreement."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.annotate.response_validation import SKIPPED
from pipelines.taxonomy import Category, Scheme
from pipelines.taxonomy.guideline import offered

Place = tuple[str, str, int]
"""A place: an item (record, image) in a round, because an item counts for its own round only."""
# Why an item has fewer than two answers to compare, the more serious reasons first.
LEFT_OUT = ("outside_scheme", "skipped", "single")


@dataclass
class OverlapAnswers:
    """All answers in one category; each item is identified by round, record id and image number.

    ``given[place][annotator]`` is the label set that the annotator chose for the item. ``skipped`` are the items that
    an annotator skipped, ``outside`` those with an answer outside the current scheme.
    """

    given: dict[Place, dict[str, frozenset[str]]] = field(default_factory=lambda: defaultdict(dict))
    skipped: set[Place] = field(default_factory=set)
    outside: set[Place] = field(default_factory=set)

    def doubles(self) -> list[Place]:
        """Return the sorted places (round, record id, image) that two or more annotators answered."""
        return sorted(place for place, by in self.given.items() if len(by) > 1)

    def left_out(self) -> dict[str, int]:
        """Count the items with fewer than two answers by reason (``outside_scheme``, ``skipped``, ``single``)."""
        less = (self.given.keys() | self.skipped | self.outside) - set(self.doubles())
        reasons = [
            "outside_scheme" if p in self.outside else "skipped" if p in self.skipped else "single" for p in less
        ]
        return {reason: Counter(reasons)[reason] for reason in LEFT_OUT}


def gather(rows: Iterable[Mapping[str, Any]], *, scheme: Scheme) -> dict[str, OverlapAnswers]:
    """Group rows of the table ``annotations`` by category; leave out label sets that the current scheme forbids."""
    found = {key: OverlapAnswers() for key in scheme.categories}
    for row in rows:
        answers = found.get(row["category"])
        if answers is None:
            continue
        place = (row["round"], row["record_id"], row["image"])
        labels = row["labels"]
        if isinstance(labels, list):
            category = scheme.categories[row["category"]]
            chosen = frozenset(labels) - _nothing(category)
            known = chosen <= set(measured(category)) and (category.kind == "multi" or len(chosen) == 1)
            if known:
                answers.given[place][row["annotator"]] = chosen
            else:
                answers.outside.add(place)
        elif row["outcome"] == SKIPPED:
            answers.skipped.add(place)
    return found


def measured(category: Category) -> tuple[str, ...]:
    """Return the labels for which agreement is computed: those shown to annotators, without the name of the empty set.

    FigSIM leaves "None" of its multi-label categories out (3.3); CRADLE's ``no_crisis`` is a label (Table 10).
    """
    return tuple(label.name for label in offered(category) if label.name not in _nothing(category))


def _nothing(category: Category) -> set[str]:
    empty = category.kind == "multi" and category.none is not None and category.none not in category.names
    return {str(category.none)} if empty else set()
