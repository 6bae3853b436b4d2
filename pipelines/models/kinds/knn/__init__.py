"""Nearest neighbours in the split train by sentence embedding, blended with a labeller's votes if the entry has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pipelines.core.config.base import Fraction, Positive
from pipelines.models.kind import Job, Kind, Say, Serving
from pipelines.models.prediction import Predictor


class Knn(Kind):
    """Nearest neighbours in the split train by sentence embedding, blended with a labeller's ``votes`` if set.

    ``neighbours`` are candidate numbers of neighbours, ``blend`` candidate weights of the labeller; the best are chosen
    on validation.
    """

    votes: str | None = None
    least: ClassVar[int] = 1  # one neighbour is enough to be found
    packable: ClassVar[str | None] = "its neighbours are items, sealed under keys that consumers do not have"
    neighbours: tuple[Positive, ...]
    blend: tuple[Fraction, ...]

    @property
    def named(self) -> str:
        from pipelines.collect.read import embedding

        return embedding.PACKAGE

    def fit(self, job: Job[Any], *, say: Say) -> dict[str, Any]:
        from pipelines.models.kinds.knn.neighbours import fit

        return fit(job)

    def open(self, folder: Path, serving: Serving) -> Predictor:
        from pipelines.models.kinds.knn.neighbours import KnnPredictor

        if serving.vault is None:
            raise ValueError("neighbours are sealed in a vault")
        return KnnPredictor(folder, task=serving.task, vault=serving.vault, said=serving.said)
