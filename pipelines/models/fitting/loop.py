"""Fit any classifier with the recipe of FigSIM's Table 9, on a CPU, a GPU or several (``accelerate launch``).

On a CPU, the same inputs and number of threads give the same weights, bit for bit, even if the run was killed and
restarted (``checkpoint.py``). A single step, and what changes on a GPU, is in ``loss_and_optimizer.py``.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from accelerate.utils import gather_object
from safetensors.torch import load_model, save_file
from transformers import AutoImageProcessor, AutoTokenizer

from pipelines.core.process import reporter, silent
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import TRAIN, VALIDATION, Example, only
from pipelines.metrics.decoding import MIDDLE, decide, tune
from pipelines.metrics.label_sets import figures, tally
from pipelines.models.backbones import Built, had, opened
from pipelines.models.fitting import checkpoint
from pipelines.models.fitting.classifier_serving import HEAD, REST, THRESHOLDS, WEIGHTS
from pipelines.models.fitting.inference import Diverged, predict
from pipelines.models.fitting.loss_and_optimizer import Loop, Weights, reproducible, weigh
from pipelines.models.fitting.recipe import TrainingSettings
from pipelines.models.kind import Job, Serving

if TYPE_CHECKING:
    from pipelines.models.fitting.classifier import Classifier, PackableClassifier

Floats = npt.NDArray[np.float64]
Say = Callable[[dict[str, float]], None]


@dataclass(frozen=True)
class FittedClassifier:
    """The result of a training run, after which the module that was passed in has the best epoch's weights.

    Args:
        epoch: the best epoch, counted from 1.
        history: for each epoch ``epoch``, ``step``, ``train_loss``, ``validation_macro_f1``, ``learning_rate``.
        thresholds: one for each label, shape (labels,), tuned on validation with the best weights.
        state: file of the best weights, safetensors.
        resumed: optimiser steps that were already done when this process began.
    """

    epoch: int
    history: tuple[dict[str, float], ...]
    thresholds: Floats
    state: Path
    resumed: int


def fit(
    built: Built,
    *,
    train: Sequence[Example],
    validation: Sequence[Example],
    task: Task,
    settings: TrainingSettings,
    seed: int,
    folder: Path,
    weights: Weights,
    say: Say,
) -> FittedClassifier:
    """Train a classifier and select the epoch with the best macro-F1 on validation; the earlier epoch wins a tie.

    In mode ``paper``, each epoch is scored with thresholds tuned on its own validation scores, as we read FigSIM; in
    ``improved``, with .5, and thresholds are tuned once for the best epoch (SPEC 2.4, trap 7). Single-label tasks take
    the most probable class in both modes. A checkpoint is written after every epoch and every ``checkpoint_steps``
    steps; a run with the same inputs resumes from it. Call this in every process of an ``accelerate launch``.

    Args:
        built: the classifier on the CPU in float32; its module is fitted in place and is left on the device.
        seed: seeds the order of the examples and dropout (the initial weights come from ``build``).
        folder: used by this run alone; must outlive a killed process.
        say: called in one process after every epoch; twice if a kill comes between the call and the checkpoint.
    """
    train, validation = only(train, splits={TRAIN}), only(validation, splits={VALIDATION})
    with reproducible(seed):
        loop = Loop(built, examples=train, task=task, settings=settings, seed=seed, weights=weights)
        history, resumed = _epochs(loop, validation=validation, folder=folder, say=say)
        checkpoint.load_best(folder, module=built.module)
        scores = predict(built, examples=validation, task=task, batch=settings.batch)
        thresholds = _tuned(scores, validation=validation, loop=loop)
        loop.machine.wait_for_everyone()
        if loop.machine.is_main_process:
            checkpoint.finish(folder)
        loop.machine.wait_for_everyone()
    return FittedClassifier(_best(history), tuple(history), thresholds, folder / checkpoint.MODEL, resumed)


def _epochs(loop: Loop, *, validation: Sequence[Example], folder: Path, say: Say) -> tuple[list[dict[str, float]], int]:
    """Run the remaining epochs; return the history of all epochs and the number of steps that were already done."""
    where, key = loop.machine, _key(loop, validation=validation)
    place = checkpoint.load(
        folder, key=key, module=loop.built.module, optimizer=loop.optimizer, process=where.process_index
    )
    where.wait_for_everyone()
    if place is None:
        if where.is_main_process:
            checkpoint.clear(folder)
        place = {"epoch": 0, "batch": 0, "step": 0, "loss": [0.0] * where.num_processes, "history": []}
    history, resumed, skip = list(place["history"]), int(place["step"]), int(place["batch"])
    loop.step = resumed
    loop.loss.fill_(place["loss"][where.process_index])

    def save(epoch: int, batch: int, *, best: bool) -> None:
        losses, randoms = gather_object([float(loop.loss)]), gather_object([checkpoint.random_states()])
        position = {"epoch": epoch, "batch": batch, "step": loop.step, "loss": losses, "history": history}
        if where.is_main_process:
            parts = {"module": loop.built.module, "optimizer": loop.optimizer, "randoms": randoms}
            checkpoint.save(folder, key=key, step=loop.step, position=position, best=best, **parts)
        where.wait_for_everyone()

    tell = reporter(f"steps of {loop.task.key}", total=loop.total) if where.is_main_process else silent
    for epoch in range(int(place["epoch"]), loop.settings.epochs):
        last = len(loop.batches(epoch))
        for done in loop.epoch(epoch, skip=skip):
            tell(loop.step)
            if loop.step % loop.settings.checkpoint_steps == 0 and done < last:
                save(epoch, done, best=False)
        skip = 0
        history.append(_judged(loop, validation=validation, epoch=epoch + 1))
        if where.is_main_process:
            say(dict(history[-1]))
        loop.loss.zero_()
        save(epoch + 1, 0, best=_best(history) == epoch + 1)
    return history, resumed


def _judged(loop: Loop, *, validation: Sequence[Example], epoch: int) -> dict[str, float]:
    """Return the metrics of the epoch that just ended."""
    loss = loop.mean_loss()
    if not math.isfinite(loss):
        raise Diverged(task=loop.task.key, detail=f"the loss of epoch {epoch} is {loss}")
    scores = predict(loop.built, examples=validation, task=loop.task, batch=loop.settings.batch)
    thresholds: Floats = np.full(len(loop.task.labels), MIDDLE)
    if loop.settings.mode == "paper":
        thresholds = _tuned(scores, validation=validation, loop=loop)
    gold = [example.labels or frozenset() for example in validation]
    predicted = decide(scores, task=loop.task, thresholds=thresholds)
    counts = tally(gold, predicted=predicted, labels=loop.task.labels).total()
    return {
        "epoch": epoch,
        "step": loop.step,
        "train_loss": loss,
        "validation_macro_f1": float(figures(counts)["macro_f1"]),
        "learning_rate": loop.rate(),
    }


def _tuned(scores: npt.NDArray[np.float32], *, validation: Sequence[Example], loop: Loop) -> Floats:
    settings = loop.settings
    return tune(scores, examples=validation, task=loop.task, mode=settings.mode, min_positives=settings.min_positives)


def _best(history: Sequence[dict[str, float]]) -> int:
    return int(max(history, key=lambda made: (made["validation_macro_f1"], -made["epoch"]))["epoch"])


def _key(loop: Loop, *, validation: Sequence[Example]) -> str:
    """Return a digest of everything that the result depends on; a run resumes only from checkpoints with its digest."""
    unused = {"checkpoint_steps", "min_positives"}
    begin = [(name, list(t.shape), t.flatten()[:16].tolist()) for name, t in loop.built.module.state_dict().items()]
    facts = {
        "settings": loop.settings.model_dump(mode="json", exclude=unused),
        "seed": loop.seed,
        "task": [loop.task.key, *loop.task.labels],
        "weights": loop.weights.tolist(),
        "begin": begin,
        "processes": loop.machine.num_processes,
        "torch": str(torch.__version__),
        **({"inputs": loop.built.inputs} if loop.built.inputs else {}),
        **({} if loop.shares is None else {"shares": loop.shares.tolist()}),
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for example in [*loop.examples, *validation]:
        digest.update(json.dumps([*example.item, example.split, example.text, sorted(example.labels or ())]).encode())
        digest.update(hashlib.sha256(example.image or b"").digest())
    return digest.hexdigest()


def fit_classifier(spec: Classifier, job: Job[Any], *, say: Any) -> dict[str, Any]:
    task, settings = job.task, spec.settings(job)
    weights = weigh(job.train, task=task, max_pos_weight=settings.max_pos_weight, reweighted=settings.reweighted)
    fitted = fit(
        spec.build(job), train=job.train, validation=job.validation, task=task, settings=settings, seed=job.seed,
        folder=job.folder, weights=weights, say=say,
    )  # fmt: skip
    shutil.copyfile(fitted.state, job.out / WEIGHTS)
    stored = {"labels": task.labels, "thresholds": fitted.thresholds.tolist()}
    (job.out / THRESHOLDS).write_text(json.dumps(stored, indent=1) + "\n")
    best = next(epoch for epoch in fitted.history if epoch["epoch"] == fitted.epoch)
    return {
        "epoch": fitted.epoch,
        "validation_macro_f1": best["validation_macro_f1"],
        "thresholds": dict(zip(task.labels, fitted.thresholds.tolist(), strict=True)),
        "history": list(fitted.history),
        "unseen": list(weights.empty),
    }


def pack_classifier(spec: PackableClassifier, folder: Path, *, to: Path, serving: Serving) -> None:
    """Write a classifier to ``to``: the encoder in the format of ``transformers``, beside it head and thresholds."""
    built = spec.build(serving)
    load_model(built.module, str(folder / WEIGHTS))
    with opened(spec.base, revision=spec.revision, seed=serving.seed, folder=serving.folder) as place:
        whole = getattr(built.module, "whole", lambda *_, **__: built.module.model)
        whole(place, base=spec.base).save_pretrained(to)
        if "text" in spec.inputs:
            had(AutoTokenizer, place, base=spec.base).save_pretrained(to)
        if "image" in spec.inputs:
            had(AutoImageProcessor, place, base=spec.base, backend="pil").save_pretrained(to)
    head = {key: value.contiguous() for key, value in built.module.state_dict().items() if key.startswith(HEAD)}
    if head:
        save_file(head, to / REST)
    shutil.copyfile(folder / THRESHOLDS, to / THRESHOLDS)
