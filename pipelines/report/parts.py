"""Build the parts of the report that follow no table of a paper: plots, comparisons, unanswered items, baselines.

Everything is read from ``evaluate.json`` (for its shape see :mod:`pipelines.evaluate.evaluate`); only means over runs
are computed here. Scores are printed times 100, as in the paper, with 95 % intervals; an undefined value is a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pipelines.core.taxonomy.task import TASKS
from pipelines.evaluate.model_scores import Json
from pipelines.metrics.label_tables import UNDEFINED, Sheet
from pipelines.report import charts
from pipelines.report.charts import BLUE, ORANGE, Mark, Row
from pipelines.report.page import Drawing, Heat

TITLES = {"figurative": "Figurative phenomenon", "severity": "Suicide severity", "related": "Suicide-related content"}
NOUNS = {"figsim": "memes", "cradle": "posts"}
BASELINES = {"majority": "Majority", "every_label": "Every label", "majority_set": "Most frequent set"}
FIGURES = {
    "exact": "Exact match",
    "macro_f1": "Macro-F1",
    "micro_f1": "Micro-F1",
    "weighted_f1": "Weighted F1",
    "jaccard": "Jaccard",
    "macro_recall": "Macro-recall",
    "micro_recall": "Micro-recall",
    "kappa": "Quadratic-weighted kappa",
}
SPLITS = ("train", "validation", "dev", "test")
BOARD = ("exact", "macro_f1", "micro_f1")


def in_order(metrics: Json) -> Json:
    """Return the content of ``evaluate.json`` with tasks and splits in the order of display, not by name."""
    tasks, items = metrics["tasks"], metrics["items"]
    return {
        **metrics,
        "tasks": {key: tasks[key] for key in sorted(tasks, key=lambda key: (_place(key, TASKS), key))},
        "items": {split: items[split] for split in sorted(items, key=lambda split: (_place(split, SPLITS), split))},
    }


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def noun_of(metrics: Json) -> str:
    """Return the plural noun for the records of a scheme, such as "memes"."""
    return NOUNS.get(metrics["scheme"], "records")


def title_of(task: str) -> str:
    """Return the title of a task (label category) for headings."""
    return TITLES.get(task, task.capitalize())


def interval(cell: Json | None, *, scale: float = 100, digits: int = 1) -> str:
    """Format a metric's mean and 95 % interval as ``mean [low, high]``, or a dash if it is undefined."""
    value = None if cell is None else cell.get("mean", cell.get("value", cell.get("rate")))
    if cell is None or value is None:
        return UNDEFINED
    ends = [end for end in (cell.get("low"), cell.get("high")) if end is not None]
    around = f" [{', '.join(f'{scale * end:.{digits}f}' for end in ends)}]" if len(ends) > 1 else ""
    return f"{scale * value:.{digits}f}{around}"


def best_of(task: Json) -> Json | None:
    """Return the metrics of a task's best model (its ``best`` in ``evaluate.json``); ``None`` if no model answered."""
    best: Json | None = task["models"].get(task["best"])
    return best


def glance(metrics: Json) -> Sheet:
    """Return a summary table, one row per task: best model, best baseline, and the numbers of items and models."""
    rows = []
    for key, task in metrics["tasks"].items():
        best = best_of(task)
        baselines = [row["figures"]["macro_f1"] for row in task["baselines"].values()]
        figure = best["valid"]["figures"]["macro_f1"] if best and best["valid"] else None
        highest = max((value for value in baselines if value is not None), default=None)
        rows.append(
            (
                title_of(key),
                task["best"] or UNDEFINED,
                interval(figure),
                UNDEFINED if highest is None else f"{100 * highest:.1f}",
                f"{task['n']:,}",
                f"{len(task['models']):,}",
            )
        )
    columns = ("Task", "Best model", "Its macro-F1", "Best baseline", f"Test {noun_of(metrics)}", "Models")
    return Sheet("Best by macro-F1, beside a baseline that ignores its input", columns, tuple(rows))


def scoreboard(metrics: Json) -> Sheet:
    """Return a table with one row per model or baseline: macro-F1 by task, or all scores of one task."""
    tasks = metrics["tasks"]
    single = next(iter(tasks.values())) if len(tasks) == 1 else None
    rows = []
    for name, kind in sorted(
        {(name, m["kind"] or UNDEFINED) for task in tasks.values() for name, m in task["models"].items()}
    ):
        found = [_valid(task["models"].get(name)) for task in tasks.values()]
        rows.append((name, kind, *(interval(cell) for figures in found for cell in _shown(figures, single=single))))
    for name, title in BASELINES.items():
        plain = [task["baselines"].get(name) for task in tasks.values()]
        if any(plain):
            values = [{key: {"value": value} for key, value in row["figures"].items()} if row else {} for row in plain]
            cells = (interval(cell) for figures in values for cell in _shown(figures, single=single))
            rows.append((title, "baseline", *cells))
    columns = [FIGURES[key] for key in _board(single)] if single else [title_of(key) for key in tasks]
    title = "Models on test" if single else "Macro-F1 on test"
    return Sheet(f"{title}, with 95 % intervals", ("Model", "Kind", *columns), tuple(rows))


def _valid(model: Json | None) -> Json:
    figures: Json = model["valid"]["figures"] if model and model["valid"] else {}
    return figures


def _board(task: Json) -> tuple[str, ...]:
    return BOARD if task["kind"] == "multi" else (*BOARD[:2], "weighted_f1")


def _shown(figures: Json, *, single: Json | None) -> list[Json | None]:
    return [figures.get(key) for key in (_board(single) if single else ("macro_f1",))]


def unflagged(key: str, task: Json) -> Sheet | None:
    """Return a table of scores with and without the items that a review took in, ``None`` if there was no review.

    A review asks about items whose gold differs from named models' votes, so that gold may have moved towards these
    models (CRADLE 3.4, SPEC 31); figures are means over runs on answered items.
    """
    rows = []
    for name, model in sorted(task["models"].items()):
        rest = model.get("unflagged")
        if rest is None or not rest["by_seed"]:
            continue
        cells = []
        for figure in ("exact", "macro_f1"):
            both = [_over_runs(runs, figure=figure) for runs in (model["by_seed"], rest["by_seed"])]
            change = None if None in both else float(both[1] or 0) - float(both[0] or 0)
            cells += [UNDEFINED if value is None else f"{100 * value:.1f}" for value in both]
            cells.append(UNDEFINED if change is None else f"{100 * change:+.1f}")
        rows.append((name, f"{task['n']:,}", f"{rest['n']:,}", *cells))
    columns = [f"{FIGURES[figure]}, {which}" for figure in ("exact", "macro_f1") for which in WITH_AND_WITHOUT]
    title = f"{title_of(key)}: with and without the items of the review"
    return Sheet(title, ("Model", "Items", "Not flagged", *columns), tuple(rows)) if rows else None


WITH_AND_WITHOUT = ("all", "not flagged", "change")


def _over_runs(by_seed: Json, *, figure: str) -> float | None:
    values = [run["valid"]["figures"][figure] for run in by_seed.values() if run["valid"]]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def scores(key: str, task: Json) -> Sheet:
    """Return a table with one row per model of a task: all scores on answered items; baselines come last."""
    rows: list[tuple[str, ...]] = []
    models = {name: _valid(model) for name, model in sorted(task["models"].items())}
    plain = {BASELINES[name]: row["figures"] for name, row in task["baselines"].items() if name in BASELINES}
    shown = [name for name in FIGURES if any(name in each for each in (*models.values(), *plain.values()))]
    for name, cells in models.items():
        outcomes = task["models"][name]["outcomes"]
        answered = f"{outcomes.get('vote', 0):,}/{sum(outcomes.values()):,}"
        rows.append((name, answered, *(interval(cells.get(figure)) for figure in shown)))
    for name, values in plain.items():
        rows.append((name, UNDEFINED, *(interval({"value": values.get(figure)}) for figure in shown)))
    columns = ("Model", "Answered", *(FIGURES[name] for name in shown))
    return Sheet(f"{title_of(key)}: models on the test set", columns, tuple(rows))


def models_drawing(key: str, task: Json, *, paper: Mapping[str, float]) -> Drawing:
    """Draw all models of a task by macro-F1, best first; ``paper`` contains the paper's values between 0 and 1."""
    shown = {name: model["valid"]["figures"]["macro_f1"] for name, model in task["models"].items() if model["valid"]}
    order = sorted(shown, key=lambda name: (-(shown[name]["mean"] or 0), name))
    caption = f"{title_of(key)}: macro-F1 of every model"
    return _scores_drawing(caption, {name: shown[name] for name in order}, paper=paper, first="Model")


def ordinal(key: str, task: Json) -> Sheet | None:
    """Return a table of the distances between models' answers and gold for an ordinal task; ``None`` for other tasks.

    F1 ignores these distances (SPEC 2.5).
    """
    rows = []
    for name, model in sorted(task["models"].items()):
        figure = model["valid"]["figures"] if model["valid"] else {}
        if "kappa" in figure:
            cells = (interval(figure["kappa"], scale=1, digits=2), interval(figure["mae"], scale=1, digits=2))
            rows.append((name, *cells, interval(figure["exact"])))
    columns = ("Model", "Quadratic-weighted kappa", "Mean absolute error (steps)", "Exactly right, %")
    title = f"{title_of(key)} as an order"
    return Sheet(title, columns, tuple(rows)) if rows else None


def labels_drawing(key: str, task: Json, *, paper: Mapping[str, float]) -> Drawing | None:
    """Draw F1 by label of a task's best model; ``paper``: the values of the paper's best model."""
    best = best_of(task)
    if best is None or best["valid"] is None:
        return None
    nothing = {"mean": None, "low": None, "high": None, "n": 0}
    cells = {
        label: best["valid"]["labels"][label]["f1"] if task["support"].get(label) else nothing
        for label in task["labels"]
    }
    caption = f"{title_of(key)}: F1 by label, {task['best']}"
    return _scores_drawing(caption, cells, paper=paper, first="Label")


def heat(key: str, task: Json, *, paper: Mapping[str, Mapping[str, float]]) -> Heat | None:
    """Return a heat map of F1 by label (rows) and model (columns, best first), without models that never answered.

    ``paper``: title -> label -> F1 (0 to 1).
    """
    models = {name: model["valid"] for name, model in task["models"].items() if model["valid"]}
    if not models:
        return None
    order = sorted(models, key=lambda name: (-(models[name]["figures"]["macro_f1"]["mean"] or 0), name))
    values = [
        (
            # without support the 0 that counts in macro-F1 says nothing about the model
            *(models[name]["labels"][label]["f1"]["mean"] if task["support"].get(label) else None for name in order),
            *(column.get(label) for column in paper.values()),
        )
        for label in task["labels"]
    ]
    rows = [
        (label, f"{task['support'].get(label, 0):,}", *(UNDEFINED if v is None else f"{100 * v:.0f}" for v in row))
        for label, row in zip(task["labels"], values, strict=True)
    ]
    sheet = Sheet(f"{title_of(key)}: F1 by label and model", ("Label", "Gold", *order, *paper), tuple(rows))
    return Heat(sheet, tuple((None, *row) for row in values))


def labels_sheet(key: str, task: Json) -> Sheet | None:
    """Return a table of F1 by label (rows) for every model that answered at least one item, with intervals."""
    models = {name: model["valid"]["labels"] for name, model in sorted(task["models"].items()) if model["valid"]}
    rows = [(label, *(interval(labels[label]["f1"]) for labels in models.values())) for label in task["labels"]]
    title = f"{title_of(key)}: F1 by label with 95 % intervals"
    return Sheet(title, ("Label", *models), tuple(rows)) if models else None


def _scores_drawing(caption: str, cells: Mapping[str, Json], *, paper: Mapping[str, float], first: str) -> Drawing:
    rows = [Row(name, (_score(cell, paper=paper.get(name)),)) for name, cell in cells.items()]
    keys = [(BLUE, "ours, with its interval"), *([("paper", "the paper's")] if paper.keys() & cells.keys() else [])]
    printed = [f"{100 * paper[name]:.2f}" if name in paper else UNDEFINED for name in cells]
    numbers = tuple(
        (name, paper_value, interval(cell), f"{cell['n']}")
        for (name, cell), paper_value in zip(cells.items(), printed, strict=True)
    )
    sheet = Sheet(caption, (first, "Paper", "Ours [95 %]", "Runs"), numbers)
    return Drawing(caption, charts.bars(rows, title=caption, most=100, keys=keys), sheet)


def _score(cell: Json, *, paper: float | None) -> Mark:
    value, low, high, printed = (
        None if x is None else 100 * x for x in (cell["mean"], cell["low"], cell["high"], paper)
    )
    return Mark(value, low, high, "no result of ours" if value is None else f"{value:.1f}", paper=printed)


def misses_drawing(key: str, task: Json, *, number: int | None = None) -> Drawing | None:
    """Draw the overpredictions and underpredictions of a task's best model by label, per run.

    ``number``: the figure of FigSIM that it corresponds to (4, 7 or 8).
    """
    best = best_of(task)
    if best is None or not best["runs"]:
        return None
    runs = best["runs"]
    counts = {label: best["errors"]["by_label"][label] for label in task["labels"]}
    kinds = {"over": ORANGE, "under": BLUE}
    rows = []
    for label, n in counts.items():
        per_run = {kind: n[kind]["count"] / runs for kind in kinds}
        marks = tuple(Mark(x, words=f"{charts.short(x)} {kind}", kind=kinds[kind]) for kind, x in per_run.items())
        rows.append(Row(f"{label} ({task['support'][label]:,})" if label in task["support"] else label, marks))
    by = "true severity" if task["ordinal"] else "label"
    figure = "" if number is None else f"Figure {number}. "
    caption = f"{figure}{title_of(key)}: over- and underprediction by {by}, {task['best']}"
    if runs > 1:
        caption += f" (mean of {runs} runs)"
    numbers = tuple(
        (label, f"{task['support'].get(label, 0):,}", _rate(n["over"], runs=runs), _rate(n["under"], runs=runs))
        for label, n in counts.items()
    )
    sheet = Sheet(caption, ("Label", "Gold", "Over (of)", "Under (of)"), numbers)
    keys = [(colour, kind) for kind, colour in kinds.items()]
    return Drawing(caption, charts.bars(rows, title=caption, keys=keys), sheet)


def _rate(rate: Json, *, runs: int) -> str:
    return _count(rate, runs=runs) + ("" if rate["rate"] is None else f" ({100 * rate['rate']:.0f}%)")


def _count(rate: Json, *, runs: int) -> str:
    return "/".join(f"{rate[name] / runs:,.1f}".removesuffix(".0") for name in ("count", "of"))


def conditions(metrics: Json, *, published: Callable[[str], Mapping[str, str]]) -> Sheet | None:
    """Return a table of the share of memes that the best models misclassify, by context and modality.

    Args:
        published: returns for a task the counts that the paper prints, by label.
    """
    rows: list[tuple[str, ...]] = []
    for key, task in metrics["tasks"].items():
        best = best_of(task)
        if best is None:
            continue
        paper = published(key)
        rows.append((f"{title_of(key)}, {task['best']}", "", "", ""))
        for labels in best["errors"]["by_category"].values():
            for label, rate in labels.items():
                rows.append((label, paper.get(label, UNDEFINED), _count(rate, runs=best["runs"]), interval(rate)))
    columns = ("Best model of a task", "Paper, wrong", "Ours, wrong (per run)", "Ours, % [95 %]")
    return Sheet("Memes that are not exactly right", columns, tuple(rows)) if rows else None


def unanswered(metrics: Json) -> Sheet | None:
    """Return a table of models with unanswered items: their share, and macro-F1 without and with these items.

    Returns ``None`` if every model answered every item.
    """
    rows: list[tuple[str, ...]] = []
    for key, task in metrics["tasks"].items():
        lost = [_lost(name, model) for name, model in task["models"].items() if set(model["outcomes"]) - {"vote"}]
        if lost:
            rows.append((title_of(key), "", "", ""))
            rows += lost
    whole = f"Macro-F1 over all {noun_of(metrics)}"
    columns = ("Model", "Not answered (all runs)", "Macro-F1 over answers", whole)
    return Sheet("By task and model", columns, tuple(rows)) if rows else None


def _lost(name: str, model: Json) -> tuple[str, ...]:
    lost = {outcome: n for outcome, n in model["outcomes"].items() if outcome != "vote"}
    words = ", ".join(f"{n:,} {outcome}" for outcome, n in sorted(lost.items()))
    answered = model["valid"]["figures"]["macro_f1"] if model["valid"] else None
    return (name, words, interval(answered), interval(model["all"]["figures"]["macro_f1"]))
