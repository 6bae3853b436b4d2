"""The stages ``train`` and ``predict`` on the small corpus, with small models of every kind.

As a script it is tries of ``train``, one after another: ``small_tuned.py <model> <place> <checkpoint to be killed
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
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.core import rows
from pipelines.core.config.models import Entry, FitRows
from pipelines.core.config.params import Params
from pipelines.core.config.params import load as load_params
from pipelines.core.config.settings import Settings
from pipelines.models import predict, train
from pipelines.models.fitting import card, checkpoint
from pipelines.models.kind import Kind
from pipelines.models.kinds.encoder import Encoder
from pipelines.models.kinds.knn import Knn
from pipelines.models.kinds.linear import Linear
from pipelines.models.kinds.sft import Sft
from pipelines.store import tables
from tests.contexts import context_of
from tests.train import small_posts as small
from tests.train.small_posts import SmallPosts

SEED = 20251001
MODELS: dict[str, Kind] = {
    "encoder": Encoder(
        kind="encoder", base="tiny:modernbert", batch=8, max_tokens=64, learning_rate=0.002, warmup=0.1,
        weight_decay=0.01, epochs=3,
    ),
    "knn": Knn(kind="knn", neighbours=(1, 3), blend=(0.5,)),
    "knn-gpt": Knn(kind="knn", neighbours=(1, 3), votes="gpt", blend=(1.0,)),
    "linear": Linear(kind="linear"),
    "linear-embedding": Linear(kind="linear", features="embedding"),
    "sft": Sft(
        kind="sft", base="tiny:qwen3", tuning="full", batch=4, accumulation=1, max_length=1536, learning_rate=0.002,
        warmup=0.1, weight_decay=0, epochs=1, packing=True,
    ),
}  # fmt: skip


def settings(home: Path, *, patch: pytest.MonkeyPatch) -> Settings:
    """Return the settings of a home of its own, without a tracking server."""
    patch.setenv("CORPUS_HOME", str(home))
    patch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Settings.from_env().model_copy(update={"mlflow_tracking_uri": None})


def entry(spec: Kind) -> Entry:
    """Return a model of its kind as the entry of section ``models`` that it is."""
    return Entry(**spec.model_dump(exclude_unset=True))


def params(
    *, models: tuple[str, ...] = tuple(MODELS), subset: str = "consensus", seed: int = SEED, keep: bool = True,
    ensemble: str = "cradle", corpus: str = "posts",
) -> Params:  # fmt: skip
    """Return the sandbox's parameters with rows of the small models, whose weights are kept or not."""
    found = load_params(small.REPO, profile="sandbox")
    wanted = FitRows(models=models, subsets=(subset,), ensemble=ensemble, seeds=(seed,))
    task = "labels" if corpus == "posts" else "severity"
    kept = tuple(f"{corpus}-{row_of(model, subset=subset, seed=seed, task=task)}" for model in models)
    section = found.train.model_copy(
        update={"rows": {corpus: wanted}, "keep": kept if keep else (), "checkpoint_steps": 1}
    )
    own = {name: entry(spec) for name, spec in MODELS.items()}
    return found.model_copy(update={"models": {**found.models, **own}, "train": section, "registry": {}})


def row_of(model: str, *, subset: str = "consensus", seed: int = SEED, task: str = "labels") -> str:
    return f"{task}-{model}-{subset}-{seed}"


def tuned(
    posts: SmallPosts, told: Settings, *, model: str, subset: str = "consensus", seed: int = SEED, **changed: Any
) -> dict[str, Any]:
    """Fit a model; ``changed`` are further arguments of :func:`params`."""
    made = params(models=(model,), subset=subset, seed=seed, **changed)
    given = {"params": made, "settings": told, "vault": posts.vault, "root": posts.root}
    (posts.root / rows.FILE).write_text(rows.text(made, root=posts.root))
    return train.run(context_of("posts", row=row_of(model, subset=subset, seed=seed), **given))


def predicted(
    posts: SmallPosts, told: Settings, *, model: str, subset: str = "consensus", seed: int = SEED
) -> dict[str, Any]:
    made = params(models=(model,), subset=subset, seed=seed)
    (posts.root / rows.FILE).write_text(rows.text(made, root=posts.root))
    given = {"params": made, "settings": told, "vault": posts.vault, "root": posts.root}
    return predict.run(context_of("posts", row=row_of(model, subset=subset, seed=seed), **given))


def folder(posts: SmallPosts, *, model: str, subset: str = "consensus", seed: int = SEED) -> Path:
    return card.folder_of("posts", row_of(model, subset=subset, seed=seed), root=posts.root)


def rows_of(posts: SmallPosts, *, model: str, subset: str = "consensus", seed: int = SEED) -> dict[str, dict[str, Any]]:
    """Return the predictions by record."""
    path = posts.snapshot / "predictions" / row_of(model, subset=subset, seed=seed) / "predictions.parquet"
    found = tables.read(path, name="predictions").to_pylist()
    assert len({row["record_id"] for row in found}) == len(found)
    assert {(r["task"], r["model"], r["seed"], r["image"]) for r in found} == {("labels", f"{model}-{subset}", seed, 0)}
    return {row["record_id"]: row for row in found}


def spent(posts: SmallPosts, *, model: str, subset: str = "consensus") -> dict[str, Any]:
    path = posts.snapshot / "predictions" / row_of(model, subset=subset) / "spent.json"
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
        tuned(replace(small.made(), root=place / "root", vault=vault), told, model=model)


if __name__ == "__main__":
    # each try is a process of its own; the libraries are imported once
    import mlflow  # noqa: F401

    import pipelines.models.kinds.encoder.training  # noqa: F401
    from tests import built_once

    built_once._places[:] = [Path(sys.argv[2]).parent]  # this process is outside the session
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
