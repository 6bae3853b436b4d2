"""Build the sections of the report on post models: CRADLE's tables for its scheme, and parts that need no paper.

Sections without content are left out: sections about crises need labels with a type and a time, calibration needs
models with probabilities, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pipelines.core.taxonomy import load
from pipelines.evaluate.model_scores import Json
from pipelines.metrics.label_tables import Sheet
from pipelines.report import parts
from pipelines.report.cradle import crisis_parts, recomputed_figures, tables
from pipelines.report.page import Block, PageSection, Points
from pipelines.report.parts import best_of, interval, noun_of, p_value

SCHEME = "cradle"
CHILD = "child_abuse"
IN_PERCENT = "Figures are in percent."
AS_PRINTED = (
    "Tables 4, 12 and 13 to 16 are fractions and Table 8 is in percent, as in the paper; all other figures are in "
    "percent."
)
READING = (
    "[ ] is a 95 % bootstrap interval over {noun}, drawn in groups of near-duplicates, and over runs if a model has "
    "several: the range of results for other test sets of this size and other seeds. It is BCa for scores, percentile "
    "for shares and differences, and inverts a test for calibration errors. That of a single run does not cover other "
    "seeds. ± is the standard deviation over runs.",
    "Unanswered {noun} are left out of a model's scores (CRADLE's rule), and counted as an empty, wrong answer "
    "where a table says all {noun}. Changes by fine-tuning are over all {noun}.",
    "The best model is the one with the highest macro-F1 on the test set: it is selected and scored on the same test "
    "set, so its figure is slightly too high.",
    "A fine-tuned model is named after its entry in params.yaml and the training subset.",
    "Baselines ignore their input: the labels that more than half of the gold outside the test carries, the most "
    "frequent set of labels, and every label at once.",
    "Severity-weighted recall weights each label of gold by the severity that the scheme gives it; the order is ours.",
    "A share of 0 % or 100 % has no interval, because every resample gives the same.",
    "Labels are the most probable set of a model's probabilities, which aims at exact match; the gate compares "
    "macro-F1.",
    "A floor is a required recall. It changes no label, but adds an alert from a threshold that was set on dev; the "
    "recall of the alert on other {noun} is at least the guaranteed one with 95 % confidence, if they are like those "
    "of dev. Too few positives on dev are marked as without guarantee of the floor. On test, below means that the "
    "upper bound of the recall (one-sided, 95 %) is below the guaranteed one.",
    "– marks a value that is undefined or was not measured, never 0.",
)


def sections(
    metrics: Json, *, silver: Json | None = None, models: Mapping[str, Json] | None = None
) -> list[PageSection]:
    """Return the sections of the report on post models that have content.

    Args:
        silver: metrics of the silver (ensemble) labels that models learnt from (CRADLE Tables 5 and 11).
    """
    paper = metrics["scheme"] == SCHEME

    def of(title: str, table: str) -> str:
        return f"{title} ({table})" if paper else title

    tasks = metrics["tasks"].values()
    reading = (AS_PRINTED if paper else IN_PERCENT, *READING)
    claims = parts.standing(SCHEME, ours=bearing(metrics)) if paper else ()
    over = (s for t in tasks for s in (crisis_parts.over_extension(t, kind=CHILD), crisis_parts.over_extensions(t)))
    calibrated = (sheet for task in tasks for sheet in crisis_parts.calibration(task))
    texts = Points(tuple(sentence.format(noun=noun_of(metrics)) for sentence in reading))
    setup = _setup(metrics, silver=silver, models=models)
    return parts.sections_of(
        ("results", of("Results of all models", "Table 4"), _results(metrics, paper=paper)),
        ("labels", of("Results by label", "Tables 13 to 16"), _labels(metrics, paper=paper)),
        ("tuning", of("Changes by fine-tuning", "Table 8"), _tuning(metrics, paper=paper)),
        ("pairs", "Which differences are significant", parts.pairs(metrics)),
        ("unanswered", of("Unanswered items", "Table 12"), _unanswered(metrics, paper=paper)),
        ("mixed-up", of("Confusions", "Section 6"), _mixed_up(metrics)),
        ("over-extension", of("Over-extension", "Section 6"), over),
        ("severity", "Missed labels and crises, by severity", _severity(metrics, paper=paper)),
        ("cost", "Cost and latency", map(crisis_parts.spent, tasks)),
        ("calibration", "Calibration of probabilities", calibrated),
        ("dev", "On dev", map(crisis_parts.dev, tasks)),
        ("set-up", of("Data and settings", "Tables 5 and 11"), setup),
        ("discrepancies", "Where the paper's claims and numbers disagree", claims),
        ("reading", "How to read this page", [texts]),
    )


def _results(metrics: Json, *, paper: bool) -> Iterator[Block | None]:
    if paper:
        yield tables.table_4(metrics)
    for key, task in metrics["tasks"].items():
        if not paper:
            yield parts.scores(key, task)
        if task["best"]:
            yield parts.models_drawing(key, task, paper=recomputed_figures.macro_f1() if paper else {})
        yield parts.ordinal(key, task)
        yield parts.unflagged(key, task)
    if paper:
        yield tables.table_4_again().folded()


def _labels(metrics: Json, *, paper: bool) -> Iterator[Block | None]:
    ensemble = {"Majority Voting, paper": recomputed_figures.label_f1("cradle")} if paper else {}
    for key, task in metrics["tasks"].items():
        yield parts.heat(key, task, paper=ensemble)
        yield parts.labels_drawing(key, task, paper=recomputed_figures.label_f1(task["best"]) if paper else {})
        yield parts.misses_drawing(key, task) if task["kind"] == "multi" else None
        yield parts.labels_sheet(key, task)
    if paper:
        yield from (sheet.folded() for sheet in tables.tables_13_to_16(metrics))


def _tuning(metrics: Json, *, paper: bool) -> Iterator[Block]:
    if paper:
        yield tables.table_8(metrics)
    else:
        yield from (tables.changes(key, task) for key, task in metrics["tasks"].items())


def _unanswered(metrics: Json, *, paper: bool) -> Iterator[Block | None]:
    theirs = {"Gemini-2.5-Pro, paper": recomputed_figures.refused("gemini")} if paper else {}
    if paper:
        yield tables.table_12(metrics)
    yield from parts.unanswered(metrics)
    for task in metrics["tasks"].values():
        yield crisis_parts.refusals(task, paper=theirs, carried=recomputed_figures.support() if paper else {})


def _mixed_up(metrics: Json) -> Iterator[Block]:
    for task in metrics["tasks"].values():
        yield from crisis_parts.confusions(task)
        yield from crisis_parts.matrices(task)
        yield crisis_parts.violations(task)


def _severity(metrics: Json, *, paper: bool) -> Iterator[Block]:
    for task in metrics["tasks"].values():
        yield from crisis_parts.severity(task)
        yield crisis_parts.floors(task)
    if paper:
        severities = load(SCHEME).category().severities
        names = recomputed_figures.names().items()
        theirs = {name: recomputed_figures.severity_recall(key, severities=severities) for key, name in names}
        yield crisis_parts.published_severity(theirs)


def _setup(metrics: Json, *, silver: Json | None, models: Mapping[str, Json] | None) -> Iterator[Block]:
    if metrics["scheme"] == SCHEME:
        yield tables.table_5(silver)
        yield tables.table_11(metrics, silver=silver)
        yield tables.settings(models)
    settings = tuple((name, _setting(value)) for name, value in sorted(metrics["settings"].items()))
    yield Sheet("The section finetune of params.yaml", ("Setting", "Value"), settings)


def _setting(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {each}" for key, each in value.items()) or "none"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def bearing(metrics: Json) -> dict[str, str]:
    """Return sentences with this corpus's results on CRADLE's claims: ensemble, subsets, refusals and child abuse."""
    task = tables.task_of(metrics)
    if task is None:
        return {}
    figures = {
        "ensemble": _ensemble(task),
        "subsets": _subsets(task),
        "refusals": _refusals(task),
        "child": _child(task),
    }
    return {key: text for key, text in figures.items() if text}


def _ensemble(task: Json) -> str:
    exact = {n: m["all"]["figures"]["exact"] for n, m in task["models"].items() if m["kind"] in ("ensemble", "votes")}
    best = {
        kind: max((n for n in exact if task["models"][n]["kind"] == kind), key=lambda n: exact[n]["mean"], default=None)
        for kind in ("ensemble", "votes")
    }
    whole, member = best["ensemble"], best["votes"]
    if whole is None or member is None:
        return ""
    return (
        f"{whole} is exactly right for {interval(exact[whole])} %, {member} for {interval(exact[member])} %"
        f"{_tested(task, whole, member, test='mcnemar', name='McNemar')}."
    )


def _subsets(task: Json) -> str:
    sentences = []
    for name, model in sorted(task["models"].items()):
        other = f"{model['name']}-unanimous"
        if model["subset"] == "consensus" and other in task["models"]:
            pair = [interval(task["models"][n]["all"]["figures"]["macro_f1"]) for n in (name, other)]
            tested = _tested(task, name, other, test="bootstrap", name="bootstrap")
            sentences.append(f"{model['name']}: macro-F1 {pair[0]} (consensus), {pair[1]} (unanimous){tested}.")
    return " ".join(sentences)


def _tested(task: Json, a: str, b: str, *, test: str, name: str) -> str:
    pair = next((pair for pair in task["pairs"] if {pair["a"], pair["b"]} == {a, b}), None)
    return "" if pair is None else f" ({name} p {p_value(pair['p'].get(test))})"


def _refusals(task: Json) -> str:
    sentences = []
    for name, model in sorted(task["models"].items()):
        lost = sum(n for outcome, n in model["outcomes"].items() if outcome != "vote")
        if lost and model["valid"]:
            recalls = (interval(model[over]["figures"]["macro_recall"]) for over in ("valid", "all"))
            sentences.append(f"{name}, {lost:,} not answered: macro-recall {', over all items '.join(recalls)}.")
    return " ".join(sentences)


def _child(task: Json) -> str:
    best = best_of(task)
    if best is None or not best["valid"]:
        return ""
    sentences = []
    for label in task["labels"]:
        if label.startswith("childabuse_endangerment"):
            figures = best["valid"]["labels"][label]
            sentences.append(
                f"{label}: precision {interval(figures['precision'])}, recall {interval(figures['recall'])}"
            )
    return f"{task['best']}: {'; '.join(sentences)}."
