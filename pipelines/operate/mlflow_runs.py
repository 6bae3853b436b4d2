"""Delete old MLflow runs and traces to which nothing on record refers, and collect the runs that were deleted.

A run is deleted as a person deletes it in MLflow, who can restore it; after ``trash_days`` it is collected with its
files, as by ``mlflow gc``. That command takes deleted experiments and runs whatever refers to them, so that it is not
used as a whole: only the runs of this project's experiments are collected, and never one on record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

from crisis_corpus.versions import translated
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import GitFailed
from pipelines.llm import traces
from pipelines.models import train
from pipelines.operate.services import mlflow_app
from pipelines.registry import versions
from pipelines.registry.journal import Journal
from pipelines.registry.packaging import register
from pipelines.registry.versions import Registry
from pipelines.store.vault.engine import file_missing
from pipelines.workspace.clone import BRANCH, history
from pipelines.workspace.git import git

# An id of a run, and of a commit; a longer digest is neither.
RUN = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
COMMIT = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
# Where stages write the ids of their runs.
METRICS = "metrics"


def _on_record(settings: Settings, *, registry: Registry) -> tuple[set[str], set[str]]:
    """Return the ids of all runs on record, and of the commits whose runs have their numbers and report.

    A text that only looks like an id keeps nothing that exists.
    """
    on_record: list[Any] = [version for name in registry.names() for version in registry.versions(name)]
    with Journal.of(settings) as journal:
        texts = [json.dumps(asdict(row), default=str) for row in (*on_record, *journal.rows())]
    texts += [path.read_text() for path in sorted((settings.home / "releases").glob("*/release.json"))]
    commits = {commit for text in texts for commit in COMMIT.findall(text)}
    with history(settings) as repository:
        where = ("--git-dir", str(repository))
        tips = git(*where, "for-each-ref", "--format=%(objectname) %(*objectname)", f"refs/heads/{BRANCH}", "refs/tags")
        commits |= set(COMMIT.findall(tips))
        for commit in sorted(commits):
            if _found(*where, "rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}"):
                texts.append(_found(*where, "grep", "--no-color", "-hE", "[0-9a-f]{32}", commit, "--", METRICS))
    return {run for text in texts for run in RUN.findall(text)}, commits


def _found(*argv: str) -> str:
    """Return the output of a git command that fails if it finds nothing."""
    try:
        return git(*argv)
    except GitFailed:
        return ""


UNFINISHED, DELETED = ("RUNNING", "SCHEDULED"), "deleted"
# Traces of one request; MLflow's most.
PAGE = 500


@dataclass(frozen=True)
class OldRuns:
    """The runs and traces that are to be removed.

    Args:
        delete: the ids of old runs to which nothing refers.
        collect: the ids of deleted runs whose time in the trash is over; ``None`` if MLflow's database is elsewhere.
        size: the bytes of the files of the runs to collect.
        kept: the number of old runs on record.
        before: the time before which traces are old.
        traces: the number of old traces.
    """

    delete: tuple[str, ...]
    collect: tuple[str, ...] | None
    size: int
    kept: int
    before: datetime
    traces: int

    def counts(self) -> dict[str, int]:
        """Return the numbers of runs to delete and to collect, of bytes and of traces."""
        collected = len(self.collect or ())
        return {"deleted": len(self.delete), "collected": collected, "bytes": self.size, "traces": self.traces}


def due(settings: Settings, *, registry: Registry, params: Params, now: datetime) -> OldRuns:
    """Return the runs and traces that are to be removed; nothing is changed."""
    limits, (recorded, commits) = params.housekeeping, _on_record(settings, registry=registry)
    before = now - timedelta(days=limits.mlflow_days)
    store = _store(settings)
    # MLflow's interface does not say when a run was deleted
    trashed = set(store._get_deleted_runs(limits.trash_days * 24 * 3600 * 1000)) if store else set()
    delete, collect, kept = list[str](), list[str](), 0
    for run, shown in _runs(registry, params=params):
        old = (run.info.end_time or run.info.start_time) < before.timestamp() * 1000
        if run.info.run_id in recorded or run.data.tags.get(versions.COMMIT) in commits:
            kept += old
        elif run.info.lifecycle_stage == DELETED:
            collect += [run.info.run_id] if run.info.run_id in trashed else []
        elif old and run.info.status not in UNFINISHED and not shown:
            delete.append(run.info.run_id)
    size = sum(_size(registry.run_files(run)) for run in collect)
    collected = tuple(collect) if store else None
    return OldRuns(tuple(delete), collected, size, kept, before, _count_traces(registry, before=before))


def remove(old: OldRuns, *, settings: Settings, registry: Registry) -> dict[str, int]:
    """Delete and collect the runs, and remove the traces, that :func:`due` found; may be repeated after a failure."""
    with translated():
        for run in old.delete:
            registry.client.delete_run(run)
        for experiment in _labelling(registry) if old.traces else ():
            registry.client.delete_traces(experiment, max_timestamp_millis=int(old.before.timestamp() * 1000))
        if old.collect:
            _collect(old.collect, settings=settings)
    return old.counts()


def experiments(params: Params) -> list[str]:
    """Return the names of the experiments of this project's runs; others may have their own on the same server."""
    patterns = (train.EXPERIMENT, register.EXPERIMENT)
    of = [pattern.format(corpus=corpus) for corpus in params.corpora for pattern in patterns]
    return of + [versions.numbers_experiment(corpus) for corpus in params.corpora]


def _runs(registry: Registry, *, params: Params) -> Iterator[tuple[Any, bool]]:
    """Yield each run, and whether the pages may show its numbers or report."""
    numbers = {versions.numbers_experiment(corpus) for corpus in params.corpora}
    for experiment in experiments(params):
        newer = 0
        # MLflow lists the newest first: among these, pages look for the newest numbers and report
        for run in registry.runs(experiment):
            yield run, experiment in numbers and newer < versions.SEARCHED
            newer += run.info.lifecycle_stage != DELETED


def _store(settings: Settings) -> Any:
    """Return MLflow's database for what its server has no request for; ``None`` if it is not known here."""
    from mlflow.tracking._tracking_service.utils import _get_store

    uri = settings.mlflow_tracking_uri or ""
    # that of an earlier server is harmless: it knows none of the runs that the server lists
    url = mlflow_app.store(settings.home) if uri.startswith("http") else uri
    return None if file_missing(url) else _get_store(url)


def _collect(runs: tuple[str, ...], *, settings: Settings) -> None:
    from mlflow import set_tracking_uri
    from mlflow.cli import _gc_tracking_resources

    # the addresses of files are resolved by the server
    set_tracking_uri(settings.mlflow_tracking_uri or "")
    with redirect_stdout(StringIO()):
        _gc_tracking_resources(
            backend_store=_store(settings), run_ids=list(runs), experiment_ids=None, logged_model_ids=None,
            older_than=None, time_delta=0, skip_experiments=True, skip_logged_models=True, ignore_not_found=True,
        )  # fmt: skip


def _size(files: Any) -> int:
    total, folders = 0, [""]
    with translated():
        while folders:
            for entry in files.list_artifacts(folders.pop() or None):
                if entry.is_dir:
                    folders.append(entry.path)
                total += entry.file_size or 0
    return total


def _labelling(registry: Registry) -> list[str]:
    experiment = registry.client.get_experiment_by_name(traces.EXPERIMENT)
    return [experiment.experiment_id] if experiment else []


def _count_traces(registry: Registry, *, before: datetime) -> int:
    with translated():
        if not (places := _labelling(registry)):
            return 0
        count, token = 0, None
        while token != "":
            page = registry.client.search_traces(
                locations=places, filter_string=f"timestamp_ms < {int(before.timestamp() * 1000)}", max_results=PAGE,
                page_token=token, include_spans=False,
            )  # fmt: skip
            count, token = count + len(page), page.token or ""
        return count
