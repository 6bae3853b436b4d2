"""Versions of crisis-posts that know some of the test by heart, so that the gate has something to tell apart."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crisis_corpus import integrity
from crisis_corpus.integrity import listing
from pipelines.core.config.settings import Settings
from pipelines.registry.candidate import Context, opened
from pipelines.registry.packaging import register
from pipelines.registry.promotion import holdout
from pipelines.store import tables
from tests.airflow.heart_model import digest

NAME, DAG, SCORING = "crisis-posts", "promote", "posts_scoring"
WHY = "the figures suffice for a test"


@dataclass(frozen=True)
class Decided:
    """The runs of the Dag: of a good version, and of a worse one; the process of its `promote` that was killed."""

    good: str
    worse: str
    killed: list[int]


@contextmanager
def context_of(world: Any) -> Iterator[Context]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", world.deployment.environment["MLFLOW_TRACKING_URI"])
        with opened(Settings.from_env(), name=NAME) as context:
            yield context


def put(context: Context, *, share: float, folder: Path) -> int:
    """Register a model that knows such a share of the test by heart; return the number of the version."""
    import mlflow.pyfunc

    given: dict[str, Any] = {"params": context.params, "vault": context.vault, "root": context.root}
    test = holdout.open_test("posts", category="labels", **given)
    labels = [sorted(labels) for labels in test.board.gold]
    by_heart = list(zip(test.inputs, labels, strict=True))[: round(share * len(labels))]
    known = {digest(post["title"], post["body"]): said for post, said in by_heart}
    splits = tables.read(context.root / "snapshot/posts/split/splits.parquet", name="splits").to_pylist()
    ids = sorted(row["record_id"] for row in splits if row["split"] == "train")
    pack = folder / "pack"
    pack.mkdir(parents=True)
    described = {
        "format": 1,
        "kind": "heart", "task": test.task.key, "labels": list(test.task.labels), "inputs": ["title", "body"],
        "scheme_digest": "5" * 64,
        "data_commit": "c" * 40, "split_digest": test.split, "train": {"records": len(ids), "digest": "7" * 64},
    }  # fmt: skip
    (pack / integrity.MODEL).write_text(json.dumps(described))
    (pack / "known.json").write_text(json.dumps({"posts": known, "default": labels[0]}))
    (pack / integrity.CARD).write_text(json.dumps({"intended": "a test", "prohibited": "everything else"}))
    (pack / integrity.PAGE).write_text("# A model for a test\n")
    pq.write_table(pa.table({"record_id": pa.array(ids, pa.string())}), pack / integrity.RECORDS)
    (pack / integrity.FILES).write_text(json.dumps(listing(pack)))
    script = str(Path(__file__).with_name("heart_model.py"))
    mlflow.pyfunc.save_model(
        str(folder / "model"), python_model=script, artifacts={"pack": str(pack)}, pip_requirements=[]
    )
    version, _ = register.put(NAME, folder / "model", context=context, who="tests", why="a test")
    return version.version
