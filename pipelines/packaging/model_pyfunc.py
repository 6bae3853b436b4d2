"""Serve ``predict`` of a registered model: check the input, run the model, abstain if there is no valid answer.

The modules ``model_*`` and the modules that they import are stored with every model version, so they may not import the
rest of ``pipelines``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc import PythonModel

from crisis_corpus.model_opening import opening
from pipelines.collect.scrub.scrub import scrub
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.post import Post
from pipelines.packaging.model_described import Described


@dataclass(frozen=True)
class ServedAnswer:
    """A registered model's answer for one input; an abstention has neither labels nor probabilities.

    Args:
        probabilities: the probability of every label of the task, in that order; empty if the model gives none.
        alerts: the labels that the model warns of, in the scheme's order; see :mod:`pipelines.metrics.alerts`.
    """

    labels: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    abstain: bool = False
    alerts: tuple[str, ...] = ()


SILENT = ServedAnswer(abstain=True)
Asker = Callable[[pd.DataFrame], Sequence[ServedAnswer]]
Reader = Callable[[Sequence[str]], Sequence[ServedAnswer]]
# The placeholders that scrubbing leaves.
PLACEHOLDER = re.compile(r"<[a-z0-9]+>")


def answered(
    labels: Collection[str], probabilities: Sequence[float], alerts: Collection[str], *, task: Task
) -> ServedAnswer:
    """Return a model's answer with its labels and alerts in the scheme's order."""
    named, warned = (tuple(label for label in task.labels if label in names) for names in (labels, alerts))
    return ServedAnswer(named, tuple(probabilities), alerts=warned)


class Malformed(MlflowException):  # type: ignore[misc]
    """The input of a registered model is malformed; MLflow's server answers 400 with a message without the input."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"The input is malformed: {detail}.", error_code=INVALID_PARAMETER_VALUE)

    @property
    def message(self) -> str:
        """The description of what is malformed; set late, because MLflow's server would add the input data to it."""
        return str(self.__dict__["said"])

    @message.setter
    def message(self, text: str) -> None:
        self.__dict__.setdefault("said", text)


class Served(PythonModel):  # type: ignore[misc]
    """A registered model for MLflow; ``opened`` loads its package and returns the predict function."""

    def __init__(self, opened: Callable[[Path, Described], Asker]) -> None:
        self._opened = opened
        # a server calls from several threads; tokenizers and OCR engines are not thread-safe
        self._alone = Lock()

    def load_context(self, context: Any) -> None:
        """Load the model package named in MLflow's context; MLflow calls this method once before predictions."""
        pack = Path(context.artifacts["pack"])
        with opening():
            self._ask = self._opened(pack, Described.read(pack))

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the answers: a table of ``labels``, ``probabilities``, ``abstain`` and ``alerts``, a row per input."""
        if not isinstance(model_input, pd.DataFrame):
            raise Malformed("it must be a table, such as dataframe_records")
        with self._alone:
            answers = self._ask(model_input)
        return pd.DataFrame(
            {
                "labels": [list(answer.labels) for answer in answers],
                "probabilities": [list(answer.probabilities) for answer in answers],
                "abstain": pd.Series([answer.abstain for answer in answers], dtype=bool),
                "alerts": [list(answer.alerts) for answer in answers],
            }
        )


def texts(frame: pd.DataFrame, column: str) -> list[str | None]:
    """Return the strings of an input column, with ``None`` for an empty cell or a missing column."""
    return [_text(cell, row=row, column=column) for row, cell in enumerate(cells(frame, column))]


def cells(frame: pd.DataFrame, column: str) -> list[Any]:
    """Return the values of an input column, with ``None`` for missing values or a missing column."""
    if column not in frame.columns:
        return [None] * len(frame)
    return [None if missing else cell for cell, missing in zip(frame[column], frame[column].isna(), strict=True)]


def _text(cell: Any, *, row: int, column: str) -> str | None:
    if cell is not None and not isinstance(cell, str):
        raise Malformed(f"'{column}' of row {row} is not a string")
    return cell


def asker(reader: Reader, *, kinds: Sequence[str]) -> Asker:
    """Return a function that labels the posts in a table of ``title`` and ``body``; it abstains on posts without words.

    Args:
        reader: predicts texts in the form of ``Post.text``; returns the answers in the order of the texts.
        kinds: the kinds of personal data that are removed first.
    """

    def ask(frame: pd.DataFrame) -> list[ServedAnswer]:
        titles, bodies = (
            [scrub(part or "", kinds=kinds)[0] for part in texts(frame, column)] for column in ("title", "body")
        )
        posts = [Post("", title, body) for title, body in zip(titles, bodies, strict=True)]
        readable = [n for n, post in enumerate(posts) if says(post.title) or says(post.body)]
        answers = [SILENT] * len(posts)
        for n, answer in zip(readable, reader([posts[n].text for n in readable]), strict=True):
            answers[n] = answer
        return answers

    return ask


def says(text: str) -> bool:
    """Return whether a scrubbed text contains a letter or digit besides its placeholders."""
    return any(sign.isalnum() for sign in PLACEHOLDER.sub("", text))
