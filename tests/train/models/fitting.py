"""Build a small model, ask it, and fit it on all examples at once: the training loop has its own tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import Example, targets
from pipelines.models.backbones import Built
from pipelines.models.fitting.classifier import Classifier
from pipelines.models.kind import Serving


def build(spec: Classifier, *, task: Task, folder: Path, seed: int = 1, **given: Any) -> Built:
    """Build a classifier; ``given`` are its ``max_tokens``, and what it is opened with."""
    changed = {name: given.pop(name) for name in ("max_tokens",) if name in given}
    serving = Serving(task=task, scheme=load("figsim"), folder=folder, seed=seed, **given)
    return spec.model_copy(update=changed).build(serving)


def logits(built: Built, examples: Sequence[Example]) -> Any:
    built.module.eval()
    with torch.no_grad():
        return built.module(**built.prepare(examples))


def fitted(built: Built, examples: Sequence[Example], *, task: Task, steps: int, rate: float = 2e-3) -> Built:
    torch.manual_seed(1)
    batch, wanted = built.prepare(examples), torch.from_numpy(targets(examples, task=task)).argmax(dim=1)
    optimiser = torch.optim.AdamW([w for w in built.module.parameters() if w.requires_grad], lr=rate)
    built.module.train()
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(built.module(**batch), wanted).backward()
        optimiser.step()
    return built


def right(built: Built, examples: Sequence[Example], *, task: Task, truth: Sequence[str]) -> int:
    """Return how many examples get their true label."""
    chosen = logits(built, examples).argmax(dim=1).tolist()
    return sum(task.labels[at] == label for at, label in zip(chosen, truth, strict=True))
