"""``corpus status``: the numbers of the last publish, gathered from the corpus branch; nothing is computed again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipelines.errors import NoCorpus, StepFailed
from pipelines.params import Settings
from pipelines.privacy.vault import Vault
from pipelines.store.workspace import workspace


def gather(settings: Settings) -> dict[str, Any]:
    """Return the object of ``corpus status --json``; a part appears when it exists.

    Raises:
        NoCorpus: there is no corpus repository yet.
    """
    try:
        with workspace(settings) as clone:
            status: dict[str, Any] = {"commit": clone.head}
            score, dedupe, split = (_metrics(clone.path, name) for name in ("score", "dedupe", "split"))
    except StepFailed:
        raise NoCorpus(place=settings.repo.rpartition("/")[2]) from None
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


def _metrics(root: Path, name: str, *, corpus: str = "memes") -> dict[str, Any] | None:
    path = root / "metrics" / corpus / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


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
