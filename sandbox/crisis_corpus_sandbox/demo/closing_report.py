"""Format the demo's closing report: the decisions about models, the time spent, the addresses of services."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from crisis_corpus.journal import JournalRow
from crisis_corpus.versions import NAMES
from crisis_corpus_sandbox.demo.failures import Failures
from crisis_corpus_sandbox.demo.plan import MODELS
from crisis_corpus_sandbox.demo.runs import Json, Look
from pipelines.config.settings import Settings
from pipelines.deployment.airflow_api import Airflow
from pipelines.registry.journal import Journal
from pipelines.timing import IMPORTS, WORK
from pipelines.workspace.clone import BRANCH, history
from pipelines.workspace.git import git

DECISIONS = ("refused", "promoted", "rolled_back", "withdrawn")
SERVICES, AIRFLOW, GIT = "services, start", "Airflow, per task", "git and DVC"


def evaluated(settings: Settings, *, corpus: str) -> Json:
    """Return the content of a corpus's ``evaluate.json`` (model scores) on the corpus branch."""
    with history(settings) as repo:
        text = git("--git-dir", str(repo), "show", f"{BRANCH}:metrics/{corpus}/evaluate.json")
    found: Json = json.loads(text)
    return found


def decisions(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yield a table row for each decision in the models' journal: a title, the model and event, versions and reason."""
    with Journal.of(settings) as journal:
        for name in NAMES:
            for row in journal.rows(name):
                if row.event in DECISIONS:
                    yield "decisions", f"{name} {row.event.replace('_', ' ')}", _said(row)


def _said(row: JournalRow) -> str:
    reasons: Any = row.metrics.get("reasons")
    before, after = ("none" if version is None else str(version) for version in (row.from_version, row.to_version))
    return f"{before} → {after}: {'; '.join(reasons) if reasons else row.why}"


def spent(settings: Settings, look: Look, *, started: float, total: float, failures: Failures) -> Table:
    """Return a table of the seconds that the demo spent on each part of the work; times of parallel tasks are added."""
    durations = [task["duration"] for task in look.tasks if task["duration"]]
    parts = {SERVICES: started} | divided(sum(durations), lines(settings.home / "logs" / "phases.jsonl", look))
    title = f"{total:.0f} s, {len(durations)} tasks, {failures.cleared.total()} cleared"
    table = Table(title=title, title_justify="left")
    table.add_column("where the time went")
    table.add_column("seconds", justify="right")
    for name, seconds in parts.items():
        table.add_row(name, f"{seconds:,.0f}")
    return table


def lines(path: Path, look: Look) -> list[Json]:
    """Return the timing records of a snapshot's tasks from a JSON-lines file; incomplete lines are left out."""
    known = {(task["dag_id"], task["dag_run_id"], task["task_id"]) for task in look.tasks}
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if (one.get("dag"), one.get("run"), one.get("task")) in known:
            found.append(one)
    return found


def divided(tasks: float, phases: list[Json]) -> dict[str, float]:
    """Divide the seconds of all tasks into those of Airflow, of git and DVC, of imports, and of the work itself.

    Processes started by a command write their own timing records (``inner``); their time is part of the command's
    ``work``.
    """
    outer, inner = Counter[str](), Counter[str]()
    for line in phases:
        (inner if line["inner"] else outer).update(line["seconds"])
    between = sum(seconds for name, seconds in outer.items() if name not in (WORK, IMPORTS))
    return {
        AIRFLOW: max(0.0, tasks - sum(outer.values())),
        GIT: between,
        "imports": outer[IMPORTS] + inner[IMPORTS],
        "work": max(0.0, outer[WORK] - inner[IMPORTS]),
    }


def addresses(airflow: Airflow, look: Look, *, mlflow: str, passwords: Path) -> str:
    """Return the addresses of the demo's reports and services, and the file of their passwords, one per line."""
    found = {f"report of {corpus}": _report(airflow, look, models.dag_id) for corpus, models in MODELS.items()}
    found |= {"Airflow": airflow.base, "MLflow": mlflow, "passwords": str(passwords)}
    found |= {"votes": ".venv/bin/corpus votes-report posts", "stop": "make down"}
    return "\n".join(f"{name:<16}{value}" for name, value in found.items())


def _report(airflow: Airflow, look: Look, dag_id: str) -> str:
    for run in reversed(look.of(dag_id)):
        if any(task["task_id"] == "track" and task["state"] == "success" for task in look.tasks_of(run)):
            path = f"/dags/{dag_id}/dagRuns/{run['dag_run_id']}/taskInstances/track/xcomEntries/return_value"
            value = airflow.get(path, stringify=False)["value"]
            return str(value.get("report", "not logged"))
    return "not logged"
