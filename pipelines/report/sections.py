"""Build the report sections that all schemes share: paired tests, unanswered items, and a paper's discrepancies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pipelines.evaluate.model_scores import Json
from pipelines.metrics.label_tables import UNDEFINED, Sheet
from pipelines.report import parts
from pipelines.report.page import Block, Folded, PageSection, Prose
from pipelines.report.papers import printed
from pipelines.report.parts import interval, title_of

# the first two resample whole groups of near-duplicates; McNemar ignores the groups
TESTS = {"bootstrap": "Bootstrap", "randomisation": "Randomisation", "mcnemar": "McNemar"}
ENOUGH = 0.05


def section(key: str, title: str, blocks: Iterable[Block | None]) -> PageSection:
    """Create a section of the report from blocks; blocks that are ``None`` are left out."""
    return PageSection(key, title, tuple(block for block in blocks if block is not None))


def pairs(metrics: Json) -> Iterator[Block]:
    """Yield for each task how many pairs of models differ significantly, and a table of the paired tests."""
    for key, task in metrics["tasks"].items():
        if sentence := _told_apart(task):
            yield f"{title_of(key)}: {sentence}"
        for i, sheet in enumerate(_pair_sheets(key, task)):
            yield Folded(sheet) if i else sheet


def _pair_sheets(key: str, task: Json) -> Iterator[Sheet]:
    against: list[tuple[str, ...]] = []
    rest: list[tuple[str, ...]] = []
    for pair in task["pairs"]:
        turned = pair["b"] == task["best"]
        (against if task["best"] in (pair["a"], pair["b"]) else rest).append(_pair(pair, turned=turned))
    tests = (f"{name}, p (Holm)" for name in TESTS.values())
    columns = ("A against B", "Macro-F1, A−B", "Weighted F1, A−B", "Right alone: A / B", *tests)
    if against:
        yield Sheet(f"{title_of(key)}: the best model against the others", columns, tuple(against))
    if rest:
        yield Sheet(f"{title_of(key)}: all other pairs", columns, tuple(rest))


def _pair(pair: Json, *, turned: bool) -> tuple[str, ...]:
    a, b = (pair["b"], pair["a"]) if turned else (pair["a"], pair["b"])
    alone = [pair["mcnemar"][side] for side in (("b_only", "a_only") if turned else ("a_only", "b_only"))]
    leads = [interval(_turn(pair[figure]) if turned else pair[figure]) for figure in ("macro_f1", "weighted_f1")]
    tests = [f"{p_value(pair['p'].get(test))} ({p_value(pair['holm'].get(test))})" for test in TESTS]
    return (f"{a} against {b}", *leads, f"{alone[0]:,} / {alone[1]:,}", *tests)


def _turn(lead: Json) -> Json:
    turned = {"value": lead["value"], "low": lead["high"], "high": lead["low"]}
    return {key: None if value is None else -value for key, value in turned.items()}


def p_value(value: float | None) -> str:
    """Format a p-value as the papers do, such as ``<.001`` or ``.042``; a dash if undefined."""
    if value is None:
        return UNDEFINED
    return "<.001" if value < 0.001 else f"{value:.3f}".lstrip("0") if value < 1 else "1"


def _told_apart(task: Json) -> str | None:
    """Return a sentence on how many pairs of models differ significantly after Holm's correction."""
    if not task["pairs"]:
        return None
    sure = sum(pair["holm"]["bootstrap"] < ENOUGH for pair in task["pairs"])
    text = f"{sure:,} of {len(task['pairs']):,} pairs of models differ in macro-F1 beyond chance"
    return f"{text} (bootstrap, Holm's p below .05)."


def unanswered(metrics: Json) -> Iterator[Block]:
    """Yield a table of the models with unanswered items, or a sentence that there are none."""
    sheet = parts.unanswered(metrics)
    if sheet:
        yield sheet
    elif any(task["models"] for task in metrics["tasks"].values()):
        yield f"Every model answered for all {parts.noun_of(metrics)}."


def discrepancies(paper: str) -> tuple[Mapping[str, str], ...]:
    """Return the stored discrepancies between a paper's claims and its own numbers (SPEC 1.6)."""
    return tuple(printed(f"{paper}_claims"))


def standing(paper: str, *, ours: Mapping[str, str]) -> Iterator[Block]:
    """Yield a table of a paper's discrepancies; ``ours`` has this corpus's results, by the field ``ours`` of a row."""
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
