"""Arrange the summary and Airflow's runs as the tables of the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from corpus_view.page_text import ago, moment, path, percent, web
from corpus_view.runs_seen import Runs, SeenRun
from dvc_airflow.names import named

Json = Mapping[str, Any]

# State of a month -> its sign, its word. Signs and words differ, so that colour carries nothing alone.
STATES = {
    "collected": ("✓", "collected"),
    "gap": ("◐", "incomplete"),
    "failed": ("✕", "failed"),
    "running": ("…", "being collected"),
    "missing": ("!", "missing"),
    "before": ("·", "not collected"),
    "open": ("○", "not over yet"),
}
# A year with no other state is folded.
UNTOUCHED = ("before", "open")
OUTCOMES = ("vote", "refused", "abstained", "malformed", "failed")
AGREEMENTS = ("unanimous", "consensus", "none")
EXCLUDED = {
    "gold": {"pending": "undecided", "unfit": "found unfit by people"},
    "split": {"excluded": "without the labels that the split needs", "withheld": "withheld"},
}


@dataclass(frozen=True)
class Provenance:
    """Where a number comes from: the commit, the Dag run that made it, and when."""

    commit: str | None = None
    at: str | None = None
    run: str | None = None

    @property
    def run_href(self) -> str | None:
        """The address of the Dag run, if the commit names one."""
        dag, _, run_id = (self.run or "").partition("/")
        return path("dags", dag, "runs", run_id) if run_id else None


class Sources:
    """The sources of the numbers of a summary, by file of metrics or folder of a month."""

    def __init__(self, summary: Json) -> None:
        self._origin: Json = summary.get("origin", {})
        self._commits: Json = summary.get("commits", {})

    def of(self, *files: str) -> Provenance:
        """Return the source of the first of these files that there is."""
        for file in files:
            if commit := self._origin.get(file):
                return self.commit(commit)
        return Provenance()

    def commit(self, commit: str | None) -> Provenance:
        """Return a commit as a source."""
        known = self._commits.get(commit or "", {})
        return Provenance(commit, known.get("at"), known.get("run"))


def calendar(corpus: str, part: Json, *, runs: Runs, sources: Sources, now: datetime) -> list[dict[str, Any]]:
    """Return the months of a corpus by year, newest year first, with state, counts, gap and link of each."""
    months: Json = part.get("months", {})
    dag = named(f"{corpus}_collect")
    published = sorted(key for key, month in months.items() if month.get("published"))
    years: dict[str, list[dict[str, Any]]] = {}
    for key in _keys(part, months, now=now):
        month, run = months.get(key, {}), runs.months.get((dag, key))
        state = _state(key, month, run=run, first=published[0] if published else None, now=now)
        source = sources.of(f"data/{corpus}/{key}")
        sign, word = STATES[state]
        years.setdefault(key[:4], []).append(
            {
                "key": key,
                "number": int(key[5:]),
                "state": state,
                "sign": sign,
                "word": word,
                "records": month.get("records", 0) if month.get("published") else None,
                "deleted": month.get("deleted", 0),
                "gap": month.get("gap_hours") or None,
                "last_run": run.state if run else None,
                "href": run.href if run else source.run_href,
                "commit": source.commit,
            }
        )
    return [
        {"year": year, "months": years[year], "shown": any(m["state"] not in UNTOUCHED for m in years[year])}
        for year in sorted(years, reverse=True)
    ]


def _keys(part: Json, months: Json, *, now: datetime) -> list[str]:
    first, last = (*(part.get("period") or ()), None, None)[:2]
    present = f"{now:%Y-%m}"
    first = min([key for key in (first, *months) if key], default=present)
    last = max([key for key in (last or present, *months) if key])
    keys: list[str] = []
    year, month = int(first[:4]), int(first[5:])
    # a period of a century is an error of its file
    while (key := f"{year}-{month:02}") <= last and len(keys) < 1200:
        keys.append(key)
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    return keys


def _state(key: str, month: Json, *, run: SeenRun | None, first: str | None, now: datetime) -> str:
    state = run.state if run else None
    if state == "failed":
        return "failed"
    if state in ("queued", "running"):
        return "running"
    if month.get("published"):
        return "gap" if month.get("gap_hours") else "collected"
    if key >= f"{now:%Y-%m}":
        return "open"
    return "missing" if first is not None and key > first else "before"


def counted(years: Sequence[Json]) -> dict[str, int]:
    """Return the number of months in each state."""
    states = [month["state"] for year in years for month in year["months"]]
    return {state: states.count(state) for state in STATES if state in states}


def funnel(corpus: str, part: Json, *, sources: Sources) -> list[dict[str, Any]]:
    """Return the steps from submissions to the split: what came in, what stayed, and why the rest was excluded."""
    steps: Json = part.get("funnel", {})
    rows = []
    for step, (came, stayed) in {
        "collect": ("submissions", "kept"),
        "dedupe": ("items", "kept"),
        "sample": ("candidates", "taken"),
        "gold": (None, "records"),
        "split": (None, None),
    }.items():
        counts = steps.get(step) or {}
        if not counts:
            continue
        sizes: Json = counts.get("sizes", {})
        excluded = dict(counts.get("dropped", {})) if step == "collect" else _excluded(step, counts)
        stays = sum(sizes.values()) if sizes else counts.get(stayed or "")
        comes = counts.get(came or "")
        if step == "gold":
            # `records` are those with gold; the others of the sample have none, or were found unfit
            comes = sum(counts.get(key, 0) for key in ("records", "without", "unfit"))
        rows.append(
            {
                "step": step,
                "in": comes,
                "out": stays,
                "sizes": sizes,
                "items": counts.get("items") if step == "collect" else None,
                "excluded": dict(sorted(excluded.items(), key=lambda reason: (-reason[1], reason[0]))),
                "source": sources.of(f"metrics/{corpus}/{'quality' if step == 'collect' else step}.json"),
            }
        )
    return rows


def _excluded(step: str, counts: Json) -> dict[str, int]:
    if step == "dedupe":
        named_reasons = {"near-duplicate": counts.get("dropped"), "taken down": counts.get("taken_down")}
    elif step == "gold":
        named_reasons = {"not labelled by people": counts.get("without", 0) - counts.get("pending", 0)}
        named_reasons |= {word: counts.get(key) for key, word in EXCLUDED[step].items()}
    elif step == "sample":
        named_reasons = {"not drawn": counts.get("candidates", 0) - counts.get("taken", 0)}
    else:
        named_reasons = {word: counts.get(key) for key, word in EXCLUDED[step].items()}
    return {reason: count for reason, count in named_reasons.items() if count}


def votes(corpus: str, part: Json, *, sources: Sources) -> Json:
    """Return the outcomes of each labeller, the agreement of each ensemble, and what is queued for people."""
    rows = []
    for name, metrics in part.get("votes", {}).items():
        outcomes = metrics.get("outcomes", {})
        asked = sum(outcomes.values())
        rows.append(
            {
                "labeller": name,
                "asked": asked,
                "outcomes": [(outcomes.get(key, 0), percent(outcomes.get(key, 0), asked)) for key in OUTCOMES],
                "reasons": {key: n for key, n in sorted(metrics.get("reasons", {}).items()) if n},
                "cost": metrics.get("cost", 0.0),
                "source": sources.of(f"metrics/{corpus}/votes-{name}.json"),
            }
        )
    ensembles = []
    for name, metrics in part.get("silver", {}).items():
        total = {key: sum(counts.get(key, 0) for counts in metrics["agreement"].values()) for key in AGREEMENTS}
        whole = sum(total.values())
        ensembles.append(
            {
                "ensemble": name,
                "records": metrics["records"],
                "agreement": [(total[key], percent(total[key], whole)) for key in AGREEMENTS],
                "queued": metrics["queue"]["records"],
                "reasons": {key: n for key, n in metrics["queue"]["reasons"].items() if n},
                "source": sources.of(f"metrics/{corpus}/silver-{name}.json"),
            }
        )
    return {"labellers": rows, "ensembles": ensembles}


def rounds(corpus: str, part: Json, *, sources: Sources) -> list[dict[str, Any]]:
    """Return the annotation rounds, oldest first, with a row for each category that was measured."""
    source = sources.of(f"metrics/{corpus}/agreement.json")
    return [{**round_, "source": source, "rows": list(_categories(round_))} for round_ in part.get("rounds", ())]


def _categories(round_: Json) -> Iterator[Json]:
    for name, category in round_.get("agreement", {}).items():
        yield {
            "category": name,
            "items": category["items"],
            "alpha": _cell(category["alpha"]),
            "kappa": _cell(category["kappa"]),
        }


def _cell(figure: Json) -> str:
    if figure.get("value") is None:
        return "undefined"
    text = f"{figure['value']:.2f}"
    return text if figure.get("low") is None else f"{text} [{figure['low']:.2f}, {figure['high']:.2f}]"


def alerts(corpus: str, part: Json, *, sources: Sources) -> list[dict[str, Any]]:
    """Return for each champion in use the alerts and labels with their rates, and the drift of the newest month."""
    models = []
    for name, model in part.get("models", {}).items():
        items, drift = model.get("items", 0), model.get("drift", {})
        newest = drift.get("newest") or {}
        quantities = newest.get("quantities", {})
        rows = []
        for label in sorted({*model.get("labels", {}), *model.get("alerts", {})}):
            alerted, labelled = model.get("alerts", {}).get(label), model.get("labels", {}).get(label)
            month = quantities.get(label, {})
            rows.append(
                {
                    "label": label,
                    "alerts": alerted,
                    "alert_rate": percent(alerted, items),
                    "labels": labelled,
                    "label_rate": percent(labelled, items),
                    "month": percent(month.get("month"), 1),
                    "test": percent(month.get("test"), 1),
                    "drifted": label in newest.get("exceeded", ()),
                }
            )
        models.append(
            {
                "model": name,
                "version": model.get("version"),
                "items": items,
                "rows": rows,
                "newest": newest.get("month"),
                "months": drift.get("months", 0),
                "exceeded": drift.get("exceeded", {}),
                "others": [name for name in newest.get("exceeded", ()) if name not in model.get("labels", {})],
                "source": sources.of(f"metrics/{corpus}/batch_predict.json"),
            }
        )
    return models


def registry(summary: Json) -> list[dict[str, Any]]:
    """Return the journal of each registered model, newest row first, with links to the runs of its versions."""
    address = web(summary.get("mlflow"))
    models = []
    for name, model in summary.get("registry", {}).items():
        links = {
            int(version): f"{address}/#/models/{name}/versions/{version}"
            for version in model.get("runs", {})
            if address
        }
        models.append(
            {
                "model": name,
                "champion": model.get("champion"),
                "champion_href": links.get(model.get("champion") or 0),
                "rows": model.get("rows", 0),
                "journal": [
                    {**row, "href": links.get(row.get("to") or row.get("from") or 0)} for row in model["journal"]
                ][::-1],
            }
        )
    return models


def budget(summary: Json) -> Json:
    """Return the costs of labelling against their limit."""
    costs = summary.get("budget") or {"limit": 0, "paid": 0, "reserved": 0}
    used = costs["paid"] + costs["reserved"]
    return {
        **costs,
        "used": used,
        "share": percent(used, costs["limit"]),
        "over": bool(costs["limit"]) and used > costs["limit"],
    }


def deletions(summary: Json, *, runs: Runs, days: int, now: datetime) -> Json:
    """Return open and completed takedowns with their deadlines, and the age of each corpus's last sweep."""
    takedowns = summary.get("takedowns") or {}
    limit = takedowns.get("sweep_hours")
    swept = []
    for corpus, sweep in takedowns.get("swept", {}).items():
        since = moment(sweep.get("last")) or moment(sweep.get("first_seen"))
        age = (now - since).total_seconds() / 3600 if since else None
        late = age is not None and limit is not None and age > limit
        row = {"corpus": corpus, "last": sweep.get("last"), "since": since, "late": late}
        swept.append(row | {"due": takedowns.get("due", {}).get(corpus, 0)})
    waiting = [_request(sweep, days=days, now=now) for sweep in takedowns.get("open", ())]
    return {
        "open": waiting,
        "receipts": [_request(sweep, days=days, now=now) for sweep in reversed(takedowns.get("receipts", ()))],
        "done": takedowns.get("done", 0),
        "swept": swept,
        "sweep_hours": limit,
        "tombstones": takedowns.get("tombstones", 0),
        "records": takedowns.get("records", 0),
        "run": runs.latest.get(named("deletion_sweep")),
    }


def _request(request: Json, *, days: int, now: datetime) -> Json:
    begun = moment(request.get("begun"))
    ends = moment(request.get("ended")) or now
    taken = (ends - begun).total_seconds() / 3600 if begun else None
    return {**request, "hours": taken, "late": taken is not None and taken > 24 * days, "age": ago(begun, now=now)}
