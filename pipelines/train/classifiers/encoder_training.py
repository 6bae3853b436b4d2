"""Fit and load a text encoder with a classification head, for deployments without a large accelerator.

The encoder is fitted like the benchmark's models (``loop.py``), on silver labels (decided by models) or gold ones (by
people). Its scores are then calibrated and its alerts fitted on dev's gold (``calibration.py``,
``recall_constraints.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoModelForSequenceClassification

from pipelines.core.config.models import EncoderModel, Finetune
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import Example
from pipelines.metrics import calibration, recall_constraints
from pipelines.models.pretrained.backbones import Built, EncoderWords, Headed, built, opened
from pipelines.train.classifiers import loop
from pipelines.train.classifiers.loss_and_optimizer import EncoderRecipe, weigh
from pipelines.train.predictors.inference import machine, predict

# SPEC 1.2, item 8.
MAX_POS_WEIGHT = 20.0
# FigSIM's Table 9, as for every model that the loop fits.
CLIP = 1.0


def fit(
    spec: EncoderModel,
    *,
    train: Sequence[Example],
    validation: Sequence[Example],
    task: Task,
    seed: int,
    settings: Finetune,
    folder: Path,
    out: Path,
    say: Callable[[dict[str, float]], None],
) -> dict[str, Any]:
    """Fit a text encoder on train, select the epoch with the best macro-F1 on dev, calibrate, and write it to ``out``.

    A killed run resumes from the checkpoints in ``folder``, which the caller removes at the end. ``out`` then holds
    the model in the library's format (safetensors), with ``calibration.json`` in the same folder.

    Args:
        seed: seeds the new head, the order of the posts and dropout.
        folder: used by this run alone; must outlive a killed process.

    Returns:
        ``epoch`` (the best one), ``history``, ``unseen`` (labels that train does not have), ``truncated`` (posts of
        train whose middle was cut), and what :func:`pipelines.metrics.recall_constraints.learned` returns.
    """
    recipe = EncoderRecipe(
        **spec.model_dump(exclude={"kind", "revision", "weights"}), mode="improved", clip=CLIP,
        min_positives=recall_constraints.MIN_POSITIVES, checkpoint_steps=settings.checkpoint_steps,
    )  # fmt: skip
    model, words = _new(spec, task=task, seed=seed, folder=folder)
    weights = weigh(train, task=task, max_pos_weight=MAX_POS_WEIGHT)
    fitted = loop.fit(
        model, train=train, validation=validation, task=task, settings=recipe, seed=seed, folder=folder,
        weights=weights, say=say,
    )  # fmt: skip
    raw = predict(model, examples=validation, task=task, batch=recipe.batch)
    calibrated = calibration.fit(raw, examples=validation, task=task)
    alerts, metrics = recall_constraints.learned(
        calibrated(raw), raw=raw, examples=validation, task=task, floors=settings.recall_floors
    )
    if machine().is_main_process:
        out.mkdir(parents=True, exist_ok=True)
        model.module.model.save_pretrained(out)
        words.tokens.save_pretrained(out)
        recall_constraints.save(
            out, task=task, alerts=alerts, calibration=calibrated.as_json(), recipe=recipe.model_dump()
        )
    return {
        "epoch": fitted.epoch,
        "history": list(fitted.history),
        "unseen": list(weights.empty),
        "truncated": sum(words.cuts(example.text) for example in train),
        **metrics,
    }


def _new(spec: EncoderModel, *, task: Task, seed: int, folder: Path) -> tuple[Built, EncoderWords]:
    with opened(spec.base, revision=spec.revision, seed=seed, folder=folder) as place:
        words = EncoderWords(place, base=spec.base, limit=spec.max_tokens)
        module = Headed(AutoModelForSequenceClassification, place, base=spec.base, labels=len(task.labels))
    config = module.model.config
    config.pad_token_id = words.tokens.pad_token_id
    config.id2label = dict(enumerate(task.labels))
    config.label2id = {label: k for k, label in enumerate(task.labels)}
    config.problem_type = f"{task.kind}_label_classification"
    return built(module, words=words), words
