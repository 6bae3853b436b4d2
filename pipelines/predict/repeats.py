"""Run the stage ``repeats``: fine-tune and predict once more with another seed, and keep the predictions only.

The registered model is that of ``finetune.seed``; its repeats show how much its scores depend on the seed. Their
weights would double the memory of content, and are deleted as soon as the predictions are written.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.predict import predict_finetuned
from pipelines.store.metrics_file import write_metrics
from pipelines.store.vault.vault import Vault
from pipelines.train import finetune


def run(
    corpus: str,
    *,
    subset: str,
    model: str,
    seed: int,
    params: Params,
    settings: Settings,
    vault: Vault,
    root: Path = Path(),
) -> dict[str, Any]:
    """Tune with another seed; write ``snapshot/<corpus>/predictions/repeats/<subset>/<model>/<seed>/`` and metrics.

    A killed run resumes from its checkpoints. For the tables, see :mod:`pipelines.predict.predict_finetuned`.

    Returns:
        The metrics of :func:`pipelines.train.finetune.run`, without ``weights``, and of
        :func:`pipelines.predict.predict_finetuned.run`, and ``seed``.
    """
    reseeded = params.model_copy(update={"finetune": params.finetune.model_copy(update={"seed": seed})})
    folder = settings.home / "train" / corpus / f"repeats-{subset}-{model}-{seed}"
    out, checkpoints = folder / "model", folder / "checkpoints"
    tuned = finetune.FinetuneRun(corpus, subset, model, reseeded, settings, vault, root, out, checkpoints).tune()
    place = root / "snapshot" / corpus / "predictions" / "repeats" / subset / model / str(seed)
    predicted = predict_finetuned.predict_with(
        out, corpus=corpus, params=reseeded, settings=settings, vault=vault, root=root, place=place
    )
    shutil.rmtree(folder)
    learnt = {name: value for name, value in tuned.items() if name not in ("weights", *predicted)}
    metrics = {**learnt, **predicted, "seed": seed}
    return write_metrics(metrics, root / "metrics" / corpus / f"repeats-{subset}-{model}-{seed}.json")
