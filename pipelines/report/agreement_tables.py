"""Build the tables of ``corpus agreement-report``: FigSIM's Tables 1 and 5 to 7, CRADLE's Table 10, and our agreement.

*Paper* is the printed figure. *Recomputed* is our code's result from the paper's own label-wise figures, marked ``≈``
where it differs but the paper's rounding can explain it, and ``≠`` where rounding cannot. *Ours* comes from the metrics
of the stage; nothing is computed from annotations here. An undefined value is a dash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.scheme import normal
from pipelines.metrics import agreement_coefficients as c
from pipelines.metrics.label_tables import UNDEFINED, Sheet
from pipelines.report import papers, parts
from pipelines.store.metrics_file import read_metrics
from pipelines.workspace.clone import workspace

Ours = Mapping[str, Any]
Table = tuple[str, tuple[str, ...], tuple[str, ...], list[tuple[str, ...]]]
"""Title, columns of the paper, further columns with ours, and rows that have both."""
published = partial(papers.printed, "agreement")
OURS = ("Ours", "Items", "Reading (ours)")
STATISTICS = {
    "alpha": "α",
    "kappa": "κ",
    "weighted_kappa": "Weighted κ",
    "ac1": "AC1",
    "observed": "Observed",
    "jaccard": "Jaccard",
}


def gather(root: Path, corpus: str) -> dict[str, Any]:
    """Return the metrics of the stage ``agreement`` for a corpus; without them, an object without rounds."""
    return read_metrics(root / "metrics" / corpus / "agreement.json") or {"rounds": {}}


def paper_tables(scheme: str | None = None, *, ours: Ours | None = None) -> Iterator[Sheet]:
    """Yield the agreement tables of the papers, with our figures in further columns if ``ours`` has any.

    ``ours`` is the metrics of the stage ``agreement``. A label scheme without a paper has no tables.
    """
    ours = ours if ours and ours["rounds"] else {}
    for name, tables in (("figsim", _figsim), ("cradle", _cradle)):
        if scheme in (None, name):
            for title, columns, own, rows in tables(published()[name], ours=ours):
                shown = (*columns, *own) if ours else columns
                yield Sheet(title, shown, tuple(row[: len(shown)] for row in rows))


def mean_of_labels(values: Mapping[str, Mapping[str, float]], *, statistic: str) -> float:
    """Return the mean over labels of a statistic that a paper prints, computed as in the stage ``agreement``."""
    return float(c.defined_mean(np.array([row[statistic] for row in values.values()])))


def figures_of(table: tuple[int, int, int, int]) -> dict[str, float]:
    """Return kappa and AC1 of a label from a 2 x 2 table: given by both annotators, the first, the second, neither."""
    answers = np.repeat(np.array([[1, 1], [1, 0], [0, 1], [0, 0]]), table, axis=0)
    return {"kappa": float(c.kappa(answers, classes=2)[0]), "ac1": float(c.ac1(answers, classes=2)[0])}


def _figsim(paper: Mapping[str, Any], *, ours: Ours) -> Iterator[Table]:
    categories = ours["overall"]["categories"] if ours else {}
    by_label = {table["category"]: table["labels"] for table in (paper["table_6"], paper["table_7"])}
    totals = {}
    for key, row in paper["table_1"].items():
        mean = mean_of_labels(by_label[key], statistic="kappa") if key in by_label else None
        again = UNDEFINED if mean is None else _again(mean, row["kappa"], digits=2)
        own = _own(categories.get(key), statistic="kappa")
        totals[key] = (f"{row['kappa']:.2f}", again, row["reading"], *own)
    columns = ("Paper κ", "Recomputed", "Reading")
    rows = [(row["name"], row["type"], *totals[key]) for key, row in paper["table_1"].items()]
    yield "FigSIM Table 1: agreement by category", ("Category", "Type", *columns), OURS, rows
    rows = [
        (row["name"], row["statistic"], f"{row['value']:.2f}", *_own(categories.get(key), statistic=row["statistic"]))
        for key, row in paper["table_5"].items()
    ]
    title = "FigSIM Table 5: observed agreement and Jaccard index"
    yield title, ("Category", "Statistic", "Paper"), OURS[:2], rows
    for number in (6, 7):
        table = paper[f"table_{number}"]
        labels = categories.get(table["category"], {}).get("labels", {})
        rows = [
            (label, f"{row['kappa']:.2f}", UNDEFINED, row["reading"], *_own(labels.get(label), statistic="kappa"))
            for label, row in table["labels"].items()
        ]
        title = f"FigSIM Table {number}: {table['title']}, label by label"
        yield title, ("Label", *columns), OURS, [*rows, ("Mean", *totals[table["category"]])]


def _cradle(paper: Mapping[str, Any], *, ours: Ours) -> Iterator[Table]:
    category = load_scheme("cradle").category()
    columns = ("Label", "Paper κ", "Recomputed", "Paper AC1", "Recomputed")
    for name, table in paper["table_10"].items():
        measured = ours["rounds"].get(name, {}).get("categories", {}).get(category.key) if ours else None
        own = measured["labels"] if measured else {}
        spelt = {normal(name): row for name, row in own.items()}
        rows: list[tuple[str, ...]] = []
        made = {label: figures_of(row["table"]) for label, row in table["labels"].items()}
        for label, row in table["labels"].items():
            # a round under an earlier scheme has that scheme's labels
            known = own.get(category.spellings.get(normal(label), "")) or spelt.get(normal(label))
            rows.append((label, *_two(row, made[label]), *_own_two(known)))
        again, printed = (
            {key: mean_of_labels(figures, statistic=key) for key in ("kappa", "ac1")}
            for figures in (made, table["labels"])
        )
        rows.append(("Mean", *_two(table["mean"], again), *_own_two(measured)))
        means = ("", f"{printed['kappa']:.5f}", "", f"{printed['ac1']:.5f}")
        rows.append(("Mean of the printed", *means, *[""] * 4))
        shared = f"{table['shared'] / paper['items']:.4f}"
        index, items, _ = _own(measured, statistic="jaccard")
        rows.append(("Jaccard", f"{table['jaccard']:.4f}", shared, "", "", "", index, items, ""))
        title = f"CRADLE Table 10: {name}, {paper['items']} posts"
        yield title, columns, ("κ (ours)", "AC1 (ours)", "Items", "Reading (ours)"), rows


def _two(paper: Mapping[str, float], again: Mapping[str, float]) -> tuple[str, ...]:
    pairs = [(f"{paper[key]:.4f}", _again(again[key], paper[key], digits=4)) for key in ("kappa", "ac1")]
    return (*pairs[0], *pairs[1])


def _again(value: float, printed: float, *, digits: int) -> str:
    """Return a recomputed figure with its mark; rounding explains a difference of one unit of the last digit."""
    same = f"{value:.{digits}f}" == f"{printed:.{digits}f}"
    mark = "" if same else " ≈" if abs(value - printed) <= 10**-digits else " ≠"
    # a mean of two-digit figures has at most three meaningful digits
    return f"{value:.{max(digits, 3)}f}{mark}"


def _own(measured: Ours | None, *, statistic: str) -> tuple[str, ...]:
    if not measured:
        return (UNDEFINED,) * len(OURS)
    figure = measured[statistic]
    return (_text(figure), f"{measured['items']:,}", figure.get("word", UNDEFINED))


def _own_two(measured: Ours | None) -> tuple[str, ...]:
    kappa, items, word = _own(measured, statistic="kappa")
    return (kappa, _own(measured, statistic="ac1")[0], items, word)


_text = partial(parts.interval, scale=1, digits=2)


def _rows(categories: Ours) -> Iterator[tuple[str, ...]]:
    for key, category in categories.items():
        cells = [_text(category[name]) if name in category else "" for name in STATISTICS]
        yield (key, f"{category['items']:,}", *cells, category["alpha"].get("word", UNDEFINED))


def summary(root: Path, corpus: str, *, name: str) -> str:
    """Return the agreement in an annotation round as Markdown, for the person who decides whether to continue."""
    metrics = gather(root, corpus)
    measured = metrics["rounds"].get(name)
    if measured is None or not any(category["items"] for category in measured["categories"].values()):
        return f"Round {name} of {corpus}: no item has two answers, so there is nothing to compare."
    columns = ("Category", "Items", *STATISTICS.values(), "Reading of α")
    sheet = Sheet(f"Agreement of round {name} of {corpus}", columns, tuple(_rows(measured["categories"])))
    verdict = {
        True: f"Every defined κ is {metrics['enough']:.2f} or more.",
        False: f"Not every defined κ is {metrics['enough']:.2f} or more.",
        None: "No κ is defined.",
    }[measured["sufficient"]]
    left = max(sum(category["left_out"].values()) for category in measured["categories"].values())
    missing = f"Left out because of a missing second answer: up to {left} items a category."
    return f"{sheet.markdown()}\n\n{interval_of(metrics)}{verdict} {missing}"


def interval_of(metrics: Ours) -> str:
    """Return a sentence on how the confidence intervals were computed; empty if the metrics do not state it."""
    kind = metrics.get("interval")
    if kind is None:
        return ""
    return f"In brackets: {kind['confidence']:.0%} interval ({kind['method']}, by {kind['unit']}). "


def own_tables(ours: Ours) -> Iterator[Sheet]:
    """Yield tables of the corpus's own agreement by annotation round and by batch, in the order of the rounds."""
    rounds = sorted(ours["rounds"].items(), key=lambda pair: pair[1]["order"])
    scopes = [*rounds, *([("overall", ours["overall"])] if rounds else [])]
    rows = [(name, *cells) for name, measured in scopes for cells in _rows(measured["categories"])]
    if rows:
        columns = ("Round", "Category", "Items", *STATISTICS.values(), "Reading of α")
        yield Sheet(f"Ours by round. {interval_of(ours)}".strip(), columns, tuple(rows))
    keys = list(next((measured["categories"] for _, measured in rounds), {}))
    batches = [
        (name, batch, *(_text(measured["batches"][batch]["categories"][key]["alpha"]) for key in keys))
        for name, measured in rounds
        for batch in sorted(measured["batches"], key=int)
    ]
    if batches:
        yield Sheet("Ours over time: α by batch", ("Round", "Batch", *keys), tuple(batches))


def of_corpus(settings: Settings, *, corpus: str) -> tuple[list[Sheet], bool]:
    """Return the committed agreement tables of a corpus (its paper's and its own), and whether it has annotations."""
    with workspace(settings) as clone:
        metrics = gather(clone.path, corpus)
        scheme = load(clone.path).corpora[corpus].scheme
    return [*paper_tables(scheme, ours=metrics), *own_tables(metrics)], bool(metrics["rounds"])
