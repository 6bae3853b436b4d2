"""Sections that the report of every scheme has, and the standing table of what a paper says against its own numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import yaml

from pipelines.evaluate.benchmark import Json
from pipelines.metrics.tables import Sheet
from pipelines.report import pairs as report_pairs
from pipelines.report import parts
from pipelines.report.page import Block, Folded, Prose, Section
from pipelines.report.parts import title_of

PAPERS = Path(__file__).with_name("papers")


def section(key: str, title: str, blocks: Iterable[Block]) -> Section:
    """Return a section of the blocks that there are."""
    return Section(key, title, tuple(blocks))


def pairs(metrics: Json) -> Iterator[Block]:
    """Give each task's paired tests: how many differences are sure, the best model's, and all others."""
    for key, task in metrics["tasks"].items():
        told = report_pairs.told_apart(task)
        if told:
            yield f"{title_of(key)}: {told}"
        for i, sheet in enumerate(report_pairs.pairs(key, task)):
            yield Folded(sheet) if i else sheet


def unanswered(metrics: Json) -> Iterator[Block]:
    """Give the models that left something unanswered, or say that there is none."""
    sheet = parts.unanswered(metrics)
    if sheet:
        yield sheet
    elif any(task["models"] for task in metrics["tasks"].values()):
        yield f"Every model answered about all {parts.noun_of(metrics)}."


@cache
def discrepancies(paper: str) -> tuple[Mapping[str, str], ...]:
    """Return where a paper's words and numbers part (SPEC 1.6): ``where``, ``claim``, ``found``, ``source``."""
    text = (PAPERS / f"{paper}_discrepancies.yaml").read_text(encoding="utf-8")
    return tuple(yaml.safe_load(text))


def standing(paper: str, *, ours: Mapping[str, str]) -> Iterator[Block]:
    """Give the standing table of discrepancies; ``ours``: what our runs say, by a row's ``ours``."""
    yield (
        "Found by computing the paper's claims again from its own tables. They are kept here whatever our runs say, so "
        "that nobody builds on them; where our runs bear on a claim, their figures stand in the last column."
    )
    rows = [
        (row["where"], row["claim"], row["found"], row["source"], ours.get(row.get("ours", ""), ""))
        for row in discrepancies(paper)
    ]
    columns = ("Where", "The paper says", "Its numbers say", "Found by", "Our runs")
    yield Prose(Sheet("Standing table of discrepancies", columns, tuple(rows)))
