"""A model of the registry as a predictor: title and body in, labels, probabilities and an abstention out.

The signature is the registry's: columns ``title`` and ``body``; the answer's columns are ``labels`` (a list of names),
``probabilities`` (a list in the scheme's order of labels, or empty) and ``abstain``. Nothing pickled is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pipelines.errors import RegistryError
from pipelines.label.outcome import Outcome
from pipelines.label.post import Post
from pipelines.params import Settings
from pipelines.train.finetuned import VOTE, Said
from pipelines.train.task import Task

COLUMNS = ("labels", "probabilities", "abstain")
PICKLE = "MLFLOW_ALLOW_PICKLE_DESERIALIZATION"
# Ours: posts of one request, so that progress shows; a model may batch them otherwise.
TOGETHER = 64


class ModelNotLoaded(RegistryError):
    """A registered model cannot be had."""

    message = "The registered model '{uri}' cannot be loaded: {detail}."
    remedy = (
        "Set MLFLOW_TRACKING_URI to the registry that has it, and check its name and alias: "
        "models:/<name>@<alias>, such as models:/crisis-posts@champion."
    )
    exit_code = 69


class AnswerUnfit(RegistryError):
    """A registered model answers something else than this task's labels."""

    message = "The registered model '{uri}' does not answer as a model of '{task}' must: {detail}."
    remedy = "Name a model of this task under models in params.yaml."
    exit_code = 65


class Registered:
    """A model of the registry, ready to be asked."""

    def __init__(self, model: Any, *, uri: str, task: Task, posts: Mapping[str, Post]) -> None:
        """Use :meth:`open` instead."""
        self._model, self._uri, self._task, self._posts = model, uri, task, posts

    @classmethod
    def open(cls, uri: str, *, task: Task, posts: Mapping[str, Post], settings: Settings) -> Registered:
        """Load a model.

        Args:
            uri: ``models:/<name>@<alias>``, or anything that MLflow takes.
            task: whose labels it must answer with.
            posts: by record id, for title and body apart.
            settings: for ``MLFLOW_TRACKING_URI``.

        Raises:
            ModelNotLoaded: there is no registry, no such model, or it is pickled.
        """
        if not settings.mlflow_tracking_uri:
            raise ModelNotLoaded(uri=uri, detail="MLFLOW_TRACKING_URI is not set")
        from mlflow import pyfunc
        from mlflow.exceptions import MlflowException

        with _registry(settings.mlflow_tracking_uri):
            try:
                model = pyfunc.load_model(uri)
            except MlflowException as error:
                raise ModelNotLoaded(uri=uri, detail=str(error.error_code)) from None
            except Exception as error:
                # its own code runs while it is loaded, and what that says may name anything
                raise ModelNotLoaded(uri=uri, detail=type(error).__name__) from None
        return cls(model, uri=uri, task=task, posts=posts)

    def predict(
        self,
        texts: Sequence[str],
        *,
        record_ids: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Said]:
        """See :meth:`pipelines.train.finetuned.Predictor.predict`; posts go by ``record_ids``.

        Raises:
            AnswerUnfit: the model fails, or answers otherwise than the signature says.
        """
        ids = list(record_ids or ())
        said: list[Said] = []
        for start in range(0, len(ids), TOGETHER):
            said += self._some([self._posts[record_id] for record_id in ids[start : start + TOGETHER]])
            if progress is not None:
                progress(len(said))
        return said

    def _some(self, posts: Sequence[Post]) -> Iterator[Said]:
        import pandas as pd

        asked = pd.DataFrame({"title": [post.title for post in posts], "body": [post.body for post in posts]})
        try:
            answer = self._model.predict(asked)
        except Exception as error:
            # a model's own message may quote what it was asked
            raise self._unfit(f"it fails ({type(error).__name__})") from None
        if not isinstance(answer, pd.DataFrame) or not {*COLUMNS} <= {*answer.columns}:
            raise self._unfit(f"its answer has not the columns {', '.join(COLUMNS)}")
        if len(answer) != len(posts):
            raise self._unfit(f"{len(answer)} answers to {len(posts)} posts")
        return map(self._one, *(answer[column].tolist() for column in COLUMNS))

    def _one(self, labels: Any, probabilities: Any, abstain: Any) -> Said:
        if not isinstance(abstain, bool | np.bool_):
            raise self._unfit("abstain is not true or false")
        scores = self._scores([] if probabilities is None else probabilities)
        if abstain:
            return Said(str(Outcome.ABSTAINED), frozenset(), scores)
        if not isinstance(labels, Sequence | np.ndarray) or isinstance(labels, str):
            raise self._unfit("its labels are no list")
        named = frozenset(map(str, labels))
        if not named <= {*self._task.labels} or (self._task.kind == "single" and len(named) != 1):
            raise self._unfit("its labels are none of the task's, or too many")
        return Said(VOTE, named, scores)

    def _scores(self, values: Any) -> tuple[float, ...]:
        try:
            scores = tuple(float(value) for value in values)
        except (TypeError, ValueError):
            raise self._unfit("its probabilities are no list of numbers") from None
        if scores and (len(scores) != len(self._task.labels) or not all(0 <= p <= 1 for p in scores)):
            raise self._unfit("its probabilities are none of these labels")
        return scores

    def _unfit(self, detail: str) -> AnswerUnfit:
        return AnswerUnfit(uri=self._uri, task=self._task.key, detail=detail)


@contextmanager
def _registry(uri: str) -> Iterator[None]:
    """Let MLflow load from this registry, and nothing that is pickled; put back what was set."""
    import mlflow

    tracking, pickle = mlflow.get_tracking_uri(), os.environ.get(PICKLE)
    registry = mlflow.get_registry_uri()
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    os.environ[PICKLE] = "false"
    try:
        yield
    finally:
        mlflow.set_tracking_uri(tracking)
        mlflow.set_registry_uri(registry)
        if pickle is None:
            del os.environ[PICKLE]
        else:
            os.environ[PICKLE] = pickle
