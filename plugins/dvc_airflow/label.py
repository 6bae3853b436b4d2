"""Define the Airflow tasks that ask providers: a cost estimate, then one mapped task per labeller and shard."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.sdk import task

from dvc_airflow.command import run
from dvc_airflow.graph import asking, group, listed
from dvc_airflow.names import named
from dvc_airflow.tasks import run_of

log = logging.getLogger(__name__)


def ask(corpus: str, *, base: Any, few_shot: Any) -> list[Any]:
    """Return the tasks that request labels from every remote labeller of ``votes.labellers`` for every shard.

    ``estimate`` runs first and fails if the cost exceeds the budget. Each provider then has a mapped task in its own
    pool with one slot, which keeps the provider's limits across runs. Answers go only to the sealed store; a retry
    after a kill sends no answered request again.
    """

    estimated = estimate(corpus, "votes", "injection_test", base=base, results=[few_shot])
    with group("label", tooltip="ask the providers' labellers; one pool for each provider"):
        asked = [
            _ask_provider(corpus, name, base=base, few_shot=few_shot, jobs=estimated) for name in listed("providers")
        ]
    return [estimated, *asked]


def estimate(corpus: str, *steps: str, base: Any, results: Sequence[Any]) -> Any:
    """Return the task ``estimate``, which fails if the steps cost more than what is left of the budget.

    Its result are the jobs of labellers; its log has who would receive what.
    """

    @task(task_id="estimate", doc_md="estimate the cost of asking providers; fail if it exceeds the budget")
    def estimate_steps(base: str, results: list[dict[str, Any]], *, dag_run: Any = None) -> list[dict[str, Any]]:
        argv = (*steps, "--base", base, *run_of(dag_run), "--results", "-")
        planned = run("task", "estimate", corpus, *argv, given=json.dumps(results))
        for row in planned["leaves"]:
            text = "%s (%s): %d requests, %d texts, %d pictures; consent: %s"
            values = (row[name] for name in ("provider", "to", "requests", "texts", "pictures", "consent"))
            log.info(text, *values)
        log.info("expected %s US dollars, at most %s", planned["usd_expected"], planned["usd_at_most"])
        return list(planned["jobs"])

    return estimate_steps(base, list(results))


def before(corpus: str, *steps: str, base: Any) -> dict[str, Callable[[Mapping[str, Any]], Sequence[Any]]]:
    """Return for each step that asks providers what it waits for (see ``snapshot``): one common task ``estimate``.

    Steps for which ``params.yaml`` names no model and no system send nothing and wait for nothing.
    """
    spending = asking(corpus)
    made: list[Any] = []

    def first(stages: Mapping[str, Any]) -> Sequence[Any]:
        if not made:
            read = [stages[name] for step in ("gold", "split", "few_shot") if (name := f"{step}@{corpus}") in stages]
            made.append(estimate(corpus, *(step for step in steps if step in spending), base=base, results=read))
        return made

    return {step: first for step in steps if step in spending}


def _ask_provider(corpus: str, provider: str, *, base: Any, few_shot: Any, jobs: Any) -> Any:
    @task(task_id=f"jobs__{provider}", doc_md=f"the shards that labellers of {provider} have not answered")
    def of_provider(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [job for job in jobs if job["provider"] == provider]

    @task(
        task_id=f"label__{provider}",
        pool=named(provider),
        doc_md="one labeller, one shard; stored answers are not requested again",
    )
    def ask_shard(
        job: dict[str, Any], base: str, few_shot: dict[str, Any], *, dag_run: Any = None, task_state_store: Any = None
    ) -> dict[str, Any]:
        results = json.dumps([few_shot])
        argv = (corpus, job["labeller"], str(job["shard"]), "--base", base, *run_of(dag_run), "--results", "-")
        if job["batch"] and not task_state_store.get("batches"):
            # beside the store of answers, where a further try finds the jobs whatever Airflow has forgotten
            task_state_store.set("batches", run("task", "label", *argv, "--no-wait", given=results)["batches"])
        return run("task", "label", *argv, given=results)

    return ask_shard.partial(base=base, few_shot=few_shot).expand(job=of_provider(jobs))
