"""Serve ``predict`` of a registered model: check the input, run the model, abstain if there is no valid answer.

The modules ``model_*`` and the modules that they import are stored with every model version, so they may not import the
rest of ``pipelines``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc import PythonModel

from crisis_corpus.model_opening import opening
from pipelines.datasets.example import LabelSet
from pipelines.registry.packaging.described import Described
from pipelines.train.predictors.prediction import VOTE, Prediction

# An abstention: neither labels nor probabilities.
SILENT = Prediction("malformed", frozenset())
Asker = Callable[[pd.DataFrame], Sequence[Prediction]]
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


class Served(PythonModel):  # type: ignore[misc]
    """A registered model for MLflow; ``opened`` loads its package and returns the predict function."""

    def __init__(self, opened: Callable[[Path, Described], Asker]) -> None:
        self._opened = opened
        # a server calls from several threads; tokenizers and OCR engines are not thread-safe
        self._alone = Lock()

    def load_context(self, context: Any) -> None:
        """Load the model package named in MLflow's context; MLflow calls this method once before predictions."""
        pack = Path(context.artifacts["pack"])
        described = Described.read(pack)
        self._labels = described.labels
        with opening():
            self._ask = self._opened(pack, described)

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the answers: a table of ``labels``, ``probabilities``, ``abstain`` and ``alerts``, a row per input."""
        if not isinstance(model_input, pd.DataFrame):
            raise Malformed("it must be a table, such as dataframe_records")
        with self._alone:
            answers = self._ask(model_input)
        return pd.DataFrame(
            {
                "labels": [self._sorted(answer.labels) for answer in answers],
                "probabilities": [list(answer.scores) for answer in answers],
                "abstain": pd.Series([answer.outcome != VOTE for answer in answers], dtype=bool),
                "alerts": [self._sorted(answer.alerts) for answer in answers],
            }
        )

    def _sorted(self, labels: LabelSet) -> list[str]:
        """Return labels in the scheme's order."""
        return [label for label in self._labels if label in labels]


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
