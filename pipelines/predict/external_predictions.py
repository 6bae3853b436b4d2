"""Predictions that came from elsewhere: a CSV, JSONL or Parquet file of record ids and labels, read strictly.

Columns: ``record_id``; ``labels`` (a list, or in a CSV names joined by ``|`` or a JSON list); optionally ``outcome``
(``vote``, ``refused``, ``malformed``, ``failed``, ``abstained``) and ``scores`` (probabilities in the scheme's order
of labels, written as ``labels`` are). A blank cell of labels is no answer, never the empty set, unless ``outcome`` says
that it is a vote: a refusal must not become "nothing of this".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.annotate.imports.files import FORMATS, UnreadableFile, first, list_of, read_file
from pipelines.annotate.imports.files import Row as Line
from pipelines.errors import DataError
from pipelines.llm.outcome import Outcome
from pipelines.taxonomy import tiers_of
from pipelines.taxonomy.task import Task
from pipelines.train.finetuned import Said

JOIN = "|"
OUTCOMES = frozenset(str(outcome) for outcome in Outcome)


class BadSaved(DataError):
    """A file of predictions cannot be taken as it is: guessing what was meant would score something else."""

    message = "Predictions {file}{where}: {detail}."
    remedy = (
        "Nothing was written. The file lies below CORPUS_ANNOTATION_FILES and has the columns record_id and labels "
        "(joined by | in a CSV) and, if there are any, outcome and scores (in the scheme's order of labels)."
    )
    exit_code = 65


@dataclass(frozen=True)
class Saved:
    """What a file says.

    Args:
        said: by record id, of the records that are asked about.
        digest: SHA-256 of the file.
        unknown: rows of records that the corpus's split does not have.
        elsewhere: rows of records that it has, and that are not asked about (train, examples of the prompt).
        repaired: answers whose set the scheme's rules mended, by rule.
        malformed: answers with a label that the scheme does not know, or a set that no rule mends.
    """

    said: Mapping[str, Said]
    digest: str
    unknown: int
    elsewhere: int
    repaired: Mapping[str, int]
    malformed: int


def read(path: str, *, folder: Path, task: Task, asked: Collection[str], known: Collection[str]) -> Saved:
    """Read a file of predictions.

    Args:
        path: below ``folder``.
        folder: ``Settings.annotation_files``.
        task: whose labels; a set is mended by SPEC 23 (a) to (c), as votes in ``paper`` mode are.
        asked: ids of the records that answers are wanted for.
        known: ids of all records of the split.

    Raises:
        BadSaved: it is not there, or of another form; a record stands in it twice; scores are no probabilities.
    """
    place = (folder / path).resolve()
    name = place.name
    if not place.is_relative_to(folder.resolve()):
        raise BadSaved(file=name, where="", detail="it lies outside of CORPUS_ANNOTATION_FILES")
    if not place.is_file():
        raise BadSaved(file=name, where="", detail="there is no such file")
    if place.suffix.lower() not in FORMATS:
        raise BadSaved(file=name, where="", detail=f"it is none of {', '.join(FORMATS)}")
    try:
        file = read_file(place, usual="csv")
    except UnreadableFile as error:
        raise BadSaved(file=name, where=error.fields["where"], detail="it cannot be read") from None
    if missing := sorted({"record_id", "labels"} - {"record_id" if c == "recordid" else c for c in file.columns}):
        raise BadSaved(file=name, where="", detail=f"there is no column {', '.join(missing)}")
    said: dict[str, Said] = {}
    mended: Counter[str] = Counter()
    for record_id, one, repairs in _answers(file.rows, name=name, task=task):
        said[record_id] = one
        mended.update(repairs if record_id in asked else ())
    wanted = {record_id: one for record_id, one in said.items() if record_id in asked}
    unknown = sum(record_id not in known for record_id in said)
    return Saved(
        said=wanted,
        digest=file.digest,
        unknown=unknown,
        elsewhere=len(said) - unknown - len(wanted),
        repaired=dict(sorted(mended.items())),
        malformed=sum(one.outcome == Outcome.MALFORMED for one in wanted.values()),
    )


def _answers(rows: Collection[Line], *, name: str, task: Task) -> Iterator[tuple[str, Said, tuple[str, ...]]]:
    """Yield record, answer and repairs of each line."""
    seen: set[str] = set()
    for row in rows:
        try:
            record_id, one, repairs = _answer(row, task=task)
        except _Fault as fault:
            raise BadSaved(file=name, where=f" line {row.line}", detail=fault) from None
        if record_id in seen:
            raise BadSaved(file=name, where=f" line {row.line}", detail="its record stands there twice")
        seen.add(record_id)
        yield record_id, one, repairs


class _Fault(Exception):
    """What is wrong with one line, in words that quote nothing of it."""


def _answer(row: Line, *, task: Task) -> tuple[str, Said, tuple[str, ...]]:
    if row.fault:
        raise _Fault("it has more or fewer fields than the header" if row.fault == "fields" else "it is no JSON object")
    record_id = first(row.cells, ("record_id",))
    if not isinstance(record_id, str):
        raise _Fault("it has no record_id")
    outcome = first(row.cells, ("outcome",))
    if outcome is not None and outcome not in OUTCOMES:
        raise _Fault(f"its outcome is none of {', '.join(sorted(OUTCOMES))}")
    labels = _strings(row.cells.get("labels"))
    scores = _scores(row.cells.get("scores"), task=task)
    found = str(outcome or (Outcome.ABSTAINED if labels is None else Outcome.VOTE))
    if found != Outcome.VOTE:
        return record_id, Said(found, frozenset(), scores), ()
    checked = task.category.check(labels or (), mode="repair", tiers=tiers_of("paper"))
    if checked.violations:
        return record_id, Said(str(Outcome.MALFORMED), frozenset(), scores), ()
    return record_id, Said(found, checked.labels, scores), checked.repairs


def _strings(cell: object) -> list[str] | None:
    """Return the strings of a cell, ``None`` where it is blank."""
    if cell is None or cell == "":
        return None
    found = list_of(cell)
    if found is not None:
        return found
    if isinstance(cell, str) and not cell.lstrip().startswith("["):
        return [part.strip() for part in cell.split(JOIN)]
    raise _Fault("its labels are no list of strings")


def _scores(cell: object, *, task: Task) -> tuple[float, ...]:
    if cell is None or cell in ("", []):
        return ()
    values = cell if isinstance(cell, list) else str(cell).strip().strip("[]").replace(JOIN, ",").split(",")
    try:
        found = tuple(float(value) for value in values if not isinstance(value, bool))
    except (TypeError, ValueError):
        found = ()
    if len(found) != len(task.labels) or not all(math.isfinite(p) and 0 <= p <= 1 for p in found):
        raise _Fault(f"its scores are not {len(task.labels)} probabilities")
    return found
