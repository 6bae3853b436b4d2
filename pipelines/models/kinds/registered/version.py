"""Hold the answers of registered models to their signature: labels, probabilities and an abstention flag.

The answer's columns are ``labels`` (a list of names), ``probabilities`` (a list in the scheme's order of labels, or
empty), ``abstain`` and ``alerts`` (a list of names; may be missing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.core.config.settings import Settings
from pipelines.core.errors import CorpusError, RegistryError
from pipelines.core.taxonomy.task import Task
from pipelines.llm.outcome import Outcome
from pipelines.models.prediction import VOTE, Prediction, Progress

if TYPE_CHECKING:
    from pipelines.datasets.example import Example, Item
    from pipelines.datasets.post import Post
    from pipelines.models.label_map import LabelMap

# Ours: items per call, so that progress is shown; a model may batch them otherwise.
TOGETHER = 64
COLUMNS, ALERTS = ("labels", "probabilities", "abstain"), "alerts"


@dataclass
class RegistryModel:
    """A version from the registry, loaded at the first prediction and held to its signature.

    ``refuse`` returns the error about a model that does not fit, from a keyword argument ``detail``.
    """

    task: Task
    load: Callable[[], Any]
    refuse: Callable[..., RegistryError]
    mapped: LabelMap | None = None

    @cached_property
    def _model(self) -> Any:
        model = self.load()
        if self.mapped is None and model.labels != self.task.labels:
            raise self.refuse(detail=f"the model has other labels than task '{self.task.key}' has now")
        return model

    def predict(self, rows: Sequence[Mapping[str, Any]]) -> list[Prediction]:
        """Return one prediction for each row, of which the model gets its input columns."""
        import pandas as pd

        model = self._model
        try:
            answer = model.predict(pd.DataFrame(rows)[[*model.inputs]])
        except CorpusError:
            raise
        except Exception as error:
            # a model's own message may quote its input
            raise self.refuse(detail=f"the model fails ({type(error).__name__})") from None
        try:
            if self.mapped is None:
                return list(read_answers(answer, task=self.task, count=len(rows)))
            mapped = self.mapped.ordered(model.labels)
            # how many labels an item has is not known of them
            theirs = replace(self.task, kind="multi", labels=tuple(model.labels))
            return mapped.translated(list(read_answers(answer, task=theirs, count=len(rows))))
        except BadAnswer as bad:
            raise self.refuse(detail=f"an answer is not valid for '{self.task.key}': {bad}") from None


class RegisteredPredictor:
    """A version from the registry that predicts items of this corpus, loaded through the registry's client.

    Like every consumer's, so that only registered code is run.
    """

    def __init__(
        self, uri: str, *, task: Task, posts: Mapping[Item, Post], settings: Settings, mapped: LabelMap | None = None
    ) -> None:
        from crisis_corpus.client import download, load

        where = {"tracking_uri": settings.mlflow_tracking_uri, "journal_url": settings.journal_url}
        self._posts = posts
        self._folder = partial(download, uri, **where, cache=settings.home / "models")
        self._model = RegistryModel(
            task,
            partial(load, uri, **where, cache=settings.home / "models"),
            partial(RegistryError, "AnswerUnfit", uri=uri, task=task.key),
            mapped,
        )

    def learnt(self) -> frozenset[str]:
        """Return the ids of the records that the version was trained or selected on."""
        from crisis_corpus import integrity
        from pipelines.store import tables

        path = integrity.place(self._folder()) / integrity.RECORDS
        return frozenset(tables.read(path, name="pack_records")["record_id"].to_pylist())

    def predict(self, examples: Sequence[Example], *, progress: Progress = None) -> list[Prediction]:
        """Return one prediction per example, from its title and body, or its picture and the words read from it."""
        said: list[Prediction] = []
        for start in range(0, len(examples), TOGETHER):
            posts = [self._posts[example.item] for example in examples[start : start + TOGETHER]]
            said += self._model.predict([post.cells for post in posts])
            if progress is not None:
                progress(len(said))
        return said

    def forget(self) -> None:
        """Do nothing: no example is kept."""


class BadAnswer(ValueError):
    """A registered model's predictions differ from its signature; the message says how, without quoting them."""


def read_answers(answer: Any, *, task: Task, count: int) -> Iterator[Prediction]:
    """Yield the predictions in the table that a registered model returned, one for each row.

    Raises:
        BadAnswer: the answer is not a table of ``count`` rows with the signature's columns, or a value does not fit the
            task.
    """
    import pandas as pd

    if not isinstance(answer, pd.DataFrame) or not {*COLUMNS} <= {*answer.columns}:
        raise BadAnswer(f"its answer lacks some of the columns {', '.join(COLUMNS)}")
    if len(answer) != count:
        raise BadAnswer(f"{len(answer)} answers were returned for {count} items")
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
