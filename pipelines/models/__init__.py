"""Trainable models by kind: an entry of ``models`` in params.yaml becomes something that the loop can fit."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from pipelines.config.models import Model
from pipelines.errors import BadParams
from pipelines.models.built import Built
from pipelines.taxonomy.task import Task

TRAINABLE = ("text", "image", "fusion", "yadav", "m3h")


def build(spec: Model, *, task: Task, seed: int, folder: Path, max_tokens: int = 128, **options: Any) -> Built:
    """Return the classifier that an entry describes, its new weights drawn from ``seed``; nothing is fitted.

    The module of its kind is imported only here, so that a command that trains nothing loads no torch.

    Args:
        task: whose labels the logits stand for, in order.
        folder: where a tiny base is written for a moment; nothing stays there.
        max_tokens: ``train.max_tokens``; a longer text loses its end.
        options: what a kind needs beside this (M3H: its features).

    Raises:
        BadParams: the entry is of a kind that is asked and not trained.
        BaseMissing: a base cannot be had.
        BaseUnfit: a base is no model of this kind.
    """
    if spec.kind not in TRAINABLE:
        raise BadParams(where="models", detail=f"a model of kind '{spec.kind}' is not trained")
    module = import_module(f"pipelines.models.{spec.kind}")
    built: Built = module.build(spec, task=task, seed=seed, folder=folder, max_tokens=max_tokens, **options)
    return built
