"""Serve ``predict`` of a registered model: check and scrub the input as the corpus does, and run the model.

The model abstains where there is nothing to judge. This module and those that it imports are stored with every model
version, so they may not import the rest of ``pipelines``.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc import PythonModel

from crisis_corpus.model_opening import opening, require_in_service
from pipelines.collect.scrub import scrub
from pipelines.datasets.example import TEST, Example, LabelSet
from pipelines.datasets.post import Post
from pipelines.models.kind import Serving
from pipelines.models.prediction import VOTE, Prediction, Predictor
from pipelines.registry.packaging.described import PICTURES, Described, asked

# An abstention: neither labels nor probabilities.
SILENT = Prediction("malformed", frozenset())
# The placeholders that scrubbing leaves.
PLACEHOLDER = re.compile(r"<[a-z0-9]+>")


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


def _opened(pack: Path, *, described: Described) -> Predictor:
    scheme, task = asked(pack, described=described)
    serving = Serving(task=task, scheme=scheme, folder=pack, seed=described.seed, batch=described.batch)
    return described.entry.open(pack, serving)


class Served(PythonModel):  # type: ignore[misc]
    """A registered model for MLflow."""

    def __init__(self) -> None:
        # a server calls from several threads; tokenizers and OCR engines are not thread-safe
        self._alone = Lock()

    def load_context(self, context: Any) -> None:
        """Load the model package named in MLflow's context; MLflow calls this method once before predictions."""
        pack = Path(context.artifacts["pack"])
        require_in_service(pack.parents[1])
        described = Described.read(pack)
        self._labels, self._reader = described.labels, reader(described)
        with opening():
            self._model = _opened(pack, described=described)

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the answers: a table of ``labels``, ``probabilities``, ``abstain`` and ``alerts``, a row per input."""
        if not isinstance(model_input, pd.DataFrame):
            raise Malformed("it must be a table, such as dataframe_records")
        with self._alone:
            answers = self._answers(self._reader.examples(model_input))
        return pd.DataFrame(
            {
                "labels": [self._sorted(answer.labels) for answer in answers],
                "probabilities": [list(answer.scores) for answer in answers],
                "abstain": pd.Series([answer.outcome != VOTE for answer in answers], dtype=bool),
                "alerts": [self._sorted(answer.alerts) for answer in answers],
            }
        )

    def _answers(self, examples: list[Example | None]) -> list[Prediction]:
        readable = [example for example in examples if example is not None]
        answers = iter(self._model.predict(readable) if readable else ())
        self._model.forget()
        return [SILENT if example is None else next(answers) for example in examples]

    def _sorted(self, labels: LabelSet) -> list[str]:
        """Return labels in the scheme's order."""
        return [label for label in self._labels if label in labels]


def reader(described: Described) -> TextReader:
    """Return what reads the input of a model; only a model of pictures has the code and libraries that read them."""
    if described.decode is None:
        return TextReader(described)
    made: TextReader = import_module(PICTURES).PictureReader(described)
    return made


class TextReader:
    """Convert input rows of title and body to a model's examples, rows without words to ``None``."""

    def __init__(self, described: Described) -> None:
        self._kinds = described.scrub

    def examples(self, frame: pd.DataFrame) -> list[Example | None]:
        """Return the example of each row; a cell that is not a string is :class:`Malformed`."""
        columns = ([self.scrubbed(cell or "") for cell in texts(frame, name)] for name in ("title", "body"))
        posts = [Post("", title, body) for title, body in zip(*columns, strict=True)]
        words = [post.text if says(post.title) or says(post.body) else None for post in posts]
        return [None if text is None else example(row, text) for row, text in enumerate(words)]

    def scrubbed(self, text: str) -> str:
        """Return a text without personal data."""
        return scrub(text, kinds=self._kinds)[0]


def example(row: int, words: str, picture: bytes | None = None) -> Example:
    """Return the example of an input row."""
    return Example((str(row), 0), TEST, words, picture, None, "")


def texts(frame: pd.DataFrame, column: str) -> list[str | None]:
    """Return the strings of an input column, with ``None`` for an empty cell or a missing column."""
    values = cells(frame, column)
    for row, cell in enumerate(values):
        if cell is not None and not isinstance(cell, str):
            raise Malformed(f"'{column}' of row {row} is not a string")
    return values


def cells(frame: pd.DataFrame, column: str) -> list[Any]:
    """Return the values of an input column, with ``None`` for missing values or a missing column."""
    if column not in frame.columns:
        return [None] * len(frame)
    return [None if missing else cell for cell, missing in zip(frame[column], frame[column].isna(), strict=True)]


def says(text: str) -> bool:
    """Return whether a scrubbed text contains a letter or digit besides its placeholders."""
    return any(sign.isalnum() for sign in PLACEHOLDER.sub("", text))
