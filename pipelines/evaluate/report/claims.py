"""Put our figures beside the claims of a paper that its own numbers contradict."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.evaluate.label_errors import ANY
from pipelines.evaluate.model_scores import Json
from pipelines.evaluate.report.page import Block
from pipelines.evaluate.report.papers import Evidence
from pipelines.evaluate.report.parts import best_of, interval, p_value
from pipelines.evaluate.report.results import Results
from pipelines.metrics.label_tables import UNDEFINED, Sheet

FOUND = (
    "These discrepancies were found by recomputing the paper's claims from its own tables. They are listed "
    "whatever our runs show, so that no one relies on the claims; the last column has our runs' figures, if any."
)


def blocks(results: Results) -> Iterator[Block]:
    """Yield the table of a paper's discrepancies, with our results on them."""
    claims = results.paper.claims
    rows = tuple((x.where, x.claim, x.found, x.source, shown(x.ours, results.tasks)) for x in claims)
    if rows:
        yield FOUND
        columns = ("Where", "The paper says", "Its numbers say", "Found by", "Our runs")
        yield Sheet("Table of discrepancies", columns, rows, "prose")


def shown(evidence: Evidence | None, tasks: Json) -> str:
    """Return sentences with our results on a claim; empty if there are none."""
    task = tasks.get(evidence.task) if evidence else None
    if evidence is None or task is None:
        return ""
    return " ".join(filter(None, SHOWN[evidence.show](task, evidence)))


def _wrong(task: Json, evidence: Evidence) -> Iterator[str]:
    if best := best_of(task):
        rates = best["errors"]["by_category"].get(evidence.category, {}).items()
        yield f"{task['title']}, wrong: {', '.join(f'{label} {_percent(rate)}' for label, rate in rates)}."


def _presence(task: Json, evidence: Evidence) -> Iterator[str]:
    best, subtypes = best_of(task), []
    for name, rates in (best["errors"]["by_labels"].get(evidence.category, {}) if best else {}).items():
        present, absent = (_percent(rates[presence]["of_wrong"]) for presence in ("present", "absent"))
        subtypes.append(f"{'any of them' if name == ANY else name} {present} with, {absent} without")
    if subtypes:
        yield f"Too low, of wrong answers: {'; '.join(subtypes)}."


def _percent(rate: Json) -> str:
    return UNDEFINED if rate["rate"] is None else f"{interval(rate, digits=0)} %"


def _votes(task: Json, _: Evidence) -> Iterator[str]:
    exact = {n: m["all"]["figures"]["exact"] for n, m in task["models"].items() if m["kind"] in ("ensemble", "votes")}
    whole, member = (
        max((n for n in exact if task["models"][n]["kind"] == kind), key=lambda n: exact[n]["mean"], default=None)
        for kind in ("ensemble", "votes")
    )
    if whole is not None and member is not None:
        tested = _tested(task, whole, member, test="mcnemar", name="McNemar")
        shares = [interval(exact[name]) for name in (whole, member)]
        yield f"{whole} is exactly right for {shares[0]} %, {member} for {shares[1]} %{tested}."


def _subsets(task: Json, _: Evidence) -> Iterator[str]:
    for name, model in task["models"].items():
        other = f"{model['name']}-unanimous"
        if model["subset"] == "consensus" and other in task["models"]:
            pair = [interval(task["models"][n]["all"]["figures"]["macro_f1"]) for n in (name, other)]
            tested = _tested(task, name, other, test="bootstrap", name="bootstrap")
            yield f"{model['name']}: macro-F1 {pair[0]} (consensus), {pair[1]} (unanimous){tested}."


def _tested(task: Json, a: str, b: str, *, test: str, name: str) -> str:
    pair = next((pair for pair in task["pairs"] if {pair["a"], pair["b"]} == {a, b}), None)
    return "" if pair is None else f" ({name} p {p_value(pair['p'].get(test))})"


def _unanswered(task: Json, _: Evidence) -> Iterator[str]:
    for name, model in task["unanswered"].items():
        if model["valid"]:
            lost = sum(n for outcome, n in model["outcomes"].items() if outcome != "vote")
            recalls = (interval(model[over]["figures"]["macro_recall"]) for over in ("valid", "all"))
            yield f"{name}, {lost:,} not answered: macro-recall {', over all items '.join(recalls)}."


def _labels(task: Json, evidence: Evidence) -> Iterator[str]:
    best = best_of(task)
    if best and best["valid"]:
        found = {label: best["valid"]["labels"][label] for label in evidence.labels}
        cells = (f"{x}: precision {interval(f['precision'])}, recall {interval(f['recall'])}" for x, f in found.items())
        yield f"{task['best']}: {'; '.join(cells)}."


SHOWN = {
    "wrong": _wrong,
    "presence": _presence,
    "votes": _votes,
    "subsets": _subsets,
    "unanswered": _unanswered,
    "labels": _labels,
}
