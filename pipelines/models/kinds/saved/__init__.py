"""Predictions from outside this project, read strictly from a CSV, JSONL or Parquet file of record ids and labels.

Columns: ``record_id``; ``labels`` (a list, or in a CSV names joined by ``|`` or a JSON list); optionally ``image`` (the
number of the image; 0), ``outcome`` (``vote``, ``refused``, ``malformed``, ``failed``, ``abstained``) and ``scores``
(probabilities in the scheme's order of labels, in the same notation as ``labels``). A blank cell of labels means no
answer, never the empty set, unless ``outcome`` is ``vote``: a refusal must not become "none of these labels".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pipelines.annotate.imports.cells import first, list_of
from pipelines.annotate.imports.published_files import FileRow as Line
from pipelines.annotate.imports.published_files import UnreadableFile, read_files
from pipelines.core.errors import DataError
from pipelines.core.taxonomy import tiers_of
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import Item
from pipelines.llm.outcome import Outcome
from pipelines.models.kind import Answers, Desk, Kind
from pipelines.models.label_map import LabelMap
from pipelines.models.prediction import Prediction

JOIN = "|"
OUTCOMES = frozenset(str(outcome) for outcome in Outcome)


def read(
    path: str,
    *,
    folder: Path,
    task: Task,
    asked: Collection[Item],
    known: Collection[Item],
    mapped: LabelMap | None = None,
) -> tuple[dict[Item, Prediction], dict[str, Any]]:
    """Read a file of external predictions: a CSV, JSONL or Parquet file of record ids and labels.

    Args:
        folder: the folder of such files, ``Settings.annotation_files``.

    Returns:
        The predictions of the items to score, and metrics: ``digest`` of the file, rows of ``unknown`` items
        and of those that are not scored (``elsewhere``: train, examples of the prompt), ``repaired`` answers by the
        scheme's rule, and ``malformed`` ones, which have an unknown label or a set that no rule repairs.
    """
    place = (folder / path).resolve()
    bad = partial(DataError, "BadSaved", file=place.name)
    if not place.is_relative_to(folder.resolve()):
        raise bad(where="", detail="it is not below CORPUS_ANNOTATION_FILES")
    if not place.is_file():
        raise bad(where="", detail="there is no such file")
    try:
        file, *others = read_files([place])
    except UnreadableFile as error:
        raise bad(where=error.fields["where"], detail=error.fields["detail"]) from None
    if others:
        raise bad(where="", detail="it is an archive of several tables")
    if missing := sorted({"record_id", "labels"} - {"record_id" if c == "recordid" else c for c in file.columns}):
        raise bad(where="", detail=f"there is no column {', '.join(missing)}")
    said: dict[Item, Prediction] = {}
    mended: Counter[str] = Counter()
    for row in file.rows():
        try:
            item, prediction, repairs = _answer(row, task=task, mapped=mapped)
            if item in said:
                raise _Fault("its record_id is on an earlier line too")
        except _Fault as fault:
            raise bad(where=f" line {row.line}", detail=fault) from None
        said[item] = prediction
        mended.update(repairs if item in asked else ())
    if mapped is not None:
        said = dict(zip(said, mapped.translated(list(said.values())), strict=True))
    wanted = {item: prediction for item, prediction in said.items() if item in asked}
    unknown = sum(item not in known for item in said)
    return wanted, {
        "digest": file.digest,
        "unknown": unknown,
        "elsewhere": len(said) - unknown - len(wanted),
        "repaired": dict(sorted(mended.items())),
        "malformed": sum(prediction.outcome == Outcome.MALFORMED for prediction in wanted.values()),
    }


class _Fault(Exception):
    """Describes what is wrong with a line without quoting it."""


def _answer(row: Line, *, task: Task, mapped: LabelMap | None) -> tuple[Item, Prediction, tuple[str, ...]]:
    if row.fault:
        raise _Fault("it has more or fewer fields than the header" if row.fault == "fields" else "not a JSON object")
    record_id = first(row.cells, ("record_id",))
    if not isinstance(record_id, str):
        raise _Fault("it has no record_id")
    image = first(row.cells, ("image",))
    if not str(image or 0).isdecimal():
        raise _Fault("its image is not a number")
    item = (record_id, int(str(image or 0)))
    outcome = first(row.cells, ("outcome",))
    if outcome is not None and outcome not in OUTCOMES:
        raise _Fault(f"its outcome is not one of {', '.join(sorted(OUTCOMES))}")
    labels = _strings(row.cells.get("labels"))
    scores = _scores(row.cells.get("scores"), count=len(mapped.labels if mapped else task.labels))
    outcome_read = str(outcome or (Outcome.ABSTAINED if labels is None else Outcome.VOTE))
    if outcome_read != Outcome.VOTE:
        return item, Prediction(outcome_read, frozenset(), scores), ()
    if mapped is not None:
        if not {*(labels or ())} <= mapped.labels.keys():
            raise _Fault("it has a label that is not in the map of labels")
        return item, Prediction(outcome_read, frozenset(labels or ()), scores), ()
    checked = task.category.check(labels or (), mode="repair", tiers=tiers_of("paper"))
    if checked.violations:
        return item, Prediction(str(Outcome.MALFORMED), frozenset(), scores), ()
    return item, Prediction(outcome_read, checked.labels, scores), checked.repairs


def _strings(cell: object) -> list[str] | None:
    """Return the strings of a cell, ``None`` if it is blank."""
    if cell is None or cell == "":
        return None
    strings = list_of(cell)
    if strings is not None:
        return strings
    if isinstance(cell, str) and not cell.lstrip().startswith("["):
        return [part.strip() for part in cell.split(JOIN)]
    raise _Fault("its labels are not a list of strings")


def _scores(cell: object, *, count: int) -> tuple[float, ...]:
    if cell is None or cell in ("", []):
        return ()
    values = cell if isinstance(cell, list) else str(cell).strip().strip("[]").replace(JOIN, ",").split(",")
    try:
        scores = tuple(float(value) for value in values if not isinstance(value, bool))
    except (TypeError, ValueError):
        scores = ()
    if len(scores) != count or not all(math.isfinite(p) and 0 <= p <= 1 for p in scores):
        raise _Fault(f"its scores are not {count} probabilities")
    return scores


class Saved(Kind):
    """Use predictions from outside this project, in a file at ``path`` below ``CORPUS_ANNOTATION_FILES``.

    ``labels`` has, of a model of another corpus or scheme, each of its labels with ours, or with null: transfer. The
    file's probabilities are then in their order.
    """

    note: ClassVar[str | None] = "predicted elsewhere by a model whose data are unknown and may include items of test"

    path: str
    labels: dict[str, str | None] | None = None

    def answer(self, desk: Desk) -> Answers:
        said, more = read(
            self.path,
            folder=desk.settings.annotation_files,
            task=desk.task,
            mapped=LabelMap(self.labels, desk.task, desk.model) if self.labels else None,
            asked={example.item for example in desk.material.asked},
            known=desk.material.placed.keys(),
        )
        return Answers({0: said}, None, more=more)
