"""Describe the runs of this project's Dags as the page shows them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from corpus_view.page_text import path
from dvc_airflow.names import OF_CORPUS, named

# The Dags of all corpora: the files of `dags/`.
OF_ALL = (
    "annotation_pull", "annotation_round", "backup", "deletion_sweep", "deliver", "doctor", "housekeeping", "promote",
    "release", "takedown",
)  # fmt: skip


@dataclass(frozen=True)
class SeenRun:
    """One run of a Dag: its state, its month if it has one, and the task that failed, if one did."""

    dag: str
    run_id: str
    state: str
    at: datetime | None
    key: str | None = None
    task: str | None = None

    @property
    def name(self) -> str:
        """The run for a reader: its Dag, and its month if it has one."""
        return f"{self.dag} of {self.key}" if self.key else f"Run of {self.dag}"

    @property
    def href(self) -> str:
        """The address of the run, or of its failed task, from the page."""
        return path("dags", self.dag, "runs", self.run_id, *(("tasks", self.task) if self.task else ()))


@dataclass(frozen=True)
class Question:
    """A task that waits for a person's answer."""

    dag: str
    subject: str
    since: datetime | None
    href: str


@dataclass(frozen=True)
class Runs:
    """What a user may see of Airflow's state; ``known`` are the ids of the Dags that the user may read."""

    known: frozenset[str] = frozenset()
    paused: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    failed: tuple[SeenRun, ...] = ()
    late: tuple[SeenRun, ...] = ()
    questions: tuple[Question, ...] = ()
    months: Mapping[tuple[str, str], SeenRun] = field(default_factory=dict)
    latest: Mapping[str, SeenRun] = field(default_factory=dict)

    def sees(self, *names: str) -> bool:
        """Return whether the user may read one of these Dags (names without the prefix)."""
        return any(named(name) in self.known for name in names)


def dag_ids(corpora: Collection[str]) -> set[str]:
    """Return the ids of all Dags of this project with these corpora."""
    return {named(f"{corpus}_{kind}") for corpus in corpora for kind in OF_CORPUS} | {named(name) for name in OF_ALL}
