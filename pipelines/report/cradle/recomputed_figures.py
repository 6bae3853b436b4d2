"""Read CRADLE's printed figures and recompute figures from its own numbers (SPEC 1.5).

*Paper* is the printed figure (``papers/cradle.yaml``). *Recomputed* comes from counts: every label's true and false
positives and misses follow from its recall and precision (Tables 13 to 16) and its number of posts (Table 11). These
counts are whole numbers, which the paper's three decimals determine uniquely.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

from pipelines.metrics import label_sets
from pipelines.metrics.label_tables import SCORES
from pipelines.report.papers import printed

published = partial(printed, "cradle")
PARTS = ("f1", "precision", "recall")
PER_LABEL = (13, 14, 15, 16)
Counts = Mapping[str, tuple[int, int, int]]
"""True positives, false positives and misses by label."""


def names() -> dict[str, str]:
    """Return this project's key of each model in CRADLE's Table 4, with the model's name there."""
    return {key: name for key, name, *_ in published()["table_4"]["rows"]}


def row_4(key: str) -> dict[str, float]:
    """Return the scores that CRADLE's Table 4 prints for the model ``key``, by name of the score."""
    (row,) = [values for known, _, _, *values in published()["table_4"]["rows"] if known == key]
    return dict(zip(SCORES, row, strict=True))


def macro_f1() -> dict[str, float]:
    """Return the macro-F1 that CRADLE's Tables 4 and 8 print, by this project's name of the model."""
    tuned = {f"{key}-{subset}": cells[3][0] / 100 for key, subset, _, _, *cells in published()["table_8"]["rows"]}
    return {key: row_4(key)["macro_f1"] for key in names()} | tuned


def by_label(key: str) -> dict[str, dict[str, float]]:
    """Return by label F1, precision and recall of the model ``key``, as CRADLE's Tables 13 to 16 print them."""
    figures = {}
    for number in PER_LABEL:
        table = published()[f"table_{number}"]
        values = table["rows"][key]
        for i, label in enumerate(table["labels"]):
            figures[label] = dict(zip(PARTS, values[3 * i : 3 * i + 3], strict=True))
    return figures


def label_f1(key: str) -> dict[str, float]:
    """Return by label the F1 (0 to 1) that CRADLE's Tables 13 to 16 print for a model, empty if they lack the model."""
    return {label: values["f1"] for label, values in by_label(key).items()} if key in names() else {}


def support(*, key: str | None = None) -> dict[str, int]:
    """Return the number of test posts by label (CRADLE Table 11); with a model, only of the posts that it answered."""
    test = published()["table_11"]["splits"].index("test")
    blocked = refused(key) if key else {}
    return {label: row[test] - blocked.get(label, 0) for label, row in published()["table_11"]["labels"].items()}


def refused(key: str) -> dict[str, int]:
    """Return by label how many posts a model refused (CRADLE appendix D, SPEC 1.5); only Gemini refused any."""
    table = published()["table_12"]
    blocked: dict[str, int] = table["blocked"] if key == table["key"] else {}
    return blocked


@cache
def counts(key: str) -> Counts:
    """Return true positives, false positives and misses by label that follow from a model's figures in CRADLE's tables.

    They cover the posts that the model answered (Tables 13 to 16).

    If a label's recall is 0, its precision does not determine its false positives. There is at most one such label per
    model; its false positives follow from the micro-F1 of CRADLE's Table 4.
    """
    carried = support(key=key)
    by_label_name: dict[str, tuple[int, int, int]] = {}
    hidden: list[str] = []
    for label, part in by_label(key).items():
        right = round(part["recall"] * carried[label])
        if right:
            by_label_name[label] = (right, round(right / part["precision"]) - right, carried[label] - right)
        else:
            hidden.append(label)
            by_label_name[label] = (0, 0, carried[label])
    for label in hidden:
        right, wrong, lost = (sum(part) for part in zip(*by_label_name.values(), strict=True))
        by_label_name[label] = (0, round(2 * right / row_4(key)["micro_f1"]) - 2 * right - wrong - lost, carried[label])
    return by_label_name


def recomputed(key: str, *, whole: bool = False) -> dict[str, float]:
    """Return a model's scores that follow from :func:`counts`, which are all but Jaccard.

    ``whole``: over all posts, with an empty answer for each unanswered post (second rows of CRADLE's Table 12).
    """
    lost = refused(key) if whole else {}
    n = published()["test"] if whole else answered(key)
    counted = {label: (tp, fp, fn + lost.get(label, 0)) for label, (tp, fp, fn) in counts(key).items()}
    row = label_sets.of_counts(counted, exact=exact_hits(key), records=n)
    return {name: value for name, value in row.items() if name in SCORES}


def severity_recall(key: str, *, severities: Mapping[str, int]) -> tuple[float, dict[int, tuple[int, int]]]:
    """Return a paper's model's severity-weighted recall, and by severity its true positives and gold labels."""
    graded: dict[int, tuple[int, int]] = {}
    for label, (tp, _, fn) in counts(key).items():
        if weight := severities.get(label, 0):
            hits, carried = graded.get(weight, (0, 0))
            graded[weight] = (hits + tp, carried + tp + fn)
    whole = sum(weight * carried for weight, (_, carried) in graded.items())
    return sum(weight * hits for weight, (hits, _) in graded.items()) / whole, graded


def answered(key: str) -> int:
    """Return how many of CRADLE's test posts a model answered; its provider blocked the others."""
    n: int = published()["table_12"]["n_valid"] if refused(key) else published()["test"]
    return n


def exact_hits(key: str) -> int:
    """Return how many of CRADLE's test posts a model labels exactly right (from Table 4)."""
    return round(row_4(key)["exact"] * answered(key))
