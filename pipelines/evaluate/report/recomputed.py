"""Recompute the rows of a paper's tables from its own numbers (SPEC 1.5), by the rule that a table names.

Every label's true and false positives and misses follow from its recall and precision and its number of items. These
counts are whole numbers, which three printed decimals determine uniquely.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.core.taxonomy import Category, Scheme
from pipelines.evaluate.report.papers import Paper, number
from pipelines.evaluate.report.tables import Form, Table, declared
from pipelines.metrics import agreement_coefficients as coefficients
from pipelines.metrics import label_sets

Counts = Mapping[str, tuple[int, int, int]]
"""True positives, false positives and misses by label."""
Row = tuple[str, Sequence[str]]
"""A note on how the row was recomputed, and its cells."""
STATISTICS = {"κ": "kappa", "AC1": "ac1", "Jaccard": "jaccard"}


@dataclass(frozen=True)
class Rule:
    """The rule of a table: which rows it recomputes, and what they are."""

    table: Table
    paper: Paper
    scheme: Scheme

    @property
    def keys(self) -> tuple[str, ...]:
        """The rows that the paper does not print itself."""
        if self.table.recomputed == "severity":
            return tuple(
                key for key in self.paper.labels(self._task) if counts(self.paper, key, category=self._category)
            )
        return tuple(self.table.given) if self.table.recomputed == "refusals" else ()

    def __call__(self, key: str) -> Iterator[Row]:
        match self.table.recomputed:
            case "counts":
                yield from self._scores(key)
            case "means":
                yield self._means(key)
            case "changes":
                yield from self._changes(key)
            case "shares":
                pairs = [cell for cell in self.table.rows[key] if isinstance(cell, tuple)]
                yield "", [share(round((rate or 0) * (n or 0)), int(n or 0)) for rate, n in pairs]
            case "two_by_two":
                figures, form = figures_of(self.table.given[key]), self.table.form
                yield "", [again(figures[x], printed, digits=form.digits) for x, printed in self._printed(key)]
            case "label_means" if key in self.table.given:
                yield from self._label_means(key, **self.table.given[key])
            case "severity":
                known = counts(self.paper, key, category=self._category)
                weighted, graded = severity_recall(known, severities=self._category.severities)
                grades = self.table.each["severity"]
                yield "", [f"{100 * weighted:.1f}", *(share(*graded.get(int(grade), (0, 0))) for grade in grades)]
            case "refusals":
                lost, support = self.paper.lost(key), self.paper.support(self._category)
                yield "", [share(lost.get(label, 0), support[label]) for label in self.table.each["label"]]

    @property
    def _task(self) -> str:
        return self.table.each["task"][0]

    @property
    def _category(self) -> Category:
        return self.scheme.category(self._task)

    def _printed(self, key: str) -> Iterator[tuple[str, float]]:
        """Yield the statistics of a row of agreement that are printed."""
        for title, cell in zip(self.table.columns, self.table.rows[key], strict=False):
            if title in STATISTICS and (value := number(cell)) is not None:
                yield STATISTICS[title], value

    def _scores(self, key: str) -> Iterator[Row]:
        found = {
            over: scores(self.paper, key, category=self._category, whole=over == "all") for over in ("valid", "all")
        }
        columns = [binding for binding, _, _ in declared(self.table)]
        cells = [found[each.get("over", "valid")].get(each["figure"]) for each in columns]
        if found["valid"]:
            hits = exact_hits(self.paper, key, task=self._task)
            yield f": {hits} exactly right", [self.table.form.ours(cell) for cell in cells]

    def _means(self, key: str) -> Row:
        """Return macro-F1 and weighted F1 that follow from F1 by label, with one decimal more than the paper has."""
        form = self.table.form
        f1 = {label: parts["f1"] * form.scale for label, parts in self.paper.labels(self._task)[key].items()}
        support = self.paper.support(self._category)
        weighted = sum(value * support[label] for label, value in f1.items()) / sum(support.values())
        means = {"macro_f1": sum(f1.values()) / len(f1), "weighted_f1": weighted}
        shown = (means.get(binding.get("mean", "")) for binding, _, _ in declared(self.table))
        return "", [form.number(value, digits=form.digits + 1) for value in shown]

    def _changes(self, key: str) -> Iterator[Row]:
        """Yield a tuned model's changes from its base, if the printed ones do not follow."""
        form, before = self.table.form, self.paper.scores(self._task)[self.table.given[key]]
        pairs = [cell for cell in self.table.rows[key] if isinstance(cell, tuple)]
        figures = self.table.each["figure"]
        after = [(x, round((x or 0) - form.scale * before[y], 2)) for (x, _), y in zip(pairs, figures, strict=True)]
        if after != pairs:
            yield "", [form.printed(cell) for cell in after]

    def _label_means(self, key: str, *, table: str, shared: float | None = None, items: int = 1) -> Iterator[Row]:
        """Yield the means over the labels of another table: of what is recomputed there, and of what is printed."""
        rule, digits = Rule(self.paper.tables[table], self.paper, self.scheme), self.table.form.digits
        rows = {label: dict(rule._printed(label)) for label in rule.table.rows}
        made = {label: figures_of(given) for label, given in rule.table.given.items()} or rows
        cells = [
            again(shared / items if name == "jaccard" and shared else mean(made, name), printed, digits=digits)
            for name, printed in self._printed(key)
        ]
        yield "", cells
        if made is not rows:
            both = [f"{mean(rows, name):.5f}" for name, _ in self._printed(key) if name in next(iter(rows.values()))]
            yield ", mean of the printed", both


def mean(rows: Mapping[str, Mapping[str, float]], statistic: str) -> float:
    """Return the mean of a statistic over labels, computed as in the stage ``agreement``."""
    return float(coefficients.defined_mean(np.array([row[statistic] for row in rows.values()])))


def figures_of(table: Sequence[int]) -> dict[str, float]:
    """Return kappa and AC1 of a label from a 2 x 2 table: given by both annotators, the first, the second, neither."""
    answers = np.repeat(np.array([[1, 1], [1, 0], [0, 1], [0, 0]]), table, axis=0)
    kappa, ac1 = coefficients.kappa(answers, classes=2)[0], coefficients.ac1(answers, classes=2)[0]
    return {"kappa": float(kappa), "ac1": float(ac1)}


def again(value: float, printed: float, *, digits: int) -> str:
    """Return a recomputed figure with its mark; rounding explains a difference of one unit of the last digit."""
    same = f"{value:.{digits}f}" == f"{printed:.{digits}f}"
    mark = "" if same else " ≈" if abs(value - printed) <= 10**-digits else " ≠"
    # a mean of two-digit figures has at most three meaningful digits
    return f"{value:.{max(digits, 3)}f}{mark}"


def share(part: int, whole: int) -> str:
    return Form().ours({"count": part, "of": whole, "rate": part / whole if whole else None, "low": None, "high": None})


def counts(paper: Paper, key: str, *, category: Category) -> Counts:
    """Return true positives, false positives and misses by label, on the items that a model answered.

    If a label's recall is 0, its precision does not determine its false positives. There is at most one such label per
    model; its false positives follow from the printed micro-F1. Empty if the paper does not print precision, recall
    and number of items of every label.
    """
    support, rates = paper.support(category, key=key), paper.labels(category.key).get(key, {})
    if support.keys() != rates.keys() or not all({"precision", "recall"} <= parts.keys() for parts in rates.values()):
        return {}
    found: dict[str, tuple[int, int, int]] = {}
    for label, parts in rates.items():
        right = round(parts["recall"] * support[label])
        found[label] = (right, round(right / parts["precision"]) - right if right else 0, support[label] - right)
    for label in [label for label, (right, _, _) in found.items() if not right]:
        right, wrong, lost = (sum(column) for column in zip(*found.values(), strict=True))
        hidden = round(2 * right / paper.scores(category.key)[key]["micro_f1"]) - 2 * right - wrong - lost
        found[label] = (0, hidden, support[label])
    return found


def exact_hits(paper: Paper, key: str, *, task: str) -> int:
    """Return how many test items a model labels exactly right."""
    return round(paper.scores(task)[key]["exact"] * paper.answered.get(key, paper.test))


def scores(paper: Paper, key: str, *, category: Category, whole: bool = False) -> dict[str, float]:
    """Return a model's scores that follow from :func:`counts`, all but Jaccard; empty if there are no counts.

    ``whole``: over all items, with an empty answer for each unanswered one.
    """
    known, lost = counts(paper, key, category=category), paper.lost(key) if whole else {}
    if not known:
        return {}
    counted = {label: (tp, fp, fn + lost.get(label, 0)) for label, (tp, fp, fn) in known.items()}
    n = paper.test if whole else paper.answered.get(key, paper.test)
    return label_sets.of_counts(counted, exact=exact_hits(paper, key, task=category.key), records=n)


def severity_recall(known: Counts, *, severities: Mapping[str, int]) -> tuple[float, dict[int, tuple[int, int]]]:
    """Return severity-weighted recall, and by severity the true positives and the gold labels."""
    graded: dict[int, tuple[int, int]] = {}
    for label, (tp, _, fn) in known.items():
        if weight := severities.get(label, 0):
            hits, carried = graded.get(weight, (0, 0))
            graded[weight] = (hits + tp, carried + tp + fn)
    whole = sum(weight * carried for weight, (_, carried) in graded.items())
    return sum(weight * hits for weight, (hits, _) in graded.items()) / whole, graded
