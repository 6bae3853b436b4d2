"""Predict posts with a registered model: from title and body to labels, probabilities and an abstention flag.

The signature is the registry's: columns ``title`` and ``body``; the answer's columns are ``labels`` (a list of names),
``probabilities`` (a list in the scheme's order of labels, or empty), ``abstain`` and ``alerts`` (a list of names;
versions of earlier releases lack it). The model is loaded through the registry's client, like every consumer's: only
registered code is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.core.config.settings import Settings
from pipelines.core.errors import RegistryError
from pipelines.core.taxonomy.task import Task
from pipelines.llm.outcome import Outcome
from pipelines.train.predictors.prediction import VOTE, Prediction

if TYPE_CHECKING:
    from pipelines.datasets.post import Post

COLUMNS, ALERTS = ("labels", "probabilities", "abstain"), "alerts"
# Ours: posts per call, so that progress is shown; a model may batch them otherwise.
TOGETHER = 64


class Registered:
    """A model from the registry that predicts posts."""

    def __init__(self, uri: str, *, task: Task, posts: Mapping[str, Post], settings: Settings) -> None:
        from crisis_corpus.client import load

        self._uri, self._task, self._posts = uri, task, posts
        where = {"tracking_uri": settings.mlflow_tracking_uri, "journal_url": settings.journal_url}
        self._model = load(uri, **where, cache=settings.home / "models")
        if self._model.labels != task.labels:
            raise self._unfit("the model has other labels")

    def predict(
        self,
        texts: Sequence[str],
        *,
        record_ids: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Prediction]:
        """Return one prediction per text; title and body are those of ``record_ids``, not of ``texts``.

        Arguments: see :meth:`pipelines.train.predictors.prediction.Predictor.predict`.
        """
        ids = list(record_ids or ())
        said: list[Prediction] = []
        for start in range(0, len(ids), TOGETHER):
            said += self._some([self._posts[record_id] for record_id in ids[start : start + TOGETHER]])
            if progress is not None:
                progress(len(said))
        return said

    def _some(self, posts: Sequence[Post]) -> list[Prediction]:
        import pandas as pd

        asked = pd.DataFrame({"title": [post.title for post in posts], "body": [post.body for post in posts]})
        try:
            answer = self._model.predict(asked)
        except Exception as error:
            # a model's own message may quote its input
            raise self._unfit(f"the model fails ({type(error).__name__})") from None
        try:
            return list(read_answers(answer, task=self._task, count=len(posts)))
        except BadAnswer as bad:
            raise self._unfit(str(bad)) from None

    def _unfit(self, detail: str) -> RegistryError:
        return RegistryError("AnswerUnfit", uri=self._uri, task=self._task.key, detail=detail)


class BadAnswer(ValueError):
    """A registered model's predictions differ from its signature; the message says how, without quoting them."""


def read_answers(answer: Any, *, task: Task, count: int) -> Iterator[Prediction]:
    """Yield the predictions in the table that a registered model returned, one for each row."""
    import pandas as pd

    if not isinstance(answer, pd.DataFrame) or not {*COLUMNS} <= {*answer.columns}:
        raise BadAnswer(f"its answer lacks some of the columns {', '.join(COLUMNS)}")
    if len(answer) != count:
        raise BadAnswer(f"{len(answer)} answers were returned for {count} posts")
    alerts = answer[ALERTS].tolist() if ALERTS in answer.columns else [[]] * count
    labels, probabilities, abstain = (answer[column].tolist() for column in COLUMNS)
    for row in zip(labels, probabilities, abstain, alerts, strict=True):
        yield _prediction(*row, task=task)


def _prediction(labels: Any, probabilities: Any, abstain: Any, alerts: Any, *, task: Task) -> Prediction:
    if not isinstance(abstain, bool | np.bool_):
        raise BadAnswer("abstain is not true or false")
    scores = _scores([] if probabilities is None else probabilities, task=task)
    if abstain:
        return Prediction(str(Outcome.ABSTAINED), frozenset(), scores)
    named, raised = _names(labels, task=task), _names(alerts, task=task)
    if task.kind == "single" and len(named) != 1:
        raise BadAnswer("its labels are not exactly one, which the task requires")
    return Prediction(VOTE, named, scores, alerts=raised)


def _names(values: Any, *, task: Task) -> frozenset[str]:
    if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str):
        raise BadAnswer("its labels or alerts are not a list")
    named = frozenset(map(str, values))
    if not named <= {*task.labels}:
        raise BadAnswer("its labels or alerts are not labels of the task")
    return named


def _scores(values: Any, *, task: Task) -> tuple[float, ...]:
    try:
        scores = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise BadAnswer("its probabilities are not a list of numbers") from None
    if scores and (len(scores) != len(task.labels) or not all(0 <= p <= 1 for p in scores)):
        raise BadAnswer("its probabilities are not one number from 0 to 1 for each label")
    return scores
