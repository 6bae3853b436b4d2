"""Build parts of the report on models of crisis posts beyond CRADLE's tables, such as refusals, confusions and cost.

Everything is read from ``evaluate.json`` (for its shape see :mod:`pipelines.evaluate.evaluate` and
:mod:`pipelines.evaluate.crisis_errors`). Counts are summed over a model's runs; shares are in percent, with 95 %
intervals; an undefined value is a dash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean

from pipelines.evaluate.model_scores import Json
from pipelines.metrics.alerts import VERDICTS
from pipelines.metrics.label_tables import UNDEFINED, Sheet
from pipelines.report import charts
from pipelines.report.parts import FIGURES, fixed, interval

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
    rows = []
    for label in task["labels"]:
        theirs = (_of(counts.get(label, 0), carried[label]) for counts in paper.values())
        rows.append((label, *theirs, *(share(counts[label]) for counts in models.values())))
    columns = ("Label", *paper, *models)
    return Sheet("Not answered, by gold label", columns, tuple(rows)) if models or paper else None


def _of(part: int, whole: int) -> str:
    return f"{part}/{whole} ({100 * part / whole:.1f}%)" if whole else UNDEFINED


def confusions(task: Json) -> Iterator[Sheet]:
    """Yield for level and time of a crisis a table of how often models answer another value than gold, or both."""
    models = _crises(task)
    for attribute in next(iter(models.values()))["confusions"] if models else ():
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


def matrices(task: Json) -> Iterator[Sheet]:
    """Yield for level and time of a crisis a table of the best model's answers, by gold value and crisis type."""
    best = _crises(task).get(task["best"])
    for attribute, confusion in best["confusions"].items() if best else ():
        states = list(confusion["total"])
        rows = tuple(
            (f"{_words(group)}: {gold}", *(f"{row.get(said, 0):,}" for said in states))
            for group, matrix in {**confusion["groups"], "all types": confusion["total"]}.items()
            for gold, row in matrix.items()
        )
        title = f"{_words(attribute).capitalize()} by crisis type, {task['best']}: gold (rows) and answer"
        yield Sheet(title, ("Gold", *states), rows, "folded")


def over_extension(task: Json, *, kind: str) -> Sheet:
    """Return a table, by model, of how often the crisis type ``kind`` is predicted without being in gold."""
    rows = []
    for name, crises in _crises(task).items():
        if over := crises["over_extension"].get(kind):
            often = sorted(over["beside"].items(), key=lambda item: (-item[1]["count"], item[0]))
            beside = [f"{label} {rate['count']:,}/{rate['of']:,}" for label, rate in often[:MOST] if rate["count"]]
            rows.append((name, share(over["over"]), share(over["of_said"]), "; ".join(beside) or UNDEFINED))
    columns = ("Model", "Predicted without it in gold", "Wrong, of predictions", "Most often where gold has")
    return Sheet(f"Over-extension of {_words(kind)}", columns, tuple(rows))


def over_extensions(task: Json) -> Sheet:
    """Return a table, by crisis type and model, of how often the type is predicted without being in gold."""
    models = {name: crises["over_extension"] for name, crises in _crises(task).items()}
    kinds: Iterable[str] = next(iter(models.values()), ())
    rows = tuple((_words(kind), *(share(each[kind]["over"]) for each in models.values())) for kind in kinds)
    return Sheet("Predicted without it in gold, by type of crisis", ("Type", *models), rows)


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
        yield Sheet("Labels found, by severity", _graded(grades), tuple(rows))
    kinds = {"missed": "Crisis, none predicted", "milder": "Predicted as milder", "alarms": "No crisis, one predicted"}
    missed = tuple((name, *(share(crises["severity"][kind]) for kind in kinds)) for name, crises in models.items())
    yield Sheet("Crises missed, and false alarms", ("Model", *kinds.values()), missed)


def _graded(grades: Iterable[int]) -> tuple[str, ...]:
    return ("Model", "Severity-weighted recall", *(f"Found of severity {grade}" for grade in grades))


def published_severity(paper: Mapping[str, tuple[float, Mapping[int, tuple[int, int]]]]) -> Sheet:
    """Return a table of recall by severity for the models in the paper.

    ``paper``: model name -> weighted recall, and severity -> (true positives, gold labels).
    """
    grades = sorted(set().union(*(graded for _, graded in paper.values())), reverse=True)
    rows = tuple(
        (name, f"{100 * recall:.1f}", *(_of(*graded.get(grade, (0, 0))) for grade in grades))
        for name, (recall, graded) in paper.items()
    )
    title = "Labels found by the paper's models, by our severities (recomputed)"
    return Sheet(title, _graded(grades), rows, "folded")


def violations(task: Json) -> Sheet:
    """Return a table of how many answers of each model break each rule of the label scheme (SPEC 23)."""
    models = {name: crises["violations"] for name, crises in _crises(task).items()}
    rules = sorted({rule for broken in models.values() for rule in broken})
    rows = tuple((_words(rule), *(f"{broken.get(rule, 0):,}" for broken in models.values())) for rule in rules)
    return Sheet("Answers that break a rule of the scheme", ("Rule", *models), rows)


def floors(task: Json) -> Sheet:
    """Return a table of the labels with a required recall: each model's recall by its labels and by its alert."""
    rows = []
    for name, model in sorted(task["models"].items()):
        for label, floor in (model.get("floors") or {}).items():
            least = f"{100 * floor['floor']:.0f}"
            rows.append((f"{name}: {label}", least, share(floor["recall"]), *_alert(floor["alert"])))
    columns = ("Model: label", "Floor, %", "Recall of its labels", *ALERT)
    return Sheet("Alerts of labels with a recall floor", columns, tuple(rows))


def _alert(alert: Json | None) -> tuple[str, ...]:
    if alert is None or alert["dev"]["threshold"] is None:
        return (UNDEFINED,) * len(ALERT)
    dev = alert["dev"]
    unsure = "" if dev["guarantee"] else ", without guarantee of the floor"
    guaranteed = f"{100 * dev['guaranteed_recall']:.1f}{unsure}"
    rates = (share(alert[name]) for name in ("recall", "alert_rate", "precision"))
    return (f"{dev['positives']}", f"{dev['threshold']:.3f}", guaranteed, *rates, VERDICTS[alert["verdict"]])


def spent(task: Json) -> Sheet:
    """Return a table of what a model's predictions cost: seconds and tokens per post, US dollars per thousand posts."""
    rows = []
    for name, model in sorted(task["models"].items()):
        if cost := model.get("spent"):
            n = cost["records"]
            tokens = (f"{cost[key] / n:,.0f}" if n else UNDEFINED for key in ("input_tokens", "output_tokens"))
            dollars = (fixed(cost[key], 4) for key in ("cost", "cost_per_1000"))
            rows.append((name, f"{n:,}", fixed(cost["seconds_per_record"], 4), *tokens, *dollars))
    each = ("Seconds a record", "Tokens in, a record", "Tokens out, a record")
    return Sheet("Cost of prediction", ("Model", "Records", *each, "US $", "US $ per 1,000"), tuple(rows))


def calibration(task: Json) -> Iterator[Sheet]:
    """Yield tables and plots of the calibration of the models that give probabilities, in the mean and by label.

    A Brier score is compared with that of always predicting the label's frequency; the last but one table has the share
    of wrong label sets among each model's most confident answers.
    """
    models = {name: model["calibration"] for name, model in sorted(task["models"].items()) if model.get("calibration")}
    if not models:
        return
    first = next(iter(models.values()))
    yield _errors(models)
    covered = (f"Of the most confident {100 * float(share):.0f} %" for share in first["risk"]["coverage"])
    risks = {name: (*each["risk"]["coverage"].values(), each["risk"]["aurc"]) for name, each in models.items()}
    rows = tuple((name, *(f"{100 * risk:.1f}" for risk in shares)) for name, shares in risks.items())
    yield Sheet("Wrong label sets by coverage, %", ("Model", *covered, "Mean (AURC)"), rows)
    for name, calibrated in models.items():
        yield _reliability(name, calibrated)
    by_label = tuple(
        (x, f"{first['labels'][x]['base']:.4f}", *(f"{each['labels'][x]['brier']:.4f}" for each in models.values()))
        for x in task["labels"]
    )
    yield Sheet("Brier score by label", ("Label", "Of its frequency", *models), by_label, "folded")


def _errors(models: Mapping[str, Json]) -> Sheet:
    rows = []
    for name, calibrated in models.items():
        ends = {key: dict(zip(("low", "high"), calibrated["intervals"][key], strict=True)) for key in ("ece", "brier")}
        ece, brier = (interval({"mean": calibrated[key], **ends[key]}, scale=1, digits=4) for key in ends)
        base = fmean(label["base"] for label in calibrated["labels"].values())
        rows.append((name, f"{calibrated['n']:,}", ece, f"{calibrated['noise']:.4f}", brier, f"{base:.4f}"))
    errors = ("Expected calibration error (ECE)", "ECE of right probabilities")
    briers = ("Brier score", "Brier score of the frequencies")
    return Sheet("Calibration, mean over the labels", ("Model", "Answers", *errors, *briers), tuple(rows))


def _reliability(name: str, calibrated: Json) -> Sheet:
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


def dev(task: Json) -> Sheet:
    """Return a table of the models' scores on dev, the split used for model selection, averaged over runs."""
    rows = []
    for name, model in sorted(task["models"].items()):
        if model.get("dev"):
            runs = [seed["all"]["figures"] for seed in model["dev"]["by_seed"].values()]
            known = ([run[figure] for run in runs if run.get(figure) is not None] for figure in DEV_FIGURES)
            cells = (fixed(fmean(values) if values else None, 1, scale=100) for values in known)
            rows.append((name, f"{model['dev']['n']:,}", *cells))
    columns = ("Model", "Records", *(FIGURES[figure] for figure in DEV_FIGURES))
    return Sheet("On dev, without the prompt's examples", columns, tuple(rows))
