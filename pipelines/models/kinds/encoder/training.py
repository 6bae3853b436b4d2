"""Fit and load a text encoder with a classification head, for deployments without a large accelerator.

The encoder is fitted like the benchmark's models (``loop.py``), on silver labels (decided by models) or gold ones (by
people). Its scores are then calibrated and its alerts fitted on dev's gold (``calibration.py``,
``recall_constraints.py``).
"""

from __future__ import annotations

from typing import Any

from transformers import AutoModelForSequenceClassification

from pipelines.models.backbones import Built, EncoderWords, Headed, built, opened
from pipelines.models.fitting import loop
from pipelines.models.fitting.calibrated_predictor import calibrate
from pipelines.models.fitting.inference import machine, predict
from pipelines.models.fitting.loss_and_optimizer import weigh
from pipelines.models.fitting.recipe import TrainingSettings
from pipelines.models.kind import Job
from pipelines.models.kinds.encoder import Encoder

RECIPE = {"batch", "epochs", "learning_rate", "max_tokens", "warmup", "weight_decay"}


def fit(job: Job[Encoder], *, say: loop.Say) -> dict[str, Any]:
    """Fit a text encoder on train, select the epoch with the best macro-F1 on dev, calibrate, and write it to ``out``.

    A killed run resumes from its checkpoints. ``out`` then holds the model in the library's format (safetensors),
    with ``calibration.json`` in the same folder.

    Returns:
        ``epoch`` (the best one), ``history``, ``unseen`` (labels that train does not have), ``truncated`` (posts of
        train whose middle was cut), and what :func:`pipelines.metrics.recall_constraints.learned` returns.
    """
    # the rest is FigSIM's Table 9, as for every model that the loop fits
    recipe = TrainingSettings(
        **job.spec.model_dump(include=RECIPE), mode="improved", checkpoint_steps=job.checkpoint_steps
    )
    data: dict[str, Any] = {"train": job.train, "validation": job.validation, "task": job.task}
    model, words = _new(job)
    weights = weigh(job.train, task=job.task, max_pos_weight=recipe.max_pos_weight)
    fitted = loop.fit(model, **data, settings=recipe, seed=job.seed, folder=job.folder, weights=weights, say=say)
    raw = predict(model, examples=job.validation, task=job.task, batch=recipe.batch)
    main = machine().is_main_process
    if main:
        job.out.mkdir(parents=True, exist_ok=True)
        model.module.model.save_pretrained(job.out)
        words.tokens.save_pretrained(job.out)
    return {
        "epoch": fitted.epoch,
        "history": list(fitted.history),
        "unseen": list(weights.empty),
        "truncated": sum(words.cuts(example.text) for example in job.train),
        **calibrate(raw, job=job, write=main),
    }


def _new(job: Job[Encoder]) -> tuple[Built, EncoderWords]:
    spec, task = job.spec, job.task
    with opened(spec.base, revision=spec.revision, seed=job.seed, folder=job.folder) as place:
        words = EncoderWords(place, base=spec.base, limit=spec.max_tokens)
        module = Headed(AutoModelForSequenceClassification, place, base=spec.base, labels=len(task.labels))
    config = module.model.config
    config.pad_token_id = words.tokens.pad_token_id
    config.id2label = dict(enumerate(task.labels))
    config.label2id = {label: k for k, label in enumerate(task.labels)}
    config.problem_type = f"{task.kind}_label_classification"
    return built(module, words=words), words
