"""Build the parts of the report that follow no table of a paper: scores, plots, paired tests, unanswered items.

Everything is read from ``evaluate.json`` (for its shape see :mod:`pipelines.evaluate.evaluate`); only means over runs
are computed here. Scores are printed times 100, as in the paper, with 95 % intervals; an undefined value is a dash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipelines.evaluate.model_scores import Json
from pipelines.metrics.label_tables import UNDEFINED, Sheet
from pipelines.report import charts
from pipelines.report.charts import BLUE, ORANGE, Mark, Row
from pipelines.report.page import Block, PageSection
from pipelines.report.papers import printed

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
# the first two resample whole groups of near-duplicates; McNemar ignores the groups
TESTS = {"bootstrap": "Bootstrap", "randomisation": "Randomisation", "mcnemar": "McNemar"}
ENOUGH = 0.05


def section(key: str, title: str, blocks: Iterable[Block | None]) -> PageSection:
    """Create a section of the report from blocks; ``None`` and tables without rows are left out."""
    return PageSection(key, title, tuple(b for b in blocks if b and not (isinstance(b, Sheet) and not b.rows)))


def sections_of(*sections: tuple[str, str, Iterable[Block | None]]) -> list[PageSection]:
    """Create sections, each of key, title and blocks; those without content are left out."""
    return [part for part in (section(*each) for each in sections) if part.blocks]


def in_order(metrics: Json) -> Json:
    """Return the content of ``evaluate.json`` with tasks and splits in the order of display, not by name."""

    def ordered(values: Json, order: Sequence[str]) -> Json:
        return {key: values[key] for key in (*(k for k in order if k in values), *sorted(values.keys() - {*order}))}

    tasks = ordered(metrics["tasks"], metrics["order"])
    return {**metrics, "tasks": tasks, "items": ordered(metrics["items"], SPLITS)}


def noun_of(metrics: Json) -> str:
    """Return the plural noun for the records of a scheme, such as "memes"."""
    return NOUNS.get(metrics["scheme"], "records")


def title_of(task: str) -> str:
    """Return the title of a task (label category) for headings."""
    return TITLES.get(task, task.capitalize())


def fixed(value: float | None, digits: int, *, scale: float = 1) -> str:
    """Format a number, times ``scale``, with so many decimals; a dash if it is undefined."""
    return UNDEFINED if value is None else f"{scale * value:.{digits}f}"


def interval(cell: Json | None, *, scale: float = 100, digits: int = 1) -> str:
    """Format a metric's mean and 95 % interval as ``mean [low, high]``, or a dash if it is undefined."""
    value = None if cell is None else cell.get("mean", cell.get("value", cell.get("rate")))
    if cell is None or value is None:
        return UNDEFINED
    ends = [end for end in (cell.get("low"), cell.get("high")) if end is not None]
    around = f" [{', '.join(fixed(end, digits, scale=scale) for end in ends)}]" if len(ends) > 1 else ""
    return fixed(value, digits, scale=scale) + around


def p_value(value: float | None) -> str:
    """Format a p-value as the papers do, such as ``<.001`` or ``.042``; a dash if undefined."""
    if value is None:
        return UNDEFINED
    return "<.001" if value < 0.001 else f"{value:.3f}".lstrip("0") if value < 1 else "1"


def best_of(task: Json) -> Json | None:
    """Return the metrics of a task's best model (its ``best`` in ``evaluate.json``); ``None`` if no model answered."""
    best: Json | None = task["models"].get(task["best"])
    return best


def figures_of(model: Json | None) -> Json:
    """Return a model's scores on the items that it answered, by name; empty without any answer."""
    figures: Json = model["valid"]["figures"] if model and model["valid"] else {}
    return figures


def ranked(task: Json) -> dict[str, Json]:
    """Return the scores (``valid``) of the models that answered any item, the best macro-F1 first."""
    scores = {name: model["valid"] for name, model in task["models"].items() if model["valid"]}
    return dict(sorted(scores.items(), key=lambda row: (-(row[1]["figures"]["macro_f1"]["mean"] or 0), row[0])))


def glance(metrics: Json) -> Sheet:
    """Return a summary table, one row per task: best model, best baseline, and the numbers of items and models."""
    rows = []
    for key, task in metrics["tasks"].items():
        baselines = [row["figures"]["macro_f1"] for row in task["baselines"].values()]
        highest = max((value for value in baselines if value is not None), default=None)
        scores = (interval(figures_of(best_of(task)).get("macro_f1")), fixed(highest, 1, scale=100))
        numbers = (f"{task['n']:,}", f"{len(task['models']):,}")
        rows.append((title_of(key), task["best"] or UNDEFINED, *scores, *numbers))
    columns = ("Task", "Best model", "Its macro-F1", "Best baseline", f"Test {noun_of(metrics)}", "Models")
    return Sheet("Best by macro-F1, beside a baseline that ignores its input", columns, tuple(rows))


def scoreboard(metrics: Json) -> Sheet:
    """Return a table with one row per model or baseline: macro-F1 by task, or all scores of one task."""
    tasks = metrics["tasks"]
    shown, columns = ["macro_f1"], [title_of(key) for key in tasks]
    if len(tasks) == 1:
        [task] = tasks.values()
        shown = ["exact", "macro_f1", "micro_f1" if task["kind"] == "multi" else "weighted_f1"]
        columns = [FIGURES[figure] for figure in shown]
    kinds = {(name, m["kind"] or UNDEFINED) for task in tasks.values() for name, m in task["models"].items()}
    rows = [
        (name, kind, *(interval(figures_of(task["models"].get(name)).get(f)) for task in tasks.values() for f in shown))
        for name, kind in sorted(kinds)
    ]
    for name, title in BASELINES.items():
        plain = [task["baselines"].get(name) for task in tasks.values()]
        if any(plain):
            values = (row["figures"].get(f) if row else None for row in plain for f in shown)
            rows.append((title, "baseline", *(fixed(value, 1, scale=100) for value in values)))
    title = "Models on test" if len(tasks) == 1 else "Macro-F1 on test"
    return Sheet(f"{title}, with 95 % intervals", ("Model", "Kind", *columns), tuple(rows))


def unflagged(key: str, task: Json) -> Sheet:
    """Return a table of scores with and without the items that a review took in, without rows if there was no review.

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
            cells += [fixed(value, 1, scale=100) for value in both]
            cells.append(UNDEFINED if change is None else f"{100 * change:+.1f}")
        rows.append((name, f"{task['n']:,}", f"{rest['n']:,}", *cells))
    columns = [f"{FIGURES[f]}, {which}" for f in ("exact", "macro_f1") for which in ("all", "not flagged", "change")]
    title = f"{title_of(key)}: with and without the items of the review"
    return Sheet(title, ("Model", "Items", "Not flagged", *columns), tuple(rows))


def _over_runs(by_seed: Json, *, figure: str) -> float | None:
    values = [run["valid"]["figures"][figure] for run in by_seed.values() if run["valid"]]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def scores(key: str, task: Json) -> Sheet:
    """Return a table with one row per model of a task: all scores on answered items; baselines come last."""
    models = {name: figures_of(model) for name, model in sorted(task["models"].items())}
    plain = {BASELINES[name]: row["figures"] for name, row in task["baselines"].items() if name in BASELINES}
    shown = [name for name in FIGURES if any(name in each for each in (*models.values(), *plain.values()))]
    rows = []
    for name, cells in models.items():
        outcomes = task["models"][name]["outcomes"]
        answered = f"{outcomes.get('vote', 0):,}/{sum(outcomes.values()):,}"
        rows.append((name, answered, *(interval(cells.get(figure)) for figure in shown)))
    for name, values in plain.items():
        rows.append((name, UNDEFINED, *(fixed(values.get(figure), 1, scale=100) for figure in shown)))
    columns = ("Model", "Answered", *(FIGURES[name] for name in shown))
    return Sheet(f"{title_of(key)}: models on the test set", columns, tuple(rows))


def ordinal(key: str, task: Json) -> Sheet:
    """Return a table of the distances between models' answers and gold for an ordinal task; no rows for another task.

    F1 ignores these distances (SPEC 2.5).
    """
    models = {name: figures_of(model) for name, model in sorted(task["models"].items())}
    rows = tuple(
        (name, *(interval(figure[score], scale=1, digits=2) for score in ("kappa", "mae")), interval(figure["exact"]))
        for name, figure in models.items()
        if "kappa" in figure
    )
    columns = ("Model", "Quadratic-weighted kappa", "Mean absolute error (steps)", "Exactly right, %")
    return Sheet(f"{title_of(key)} as an order", columns, rows)


def heat(key: str, task: Json, *, paper: Mapping[str, Mapping[str, float]]) -> Sheet | None:
    """Return a heat map of F1 by label (rows) and model (columns, best first), without models that never answered.

    ``paper``: title -> label -> F1 (0 to 1).
    """
    models = ranked(task)
    # without support the 0 that counts in macro-F1 says nothing about the model
    ours = {label: [m["labels"][label]["f1"]["mean"] for m in models.values()] for label in task["labels"]}
    values = [
        (
            *(ours[label] if task["support"].get(label) else [None] * len(models)),
            *(c.get(label) for c in paper.values()),
        )
        for label in task["labels"]
    ]
    rows = tuple(
        (label, f"{task['support'].get(label, 0):,}", *(fixed(v, 0, scale=100) for v in row))
        for label, row in zip(task["labels"], values, strict=True)
    )
    columns = ("Label", "Gold", *models, *paper)
    title = f"{title_of(key)}: F1 by label and model"
    return Sheet(title, columns, rows, values=tuple((None, *row) for row in values)) if models else None


def labels_sheet(key: str, task: Json) -> Sheet | None:
    """Return a table of F1 by label (rows) for every model that answered at least one item, with intervals."""
    models = {name: scores["labels"] for name, scores in sorted(ranked(task).items())}
    rows = [(label, *(interval(labels[label]["f1"]) for labels in models.values())) for label in task["labels"]]
    title = f"{title_of(key)}: F1 by label with 95 % intervals"
    return Sheet(title, ("Label", *models), tuple(rows), "folded") if models else None


def models_drawing(key: str, task: Json, *, paper: Mapping[str, float]) -> Sheet:
    """Draw all models of a task by macro-F1, best first; ``paper`` contains the paper's values between 0 and 1."""
    cells = {name: scores["figures"]["macro_f1"] for name, scores in ranked(task).items()}
    return _scores_drawing(f"{title_of(key)}: macro-F1 of every model", cells, paper=paper, first="Model")


def labels_drawing(key: str, task: Json, *, paper: Mapping[str, float]) -> Sheet | None:
    """Draw F1 by label of a task's best model; ``paper``: the values of the paper's best model."""
    best = best_of(task)
    if best is None or best["valid"] is None:
        return None
    nothing = {"mean": None, "low": None, "high": None, "n": 0}
    labels = best["valid"]["labels"]
    cells = {label: labels[label]["f1"] if task["support"].get(label) else nothing for label in task["labels"]}
    return _scores_drawing(f"{title_of(key)}: F1 by label, {task['best']}", cells, paper=paper, first="Label")


def _scores_drawing(caption: str, cells: Mapping[str, Json], *, paper: Mapping[str, float], first: str) -> Sheet:
    bars = []
    for name, cell in cells.items():
        ends = (cell["mean"], cell["low"], cell["high"], paper.get(name))
        value, low, high, theirs = (None if x is None else 100 * x for x in ends)
        words = "no result of ours" if value is None else f"{value:.1f}"
        bars.append(Row(name, (Mark(value, low, high, words, paper=theirs),)))
    keys = [(BLUE, "ours, with its interval"), *([("paper", "the paper's")] if paper.keys() & cells.keys() else [])]
    rows = tuple(
        (name, fixed(paper.get(name), 2, scale=100), interval(cell), f"{cell['n']}") for name, cell in cells.items()
    )
    svg = charts.bars(bars, title=caption, most=100, keys=keys)
    return Sheet(caption, (first, "Paper", "Ours [95 %]", "Runs"), rows, svg=svg)


def misses_drawing(key: str, task: Json, *, number: int | None = None) -> Sheet | None:
    """Draw the overpredictions and underpredictions of a task's best model by label, per run.

    ``number``: the figure of FigSIM that it corresponds to (4, 7 or 8).
    """
    best = best_of(task)
    if best is None or not best["runs"]:
        return None
    runs, support = best["runs"], task["support"]
    kinds = {"over": ORANGE, "under": BLUE}
    bars, rows = [], []
    for label in task["labels"]:
        rates = best["errors"]["by_label"][label]
        per_run = {kind: rates[kind]["count"] / runs for kind in kinds}
        marks = tuple(Mark(x, words=f"{charts.short(x)} {kind}", kind=kinds[kind]) for kind, x in per_run.items())
        bars.append(Row(f"{label} ({support[label]:,})" if label in support else label, marks))
        shares = {k: "" if rates[k]["rate"] is None else f" ({100 * rates[k]['rate']:.0f}%)" for k in kinds}
        rows.append((label, f"{support.get(label, 0):,}", *(_count(rates[k], runs=runs) + shares[k] for k in kinds)))
    by = "true severity" if task["ordinal"] else "label"
    figure = "" if number is None else f"Figure {number}. "
    caption = f"{figure}{title_of(key)}: over- and underprediction by {by}, {task['best']}"
    caption += f" (mean of {runs} runs)" if runs > 1 else ""
    svg = charts.bars(bars, title=caption, keys=[(colour, kind) for kind, colour in kinds.items()])
    return Sheet(caption, ("Label", "Gold", "Over (of)", "Under (of)"), tuple(rows), svg=svg)


def _count(rate: Json, *, runs: int) -> str:
    return "/".join(f"{rate[name] / runs:,.1f}".removesuffix(".0") for name in ("count", "of"))


def conditions(metrics: Json, *, paper: Mapping[str, Mapping[str, str]]) -> Sheet:
    """Return a table of the share of memes that the best models misclassify, by context and modality.

    ``paper``: task -> label -> the counts that the paper prints.
    """
    rows: list[tuple[str, ...]] = []
    for key, task in metrics["tasks"].items():
        if best := best_of(task):
            rows.append((f"{title_of(key)}, {task['best']}", "", "", ""))
            rates = [rate for labels in best["errors"]["by_category"].values() for rate in labels.items()]
            rows += [
                (label, paper[key].get(label, UNDEFINED), _count(rate, runs=best["runs"]), interval(rate))
                for label, rate in rates
            ]
    columns = ("Best model of a task", "Paper, wrong", "Ours, wrong (per run)", "Ours, % [95 %]")
    return Sheet("Memes that are not exactly right", columns, tuple(rows))


def unanswered(metrics: Json) -> Iterator[Block]:
    """Yield a table of the models with unanswered items, or a sentence that there are none.

    The table has the unanswered items' number, and macro-F1 without and with them.
    """
    rows: list[tuple[str, ...]] = []
    for key, task in metrics["tasks"].items():
        lost = {name: model for name, model in task["models"].items() if set(model["outcomes"]) - {"vote"}}
        rows += [(title_of(key), "", "", "")] if lost else []
        for name, model in lost.items():
            words = ", ".join(
                f"{n:,} {outcome}" for outcome, n in sorted(model["outcomes"].items()) if outcome != "vote"
            )
            scores = (figures_of(model).get("macro_f1"), model["all"]["figures"]["macro_f1"])
            rows.append((name, words, *map(interval, scores)))
    whole = f"Macro-F1 over all {noun_of(metrics)}"
    if rows:
        yield Sheet(
            "By task and model", ("Model", "Not answered (all runs)", "Macro-F1 over answers", whole), tuple(rows)
        )
    elif any(task["models"] for task in metrics["tasks"].values()):
        yield f"Every model answered for all {noun_of(metrics)}."


def pairs(metrics: Json) -> Iterator[Block]:
    """Yield for each task how many pairs of models differ significantly, and tables of the paired tests."""
    tests = (f"{name}, p (Holm)" for name in TESTS.values())
    columns = ("A against B", "Macro-F1, A−B", "Weighted F1, A−B", "Right alone: A / B", *tests)
    for key, task in metrics["tasks"].items():
        if not task["pairs"]:
            continue
        sure = sum(pair["holm"]["bootstrap"] < ENOUGH for pair in task["pairs"])
        yield (
            f"{title_of(key)}: {sure:,} of {len(task['pairs']):,} pairs of models differ in macro-F1 beyond chance "
            "(bootstrap, Holm's p below .05)."
        )
        rows: dict[bool, list[tuple[str, ...]]] = {True: [], False: []}
        for pair in task["pairs"]:
            rows[task["best"] in (pair["a"], pair["b"])].append(_pair(pair, turned=pair["b"] == task["best"]))
        sheets = [
            Sheet(f"{title_of(key)}: {title}", columns, tuple(rows[best]))
            for best, title in ((True, "the best model against the others"), (False, "all other pairs"))
            if rows[best]
        ]
        yield from (sheet.folded() if i else sheet for i, sheet in enumerate(sheets))


def _pair(pair: Json, *, turned: bool) -> tuple[str, ...]:
    sides = ("b", "a") if turned else ("a", "b")
    leads = []
    for figure in ("macro_f1", "weighted_f1"):
        ends = [pair[figure][name] for name in ("value", "low", "high")]
        if turned:
            ends = [None if end is None else -end for end in (ends[0], ends[2], ends[1])]
        leads.append(interval(dict(zip(("value", "low", "high"), ends, strict=True))))
    alone = " / ".join(f"{pair['mcnemar'][f'{side}_only']:,}" for side in sides)
    tests = [f"{p_value(pair['p'].get(test))} ({p_value(pair['holm'].get(test))})" for test in TESTS]
    return (" against ".join(pair[side] for side in sides), *leads, alone, *tests)


def discrepancies(paper: str) -> tuple[Mapping[str, str], ...]:
    """Return the stored discrepancies between a paper's claims and its own numbers (SPEC 1.6)."""
    return tuple(printed(f"{paper}_claims"))


def standing(paper: str, *, ours: Mapping[str, str]) -> Iterator[Block]:
    """Yield a table of a paper's discrepancies; ``ours`` has this corpus's results, by the field ``ours`` of a row."""
    yield (
        "These discrepancies were found by recomputing the paper's claims from its own tables. They are listed "
        "whatever our runs show, so that no one relies on the claims; the last column has our runs' figures, if any."
    )
    rows = tuple(
        (row["where"], row["claim"], row["found"], row["source"], ours.get(row.get("ours", ""), ""))
        for row in discrepancies(paper)
    )
    columns = ("Where", "The paper says", "Its numbers say", "Found by", "Our runs")
    yield Sheet("Table of discrepancies", columns, rows, "prose")
