"""Put the sections of the report on models together: declared tables, plots, and what the paper says beside them."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.evaluate.report import claims, parts
from pipelines.evaluate.report.page import Block, PageSection
from pipelines.evaluate.report.results import Results
from pipelines.evaluate.report.texts import points, text
from pipelines.metrics.label_tables import Sheet


def sections(results: Results) -> list[PageSection]:
    """Return the sections that have content."""
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
        ("cost", "Cost and latency", sheets("cost")),
        ("calibration", "Calibration of probabilities", _calibration(results)),
        ("dev", "On dev", sheets("dev")),
        ("set-up", "Data and settings", sheets("counts", "votes", "tuning", "decoding", "settings")),
        ("discrepancies", "Where the paper's claims and numbers disagree", claims.blocks(results)),
        ("reading", "How to read this page", [reading]),
    )
    return parts.sections_of(*((key, paper.titled(key, title), blocks) for key, title, blocks in found))


def _results(results: Results) -> Iterator[Block | None]:
    yield from results.sheets("scores")
    for key, task in results.tasks.items():
        printed = {row: figures.get("macro_f1") for row, figures in results.paper.scores(key).items()}
        yield parts.models_drawing(task, paper={row: value for row, value in printed.items() if value is not None})
    yield from results.sheets("order", "review")


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


def _calibration(results: Results) -> Iterator[Sheet]:
    yield from results.sheets("calibration", "risk")
    for task in results.tasks.values():
        yield from (parts.reliability(name, calibrated) for name, calibrated in task["calibrated"].items())
    yield from results.sheets("brier")
