"""Build parts of the report on models of crisis posts beyond CRADLE's tables, such as refusals, confusions and cost.

Everything is read from ``evaluate.json`` (for its shape see :mod:`pipelines.evaluate.evaluate` and
:mod:`pipelines.evaluate.crisis_errors`). Counts are summed over a model's runs; shares are in percent, with 95 %
intervals; an undefined value is a dash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from pipelines.evaluate.model_scores import Json
from pipelines.metrics.alerts import VERDICTS
from pipelines.metrics.label_tables import UNDEFINED, Sheet
from pipelines.report import charts
from pipelines.report.page import Drawing
from pipelines.report.parts import FIGURES, interval

MOST = 3
ALERT = (
    "Positives on dev", "Threshold", "Guaranteed recall, %", "Recall of its alert", "Alert rate", "Precision",
    "On test",
)  # fmt: skip
DEV_FIGURES = ("exact", "macro_f1", "micro_f1", "jaccard", "macro_recall", "micro_recall")


def share(rate: Json | None) -> str:
    """Format a share as ``count/of (percent) [low, high]``, or a dash if the total is 0.

    Shares of 0 % and 100 % are printed without an interval, because every resample gives the same share.
    """
    if rate is None or rate["rate"] is None:
        return UNDEFINED
    around = "" if rate["low"] == rate["high"] else f" [{100 * rate['low']:.1f}, {100 * rate['high']:.1f}]"
    return f"{rate['count']:,}/{rate['of']:,} ({100 * rate['rate']:.1f}%){around}"


def _words(name: str) -> str:
    return name.replace("_", " ").replace("/", ", ")


def _crises(task: Json) -> dict[str, Json]:
    return {name: m["crises"] for name, m in sorted(task["models"].items()) if m.get("crises") and m["valid"]}


def refusals(task: Json, *, paper: Mapping[str, Mapping[str, int]], carried: Mapping[str, int]) -> Sheet | None:
    """Return a table of the share of posts that a model left unanswered, by gold label and model.

    Args:
        paper: title of a column -> label -> number of posts that the paper's model left unanswered.
        carried: label -> number of the paper's posts with this label.
    """
    models = {
        name: model["crises"]["refusals"]
        for name, model in sorted(task["models"].items())
        if model.get("crises") and set(model["outcomes"]) - {"vote"}
    }
    if not models and not paper:
        return None
    rows = []
    for label in task["labels"]:
        theirs = (_of(counts.get(label, 0), carried[label]) for counts in paper.values())
        rows.append((label, *theirs, *(share(counts[label]) for counts in models.values())))
    return Sheet("Not answered, by gold label", ("Label", *paper, *models), tuple(rows))


def _of(part: int, whole: int) -> str:
    return f"{part}/{whole} ({100 * part / whole:.1f}%)" if whole else UNDEFINED


def confusions(task: Json) -> Iterator[Sheet]:
    """Yield for level and time of a crisis a table of how often models answer another value than gold, or both."""
    models = _crises(task)
    for attribute in _attributes(models):
        by_model = {name: crises["confusions"][attribute] for name, crises in models.items()}
        first = next(iter(by_model.values()))
        columns = [f"{swap['gold']}, predicted as {swap['said']}" for swap in first["swaps"]]
        columns += [f"{hedge['gold']}, predicted as both" for hedge in first["hedges"]]
        rows = [
            (name, *(share(rate) for rate in (*confusion["swaps"], *confusion["hedges"])))
            for name, confusion in by_model.items()
        ]
        title = f"{_words(' and '.join(first['values'])).capitalize()} confused, all types together"
        yield Sheet(title, ("Model", *(column.capitalize() for column in columns)), tuple(rows))


def _attributes(models: Mapping[str, Json]) -> list[str]:
    return list(next(iter(models.values()))["confusions"]) if models else []


def matrices(task: Json) -> Iterator[Sheet]:
    """Yield for level and time of a crisis a table of the best model's answers, by gold value and crisis type."""
    models = _crises(task)
    if task["best"] not in models:
        return
    for attribute in _attributes(models):
        confusion = models[task["best"]]["confusions"][attribute]
        states = list(confusion["total"])
        groups = {**confusion["groups"], "all types": confusion["total"]}
        rows = [
            (f"{_words(group)}: {gold}", *(f"{row.get(said, 0):,}" for said in states))
            for group, matrix in groups.items()
            for gold, row in matrix.items()
        ]
        title = f"{_words(attribute).capitalize()} by crisis type, {task['best']}: gold (rows) and answer"
        yield Sheet(title, ("Gold", *states), tuple(rows))


def over_extension(task: Json, *, kind: str) -> Sheet | None:
    """Return a table, by model, of how often the crisis type ``kind`` is predicted without being in gold."""
    rows = []
    for name, crises in _crises(task).items():
        over = crises["over_extension"].get(kind)
        if over is None:
            continue
        often = sorted(over["beside"].items(), key=lambda item: (-item[1]["count"], item[0]))
        beside = [f"{label} {rate['count']:,}/{rate['of']:,}" for label, rate in often[:MOST] if rate["count"]]
        rows.append((name, share(over["over"]), share(over["of_said"]), "; ".join(beside) or UNDEFINED))
    columns = ("Model", "Predicted without it in gold", "Wrong, of predictions", "Most often where gold has")
    return Sheet(f"Over-extension of {_words(kind)}", columns, tuple(rows)) if rows else None


def over_extensions(task: Json) -> Sheet | None:
    """Return a table, by crisis type and model, of how often the type is predicted without being in gold."""
    models = _crises(task)
    kinds = list(next(iter(models.values()))["over_extension"]) if models else []
    rows = [
        (_words(kind), *(share(crises["over_extension"][kind]["over"]) for crises in models.values())) for kind in kinds
    ]
    return Sheet("Predicted without it in gold, by type of crisis", ("Type", *models), tuple(rows)) if rows else None


def severity(task: Json) -> Iterator[Sheet]:
    """Yield tables of the models' recall by severity of the gold label, and of their missed and false crises."""
    models = _crises(task)
    known = [set(map(int, crises["severity"]["recall"])) for crises in models.values()]
    grades = sorted(set().union(*known), reverse=True)
    if grades:
        rows = []
        for name, crises in models.items():
            weighted = interval(task["models"][name]["valid"]["figures"].get("severity_recall"))
            recall = crises["severity"]["recall"]
            rows.append((name, weighted, *(share(recall.get(str(grade))) for grade in grades)))
        columns = ("Model", "Severity-weighted recall", *_graded(grades))
        yield Sheet("Labels found, by severity", columns, tuple(rows))
    if models:
        kinds = {
            "missed": "Crisis, none predicted",
            "milder": "Predicted as milder",
            "alarms": "No crisis, one predicted",
        }
        missed = [(name, *(share(crises["severity"][kind]) for kind in kinds)) for name, crises in models.items()]
        yield Sheet("Crises missed, and false alarms", ("Model", *kinds.values()), tuple(missed))


def _graded(grades: Iterable[int]) -> Iterator[str]:
    return (f"Found of severity {grade}" for grade in grades)


def published_severity(paper: Mapping[str, tuple[float, Mapping[int, tuple[int, int]]]]) -> Sheet:
    """Return a table of recall by severity for the models in the paper.

    ``paper``: model name -> weighted recall, and severity -> (true positives, gold labels).
    """
    grades = sorted(set().union(*(graded for _, graded in paper.values())), reverse=True)
    rows = [
        (name, f"{100 * recall:.1f}", *(_of(*graded.get(grade, (0, 0))) for grade in grades))
        for name, (recall, graded) in paper.items()
    ]
    columns = ("Model", "Severity-weighted recall", *_graded(grades))
    return Sheet("Labels found by the paper's models, by our severities (recomputed)", columns, tuple(rows))


def violations(task: Json) -> Sheet | None:
    """Return a table of how many answers of each model break each rule of the label scheme (SPEC 23)."""
    models = _crises(task)
    rules = sorted({rule for crises in models.values() for rule in crises["violations"]})
    rows = [(_words(rule), *(f"{crises['violations'].get(rule, 0):,}" for crises in models.values())) for rule in rules]
    return Sheet("Answers that break a rule of the scheme", ("Rule", *models), tuple(rows)) if rows else None


def floors(task: Json) -> Sheet | None:
    """Return a table of the labels with a required recall: each model's recall by its labels and by its alert."""
    rows = []
    for name, model in sorted(task["models"].items()):
        for label, floor in (model.get("floors") or {}).items():
            least = f"{100 * floor['floor']:.0f}"
            rows.append((f"{name}: {label}", least, share(floor["recall"]), *_alert(floor["alert"])))
    columns = ("Model: label", "Floor, %", "Recall of its labels", *ALERT)
    return Sheet("Alerts of labels with a recall floor", columns, tuple(rows)) if rows else None


def _alert(alert: Json | None) -> tuple[str, ...]:
    if alert is None or alert["dev"]["threshold"] is None:
        return (UNDEFINED,) * len(ALERT)
    dev = alert["dev"]
    guaranteed = f"{100 * dev['guaranteed_recall']:.1f}" + (
        "" if dev["guarantee"] else ", without guarantee of the floor"
    )
    rates = (share(alert[name]) for name in ("recall", "alert_rate", "precision"))
    return (f"{dev['positives']}", f"{dev['threshold']:.3f}", guaranteed, *rates, VERDICTS[alert["verdict"]])


def spent(task: Json) -> Sheet | None:
    """Return a table of what a model's predictions cost: seconds and tokens per post, US dollars per thousand posts."""
    rows = []
    for name, model in sorted(task["models"].items()):
        if cost := model.get("spent"):
            tokens = (f"{cost[key] / cost['records']:,.0f}" for key in ("input_tokens", "output_tokens"))
            cells = (_amount(cost["seconds_per_record"]), *(tokens if cost["records"] else (UNDEFINED,) * 2))
            rows.append((name, f"{cost['records']:,}", *cells, f"{cost['cost']:.4f}", _amount(cost["cost_per_1000"])))
    each = ("Seconds a record", "Tokens in, a record", "Tokens out, a record")
    columns = ("Model", "Records", *each, "US $", "US $ per 1,000")
    return Sheet("Cost of prediction", columns, tuple(rows)) if rows else None


def _amount(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.4f}"


def calibration(task: Json) -> Sheet | None:
    """Return a table of the calibration of each model that gives probabilities, averaged over all labels."""
    rows = []
    for name, calibrated in _calibrated(task).items():
        base = fmean(label["base"] for label in calibrated["labels"].values())
        cells = (_ranged(calibrated["ece"], calibrated["intervals"]["ece"]), f"{calibrated['noise']:.4f}")
        briers = (_ranged(calibrated["brier"], calibrated["intervals"]["brier"]), f"{base:.4f}")
        rows.append((name, f"{calibrated['n']:,}", *cells, *briers))
    columns = (
        "Model",
        "Answers",
        "Expected calibration error (ECE)",
        "ECE of right probabilities",
        "Brier score",
        "Brier score of the frequencies",
    )
    return Sheet("Calibration, mean over the labels", columns, tuple(rows)) if rows else None


def _ranged(value: float, ends: Sequence[float | None]) -> str:
    low, high = ends
    return f"{value:.4f}" if low is None or high is None else f"{value:.4f} [{low:.4f}, {high:.4f}]"


def _calibrated(task: Json) -> dict[str, Json]:
    return {name: model["calibration"] for name, model in sorted(task["models"].items()) if model.get("calibration")}


def risks(task: Json) -> Sheet | None:
    """Return a table of the share of wrong label sets among each model's most confident answers."""
    by_model = {name: model["risk"] for name, model in _calibrated(task).items()}
    rows = [
        (name, *(f"{100 * risk:.1f}" for risk in model["coverage"].values()), f"{100 * model['aurc']:.1f}")
        for name, model in by_model.items()
    ]
    shares = next(iter(by_model.values()))["coverage"] if by_model else ()
    columns = ("Model", *(f"Of the most confident {100 * float(share):.0f} %" for share in shares), "Mean (AURC)")
    return Sheet("Wrong label sets by coverage, %", columns, tuple(rows)) if rows else None


def calibration_by_label(task: Json) -> Sheet | None:
    """Return a table of Brier scores by label and model, compared with always predicting the label's frequency."""
    by_model = _calibrated(task)
    if not by_model:
        return None
    base = next(iter(by_model.values()))["labels"]
    rows = [
        (label, f"{base[label]['base']:.4f}", *(f"{each['labels'][label]['brier']:.4f}" for each in by_model.values()))
        for label in task["labels"]
    ]
    return Sheet("Brier score by label", ("Label", "Of its frequency", *by_model), tuple(rows))


def reliability(task: Json) -> Iterator[Drawing]:
    """Yield the reliability plots of all models that give probabilities."""
    for name, calibrated in _calibrated(task).items():
        filled = [row for row in calibrated["bins"] if row["n"]]
        bins = [(row["said"], row["seen"], row["n"]) for row in filled]
        caption = f"Reliability of {name}'s probabilities"
        rows = tuple(
            (
                f"{100 * row['low']:.0f} to {100 * row['high']:.0f}",
                f"{100 * row['said']:.1f}",
                f"{100 * row['seen']:.1f}",
                f"{row['n']:,}",
            )
            for row in filled
        )
        sheet = Sheet(caption, ("Predicted, %", "Mean", "Observed, %", "Answers"), rows)
        yield Drawing(caption, charts.reliability(bins, title=caption), sheet)


def dev(task: Json) -> Sheet | None:
    """Return a table of the models' scores on dev, the split used for model selection, averaged over runs."""
    rows = []
    for name, model in sorted(task["models"].items()):
        if model.get("dev"):
            runs = [seed["all"]["figures"] for seed in model["dev"]["by_seed"].values()]
            cells = (_mean([run.get(figure) for run in runs]) for figure in DEV_FIGURES)
            rows.append((name, f"{model['dev']['n']:,}", *cells))
    columns = ("Model", "Records", *(FIGURES[figure] for figure in DEV_FIGURES))
    return Sheet("On dev, without the prompt's examples", columns, tuple(rows)) if rows else None


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * fmean(known):.1f}" if known else UNDEFINED
