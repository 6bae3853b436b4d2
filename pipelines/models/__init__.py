"""Build the trainable models: turn an entry of ``models`` in params.yaml into a classifier for the training loop."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.core.config.models import Model
from pipelines.core.errors import BadParams
from pipelines.core.taxonomy.task import Task

if TYPE_CHECKING:
    from pipelines.models.pretrained.backbones import Built

TRAINABLE = ("text", "image", "fusion", "yadav", "m3h", "infused")


# Kind -> what a reader of its figures must know about the source that it was built from.
SOURCE_NOTES = {"yadav": "built from the abstract of Yadav et al. (2023): the text of the paper could not be read"}


def build(spec: Model, *, task: Task, seed: int, folder: Path, max_tokens: int = 128, **options: Any) -> Built:
    """Build the classifier that an entry of ``models`` describes, not yet trained, its new weights drawn from ``seed``.

    The module of the kind is imported here, so that a command that trains nothing does not load torch.

    Args:
        options: further inputs that some kinds of model need (the explanations of the memes).
    """
    if spec.kind not in TRAINABLE:
        raise BadParams(where="models", detail=f"a model of kind '{spec.kind}' cannot be trained")
    module = import_module(f"pipelines.models.{spec.kind}")
    built: Built = module.build(spec, task=task, seed=seed, folder=folder, max_tokens=max_tokens, **options)
    return built
