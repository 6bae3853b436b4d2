"""Define a model's predictions for posts, and the interface of models that predict in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pipelines.datasets.example import LabelSet
from pipelines.taxonomy.task import Task

Floats = npt.NDArray[np.float64]

VOTE, MALFORMED = "vote", "malformed"


@dataclass(frozen=True)
class Prediction:
    """A model's prediction for one post, a row of the table ``predictions``.

    ``scores`` are probabilities in the task's order of labels, empty if the model gives none. ``labels`` are set only
    if the outcome is a vote. ``input_tokens`` counts what is read, ``output_tokens`` the answer without its end token.
    """

    outcome: str
    labels: LabelSet
    scores: tuple[float, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0


class Predictor(Protocol):
    """The interface of a model that labels posts in this process."""

    def predict(
        self,
        texts: Sequence[str],
        *,
        record_ids: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Prediction]:
        """Return one prediction per text, in the order of the texts.

        Args:
            texts: texts of posts, as in ``Post.text``.
            record_ids: the texts' records, for models that use other data of a record (a labeller's vote).
            progress: called with the number of texts that are done.
        """


class CalibratedPredictor(ABC):
    """A predictor that computes calibrated probabilities and decides label sets from them.

    Args:
        task: the task to predict.
        chunk: texts between two progress reports.
    """

    def __init__(self, task: Task, *, chunk: int) -> None:
        self._task, self._chunk = task, chunk

    def probabilities(
        self,
        texts: Sequence[str],
        *,
        record_ids: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Floats:
        """Return the calibrated probabilities, shape (texts, labels); see :meth:`Predictor.predict`."""
        rows: list[Floats] = [np.zeros((0, len(self._task.labels)))]
        for start in range(0, len(texts), self._chunk):
            some = slice(start, start + self._chunk)
            rows.append(self._scores(texts[some], record_ids=None if record_ids is None else record_ids[some]))
            if progress is not None:
                progress(start + len(rows[-1]))
        return np.concatenate(rows)

    def predict(
        self,
        texts: Sequence[str],
        *,
        record_ids: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Prediction]:
        """See :meth:`Predictor.predict`."""
        scores = self.probabilities(texts, record_ids=record_ids, progress=progress)
        return [
            Prediction(VOTE, labels, tuple(row), input_tokens=read)
            for labels, row, read in zip(self.labels(scores), scores.tolist(), self.tokens(texts), strict=True)
        ]

    @abstractmethod
    def _scores(self, texts: Sequence[str], *, record_ids: Sequence[str] | None) -> Floats: ...

    @abstractmethod
    def labels(self, scores: Floats) -> list[LabelSet]:
        """Decide the label set of each row of :meth:`probabilities`."""

    @abstractmethod
    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens of each text the model reads, including special tokens."""
