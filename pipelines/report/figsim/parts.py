"""Build the sections of the report on meme models: FigSIM's tables and figures, and the paper's discrepancies."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.evaluate.label_errors import ANY
from pipelines.evaluate.model_scores import Json
from pipelines.metrics.label_tables import UNDEFINED
from pipelines.report import parts
from pipelines.report import sections as report_sections
from pipelines.report.figsim import tables
from pipelines.report.page import Block, Drawing, PageSection, Points
from pipelines.report.parts import best_of, interval
from pipelines.report.sections import section

READING = (
    "Scores are times 100, as the paper prints them. ± is the standard deviation over runs (n - 1); the number of runs "
    "is printed with it, unlike in the paper.",
    "[ ] is a 95 % bootstrap interval over memes, drawn in groups of near-duplicates, and over runs if a model has "
    "several: the range of results for other test sets of this size and other seeds. It is BCa for scores and "
    "percentile for shares and differences. That of a single run does not cover other seeds.",
    "Unanswered memes are left out of a model's scores, as the paper does for Llama; a separate table shows the scores "
    "over all memes, where a missing answer counts as wrong.",
    "The best model of a task is the one with the highest macro-F1 on the test set, as in the paper: it is selected "
    "and scored on the same test set, so its figure is slightly too high.",
    "The best baseline gives every meme the majority label or, for tasks with several labels, all of them or the most "
    "frequent set, whichever scores highest.",
    "Where a meme has several labels, each is given from the threshold with its best F1 on validation, which aims at "
    "the gate's macro-F1; the severity is the most probable class, which aims at exact match.",
    "– marks a value that is undefined or was not measured, never 0.",
)
FIGURES = {"severity": 4, "figurative": 7, "related": 8}


def sections(metrics: Json) -> list[PageSection]:
    """Return the sections of the report on meme models that have content, from ``evaluate.json``."""
    conditions = [parts.conditions(metrics, published=tables.misclassified)]
    setup = [tables.table_8(metrics), tables.table_9(metrics), tables.table_10(metrics)]
    claims = report_sections.standing("figsim", ours=_bearing(metrics))
    found = [
        section("results", "Results of all models (Table 3)", _results(metrics)),
        section("labels", "Results by label (Table 4)", _labels(metrics)),
        section("pairs", "Which differences are significant", report_sections.pairs(metrics)),
        section("direction", "Over- and underprediction (Figures 4, 7 and 8)", _misses(metrics)),
        section("figurative", "Severity underpredicted where language is figurative (Table 12)", _subtypes(metrics)),
        section("conditions", "Errors by context and modality (Appendix F)", conditions),
        section("unanswered", "Unanswered memes", report_sections.unanswered(metrics)),
        section("set-up", "Data and settings (Tables 8, 9 and 10)", setup),
        section("discrepancies", "Where the paper's claims and numbers disagree", claims),
        section("reading", "How to read this page", [Points(READING)]),
    ]
    return [part for part in found if part.blocks]


def _results(metrics: Json) -> Iterator[Block | None]:
    yield tables.table_3(metrics)
    for key, task in metrics["tasks"].items():
        if task["best"]:
            yield parts.models_drawing(key, task, paper=tables.macro_f1(key))
    for key, task in metrics["tasks"].items():
        yield parts.ordinal(key, task)
        yield parts.unflagged(key, task)


def _labels(metrics: Json) -> Iterator[Block | None]:
    yield tables.table_4(metrics)
    for key, task in metrics["tasks"].items():
        yield parts.labels_drawing(key, task, paper=tables.label_f1(key))


def _misses(metrics: Json) -> Iterator[Block]:
    drawings: list[Drawing] = []
    for key, number in FIGURES.items():
        task = metrics["tasks"].get(key)
        drawing = task and parts.misses_drawing(key, task, number=number)
        if drawing:
            drawings.append(drawing)
    if drawings:
        yield (
            "For severity, over means that the answer is more severe than gold, under that it is less severe; for the "
            "other two, over is a label that gold lacks and under one that the answer lacks. The number of memes with "
            "the label in gold is in brackets. The paper's text gives no numbers for its plots; it states that low "
            "severities (none, wish to be dead) are overpredicted and high ones (planning, attempt or death) "
            "underpredicted, and that irony, harmful factors and stylized depictions are overpredicted."
        )
        yield from drawings


def _subtypes(metrics: Json) -> Iterator[Block]:
    if any(model["errors"]["by_figurative"] for task in metrics["tasks"].values() for model in task["models"].values()):
        yield tables.table_12(metrics)


def _bearing(metrics: Json) -> dict[str, str]:
    task = metrics["tasks"].get("severity")
    best = best_of(task) if task else None
    if best is None:
        return {}
    errors = best["errors"]
    found = {
        key: "Severity, wrong: " + ", ".join(f"{label} {_percent(rate)}" for label, rate in rates.items()) + "."
        for key, rates in errors["by_category"].items()
    }
    subtypes = []
    for name, rates in errors["by_figurative"].items():
        present, absent = (_percent(rates[presence]["of_wrong"]) for presence in ("present", "absent"))
        subtypes.append(f"{'any of them' if name == ANY else name} {present} with, {absent} without")
    if subtypes:
        found["subtypes"] = f"Too low, of wrong answers: {'; '.join(subtypes)}."
    return found


def _percent(rate: Json) -> str:
    return UNDEFINED if rate["rate"] is None else f"{interval(rate, digits=0)} %"
