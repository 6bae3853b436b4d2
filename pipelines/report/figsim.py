"""Build FigSIM's Tables 3, 4, 8, 9, 10 and 12 with the paper's figures, recomputed ones and our runs.

*Paper* comes from ``papers/figsim.yaml``. *Recomputed* averages follow from the paper's F1 by label (Table 4) and its
numbers of memes (Table 8), with one decimal more than in the paper. *Ours* comes from ``evaluate.json``
(:mod:`pipelines.evaluate.evaluate`); scores are printed times 100, as mean±standard deviation over runs, without
unanswered items, as in the paper. A dash marks an undefined or missing value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pipelines.core.taxonomy import load
from pipelines.evaluate.label_errors import ANY
from pipelines.evaluate.model_scores import Json
from pipelines.metrics.agreement_coefficients import printed as rounded
from pipelines.metrics.label_tables import UNDEFINED, Sheet, decimals
from pipelines.models.kind import KINDS
from pipelines.report import parts
from pipelines.report.page import Block, PageSection, Points
from pipelines.report.papers import printed
from pipelines.report.parts import best_of, interval
from pipelines.report.prompt_notes import beside

PAPER = "figsim"
published = partial(printed, PAPER)
NAMES = {"figurative": "Figurative", "severity": "Severity", "related": "Related"}
FIGURES = ("macro_f1", "weighted_f1")
BASELINES = {"majority": "Majority", "every_label": "Every label"}


def macro_f1(task: str) -> dict[str, float]:
    """Return the macro-F1 that FigSIM's Table 3 prints, by this project's name of the model."""
    return {row["key"]: row[task][0][0] / 100 for row in _paper_rows() if row[task]}


def label_f1(task: str) -> dict[str, float]:
    """Return the F1 by label that FigSIM's Table 4 prints, as fractions."""
    return {label: mean / 100 for label, (mean, _) in published()["table_4"][task]["labels"].items()}


def misclassified(task: str) -> dict[str, str]:
    """Return how many memes of a context or modality the paper's best model misclassifies, such as ``5/26``."""
    return {row["label"]: "{}/{}".format(*row[task]) for row in published()["errors"] if task in row}


def support(task: str) -> dict[str, int]:
    """Return how many test memes have each label of a task (FigSIM Table 8), merged labels added up."""
    category = load("figsim").category(task)
    counts = published()["table_8"]["categories"][task]
    test = published()["table_8"]["splits"].index("test")
    codes = {label.name: label.code for label in category.labels}
    return {name: sum(counts[code][test] for code in codes[name].split("+")) for name in category.names}


def recomputed(task: str) -> tuple[float, float]:
    """Compute macro-F1 and weighted F1 (times 100) from FigSIM's Table 4 (scores) and Table 8 (numbers of memes)."""
    means = {label: mean for label, (mean, _) in published()["table_4"][task]["labels"].items()}
    weights = support(task)
    weighted = sum(mean * weights[label] for label, mean in means.items()) / sum(weights.values())
    return sum(means.values()) / len(means), weighted


def table_3(ours: Json | None = None) -> Sheet:
    """Return FigSIM's Table 3 (scores of all models and tasks); models with unanswered items have a second row.

    A note beside a figure says what its model rests on, if that is less than the paper that describes the model.
    """
    tasks = ours["tasks"] if ours else {}
    rows: list[tuple[str, ...]] = []
    paper = {row["key"]: row for row in _paper_rows()}
    kinds = {name: model["kind"] for task in tasks.values() for name, model in task["models"].items()}
    others = {
        n: {"name": n, "input": (kinds[n] or UNDEFINED).capitalize()} for n in sorted(kinds.keys() - paper.keys())
    }
    for key, row in {**paper, **others}.items():
        rows += _model_rows(row, models={t: m["models"][key] for t, m in tasks.items() if key in m["models"]})
    for name, title in BASELINES.items():
        baselines = {key: task["baselines"][name] for key, task in tasks.items() if name in task["baselines"]}
        if baselines:
            rows.append((title, "Nothing", UNDEFINED, *_cells({}, ours=baselines), ""))
    scores = [f"{figure}, {whose}" for figure in ("macro-F1", "weighted-F1") for whose in ("paper", "ours")]
    heads = (
        "Model",
        "Input",
        "Our runs",
        *(f"{title} {score}" for title in NAMES.values() for score in scores),
        "Note",
    )
    if not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    return Sheet("Table 3: models on the test set", heads, tuple(rows))


def _paper_rows() -> list[dict[str, Any]]:
    rows = []
    for key, name, inputs, *numbers in published()["table_3"]["rows"]:
        scores = [[numbers[i : i + 2], numbers[i + 2 : i + 4]] for i in range(0, len(numbers), 4)]
        known = [pair if pair[0][0] is not None else None for pair in scores]
        rows.append({"key": key, "name": name, "input": inputs, **dict(zip(NAMES, known, strict=True))})
    return rows


def _model_rows(row: Mapping[str, Any], *, models: Mapping[str, Json]) -> Iterator[tuple[str, ...]]:
    notes = dict.fromkeys(
        filter(None, (KINDS.get(model["kind"], {}).note for model in models.values() if model["kind"]))
    )
    note = "; ".join(notes)
    prompts = "".join(dict.fromkeys(beside(model) for model in models.values()))
    runs = "/".join(dict.fromkeys(str(models[task]["runs"]) for task in NAMES if task in models))
    answered = {task: model["valid"] for task, model in models.items() if model["valid"]}
    yield (f"{row['name']}{prompts}", row["input"], runs or UNDEFINED, *_cells(row, ours=answered), note)
    whole = {task: model["all"] for task, model in models.items() if set(model["outcomes"]) - {"vote"}}
    if whole:
        yield (f"{row['name']}, all records", row["input"], runs, *_cells({}, ours=whole), note)


def _cells(paper: Mapping[str, Any], *, ours: Mapping[str, Json]) -> Iterator[str]:
    for task in NAMES:
        for i, figure in enumerate(FIGURES):
            yield _printed(*paper[task][i]) if paper.get(task) else UNDEFINED
            yield _ours(ours[task]["figures"][figure]) if task in ours else UNDEFINED


def table_4(ours: Json | None = None) -> Sheet:
    """Return FigSIM's Table 4: the F1 by label of the best model for each task, in the paper and in our runs."""
    rows: list[tuple[str, ...]] = []
    for task, paper in published()["table_4"].items():
        measured = ours["tasks"].get(task) if ours else None
        best = best_of(measured) if measured else None
        own = best["valid"] if best else None
        rows.append((paper["title"], paper["model"], "", measured["best"] if measured and best else UNDEFINED, "", ""))
        for label, scores in paper["labels"].items():
            cell = own["labels"].get(label, {}).get("f1") if own else None
            memes = f"{measured['support'].get(label, 0):,}" if measured else UNDEFINED
            rows.append((label, _printed(*scores), "", *_with_interval(cell), memes))
        [weighted] = [row[task][1][0] for row in _paper_rows() if row["key"] == paper["key"]]
        means = {"Average (macro-F1)": paper["average"], "Weighted average": weighted}
        for (title, mean), figure, again in zip(means.items(), FIGURES, recomputed(task), strict=True):
            cells = _with_interval(own["figures"][figure] if own else None)
            memes = f"{measured['n']:,}" if measured else UNDEFINED
            rows.append((title, _printed(mean), f"{rounded(again, digits=3)}", *cells, memes))
    columns = ("Label", "F1, paper", "Recomputed", "F1, ours", "95 % interval, ours", "Test memes, ours")
    return Sheet("Table 4: F1 by label of the best model of each task", columns, tuple(rows))


def table_8(ours: Json | None = None) -> Sheet:
    """Return FigSIM's Table 8: the number of memes with each gold label, by split."""
    paper = published()["table_8"]
    scheme = load("figsim")
    composition = ours["composition"] if ours else {}
    rows = []
    for key, counts in paper["categories"].items():
        names = {label.code: label.name for label in scheme.category(key).labels}
        for code, numbers in counts.items():
            own = [composition.get(split, {}).get(key, {}).get(names[code]) for split in paper["splits"]]
            rows.append((f"{code} {names[code]}", *_counts(numbers, own=own)))
    items = [ours["items"].get(split) if ours else None for split in paper["splits"]]
    rows.append(("Total", *_counts(paper["items"], own=items)))
    columns = [f"{split}, {whose}" for split in ("Train", "Validation", "Test", "All") for whose in ("paper", "ours")]
    return Sheet("Table 8: memes with each label by split", ("Label", *columns), tuple(rows))


def _counts(paper: Sequence[int], *, own: Sequence[int | None]) -> Iterator[str]:
    known = [n for n in own if n is not None]
    for theirs, mine in zip([*paper, sum(paper)], [*own, sum(known) if known else None], strict=True):
        yield f"{theirs:,}"
        yield UNDEFINED if mine is None else f"{mine:,}"


def table_9(ours: Json | None = None) -> Sheet:
    """Return FigSIM's Table 9: the training settings of the paper's models and ours."""
    settings = ours["settings"] if ours else {}
    rows = []
    for row in published()["table_9"]:
        own = settings.get(row["setting"]) if "setting" in row else row["ours"] if ours else None
        rows.append((row["name"], row["paper"], UNDEFINED if own is None else str(own)))
    return Sheet("Table 9: training", ("Name", "Paper", "Ours"), tuple(rows))


def table_10(ours: Json | None = None) -> Sheet:
    """Return FigSIM's Table 10: the decoding settings of language models, with a column for each of ours (SPEC 10)."""
    decoding = ours["decoding"] if ours else {}
    rows = []
    for row in published()["table_10"]:
        own = [_sent(asked, parameter=row.get("parameter")) for asked in decoding.values()]
        rows.append((row["name"], row["paper"], *own))
    return Sheet("Table 10: decoding", ("Parameter", "Paper", *decoding), tuple(rows))


def _sent(asked: Json, *, parameter: str | None) -> str:
    if parameter is None:
        return "Deterministic" if asked["temperature"] == 0 else "The provider's"
    if parameter == "stop":
        return "}" if asked["stop"] else "not sent"
    return "not sent" if asked[parameter] is None else str(asked[parameter])


def table_12(ours: Json | None = None) -> Sheet:
    """Return FigSIM's Table 12: how often severity is underpredicted, by figurative subtype."""
    task = ours["tasks"].get("severity") if ours else None
    best = best_of(task) if task else None
    subtypes = best["errors"]["by_labels"].get("figurative", {}) if best else {}
    paper = published()["table_12"]
    rows = []
    for name in dict.fromkeys((*paper, *subtypes)):
        for presence in ("absent", "present"):
            rate, n = paper[name][presence] if name in paper else (None, 0)
            theirs = (UNDEFINED, UNDEFINED) if rate is None else (f"{rate:.3f}", f"{round(rate * n)}/{n}")
            rows.append((f"{name}: {presence}", *theirs, *_shares(subtypes.get(name, {}).get(presence))))
    ours_of = (c for whole in ("misclassified", "all") for c in (f"Ours, of {whole}", "of N", "95 % interval"))
    columns = ("Figurative property", "Paper", "of N", *ours_of)
    return Sheet("Table 12: severity underprediction by figurative language", columns, tuple(rows))


def _shares(own: Json | None) -> Iterator[str]:
    for key in ("of_wrong", "of_all"):
        rate: Json = own[key] if own else {"count": 0, "of": 0, "low": None}
        yield decimals(rate["count"], rate["of"], digits=3)
        yield f"{rate['count']:,}/{rate['of']:,}" if own else UNDEFINED
        yield UNDEFINED if rate["low"] is None else f"{rate['low']:.3f} to {rate['high']:.3f}"


def _printed(mean: float, deviation: float | None = None) -> str:
    return f"{rounded(mean)}" + ("" if deviation is None else f"±{rounded(deviation)}")


def _ours(cell: Json | float | None) -> str:
    values = [cell["mean"], cell["std"]] if isinstance(cell, dict) else [cell]
    return UNDEFINED if values[0] is None else _printed(*(100 * value for value in values if value is not None))


def _with_interval(cell: Json | None) -> tuple[str, str]:
    if cell is None or cell["low"] is None:
        return _ours(cell), UNDEFINED
    return _ours(cell), f"{rounded(100 * cell['low'])} to {rounded(100 * cell['high'])}"


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
NUMBERS = {"severity": 4, "figurative": 7, "related": 8}


def sections(metrics: Json) -> list[PageSection]:
    """Return the sections of the report on meme models that have content, from ``evaluate.json``."""
    tasks = metrics["tasks"]
    errors = [
        model["errors"]["by_labels"].get("figurative", {})
        for task in tasks.values()
        for model in task["models"].values()
    ]
    subtypes = [table_12(metrics)] if any(errors) else []
    conditions = [parts.conditions(metrics, paper={key: misclassified(key) for key in tasks})]
    setup = [table_8(metrics), table_9(metrics), table_10(metrics)]
    claims = parts.standing("figsim", ours=_bearing(metrics))
    return parts.sections_of(
        ("results", "Results of all models (Table 3)", _results(metrics)),
        ("labels", "Results by label (Table 4)", _labels(metrics)),
        ("pairs", "Which differences are significant", parts.pairs(metrics)),
        ("direction", "Over- and underprediction (Figures 4, 7 and 8)", _misses(metrics)),
        ("figurative", "Severity underpredicted where language is figurative (Table 12)", subtypes),
        ("conditions", "Errors by context and modality (Appendix F)", conditions),
        ("unanswered", "Unanswered memes", parts.unanswered(metrics)),
        ("set-up", "Data and settings (Tables 8, 9 and 10)", setup),
        ("discrepancies", "Where the paper's claims and numbers disagree", claims),
        ("reading", "How to read this page", [Points(READING)]),
    )


def _results(metrics: Json) -> Iterator[Block | None]:
    yield table_3(metrics)
    for key, task in metrics["tasks"].items():
        if task["best"]:
            yield parts.models_drawing(key, task, paper=macro_f1(key))
    for key, task in metrics["tasks"].items():
        yield parts.ordinal(key, task)
        yield parts.unflagged(key, task)


def _labels(metrics: Json) -> Iterator[Block | None]:
    yield table_4(metrics)
    for key, task in metrics["tasks"].items():
        yield parts.labels_drawing(key, task, paper=label_f1(key))


def _misses(metrics: Json) -> Iterator[Block | None]:
    known = {key: number for key, number in NUMBERS.items() if key in metrics["tasks"]}
    drawings = [parts.misses_drawing(key, metrics["tasks"][key], number=number) for key, number in known.items()]
    if any(drawings):
        yield (
            "For severity, over means that the answer is more severe than gold, under that it is less severe; for the "
            "other two, over is a label that gold lacks and under one that the answer lacks. The number of memes with "
            "the label in gold is in brackets. The paper's text gives no numbers for its plots; it states that low "
            "severities (none, wish to be dead) are overpredicted and high ones (planning, attempt or death) "
            "underpredicted, and that irony, harmful factors and stylized depictions are overpredicted."
        )
        yield from drawings


def _bearing(metrics: Json) -> dict[str, str]:
    """Return our best severity model's figures on the claims about context, modality and figurative subtypes."""
    task = metrics["tasks"].get("severity")
    best = best_of(task) if task else None
    if best is None:
        return {}
    errors = best["errors"]
    figures = {
        key: "Severity, wrong: " + ", ".join(f"{label} {_percent(rate)}" for label, rate in rates.items()) + "."
        for key, rates in errors["by_category"].items()
    }
    subtypes = []
    for name, rates in errors["by_labels"].get("figurative", {}).items():
        present, absent = (_percent(rates[presence]["of_wrong"]) for presence in ("present", "absent"))
        subtypes.append(f"{'any of them' if name == ANY else name} {present} with, {absent} without")
    if subtypes:
        figures["subtypes"] = f"Too low, of wrong answers: {'; '.join(subtypes)}."
    return figures


def _percent(rate: Json) -> str:
    return UNDEFINED if rate["rate"] is None else f"{interval(rate, digits=0)} %"
