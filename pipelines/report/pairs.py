"""Build the report's tables of paired tests between models."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.evaluate.benchmark import Json
from pipelines.metrics.tables import UNDEFINED, Sheet
from pipelines.report.parts import interval, title_of

# the first two resample whole groups of near-duplicates; McNemar ignores the groups
TESTS = {"bootstrap": "Bootstrap", "randomisation": "Randomisation", "mcnemar": "McNemar"}
ENOUGH = 0.05


def pairs(key: str, task: Json) -> Iterator[Sheet]:
    """Yield two tables of paired tests: the best model against every other model, and all other pairs."""
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
    """Return a p-value in the papers' format."""
    if value is None:
        return UNDEFINED
    return "<.001" if value < 0.001 else f"{value:.3f}".lstrip("0") if value < 1 else "1"


def told_apart(task: Json) -> str | None:
    """Return a sentence on how many pairs of models differ significantly after Holm's correction."""
    if not task["pairs"]:
        return None
    sure = sum(pair["holm"]["bootstrap"] < ENOUGH for pair in task["pairs"])
    found = f"{sure:,} of {len(task['pairs']):,} pairs of models differ in macro-F1 beyond chance"
    return f"{found} (bootstrap, Holm's p below .05)."
