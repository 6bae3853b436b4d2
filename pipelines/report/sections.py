"""Build the report sections that all schemes share, and the table of a paper's discrepancies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import yaml

from pipelines.evaluate.benchmark import Json
from pipelines.metrics.tables import Sheet
from pipelines.report import pairs as report_pairs
from pipelines.report import parts
from pipelines.report.page import Block, Folded, PageSection, Prose
from pipelines.report.parts import title_of

PAPERS = Path(__file__).with_name("papers")


def section(key: str, title: str, blocks: Iterable[Block]) -> PageSection:
    """Return a section of these blocks."""
    return PageSection(key, title, tuple(blocks))


def pairs(metrics: Json) -> Iterator[Block]:
    """Yield each task's paired tests: the number of significant differences, the best model's pairs, and all others."""
    for key, task in metrics["tasks"].items():
        told = report_pairs.told_apart(task)
        if told:
            yield f"{title_of(key)}: {told}"
        for i, sheet in enumerate(report_pairs.pairs(key, task)):
            yield Folded(sheet) if i else sheet


def unanswered(metrics: Json) -> Iterator[Block]:
    """Yield the models that left items unanswered, or a sentence that there are none."""
    sheet = parts.unanswered(metrics)
    if sheet:
        yield sheet
    elif any(task["models"] for task in metrics["tasks"].values()):
        yield f"Every model answered for all {parts.noun_of(metrics)}."


@cache
def discrepancies(paper: str) -> tuple[Mapping[str, str], ...]:
    """Return where a paper's claims and numbers disagree (SPEC 1.6): ``where``, ``claim``, ``found``, ``source``."""
    text = (PAPERS / f"{paper}_discrepancies.yaml").read_text(encoding="utf-8")
    return tuple(yaml.safe_load(text))


def standing(paper: str, *, ours: Mapping[str, str]) -> Iterator[Block]:
    """Yield the table of discrepancies; ``ours``: our runs' results, by a row's ``ours``."""
    yield (
        "These discrepancies were found by recomputing the paper's claims from its own tables. They are listed "
        "whatever our runs show, so that no one relies on the claims; the last column has our runs' figures, if any."
    )
    rows = [
        (row["where"], row["claim"], row["found"], row["source"], ours.get(row.get("ours", ""), ""))
        for row in discrepancies(paper)
    ]
    columns = ("Where", "The paper says", "Its numbers say", "Found by", "Our runs")
    yield Prose(Sheet("Table of discrepancies", columns, tuple(rows)))
