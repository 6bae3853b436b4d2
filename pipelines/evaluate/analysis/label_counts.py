"""Count labels: by category, per item, by type, in pairs; and items by month and length.

FigSIM's Figures 2 and 6, CRADLE's Figure 1 and Tables 1 and 2. Label totals are printed in full, as in all reports;
counts of pairs, months and lengths are hidden where they are small (:mod:`pipelines.evaluate.analysis.small_counts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pipelines.core.taxonomy import Category, Scheme
from pipelines.core.taxonomy.guideline import offered
from pipelines.evaluate.analysis.group_comparison import Factor, Json
from pipelines.evaluate.analysis.small_counts import Counts, of_units, shown, shown_table
from pipelines.metrics.label_tables import Distribution, Layout
from pipelines.store.tables import Item

Gold = Mapping[Item, frozenset[str]]
# Ours: upper ends of the classes of lengths in words
LENGTHS = (0, 4, 9, 19, 49, 99, 199, 499, 999)
CLASSES = ["0", *(f"{low + 1:,}–{high:,}" for low, high in pairwise(LENGTHS)), f"{LENGTHS[-1] + 1:,} and more"]


def category_counts(category: Category, *, gold: Gold, scheme: Scheme) -> Json:
    """Return the counts of one category over the items with gold.

    Returns:
        ``kind``, ``items``, ``labels`` (of annotators, with the category's None for an empty set), ``sizes`` (items by
        number of labels, None not counted), ``mean`` (labels per item) and, for labels with types, ``types``.
    """
    counts = Distribution.of(named(labels, category) for labels in gold.values())
    sizes = Counter(len(labels - {category.none}) for labels in gold.values())
    figures: Json = {
        "kind": category.kind,
        "items": counts.instances,
        "labels": {label.name: counts.labels.get(label.name, 0) for label in offered(category)},
        "sizes": {str(size): sizes[size] for size in sorted(sizes)},
        "mean": sum(size * n for size, n in sizes.items()) / len(gold) if gold else None,
    }
    types = types_of(category, scheme=scheme)
    if any(len(labels) > 1 for labels in types.values()):
        figures["types"] = {name: sum(counts.labels.get(x, 0) for x in labels) for name, labels in types.items()}
    return figures


def types_of(category: Category, *, scheme: Scheme) -> Mapping[str, tuple[str, ...]]:
    """Return the labels of each type of a category; a label without a type is one of its own."""
    return Layout.of(scheme, category=category).types


def named(labels: frozenset[str], category: Category) -> frozenset[str]:
    """Return the labels, or the category's None for an empty set."""
    return labels if labels or category.none is None else frozenset({category.none})


def pair_counts(
    rows: Category, columns: Category, *, gold: Mapping[str, Gold], units: Mapping[Item, str], least: int
) -> Json:
    """Return the items with each pair of labels of two categories, or of one (FigSIM Figure 6).

    The diagonal of one category counts the items that have this label alone. A pair with items of fewer than ``least``
    authors or groups of near-duplicates is hidden.
    """
    names = [[label.name for label in offered(category)] for category in (rows, columns)]
    units_of: dict[tuple[str, str], list[str]] = {}
    same = rows.key == columns.key
    for item, labels in gold.get(rows.key, {}).items():
        here = sorted(named(labels, rows))
        there = here if same else sorted(named(gold.get(columns.key, {}).get(item, frozenset()), columns))
        if same or item in gold.get(columns.key, {}):
            for row_label in here:
                for column_label in there:
                    if not same or row_label != column_label or len(here) == 1:
                        units_of.setdefault((row_label, column_label), []).append(units[item])
    counts, judged = (
        np.array([[count(units_of.get((row, column), [])) for column in names[1]] for row in names[0]], np.int64)
        for count in (len, partial(of_units, least=least))
    )
    visible = shown_table(judged, rows=names[0], columns=names[1], least=least)
    table: dict[str, Counts] = {}
    shares = {}
    for row, numbers in zip(names[0], counts.tolist(), strict=True):
        cells = zip(names[1], numbers, strict=True)
        table[row] = {column: None if visible[row][column] is None else n for column, n in cells}
        total = sum(numbers)
        shares[row] = {c: n / total if n is not None and total else None for c, n in table[row].items()}
    return {"rows": rows.key, "columns": columns.key, "counts": table, "shares": shares}


def by_month(months: Sequence[str], *, units: Sequence[str], least: int) -> Counts:
    """Return the items by month; a month with fewer than ``least`` authors or groups of near-duplicates is hidden."""
    return _by({month: [] for month in sorted({*months} - {""})}, months, units=units, least=least)


def by_length(words: Sequence[int], *, units: Sequence[str], least: int) -> Json:
    """Return figures of the number of words per item, and the items by classes of length, hidden as months are."""
    if not words:
        return {"n": 0, "classes": {}}
    names = [CLASSES[place] for place in np.searchsorted(LENGTHS, words)]
    low, middle, high = (float(q) for q in np.percentile(words, [25, 50, 75]))
    figures = {"n": len(words), "mean": float(np.mean(words)), "quartiles": [low, middle, high]}
    return {**figures, "classes": _by({name: [] for name in CLASSES}, names, units=units, least=least)}


def masked(rows: NDArray[np.bool_], *, units: Sequence[str], least: int) -> int | None:
    """Return how many items are among ``rows``, ``None`` if the number of them, or of the others, is hidden."""
    counts = _by({"in": [], "out": []}, np.where(rows, "in", "out").tolist(), units=units, least=least)
    return counts["in"]


def _by(empty: dict[str, list[str]], names: Sequence[str], *, units: Sequence[str], least: int) -> Counts:
    """Return the items by name, ``None`` where so few units have any that the count is hidden."""
    for name, unit in zip(names, units, strict=True):
        if name in empty:
            empty[name].append(unit)
    masked = shown({name: of_units(members, least=least) for name, members in empty.items()}, least=least)
    return {name: None if masked[name] is None else len(members) for name, members in empty.items()}


def factor(category: Category, *, items: Sequence[Item], gold: Gold, scheme: Scheme) -> Factor:
    """Return what items are compared by in one category: every item has at most one level.

    A category of single labels has its labels. One of several labels whose empty set is valid is compared by whether an
    item has any. Of another, such as CRADLE's, the levels are types, and an item with labels of several has none.
    """
    label_sets = [gold.get(item) for item in items]
    if category.kind == "single":
        names = tuple(label.name for label in offered(category))
        return Factor(names, [next(iter(labels)) if labels and len(labels) == 1 else None for labels in label_sets])
    if category.none not in category.names:
        names = (f"{category.key}: none", f"{category.key}: any")
        return Factor(
            names, [None if labels is None else names[bool(labels - {category.none})] for labels in label_sets]
        )
    types = types_of(category, scheme=scheme)
    kind = {label: name for name, labels in types.items() for label in labels}
    sets = [{kind[label] for label in labels or () if label in kind} for labels in label_sets]
    return Factor(tuple(types), [next(iter(each)) if len(each) == 1 else None for each in sets])
