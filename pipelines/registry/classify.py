"""Run ``corpus classify``: read inputs as lines of JSON, and write a registered model's predictions as lines.

An input line has the columns that the model reads: ``{"title": ..., "body": ...}`` or ``{"image": <path>, "text":
...}``. ``body`` and ``text`` are optional; an ``id`` is copied to the output line; other keys are ignored. Errors never
quote a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from crisis_corpus.versions import CHAMPION
from pipelines.core.errors import DataError, RegistryError
from pipelines.registry.packaging.inputs import REQUIRED

MODELS = "models:/"
# Ours: inputs per call of the model, so that not all pictures are in memory together.
TOGETHER = 64

Json = dict[str, Any]


def run(reference: str, *, lines: Iterable[str], out: IO[str], folder: Path = Path()) -> None:
    """Load a model and write one line for each input line: its ``labels, probabilities, abstain, alerts``.

    Args:
        reference: a registered name (its champion), ``<name>@<alias>``, ``<name>/<version>``, the same with
            ``models:/`` before it; or a folder that MLflow can load, which is not checked against the registry.
        out: receives the predictions, one line of JSON each, batch by batch.
        folder: base of the relative paths of pictures.
    """
    model, columns = load(reference)
    waiting = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    while batch := list(islice(waiting, TOGETHER)):
        rows = [_row(line, number=number, columns=columns, folder=folder) for number, line in batch]
        where = {"reference": reference, "first": batch[0][0], "last": batch[-1][0]}
        for row, answer in zip(rows, _answers(model, rows=rows, where=where), strict=True):
            named = {"id": row["id"]} if "id" in row else {}
            out.write(json.dumps(named | answer) + "\n")
        out.flush()


def load(reference: str) -> tuple[Any, tuple[str, ...]]:
    """Return the model that a reference names (see :func:`run`), and the columns that it reads.

    Its ``predict`` returns a table with a row for each row: ``labels``, ``probabilities``, ``abstain`` and ``alerts``.
    """
    from crisis_corpus import client
    from pipelines.core.config.settings import Settings

    if Path(reference).is_dir():
        from mlflow import pyfunc

        with client.unpickled():
            # comparing all installed packages with the requirements takes longer than loading the model
            model = pyfunc.load_model(reference, suppress_warnings=True)
        schema = model.metadata.get_input_schema()
        return model, tuple(schema.input_names()) if schema else ()
    name = reference.removeprefix(MODELS)
    settings = Settings.from_env()
    loaded = client.load(
        name if "@" in name or "/" in name else f"{name}@{CHAMPION}",
        tracking_uri=settings.mlflow_tracking_uri,
        journal_url=settings.journal_url,
        cache=settings.home / "models",
    )
    return loaded, loaded.inputs


def _row(line: str, *, number: int, columns: Sequence[str], folder: Path) -> Json:
    """Return the ``id`` of a line, if it has one, and its row for a model that reads ``columns``."""
    try:
        cells = json.loads(line)
    except ValueError:
        raise DataError("BadLine", line=number, detail="it is not JSON") from None
    if not isinstance(cells, dict):
        raise DataError("BadLine", line=number, detail="it is not a JSON object")
    for column in columns:
        if column in REQUIRED and column not in cells:
            raise DataError("BadLine", line=number, detail=f"it has no {column}, which the model reads")
        if not isinstance(cells.get(column, ""), str | None):
            raise DataError("BadLine", line=number, detail=f"its {column} is not a string")
    row = {key: cells.get(key) for key in ("id", *columns) if key in columns or key in cells}
    if "image" in row:
        row["image"] = _read(row["image"], number=number, folder=folder)
    return row


def _read(path: str | None, *, number: int, folder: Path) -> bytes | None:
    try:
        return None if path is None else (folder / path).read_bytes()
    except (OSError, ValueError):
        raise DataError("BadLine", line=number, detail="its picture cannot be read") from None


def _answers(model: Any, *, rows: list[Json], where: Json) -> list[Json]:
    import pandas as pd

    columns = [column for column in rows[0] if column != "id"]
    # with dtype object, because pandas would turn a column of missing strings into numbers
    asked = pd.DataFrame({column: pd.Series([row[column] for row in rows], dtype=object) for column in columns})
    try:
        answer = model.predict(asked)
        alerts = answer["alerts"].tolist() if "alerts" in answer.columns else [[]] * len(rows)
        columns_read = zip(
            *(answer[column].tolist() for column in ("labels", "probabilities", "abstain")), alerts, strict=True
        )
        return [
            {
                "labels": list(labels),
                "probabilities": [float(p) for p in scores],
                "abstain": bool(abstain),
                "alerts": list(raised),
            }
            for labels, scores, abstain, raised in columns_read
        ]
    except Exception as error:
        # messages of MLflow and of models may quote the input
        raise RegistryError("NoAnswer", **where, detail=type(error).__name__) from None
