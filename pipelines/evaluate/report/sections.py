"""Put the sections of the report on models together: declared tables, plots, and what the paper says beside them."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.evaluate.label_errors import ANY
from pipelines.evaluate.model_scores import Json
from pipelines.evaluate.report import parts
from pipelines.evaluate.report.page import Block, PageSection, points, text
from pipelines.evaluate.report.papers import Evidence
from pipelines.evaluate.report.parts import best_of, interval, p_value
from pipelines.evaluate.report.results import Results
from pipelines.metrics.bootstrap import wilson
from pipelines.metrics.label_tables import UNDEFINED, Sheet


def sections(results: Results) -> list[PageSection]:
    paper, sheets = results.paper, results.sheets
    reading = points("reading", *(paper.reading or (text("reading_percent"),)), noun=results.scheme.items)
    found = (
        ("results", "Results of all models", _results(results)),
        ("labels", "Results by label", _labels(results)),
        ("tuning", "Changes by fine-tuning", sheets("changes")),
        (
            "pairs",
            "Which differences are significant",
            (block for t in results.tasks.values() for block in parts.pairs(t)),
        ),
        ("direction", "Over- and underprediction", _direction(results)),
        ("presence", "Answers that are too low, by the presence of other labels", sheets("presence")),
        ("conditions", "Errors by other labels", sheets("conditions")),
        ("unanswered", f"Unanswered {results.scheme.items}", _unanswered(results)),
        ("mixed-up", "Confusions", _confusions(results)),
        ("over-extension", "Over-extension", _over_extension(results)),
        ("severity", "Missed labels and crises, by severity", sheets("severity", "missed", "floors")),
        ("transfer", "Transfer from other corpora", _with_text(results, "transfer")),
        ("backtest", "Backtests by time", _with_text(results, "backtest", made="later")),
        ("queue", "What reviewers leave unread", _queue(results)),
        ("joint", "Errors in two tasks together", _joint(results)),
        ("cost", "Cost and latency", sheets("cost")),
        ("calibration", "Calibration of probabilities", _calibration(results)),
        ("dev", "On dev", sheets("dev")),
        ("set-up", "Data and settings", sheets("counts", "votes", "tuning", "decoding", "settings", "approvals")),
        ("discrepancies", "Where the paper's claims and numbers disagree", discrepancies(results)),
        ("reading", "How to read this page", [reading]),
    )
    return parts.sections_of(*((key, paper.titled(key, title), blocks) for key, title, blocks in found))


def _results(results: Results) -> Iterator[Block | None]:
    yield from results.sheets("scores", "leak_free")
    for key, task in results.tasks.items():
        printed = {row: figures.get("macro_f1") for row, figures in results.paper.scores(key).items()}
        yield parts.models_drawing(task, paper={row: value for row, value in printed.items() if value is not None})
    yield from results.sheets("order", "review")
    yield from (sentence for task in results.tasks.values() for sentence in limits(task, noun=results.scheme.items))


# The exact test of McNemar (1947) is below .05 from 6 items on that all favour one model: 2 * 0.5 ** 6 = .03.
TOLD_APART = 6
# Ours: with more items of each label the intervals of the tables say enough.
FEW = 93


def limits(task: Json, *, noun: str) -> Iterator[str]:
    """Yield what so few test items cannot tell: the width of an interval, and the smallest difference of two models."""
    support = {label: count for label, count in task["support"].items() if count}
    rarest = min(support, key=lambda label: support[label], default=None)
    if rarest is None or not task["models"] or support[rarest] >= FEW:
        return
    counts = {"all": task["n"], "rarest": support[rarest]}
    values: dict[str, object] = {}
    for name, count in counts.items():
        low, high = wilson(0.5, n=count)
        values |= {name: f"{count:,}", f"{name}_width": f"{50 * (high - low):.0f}"}
        values |= {f"{name}_least": f"{min(100, 100 * TOLD_APART / count):.0f}"}
    yield text("limits", title=task["title"], noun=noun, label=rarest, **values)


def _labels(results: Results) -> Iterator[Block | None]:
    paper = results.paper
    for key, task in results.tasks.items():
        best = paper.row_of(key, paper.best)
        yield parts.heat(task, paper={f"{paper.names[best]}, paper": paper.label_f1(key, best)} if best else {})
        yield parts.labels_drawing(task, paper=paper.label_f1(key, paper.row_of(key, task["best"])))
    yield from results.sheets("label_scores", "labels")


def _direction(results: Results) -> Iterator[Block | None]:
    captions, note = results.paper.captions, results.paper.notes.get("direction", "")
    drawings = [parts.misses_drawing(task, caption=captions.get(key, "")) for key, task in results.tasks.items()]
    if any(drawings):
        yield f"{text('direction', noun=results.scheme.items)} {note}".strip()
        yield from drawings


def _unanswered(results: Results) -> Iterator[Block]:
    yield from results.sheets("unanswered", "refusals")
    if any(task["models"] for task in results.tasks.values()) and not any(
        t["unanswered"] for t in results.tasks.values()
    ):
        yield f"Every model answered for all {results.scheme.items}."


def _confusions(results: Results) -> Iterator[Sheet]:
    for task in results.tasks.values():
        yield from parts.confusions(task)
    yield from results.sheets("violations")


def _over_extension(results: Results) -> Iterator[Sheet]:
    for task in results.tasks.values():
        yield from (parts.over_extension(task, kind=kind) for kind in results.paper.over_extension)
    yield from results.sheets("over_extensions")


def _with_text(results: Results, like: str, *, made: str = "") -> Iterator[Block]:
    """Yield a table of the models (``made`` of a task) with how to read it, if there are any."""
    if any(task[made or like] for task in results.tasks.values()):
        yield text(like, noun=results.scheme.items)
        yield from results.sheets(like)


def _queue(results: Results) -> Iterator[Block | None]:
    for task in results.tasks.values():
        day = next((model["queue"] for model in task["models"].values() if "queue" in model), None)
        if day:
            chance = (f"{100 * (1 - int(k) / day['arrivals']):.0f} % of every label ({k} read)" for k in day["read"])
            values = {"arrivals": f"{day['arrivals']:,}", "labels": " or ".join(day["labels"])}
            yield text("queue", title=task["title"], noun=results.scheme.items, chance=", ".join(chance), **values)
            yield parts.queue_drawing(task)
    yield from results.sheets("queue")


def _joint(results: Results) -> Iterator[Block]:
    if any(results.data["joint"].values()):
        yield text("joint", noun=results.scheme.items)
        yield from results.sheets("joint", "corrected")


def _calibration(results: Results) -> Iterator[Sheet]:
    yield from results.sheets("calibration", "risk")
    for task in results.tasks.values():
        yield from (parts.reliability(name, calibrated) for name, calibrated in task["calibrated"].items())
    yield from results.sheets("brier")


FOUND = (
    "These discrepancies were found by recomputing the paper's claims from its own tables. They are listed "
    "whatever our runs show, so that no one relies on the claims; the last column has our runs' figures, if any."
)


def discrepancies(results: Results) -> Iterator[Block]:
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
        share = {presence: _percent(rate["of_wrong"]) for presence, rate in rates.items()}
        said = f"{share['present']} with, {share['identified']} with and identified, {share['absent']} without"
        subtypes.append(f"{'any of them' if name == ANY else name} {said}")
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


def _lost(task: Json, _: Evidence) -> Iterator[str]:
    for name, model in task["unanswered"].items():
        if model["valid"]:
            lost = sum(n for outcome, n in model["outcomes"].items() if outcome != "vote")
            recalls = (interval(model[over]["figures"]["macro_recall"]) for over in ("valid", "all"))
            yield f"{name}, {lost:,} not answered: macro-recall {', over all items '.join(recalls)}."


def _label_scores(task: Json, evidence: Evidence) -> Iterator[str]:
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
    "unanswered": _lost,
    "labels": _label_scores,
}
