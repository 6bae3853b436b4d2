"""``corpus status``: the numbers of the last publish, gathered from the corpus branch; nothing is computed again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipelines.errors import NoCorpus, StepFailed
from pipelines.label import report
from pipelines.params import Settings
from pipelines.privacy.vault import Vault
from pipelines.store.workspace import workspace

# The corpus whose parts stand at the top of the object, as they did when it was the only one.
FIRST = "memes"


def gather(settings: Settings) -> dict[str, Any]:
    """Return the object of ``corpus status --json``; a part appears when it exists.

    The parts of the memes corpus stand at the top, those of the others under ``corpora``.

    Raises:
        NoCorpus: there is no corpus repository yet.
    """
    try:
        with workspace(settings) as clone:
            status: dict[str, Any] = {"commit": clone.head}
            folders = sorted((clone.path / "metrics").glob("*"))
            parts = {folder.name: _parts(folder) for folder in folders}
            labelled = {folder.name: report.gather(clone.path, folder.name) for folder in folders}
    except StepFailed:
        raise NoCorpus(place=settings.repo.rpartition("/")[2]) from None
    status |= parts.pop(FIRST, {})
    status["corpora"] = parts or None
    # one corpus is labelled by ensembles, the posts
    votes = next((found for found in labelled.values() if "votes" in found), None)
    if votes:
        status["votes"] = report.summary(report.count_hits(votes, settings))
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        status["vault"] = vault.counts()
    return {key: value for key, value in status.items() if value is not None}


def _parts(folder: Path) -> dict[str, Any]:
    """Return what the metrics of one corpus say, part by part."""
    parts: dict[str, Any] = {}
    score, dedupe, split = (_metrics(folder / f"{name}.json") for name in ("score", "dedupe", "split"))
    if score:
        parts |= {key: score[key] for key in ("collect", "ocr", "truth") if key in score}
    if dedupe:
        truth = (score or {}).get("truth") or {}
        parts["dedupe"] = {
            "pairs": dedupe["pairs"],
            "dropped": dedupe["dropped"],
            **{key: truth[key] for key in ("precision", "recall") if key in truth},
        }
    if split:
        shown = ("sizes", "excluded", "max_deviation", "mean_deviation", "leakage")
        parts["split"] = {key: split[key] for key in shown}
    return parts


def _metrics(path: Path) -> dict[str, Any] | None:
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
    corpora = status.get("corpora", {})
    parts = {key: value for key, value in status.items() if isinstance(value, dict) and key != "corpora"}
    for corpus, found in corpora.items():
        parts |= {f"{corpus} {key}": value for key, value in found.items()}
    for part, value in parts.items():
        for i, (key, number) in enumerate(value.items()):
            table.add_row(part if i == 0 else "", key, _text(number))
        table.add_section()
    Console().print(table)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(
            f"{key} ({_text(inner)})" if isinstance(inner, dict) else f"{key} {inner}" for key, inner in value.items()
        )
    return "–" if value is None else str(value)
