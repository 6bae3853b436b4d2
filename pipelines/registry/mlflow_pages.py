"""Return the addresses of MLflow's pages for people: the numbers and the report of a commit, a model version."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from crisis_corpus.versions import translated
from pipelines.core.config.settings import Settings

# Tag of a run with the numbers of a commit, and the file of the report among its artifacts.
COMMIT, REPORT = "data_commit", "report/report.html"
# The newest runs among which a report is searched for; every publish since the last report has one.
SEARCHED = 10


def web(uri: str | None) -> str | None:
    """Return the address of MLflow's pages without a login; ``None`` for a store that is not a server."""
    parts = urlsplit(uri or "")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")


def experiment(corpus: str) -> str:
    """Return the name of the experiment with the numbers of a corpus's commits."""
    return f"{corpus}_dataset"


def of_commit(settings: Settings, *, corpus: str, commit: str, client: Any = None) -> dict[str, str]:
    """Return the addresses ``run``, of the commit's numbers or else the newest, and ``report``, of the newest report.

    A model's commit has no report of it: that is published after its training. Without a server or a run, there is no
    address.
    """
    address = web(settings.mlflow_tracking_uri)
    if address is None:
        return {}
    from mlflow import MlflowClient

    client, pages = client or MlflowClient(settings.mlflow_tracking_uri), dict[str, str]()
    with translated():
        place = client.get_experiment_by_name(experiment(corpus))
        if place is None:
            return {}
        newest = list(client.search_runs([place.experiment_id], max_results=SEARCHED))
        same = client.search_runs([place.experiment_id], f"tags.{COMMIT} = '{commit}'", max_results=1)
        for run in (*same, *newest):
            page = f"{address}/#/experiments/{place.experiment_id}/runs/{run.info.run_id}"
            pages.setdefault("run", page)
            if any(file.path == REPORT for file in client.list_artifacts(run.info.run_id, "report")):
                return pages | {"report": f"{page}/artifacts/{REPORT}"}
    return pages


def of_version(settings: Settings, *, name: str, version: int) -> str | None:
    """Return the address of a model version's page."""
    address = web(settings.mlflow_tracking_uri)
    return address and f"{address}/#/models/{name}/versions/{version}"
