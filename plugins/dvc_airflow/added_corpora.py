"""Build the Dags of the corpora that a profile adds; the corpora ``memes`` and ``posts`` have their own Dag files."""

from __future__ import annotations

from airflow.sdk import DAG

from dvc_airflow import dags
from dvc_airflow.graph import corpora, resolved, scoring

WITH_FILES = ("memes", "posts")
DOES = {
    "collect": "Collect one month",
    "dataset": "Build the dataset",
    "label": "Label the records",
    "finetune": "Fine-tune and compare models",
    "benchmark": "Train and compare models",
    "scoring": "Label every record with the champions",
}


def added() -> list[str]:
    """Return the names of the corpora without Dag files of their own."""
    return [corpus for corpus in corpora() if corpus not in WITH_FILES]


def dags_of(corpus: str) -> dict[str, DAG]:
    """Return the Dags of a corpus by Dag name (without the prefix)."""
    content = resolved()["corpora"][corpus]["content"]
    like, kinds = ("posts", ("label", "finetune")) if content == "texts" else ("memes", ("benchmark",))
    kinds = ("dataset", *kinds, *(("scoring",) if scoring(corpus) else ()))
    made = {"collect": dags.collect_dag(corpus, items=content, doc=_doc(corpus, "collect", like=like))}
    made |= {kind: getattr(dags, f"{kind}_dag")(corpus, doc=_doc(corpus, kind, like=like)) for kind in kinds}
    return {f"{corpus}_{kind}": dag for kind, dag in made.items()}


def _doc(corpus: str, kind: str, *, like: str) -> str:
    return f"### {corpus}_{kind}\n\n{DOES[kind]} of the corpus `{corpus}`. The tasks are those of `{like}_{kind}`."
