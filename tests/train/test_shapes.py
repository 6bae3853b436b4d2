"""A head on shapes of pictures learns their arrangement without weights, and forgets nothing when it is opened."""

from __future__ import annotations

import io
import random
from pathlib import Path

from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import task_of
from pipelines.datasets.example import TRAIN, VALIDATION, Example
from pipelines.models.kind import Job
from pipelines.models.kinds.shapes import Shapes
from tests.own.pictures import draw


def drawn(split: str, *, labels: tuple[str, ...], count: int) -> list[Example]:
    chance, made = random.Random(split), []
    for number in range(count):
        file, label = io.BytesIO(), number % 2
        draw(chance, ("row", "scattered")[label]).save(file, "JPEG")
        name = f"{split}{number:04}"
        made.append(Example((name, 0), split, "", file.getvalue(), frozenset({labels[label]}), name))
    return made


def test_arrangements_are_learnt_from_pictures(tmp_path: Path) -> None:
    scheme = scheme_of("figsim")
    task = task_of(scheme, "severity")
    labels = tuple(task.labels)
    train, validation, test = (drawn(split, labels=labels, count=80) for split in (TRAIN, VALIDATION, "test"))
    spec = Shapes(kind="shapes")
    job = Job(
        spec=spec,
        train=train,
        validation=validation,
        task=task,
        scheme=scheme,
        seed=1,
        folder=tmp_path / "run",
        out=tmp_path / "fit",
    )
    found = spec.fit(job, say=lambda _: None)
    assert found["unseen"] == list(labels[2:])
    answers = spec.open(tmp_path / "fit", job).predict(test)
    right = sum(answer.labels == example.labels for answer, example in zip(answers, test, strict=True))
    assert right > 0.7 * len(test)
