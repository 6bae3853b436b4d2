"""Tasks that ask labellers: an estimate before anything is sent, then one mapped task a labeller and shard."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task

from dvc_airflow.command import run
from dvc_airflow.graph import providers


def ask(corpus: str, *, base: Any) -> list[Any]:
    """Return the tasks after which every remote labeller of ``votes.labellers`` has answered for every shard.

    ``estimate`` comes first and fails where the budget would not bear the cost. Each provider then has a mapped task
    in a pool of its own, whose one slot keeps the provider's limits whatever else runs. Answers go to the sealed store
    alone; a try that comes after a kill asks for nothing twice.
    """

    @task(task_id="estimate", doc_md="what asking would cost; stops where the budget would not bear it")
    def estimate(base: str) -> list[dict[str, Any]]:
        return list(run("task", "estimate", corpus, "--base", base)["jobs"])

    estimated = estimate(base)
    return [estimated, *(_ask_provider(corpus, name, base=base, jobs=estimated) for name in providers())]


def _ask_provider(corpus: str, provider: str, *, base: Any, jobs: Any) -> Any:
    @task(task_id=f"jobs__{provider}", doc_md=f"the shards that labellers of {provider} have not answered")
    def of_provider(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [job for job in jobs if job["provider"] == provider]

    @task(
        task_id=f"ask__{provider}", pool=provider, doc_md="one labeller, one shard; what is answered is not asked again"
    )
    def ask_shard(job: dict[str, Any], base: str, *, task_state_store: Any = None) -> dict[str, Any]:
        argv = (corpus, job["labeller"], str(job["shard"]), "--base", base)
        if job["batch"] and not task_state_store.get("batches"):
            # beside the store of answers, where a further try finds the jobs whatever Airflow has forgotten
            task_state_store.set("batches", run("task", "ask", *argv, "--no-wait")["batches"])
        return run("task", "ask", *argv)

    return ask_shard.partial(base=base).expand(job=of_provider(jobs))
