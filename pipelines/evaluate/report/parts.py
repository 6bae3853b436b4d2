"""Build the parts of the report that are no declared tables: summaries, plots, paired tests, confusions.

Everything is from ``evaluate.json`` as ``results.py`` arranges it. Scores are printed times 100, with
95 % intervals; an undefined value is a dash. Counts are summed over a model's runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pipelines.evaluate.model_scores import Json
from pipelines.evaluate.report import charts
from pipelines.evaluate.report.charts import BLUE, ORANGE, Mark, Row
from pipelines.evaluate.report.page import Block, PageSection
from pipelines.evaluate.report.tables import Form
from pipelines.metrics.label_tables import UNDEFINED, Sheet

# the first two resample whole groups of near-duplicates; McNemar ignores the groups
TESTS = {"bootstrap": "Bootstrap", "randomisation": "Randomisation", "mcnemar": "McNemar"}
ENOUGH = 0.05
MOST = 3
share = Form().ours


def section(key: str, title: str, blocks: Iterable[Block | None]) -> PageSection:
    """Create a section of the report from blocks; ``None`` and tables without rows are left out."""
    return PageSection(key, title, tuple(b for b in blocks if b and not (isinstance(b, Sheet) and not b.rows)))


def sections_of(*sections: tuple[str, str, Iterable[Block | None]]) -> list[PageSection]:
    """Create sections, each of key, title and blocks; those without content are left out."""
    return [part for part in (section(*each) for each in sections) if part.blocks]


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
    for task in metrics["tasks"].values():
        baselines = [row["figures"]["macro_f1"] for row in task["baselines"].values()]
        highest = max((value for value in baselines if value is not None), default=None)
        scores = (interval(figures_of(best_of(task)).get("macro_f1")), fixed(highest, 1, scale=100))
        numbers = (f"{task['n']:,}", f"{len(task['models']):,}")
        rows.append((task["title"], task["best"] or UNDEFINED, *scores, *numbers))
    columns = ("Task", "Best model", "Its macro-F1", "Best baseline", f"Test {metrics['noun']}", "Models")
    return Sheet("Best by macro-F1, beside a baseline that ignores its input", columns, tuple(rows))


def heat(task: Json, *, paper: Mapping[str, Mapping[str, float]]) -> Sheet | None:
    """Return a heat map of F1 by label (rows) and model (columns, best first), without models that never answered.

    ``paper``: title -> label -> F1 (0 to 1).
    """
    models = ranked(task)
    # without support the 0 that counts in macro-F1 says nothing about the model
    ours = {label: [m["labels"][label]["f1"]["mean"] for m in models.values()] for label in task["labels"]}
    values = {
        x: (*(ours[x] if task["support"].get(x) else [None] * len(models)), *(c.get(x) for c in paper.values()))
        for x in task["labels"]
    }
    rows = tuple(
        (label, f"{task['support'].get(label, 0):,}", *(fixed(v, 0, scale=100) for v in row))
        for label, row in values.items()
    )
    title = f"{task['title']}: F1 by label and model"
    shades = tuple((None, *row) for row in values.values())
    return Sheet(title, ("Label", "Gold", *models, *paper), rows, values=shades) if models else None


def models_drawing(task: Json, *, paper: Mapping[str, float]) -> Sheet | None:
    """Draw all models of a task by macro-F1, best first; ``paper`` contains the paper's values between 0 and 1."""
    cells = {name: scores["figures"]["macro_f1"] for name, scores in ranked(task).items()}
    return _drawing(f"{task['title']}: macro-F1 of every model", cells, paper=paper, first="Model") if cells else None


def labels_drawing(task: Json, *, paper: Mapping[str, float]) -> Sheet | None:
    """Draw F1 by label of a task's best model; ``paper``: the paper's values."""
    best = best_of(task)
    if best is None or best["valid"] is None:
        return None
    nothing = {"mean": None, "low": None, "high": None, "n": 0}
    labels = best["valid"]["labels"]
    cells = {label: labels[label]["f1"] if task["support"].get(label) else nothing for label in task["labels"]}
    return _drawing(f"{task['title']}: F1 by label, {task['best']}", cells, paper=paper, first="Label")


def _drawing(caption: str, cells: Mapping[str, Json], *, paper: Mapping[str, float], first: str) -> Sheet:
    bars = []
    for name, cell in cells.items():
        ends = (cell["mean"], cell["low"], cell["high"], paper.get(name))
        value, low, high, theirs = (None if x is None else 100 * x for x in ends)
        words = "no result of ours" if value is None else f"{value:.1f}"
        bars.append(Row(name, (Mark(value, low, high, words, paper=theirs),)))
    theirs = {name: [fixed(paper.get(name), 2, scale=100)] for name in cells if paper.keys() & cells.keys()}
    keys = [(BLUE, "ours, with its interval"), *([("paper", "the paper's")] if theirs else [])]
    rows = tuple((name, *theirs.get(name, ()), interval(cell), f"{cell['n']}") for name, cell in cells.items())
    svg = charts.bars(bars, title=caption, most=100, keys=keys)
    return Sheet(caption, (first, *(["Paper"] if theirs else []), "Ours [95 %]", "Runs"), rows, svg=svg)


def misses_drawing(task: Json, *, caption: str = "") -> Sheet | None:
    """Draw the overpredictions and underpredictions of a task's best model by label, per run."""
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
    by = "true label" if task["ordinal"] else "label"
    title = f"{caption} {task['title']}: over- and underprediction by {by}, {task['best']}".strip()
    title += f" (mean of {runs} runs)" if runs > 1 else ""
    svg = charts.bars(bars, title=title, keys=[(colour, kind) for kind, colour in kinds.items()])
    return Sheet(title, ("Label", "Gold", "Over (of)", "Under (of)"), tuple(rows), svg=svg)


def _count(rate: Json, *, runs: int) -> str:
    return "/".join(f"{rate[name] / runs:,.1f}".removesuffix(".0") for name in ("count", "of"))


def queue_drawing(task: Json) -> Sheet | None:
    """Draw what is unread of the best model's queue by how much is read, of the rarest labels."""
    if (best := best_of(task)) is None or "queue" not in best:
        return None
    day, support = best["queue"], {label: count for label, count in task["support"].items() if count}
    rarest = sorted((label for label in day["labels"] if label in support), key=lambda label: support[label])
    curves = {label: day["curve"][label] for label in rarest[: len(charts.MARKERS)]}
    steps = [i * day["arrivals"] / 20 for i in range(21)]
    title = f"{task['title']}: unread by items read a day, {task['best']}"
    points = {label: [*zip(steps, (100 * value for value in curve), strict=True)] for label, curve in curves.items()}
    rows = tuple(
        (f"{step:,.0f}", *(fixed(curve[i], 1, scale=100) for curve in curves.values())) for i, step in enumerate(steps)
    )
    svg = charts.curves(points, title=title, across="items read a day", up="unread, %")
    return Sheet(title, ("Read a day", *curves), rows, svg=svg) if curves else None


def pairs(task: Json) -> Iterator[Block]:
    """Yield how many pairs of models differ significantly, and tables of the paired tests."""
    tests = (f"{name}, p (Holm)" for name in TESTS.values())
    columns = ("A against B", "Macro-F1, A−B", "Weighted F1, A−B", "Right alone: A / B", *tests)
    if not task["pairs"]:
        return
    sure = sum(pair["holm"]["bootstrap"] < ENOUGH for pair in task["pairs"])
    yield (
        f"{task['title']}: {sure:,} of {len(task['pairs']):,} pairs of models differ in macro-F1 beyond chance "
        "(bootstrap, Holm's p below .05)."
    )
    rows: dict[bool, list[tuple[str, ...]]] = {True: [], False: []}
    for pair in task["pairs"]:
        rows[task["best"] in (pair["a"], pair["b"])].append(_pair(pair, turned=pair["b"] == task["best"]))
    sheets = [
        Sheet(f"{task['title']}: {title}", columns, tuple(rows[best]))
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


def _words(name: str) -> str:
    return name.replace("_", " ").replace("/", ", ")


def crises_of(task: Json) -> dict[str, Json]:
    """Return by model the errors on labels that are crises (:mod:`pipelines.evaluate.label_errors`)."""
    return {name: m["crises"] for name, m in task["models"].items() if m.get("crises") and m["valid"]}


def confusions(task: Json) -> Iterator[Sheet]:
    """Yield by attribute of labels how often models answer another value than gold, and the best one's answers."""
    models = crises_of(task)
    for attribute in next(iter(models.values()))["confusions"] if models else ():
        by_model = {name: crises["confusions"][attribute] for name, crises in models.items()}
        first = next(iter(by_model.values()))
        columns = [f"{swap['gold']}, predicted as {swap['said']}" for swap in first["swaps"]]
        columns += [f"{hedge['gold']}, predicted as both" for hedge in first["hedges"]]
        rows = tuple((name, *map(share, (*each["swaps"], *each["hedges"]))) for name, each in by_model.items())
        title = f"{_words(' and '.join(first['values'])).capitalize()} confused, all types together"
        yield Sheet(title, ("Model", *(column.capitalize() for column in columns)), rows)
    for attribute, confusion in models[task["best"]]["confusions"].items() if task["best"] in models else ():
        states = list(confusion["total"])
        rows = tuple(
            (f"{_words(group)}: {gold}", *(f"{row.get(said, 0):,}" for said in states))
            for group, matrix in {**confusion["groups"], "all types": confusion["total"]}.items()
            for gold, row in matrix.items()
        )
        title = f"{_words(attribute).capitalize()} by type, {task['best']}: gold (rows) and answer"
        yield Sheet(title, ("Gold", *states), rows, "folded")


def over_extension(task: Json, *, kind: str) -> Sheet:
    """Return a table, by model, of how often the type ``kind`` is predicted without being in gold."""
    rows = []
    for name, crises in crises_of(task).items():
        if over := crises["over_extension"].get(kind):
            often = sorted(over["beside"].items(), key=lambda item: (-item[1]["count"], item[0]))
            beside = [f"{label} {rate['count']:,}/{rate['of']:,}" for label, rate in often[:MOST] if rate["count"]]
            rows.append((name, share(over["over"]), share(over["of_said"]), "; ".join(beside) or UNDEFINED))
    columns = ("Model", "Predicted without it in gold", "Wrong, of predictions", "Most often where gold has")
    return Sheet(f"Over-extension of {_words(kind)}", columns, tuple(rows))


def reliability(name: str, calibrated: Json) -> Sheet:
    """Draw the observed shares of labels against a model's probabilities."""
    filled = [row for row in calibrated["bins"] if row["n"]]
    caption = f"Reliability of {name}'s probabilities"
    rows = tuple(
        (
            f"{100 * row['low']:.0f} to {100 * row['high']:.0f}",
            *(f"{100 * row[key]:.1f}" for key in ("said", "seen")),
            f"{row['n']:,}",
        )
        for row in filled
    )
    svg = charts.reliability([(row["said"], row["seen"], row["n"]) for row in filled], title=caption)
    return Sheet(caption, ("Predicted, %", "Mean", "Observed, %", "Answers"), rows, svg=svg)
