"""Tables of the papers as the report renders them, with metrics of ours or without."""

from functools import cache
from typing import Any

from pipelines.core.taxonomy import load
from pipelines.evaluate.report import papers
from pipelines.evaluate.report.papers import Paper
from pipelines.evaluate.report.results import Results, arranged
from pipelines.metrics.label_tables import Sheet
from tests.small_corpus import ROOT


@cache
def paper(name: str) -> Paper:
    return papers.available(root=ROOT)[name]


def results(name: str, metrics: Any = None, **more: Any) -> Results:
    scheme = load(name)
    return Results(arranged(metrics, scheme=scheme, **more) if metrics else {"tasks": {}}, scheme, paper(name))


def sheet(name: str, table: str, metrics: Any = None, **more: Any) -> Sheet:
    [made] = results(name, metrics, **more).rendered(paper(name).tables[table])
    return made


def rows(made: Sheet, *, whose: str) -> dict[str, tuple[str, ...]]:
    """Return the cells of rows of the paper, recomputed ones or ours by name, without intervals."""
    found = [row for row in made.rows if row[1].split(":")[0].split(";")[0].split(",")[0] == whose]
    return {row[0]: tuple(cell.split(" [")[0] for cell in row[2:]) for row in found}
