"""``corpus predict``: lines of JSON in, a line of JSON out for each, by the model that consumers load.

A line is ``{"title": ..., "body": ...}`` or ``{"image": <path>, "text": ...}``; ``body``, ``text`` may be missing, an
``id`` comes back with the answer, other keys are of no account. Nothing of a line is ever quoted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Protocol

from pipelines.errors import DataError, RegistryError
from pipelines.registry.versions import CHAMPION

MODELS = "models:/"
# Ours: inputs of one request, so that pictures are not all in memory together.
TOGETHER = 64
COLUMNS = {"title": "body", "image": "text"}

Json = dict[str, Any]


class BadLine(DataError):
    """A line of the input says nothing that a model could be asked."""

    message = "Line {line}: {detail}."
    remedy = (
        'A line is {{"title": "...", "body": "..."}} for posts, {{"image": "a/path.png", "text": "..."}} for memes.'
    )
    exit_code = 65


class NoAnswer(RegistryError):
    """A model fails at what it is asked."""

    message = "'{reference}' fails at lines {first} to {last} ({detail})."
    remedy = "Check that the lines are of what this model is about: posts or memes, all of one kind."
    exit_code = 65


class Asked(Protocol):
    """What is loaded: a version by the registry's client, or any model of MLflow."""

    def predict(self, asked: Any) -> Any:
        """Return a table of ``labels``, ``probabilities`` and ``abstain``."""


@dataclass
class Told:
    """What was done: inputs that were asked about, and those of them that were not answered."""

    asked: int = 0
    abstained: int = 0


def run(reference: str, *, lines: Iterable[str], out: IO[str], folder: Path = Path()) -> Told:
    """Load a model, ask it about every line, and write a line ``labels, probabilities, abstain`` for each, in order.

    Args:
        reference: a registered name (its champion), ``<name>@<alias>``, ``<name>/<version>``, the same with
            ``models:/`` before it; or a folder that MLflow can load, which nobody vouches for.
        lines: of a file, or of standard input.
        out: where the answers go, a request's at a time.
        folder: what paths of pictures are relative to.

    Raises:
        CorpusError: see :func:`pipelines.registry.client.load`.
        BadLine: naming the line; what stood before its request is answered.
        NoAnswer: the model fails.
    """
    model, told, kind = load(reference), Told(), None
    for batch in _batches(lines):
        rows = []
        for number, line in batch:
            kind, row = _row(line, number=number, kind=kind, folder=folder)
            rows.append(row)
        where = {"reference": reference, "first": batch[0][0], "last": batch[-1][0]}
        for row, answer in zip(rows, _answers(model, rows=rows, where=where), strict=True):
            told.asked += 1
            told.abstained += answer["abstain"]
            named = {"id": row["id"]} if "id" in row else {}
            out.write(json.dumps(named | answer) + "\n")
        out.flush()
    return told


def load(reference: str) -> Asked:
    """Return the model that a reference means; see :func:`run`."""
    from pipelines.registry import client

    if Path(reference).is_dir():
        from mlflow import pyfunc

        with client.unpickled():
            # comparing all that is installed with its requirements takes longer than loading it
            model: Asked = pyfunc.load_model(reference, suppress_warnings=True)
        return model
    name = reference.removeprefix(MODELS)
    found: Asked = client.load(name if "@" in name or "/" in name else f"{name}@{CHAMPION}")
    return found


def _batches(lines: Iterable[str]) -> Iterator[list[tuple[int, str]]]:
    """Yield some lines with their numbers, from 1, at a time; blank ones are none."""
    waiting = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    while batch := list(islice(waiting, TOGETHER)):
        yield batch


def _row(line: str, *, number: int, kind: str | None, folder: Path) -> tuple[str, Json]:
    """Return the column by which a line is known, that of the lines before it, and what is asked."""
    try:
        found = json.loads(line)
    except ValueError:
        raise BadLine(line=number, detail="it is no JSON") from None
    if not isinstance(found, dict):
        raise BadLine(line=number, detail="it is no object")
    first = next((column for column in COLUMNS if column in found), None)
    if first is None:
        raise BadLine(line=number, detail="it has neither a title nor an image")
    if kind not in (None, first):
        raise BadLine(line=number, detail=f"it has {first} where the lines before have {kind}")
    for column in (first, COLUMNS[first]):
        if not isinstance(found.get(column, ""), str | None):
            raise BadLine(line=number, detail=f"its {column} is no string")
    row = {key: found[key] for key in ("id", first) if key in found} | {COLUMNS[first]: found.get(COLUMNS[first])}
    if first == "image":
        row["image"] = _read(found["image"], number=number, folder=folder)
    return first, row


def _read(path: str | None, *, number: int, folder: Path) -> bytes | None:
    try:
        return None if path is None else (folder / path).read_bytes()
    except (OSError, ValueError):
        raise BadLine(line=number, detail="its picture cannot be read") from None


def _answers(model: Asked, *, rows: list[Json], where: Json) -> list[Json]:
    import pandas as pd

    columns = [column for column in rows[0] if column != "id"]
    # strings of a column without any would be numbers to pandas
    asked = pd.DataFrame({column: pd.Series([row[column] for row in rows], dtype=object) for column in columns})
    try:
        answer = model.predict(asked)
        found = zip(*(answer[column].tolist() for column in ("labels", "probabilities", "abstain")), strict=True)
        return [
            {"labels": list(labels), "probabilities": [float(p) for p in scores], "abstain": bool(abstain)}
            for labels, scores, abstain in found
        ]
    except Exception as error:
        # MLflow's own messages, and a model's, may quote what was asked
        raise NoAnswer(**where, detail=type(error).__name__) from None
