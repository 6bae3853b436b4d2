"""Build CRADLE's Tables 4, 5, 8, 11, 12, 13 to 16 and settings with the paper's figures, recomputed ones and our runs.

*Paper* and *recomputed* come from :mod:`pipelines.report.cradle.recomputed_figures`, *ours* from ``evaluate.json``
(:mod:`pipelines.evaluate.evaluate`). Figures are fractions with the paper's decimals, in Table 8 percent; a dash marks
an undefined or missing value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.evaluate.model_scores import Json
from pipelines.metrics import label_tables
from pipelines.metrics.label_tables import SCORES, UNDEFINED, Sheet
from pipelines.report.cradle.recomputed_figures import (
    PER_LABEL,
    answered,
    exact_hits,
    names,
    published,
    recomputed,
    row_4,
)
from pipelines.report.parts import figures_of, fixed
from pipelines.report.prompt_notes import beside

TASK = "labels"
PARTS = {"f1": "F1", "precision": "Prec", "recall": "Rec"}
FAMILIES = {
    "LLaMA": "Open-source models: LLaMA",
    "Gemma": "Open-source models: Gemma",
    "Qwen": "Open-source models: Qwen",
    "gpt-oss": "Open-source models: gpt-oss",
    "Closed": "Closed-source models",
    "Ensemble": "Ensemble of the closed-source models",
}
SOURCES = {"fitted": "Ours, fine-tuned", "asked": "Ours, not fine-tuned", None: "Ours"}
BASELINES = {"majority": "Majority labels", "majority_set": "Most frequent set", "every_label": "Every label"}


def task_of(ours: Json | None) -> Json | None:
    """Return the task of ``evaluate.json`` on which CRADLE reports, or ``None`` without it."""
    return ours["tasks"].get(TASK) if ours else None


def table_4(ours: Json | None = None) -> Sheet:
    """Return CRADLE's Table 4 (all scores) with the paper's models, ours and baselines; equal names are adjacent."""
    task = task_of(ours)
    models: dict[str, Json] = task["models"] if task else {}
    rows: list[tuple[str, ...]] = []
    for family, title in FAMILIES.items():
        rows.append(_heading(title))
        for key, name, kind, *values in published()["table_4"]["rows"]:
            if kind == family:
                asked = f"{answered(key)}/{published()['test']}"
                rows.append((name, "paper", asked, *(f"{value:.4f}" for value in values)))
                rows += [_own(name, f"ours: {key}", models[key])] if key in models else []
    rest = {name: model for name, model in sorted(models.items()) if name not in names()}
    for source in dict.fromkeys((*SOURCES, *(model["source"] for model in rest.values()))):
        here = [_own(n, m["kind"] or UNDEFINED, m) for n, m in rest.items() if m["source"] == source]
        rows += [_heading(SOURCES.get(source, f"Ours, {source}")), *here] if here else []
    baselines = {BASELINES[name]: row for name, row in (task["baselines"] if task else {}).items() if name in BASELINES}
    if task and baselines:
        rows.append(_heading("Baselines that ignore their input"))
        n = f"{task['n']:,}/{task['n']:,}"
        rows += [(name, "baseline", n, *_plain(row["figures"])) for name, row in baselines.items()]
    return Sheet("Table 4: models on the test set", ("Model", "", "Answered", *SCORES.values()), tuple(rows))


def _heading(title: str) -> tuple[str, ...]:
    return (title, "", "", *[""] * len(SCORES))


def _own(name: str, kind: str, model: Json) -> tuple[str, ...]:
    deviations = model.get("deviations") or ()
    recipe = f"; not the paper's recipe: {', '.join(deviations)}" if deviations else ""
    total = f"{model['outcomes'].get('vote', 0):,}/{sum(model['outcomes'].values()):,}"
    figures = figures_of(model)
    return (name, f"{kind}{recipe}{beside(model)}", total, *(_cell(figures.get(score)) for score in SCORES))


def _cell(value: Json | None) -> str:
    """Return our figure as a fraction with its interval, which has one decimal less."""
    if value is None or value["mean"] is None:
        return UNDEFINED
    spread = "" if value["std"] is None else f"±{value['std']:.4f}"
    around = "" if value["low"] is None else f" [{value['low']:.3f}, {value['high']:.3f}]"
    return f"{value['mean']:.4f}{spread}{around}"


def _plain(figures: Mapping[str, float | None]) -> Iterator[str]:
    return (fixed(figures.get(name), 4) for name in SCORES)


def table_4_again() -> Sheet:
    """Return CRADLE's Table 4 as printed, and the scores that follow from its Tables 11 and 13 to 16."""
    shown = ("micro_f1", "macro_f1", "micro_recall", "macro_recall")
    rows = []
    for key, name in names().items():
        again = recomputed(key)
        pairs = (text for figure in shown for text in (f"{row_4(key)[figure]:.4f}", f"{again[figure]:.4f}"))
        rows.append((name, f"{exact_hits(key)}/{answered(key)}", *pairs))
    columns = [f"{SCORES[figure]}, {whose}" for figure in shown for whose in ("paper", "recomputed")]
    return Sheet("Table 4 from Tables 11 and 13 to 16", ("Model", "Exactly right", *columns), tuple(rows))


def table_5(silver: Json | None = None) -> Sheet:
    """Return CRADLE's Table 5: agreement of three labellers in the paper and in our ensemble (metrics ``silver``)."""
    names_of = {"train": "Train", "test": "Test"}
    columns: dict[str, Mapping[str, int]] = {}
    for split, title in names_of.items():
        columns[f"{title}, paper"] = published()["table_5"][split]
        if silver and split in silver["agreement"]:
            columns[f"{title}, ours"] = silver["agreement_paper"][split]
    members = len(silver["members"]) if silver else 3
    sheet = label_tables.table_5(columns, members=members)
    return Sheet(f"Table 5: {sheet.title[0].lower()}{sheet.title[1:]}", sheet.columns, sheet.rows)


def table_8(ours: Json | None = None) -> Sheet:
    """Return CRADLE's Table 8: the scores of fine-tuned models in percent, and the change from the untuned model.

    Ours are over all records, so that both models are scored on the same records; the last column is the paired
    bootstrap of macro-F1 with Holm's correction (``evaluate.json``'s pairs). A model has a second row if the paper's
    changes differ from those that follow from its Table 4.
    """
    task = task_of(ours)
    models: dict[str, Json] = task["models"] if task else {}
    rows: list[tuple[str, ...]] = []
    known = set()
    for key, subset, name, base, *cells in published()["table_8"]["rows"]:
        title, tuned_here = f"{name}, {subset}", f"{key}-{subset}"
        known.add(tuned_here)
        rows.append((title, "paper", *(_changed(value, delta) for value, delta in cells), UNDEFINED))
        again = [round(value - 100 * row_4(base)[figure], 2) for (value, _), figure in zip(cells, SCORES, strict=True)]
        if again != [delta for _, delta in cells]:
            deltas = (_changed(value, delta) for (value, _), delta in zip(cells, again, strict=True))
            rows.append((title, "recomputed", *deltas, UNDEFINED))
        if task and tuned_here in models:
            rows.append((title, f"ours{beside(models[tuned_here])}", *_tuned(tuned_here, task=task)))
    if task:
        rows += [(name, "ours", *_tuned(name, task=task)) for name in tuned(task) if name not in known]
    columns = ("Model, subset", "", *SCORES.values(), "Macro-F1: p (Holm)")
    return Sheet("Table 8: fine-tuned models, and the change from their base", columns, tuple(rows))


def tuned(task: Json) -> list[str]:
    """Return the names of this corpus's fine-tuned models for a task."""
    return [name for name, model in sorted(task["models"].items()) if model["subset"] is not None]


def changes(key: str, task: Json) -> Sheet:
    """Return a table like CRADLE's Table 8 for a scheme without a paper, without rows if no model was fine-tuned."""
    rows = tuple((name, *_tuned(name, task=task)) for name in tuned(task))
    title = f"{key.capitalize()}: fine-tuned models, and the change from their base"
    return Sheet(title, ("Model", *SCORES.values(), "Macro-F1: p (Holm)"), rows)


def _tuned(name: str, *, task: Json) -> Iterator[str]:
    model = task["models"][name]
    base = task["models"].get(model["untuned"])
    for figure in SCORES:
        value, before = (m["all"]["figures"].get(figure, {}).get("mean") if m else None for m in (model, base))
        std = model["all"]["figures"].get(figure, {}).get("std")
        if value is None:
            yield UNDEFINED
        else:
            spread = "" if std is None else f" ±{100 * std:.2f}"
            yield _changed(100 * value, None if before is None else 100 * (value - before)) + spread
    sides = {name, model["untuned"]}
    pair = next((pair for pair in task["pairs"] if {pair["a"], pair["b"]} == sides), None)
    yield UNDEFINED if pair is None else f"{pair['p']['bootstrap']:.3f} ({pair['holm']['bootstrap']:.3f})"


def _changed(value: float, delta: float | None) -> str:
    return f"{value:.2f}" + ("" if delta is None else f" ({delta:+.2f})")


def table_12(ours: Json | None = None) -> Sheet:
    """Return CRADLE's Table 12: models that left posts unanswered, scored on their answers and on all posts."""
    table, task = published()["table_12"], task_of(ours)
    n, valid = table["n"], table["n_valid"]
    name = names()[table["key"]]
    rows: list[tuple[str, ...]] = [
        (f"{name}, paper", f"valid samples only (n={valid})", *(f"{value:.4f}" for value in table["valid"])),
        (f"{name}, paper", f"all samples (n={n}, blocked={n - valid})", *(f"{value:.4f}" for value in table["all"])),
        (f"{name}, recomputed", f"all samples (n={n})", *_plain(recomputed(table["key"], whole=True))),
    ]
    for key, model in sorted((task["models"] if task else {}).items()):
        total, votes = sum(model["outcomes"].values()), model["outcomes"].get("vote", 0)
        if votes < total:
            lost = f"all samples (n={total:,}, not answered={total - votes:,})"
            own = {f"valid samples only (n={votes:,})": figures_of(model), lost: model["all"]["figures"]}
            rows += [(f"{key}, ours", over, *(_cell(own[over].get(score)) for score in SCORES)) for over in own]
    return Sheet("Table 12: valid answers only, and all posts", ("Model", "Over", *SCORES.values()), tuple(rows))


def tables_13_to_16(ours: Json | None = None) -> Iterator[Sheet]:
    """Yield tables of F1, precision and recall by label for the paper's models and ours, on answered posts."""
    task = task_of(ours)
    models = {n: m for n, m in (task["models"] if task else {}).items() if m["valid"]}
    for number in PER_LABEL:
        table = published()[f"table_{number}"]
        rows: list[tuple[str, ...]] = []
        for key, name in names().items():
            rows.append((name, "paper", *(f"{value:.3f}" for value in table["rows"][key])))
            if key in models:
                rows.append((name, f"ours: {key}", *_labels(models[key], labels=table["labels"])))
        for name, model in sorted(models.items()):
            if name not in names():
                rows.append((name, "ours", *_labels(model, labels=table["labels"])))
        columns = [f"{label} {part}" for label in table["labels"] for part in PARTS.values()]
        yield Sheet(f"Table {number}: {table['part']}", ("Model", "", *columns), tuple(rows))


def _labels(model: Json, *, labels: Sequence[str]) -> Iterator[str]:
    for label in labels:
        for part in PARTS:
            yield fixed(model["valid"]["labels"][label][part]["mean"], 3)


def table_11(ours: Json | None = None, *, silver: Json | None = None) -> Sheet:
    """Return CRADLE's Table 11: the posts by label, split and training subset, in the paper and in our corpus."""
    paper = published()["table_11"]
    gold = {split: composition.get(TASK, {}) for split, composition in (ours["composition"] if ours else {}).items()}
    distributions = silver["distributions"] if silver else {}
    rows = []
    for label, row in paper["labels"].items():
        cells = []
        for split, n in zip(paper["splits"], row, strict=True):
            own = distributions.get(split, {}).get("labels") if split.startswith("train") else gold.get(split)
            cells += [f"{n:,}", UNDEFINED if own is None else f"{own.get(label, 0):,}"]
        rows.append((label, *cells))
    titles = [split.replace("train_", "Train-").capitalize() for split in paper["splits"]]
    columns = [f"{title}, {whose}" for title in titles for whose in ("paper", "ours")]
    return Sheet("Table 11: posts with each label", ("Label", *columns), tuple(rows))


def settings(models: Mapping[str, Json] | None = None) -> Sheet:
    """Return a table of the fine-tuning settings in CRADLE's appendix F and of this corpus's ``models``."""
    table = published()["table_f"]
    rows = []
    for row in table["rows"]:
        theirs = (text or UNDEFINED for text in row["paper"])
        rows.append((row["name"], *theirs, *(_setting(row, model=model) for model in (models or {}).values())))
    columns = (*(f"{key}, paper" for key in table["columns"]), *(f"{name}, ours" for name in models or {}))
    return Sheet("Fine-tuning (appendix F)", ("Setting", *columns), tuple(rows))


def _setting(row: Mapping[str, Any], *, model: Json) -> str:
    value = model.get(row["setting"]) if "setting" in row else None
    return UNDEFINED if value is None else f"{value:g}" if isinstance(value, float) else str(value)
