"""Build the tables of ``corpus agreement-report``: those of the papers (``like: agreement``), and our agreement.

*Paper* is the printed figure. *Recomputed* is our code's result from the paper's own label-wise figures, marked ``≈``
where it differs but the paper's rounding can explain it, and ``≠`` where rounding cannot. *Ours* comes from the metrics
of the stage; nothing is computed from annotations here. An undefined value is a dash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.core.config.params import load
from pipelines.core.taxonomy import load as load_scheme
from pipelines.evaluate.report import papers, parts
from pipelines.evaluate.report.results import Results
from pipelines.metrics.label_tables import UNDEFINED, Sheet
from pipelines.store.metrics_file import read_metrics

Ours = Mapping[str, Any]
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


def paper_tables(scheme: str | None = None, *, ours: Ours | None = None, root: Path = Path()) -> Iterator[Sheet]:
    """Yield the agreement tables of the papers, or of those about a label scheme, with our rows if ``ours`` has any.

    Args:
        ours: the metrics of the stage ``agreement``.
        root: the checkout or clone that has the papers.
    """
    for paper in papers.available(root=root).values():
        if scheme in (None, paper.scheme):
            data = {"agreement": ours if ours and ours["rounds"] else {}}
            results = Results(data, load_scheme(paper.scheme, root=root), paper)
            for table in paper.like("agreement"):
                yield from (replace(sheet, title=f"{paper.name} {sheet.title}") for sheet in results.rendered(table))


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


def of_corpus(root: Path, *, corpus: str) -> tuple[list[Sheet], bool]:
    """Return the agreement tables of a corpus in a clone (its paper's and its own), and whether it has annotations."""
    metrics = gather(root, corpus)
    theirs = paper_tables(load(root).corpora[corpus].scheme, ours=metrics, root=root)
    return [*theirs, *own_tables(metrics)], bool(metrics["rounds"])
