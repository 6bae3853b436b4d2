"""Start the demo's Dag runs when they are due, based only on the state of Airflow and of the git repository."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from crisis_corpus_sandbox.demo.runs import Look
from pipelines.operate.services.airflow_api import Airflow, named

CORPORA = ("memes", "posts")
# Polls without progress before a consumer is started without its asset event.
PATIENCE = 4


@dataclass(frozen=True)
class Models:
    """The Dag that trains the models of a corpus, which is triggered once after all months are collected.

    Annotation rounds and the labels of each month would also trigger the Dag; the demo has neither. ``ready`` and
    ``done`` are the starts of the newest commit's subject when there is training data, which ``after`` publishes, and
    when the models are published; ``key`` is the partition key.
    """

    dag_id: str
    after: str
    ready: str
    done: str
    key: str | None = None


MODELS = {
    "memes": Models(
        named("memes_benchmark"), named("memes_dataset"), "snapshot(memes): quality@", "snapshot(memes): report@"
    ),
    "posts": Models(
        named("posts_finetune"),
        named("posts_label"),
        "snapshot(posts): injection_test@",
        "snapshot(posts): report@",
        "snapshot",
    ),
}


@dataclass
class DemoPlan:
    """The demo's plan from uncollected months to published models; ``newest`` returns each corpus's newest subject."""

    airflow: Airflow
    months: tuple[str, ...]
    newest: Callable[[], dict[str, str]]
    _awake: set[str] = field(default_factory=set)
    _waited: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        """Unpause the Dags that collect months and the Dag that labels posts."""
        for dag_id in (*(named(f"{corpus}_collect") for corpus in CORPORA), named("posts_label")):
            self._wake(dag_id)

    def advance(self, look: Look) -> bool:
        """Start the Dag runs that are due; return whether both corpora have published models."""
        newest = self.newest()
        done = [self._advance(corpus, look, newest=newest[corpus]) for corpus in CORPORA]
        return all(done)

    def _advance(self, corpus: str, look: Look, *, newest: str) -> bool:
        models, dataset, collect = MODELS[corpus], named(f"{corpus}_dataset"), named(f"{corpus}_collect")
        collected = look.collected(collect) & {*self.months}
        # The Dag stays paused until the last month, so earlier months do not trigger a snapshot of their own.
        if len(collected) >= len(self.months) - 1:
            self._wake(dataset)
        if len(collected) < len(self.months):
            if not look.active(collect):
                self._backfill(corpus, look)
            return False
        if look.active(dataset, models.after, models.dag_id):
            self._waited.pop(corpus, None)
            return False
        if newest.startswith(models.done):
            return True
        if newest.startswith(models.ready):
            self._trigger(models.dag_id, look, key=models.key)
        elif self._waited.get(corpus, 0) < PATIENCE:
            self._waited[corpus] = self._waited.get(corpus, 0) + 1
        else:
            # the event was emitted before the Dag was unpaused, or during an earlier call that was killed
            self._waited.pop(corpus)
            self._trigger(models.after if newest.startswith("snapshot") else dataset, look, key="snapshot")
        return False

    def _wake(self, dag_id: str) -> None:
        if dag_id not in self._awake:
            self.airflow.unpause(dag_id)
            self._awake.add(dag_id)

    def _backfill(self, corpus: str, look: Look) -> None:
        """Create the backfill unless every month has a run; an existing backfill is not an error."""
        dag_id = named(f"{corpus}_collect")
        if {*self.months} <= {run["partition_key"] for run in look.runs_of(dag_id)}:
            return
        body = {
            "dag_id": dag_id,
            "from_date": f"{min(self.months)}-01T00:00:00Z",
            "to_date": f"{max(self.months)}-01T00:00:00Z",
            # one month at a time: see `_advance`
            "max_active_runs": 1,
        }
        self.airflow.post("/backfills", body)

    def _trigger(self, dag_id: str, look: Look, *, key: str | None) -> None:
        self._wake(dag_id)
        # the id is derived from the existing runs, so a repeated request does not start a second run
        self.airflow.trigger(dag_id, dag_run_id=f"demo__{len(look.runs_of(dag_id)) + 1}", partition_key=key)
