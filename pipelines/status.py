"""``corpus status``: the numbers of the last publish, gathered from the corpus branch; nothing is computed again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from pipelines.params import Settings
from pipelines.privacy.vault import Vault
from pipelines.store.workspace import BRANCH, git


def gather(settings: Settings) -> dict[str, Any]:
    """Return the object of ``corpus status --json``; a part appears when it exists.

    Raises:
        StepFailed: there is no corpus repository yet.
    """
    repo = ("--git-dir", settings.repo)
    status: dict[str, Any] = {"commit": git(*repo, "rev-parse", BRANCH)}
    score, dedupe, split = (_metrics(settings, name) for name in ("score", "dedupe", "split"))
    if score:
        status["collect"] = score["collect"]
        status["ocr"] = score["ocr"]
        status["truth"] = score.get("truth")
    if dedupe:
        truth = (score or {}).get("truth") or {}
        status["dedupe"] = {
            "pairs": dedupe["pairs"],
            "dropped": dedupe["dropped"],
            **{key: truth[key] for key in ("precision", "recall") if key in truth},
        }
    if split:
        shown = ("sizes", "excluded", "max_deviation", "mean_deviation", "leakage")
        status["split"] = {key: split[key] for key in shown}
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        status["vault"] = vault.counts()
    return {key: value for key, value in status.items() if value is not None}


def _metrics(settings: Settings, name: str, *, corpus: str = "memes") -> dict[str, Any] | None:
    path = f"metrics/{corpus}/{name}.json"
    if not git("--git-dir", settings.repo, "ls-tree", BRANCH, "--", path):
        return None
    found: dict[str, Any] = json.loads(git("--git-dir", settings.repo, "show", f"{BRANCH}:{path}"))
    return found


def track(settings: Settings, *, corpus: str) -> dict[str, Any]:
    """Log one MLflow run for a publish: its numbers as metrics, the data commit as a tag; one run a commit.

    Returns:
        ``run`` (its id), or ``skipped`` with the reason when no ``MLFLOW_TRACKING_URI`` is set.
    """
    if not settings.mlflow_tracking_uri:
        return {"skipped": "MLFLOW_TRACKING_URI is not set"}
    import mlflow

    status = gather(settings)
    mlflow.set_tracking_uri(settings.mlflow_tracking_uri)
    experiment = mlflow.set_experiment(f"{corpus}_dataset").experiment_id
    known = mlflow.search_runs(
        [experiment], filter_string=f"tags.data_commit = '{status['commit']}'", output_format="list"
    )
    if known:
        return {"run": known[0].info.run_id}
    with mlflow.start_run(experiment_id=experiment, run_name=status["commit"][:12]) as active:
        mlflow.set_tag("data_commit", status["commit"])
        mlflow.log_metrics(dict(_flat(status)))
    return {"run": active.info.run_id}


def _flat(value: dict[str, Any], *, prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _flat(inner, prefix=f"{prefix}{key}.")
        elif isinstance(inner, int | float):
            yield f"{prefix}{key}", float(inner)


def show(status: dict[str, Any]) -> None:
    """Print the status for people."""
    table = Table(title=f"corpus at {status['commit'][:12]}", show_header=False, title_justify="left")
    for part, value in status.items():
        if isinstance(value, dict):
            for i, (key, number) in enumerate(value.items()):
                table.add_row(part if i == 0 else "", key, _text(number))
            table.add_section()
    Console().print(table)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{key} {number}" for key, number in value.items())
    return "–" if value is None else str(value)
