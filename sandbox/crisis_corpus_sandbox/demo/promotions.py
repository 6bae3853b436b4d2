"""Demonstrate the model registry: first champion, refused version, better champion, rollback.

Each step uses the same interface as a person: the Dag ``promote``, an answer in Airflow, the command
``corpus rollback``. The next step is derived from the journal, so a killed demo resumes where it stopped.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crisis_corpus.journal import JournalRow
from crisis_corpus_sandbox.demo.runs import Json, Look
from pipelines.core.config.settings import Settings
from pipelines.core.errors import DataError
from pipelines.operate.services.airflow_api import ENDED, Airflow, named
from pipelines.operate.services.services import LocalDeployment
from pipelines.registry.journal import Journal

DAG = named("promote")
WHO = "demo"
WHY = "the metrics are as expected for a demo"
CONTESTED, OTHERS = "meme-severity", ("crisis-posts",)
VERSIONS = 3


@dataclass
class Act:
    """Promote model versions, one action per poll of Airflow.

    ``order`` returns the versions of ``meme-severity`` by ascending score. ``airflow`` triggers the runs, and
    ``approver`` answers their questions, as another user.
    """

    airflow: Airflow
    approver: Airflow
    settings: Settings
    deployment: LocalDeployment
    order: Callable[[], Sequence[int]]
    _awake: bool = False

    def advance(self, look: Look) -> bool:
        """Take the promotion steps that are due; return whether the journal contains every planned decision."""
        done = [self._advance(name, look) for name in (*OTHERS, CONTESTED)]
        return all(done)

    def _advance(self, name: str, look: Look) -> bool:
        unfinished = (run for run in look.runs_of(DAG) if run["state"] not in ENDED)
        if run := next((run for run in unfinished if (run.get("conf") or {}).get("name") == name), None):
            if any(task["state"] == "awaiting_input" for task in look.tasks_of(run)):
                self.approver.answer(DAG, run["dag_run_id"], "approve", option="Promote", given={"why": WHY})
            return False
        with Journal.of(self.settings) as journal:
            rows = list(journal.rows(name))
        registered, promoted = (_versions(rows, event) for event in ("registered", "promoted"))
        if name != CONTESTED:
            if registered and not promoted:
                self._start(name, registered[0], look)
            return bool(promoted)
        if _versions(rows, "rolled_back"):
            return True
        if len(promoted) > 1 and _versions(rows, "refused"):
            return self._rollback(leaving=promoted[-1])
        if len(registered) >= VERSIONS:
            self._start(name, next_version(rows, order=self.order(), base=self.airflow.base), look)
        return False

    def _start(self, name: str, version: int, look: Look) -> None:
        if not self._awake:
            self.airflow.unpause(DAG)
            self._awake = True
        conf = {"name": name, "version": version}
        number = sum(conf.items() <= (run.get("conf") or {}).items() for run in look.runs_of(DAG)) + 1
        if number > 2:
            detail = f"the journal has no decision about version {version} of {name}"
            raise _failed("finished without a decision", detail, address=self.airflow.base)
        self.airflow.trigger(DAG, dag_run_id=f"demo__{name}__{version}__{number}", conf=conf)

    def _rollback(self, *, leaving: int) -> bool:
        """Roll back with the command, as a person would; repeating it after a kill rolls back no further."""
        argv = ["rollback", CONTESTED, "--who", WHO, "--why", "to demonstrate a rollback", "--leaving", str(leaving)]
        done = subprocess.run(
            [sys.executable, "-m", "pipelines", *argv], cwd=self.deployment.root, env=self.deployment.environment,
            capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise _failed("failed", f"exit status {done.returncode}", dag="rollback")
        return True


def _failed(state: str, detail: str, *, dag: str = DAG, address: str = "-") -> DataError:
    return DataError("RunFailed", dag=dag, state=state, detail=detail, address=address)


def _versions(rows: Sequence[JournalRow], event: str) -> list[int]:
    return [row.to_version for row in rows if row.event == event and row.to_version is not None]


def next_version(rows: Sequence[JournalRow], *, order: Sequence[int], base: str) -> int:
    """Return the version of ``meme-severity`` that the gate evaluates next.

    The lowest-scoring version becomes the first champion, the highest replaces it, the third is refused. The gate
    decides, not the order: if two versions are close, it may promote the third as well and then refuse the version that
    the third replaced, because at most one of two versions is better than the other in most resamples.
    """
    promoted, refused = _versions(rows, "promoted"), _versions(rows, "refused")
    low, middle, high = order
    candidates = (low, middle, high) if not promoted else (high, middle, low)
    if len(promoted) > 1:
        candidates = (middle, high, low)
    left = [version for version in candidates if version not in {*promoted[-1:], *refused}]
    if not left:
        detail = f"all {len(order)} versions of {CONTESTED} have been decided on, so none is left to evaluate"
        raise _failed("not finished", detail, address=base)
    return left[0]


def by_score(evaluated: Json, *, models: Sequence[str]) -> list[int]:
    """Sort the versions 1, 2, 3 of ``meme-severity`` by the macro-F1 in the published evaluation, lowest first."""
    of_models = evaluated["tasks"]["severity"]["models"]
    scores = {
        version: of_models[name]["valid"]["figures"]["macro_f1"]["mean"] for version, name in enumerate(models, 1)
    }
    return sorted(scores, key=lambda version: (scores[version], version))
