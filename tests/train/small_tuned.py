"""The stages ``finetune`` and ``predict`` on the small corpus, with small models of every kind.

As a script it is tries of ``finetune``, one after another: ``small_tuned.py <model> <place> <checkpoint to be killed
behind, or 0> ...``. A place has the corpus in ``root``, gets its ``home``, and keeps MLflow's database. It prints how
each try ended, and keeps what a killed one left as ``<place>-died``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from pipelines.train import finetune

from pipelines.core.config.models import EncoderModel, KnnModel, SftModel
from pipelines.core.config.params import Params
from pipelines.core.config.params import load as load_params
from pipelines.core.config.settings import Settings
from pipelines.models.fitting import checkpoint
from pipelines.predict import predict_finetuned
from pipelines.store import tables
from tests.train import small_posts as small
from tests.train.small_posts import SmallPosts

MODELS = {
    "encoder": EncoderModel(
        kind="encoder", base="tiny:modernbert", batch=8, max_tokens=64, learning_rate=0.002, warmup=0.1,
        weight_decay=0.01, epochs=3,
    ),
    "knn": KnnModel(kind="knn", neighbours=(1, 3), labeller=None, blend=(0.5,)),
    "knn-gpt": KnnModel(kind="knn", neighbours=(1, 3), labeller="gpt", blend=(1.0,)),
    "sft": SftModel(
        kind="sft", base="tiny:qwen3", tuning="full", batch=4, accumulation=1, max_length=1536, learning_rate=0.002,
        warmup=0.1, weight_decay=0, epochs=1, packing=True,
    ),
}  # fmt: skip


def settings(home: Path, *, patch: pytest.MonkeyPatch) -> Settings:
    """Return the settings of a home of its own, without a tracking server."""
    patch.setenv("CORPUS_HOME", str(home))
    patch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Settings.from_env().model_copy(update={"mlflow_tracking_uri": None})


def params(**changed: Any) -> Params:
    """Return the sandbox's parameters with the small models, and changes of the section ``finetune``."""
    found = load_params(small.REPO, profile="sandbox")
    section = found.finetune.model_copy(update={"checkpoint_steps": 1} | changed)
    return found.model_copy(update={"models": {**found.models, **MODELS}, "finetune": section})


def tuned(
    posts: SmallPosts, told: Settings, *, model: str, subset: str = "consensus", **changed: Any
) -> dict[str, Any]:
    return finetune.run(
        "posts", subset=subset, model=model, params=params(**changed), settings=told, vault=posts.vault, root=posts.root
    )


def predicted(posts: SmallPosts, told: Settings, *, model: str, subset: str = "consensus") -> dict[str, Any]:
    return predict_finetuned.run(
        "posts", subset=subset, model=model, params=params(), settings=told, vault=posts.vault, root=posts.root
    )


def folder(posts: SmallPosts, *, model: str, subset: str = "consensus") -> Path:
    return posts.snapshot / "finetuned" / subset / model


def rows_of(posts: SmallPosts, *, model: str, subset: str = "consensus") -> dict[str, dict[str, Any]]:
    """Return the predictions by record."""
    path = posts.snapshot / "predictions" / "finetuned" / subset / model / "predictions.parquet"
    rows = tables.read(path, name="predictions").to_pylist()
    assert len({row["record_id"] for row in rows}) == len(rows)
    assert {(r["task"], r["model"], r["seed"], r["image"]) for r in rows} == {
        ("labels", f"{model}-{subset}", params().finetune.seed, 0)
    }
    return {row["record_id"]: row for row in rows}


def spent(posts: SmallPosts, *, model: str, subset: str = "consensus") -> dict[str, Any]:
    path = posts.snapshot / "predictions" / "finetuned" / subset / model / "spent.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def attempt(place: Path, *, model: str, die_at: int) -> None:
    """Tune once; SIGKILL comes behind checkpoint ``die_at``."""
    os.environ |= {"CORPUS_HOME": str(place / "home"), "MLFLOW_TRACKING_URI": f"sqlite:///{place}/mlflow.sqlite"}
    written = 0
    save = checkpoint.save

    def saved(*given: Any, **named: Any) -> Path:
        nonlocal written
        path = save(*given, **named)
        written += 1
        if written == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return path

    checkpoint.save = saved
    told = Settings.from_env()
    with small.opened(place / "root") as vault:
        finetune.run(
            "posts", subset="consensus", model=model, params=params(), settings=told, vault=vault, root=place / "root"
        )


if __name__ == "__main__":
    # each try is a process of its own; the libraries are imported once
    import mlflow  # noqa: F401

    import pipelines.models.kinds.encoder.training  # noqa: F401

    for folder_of, moment in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
        pid = os.fork()
        if not pid:
            try:
                attempt(Path(folder_of), model=sys.argv[1], die_at=int(moment))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status < 0:
            shutil.copytree(folder_of, f"{folder_of}-died")
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()
