"""Propose from a file what its columns are: what names the posts, what has labels, and which questions these answer.

Read are the names of the columns, and the different values of those with labels; nothing of the files is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from pipelines.annotate.imports.cells import FALSE, TRUE, fullname_of, list_of, normal, text_of
from pipelines.annotate.imports.published_files import File
from pipelines.core.errors import DataError
from pipelines.core.taxonomy import Scheme
from pipelines.workspace.declare import Question

# Names under which files usually have them, the likeliest first; ours.
IDS = ("reddit", "fullname", "redditid", "postid", "submissionid", "id", "name", "post", "permalink", "url", "link")
LABELS = ("labels", "label", "class", "category")
# Ours: more different values, or in more than half of the rows, or longer ones, are no labels; a few may be.
MOST_LABELS, FEW, LONGEST = 100, 10, 60
SEPARATORS = ("|", ";", ",")


def id_column(file: File, *, given: str | None) -> str | None:
    """Return the column with Reddit's ids, fullnames or addresses: the given one, or what most rows of one are."""
    if given is not None:
        return _known(file, given)
    named = [name for name in IDS if name in file.columns]
    return next((name for name in [*named, *sorted(file.columns)] if _names_posts(file, name)), None)


def _names_posts(file: File, column: str) -> bool:
    cells = file.column(column)
    named = {fullname_of(cell) for cell in cells} - {None}
    # a bare id looks like a short word: words repeat
    return len(named) > 0.9 * len(cells)


def label_columns(file: File, *, given: Sequence[str], without: str) -> list[str]:
    """Return the columns with labels: the given ones, one that is named so, or else all that could be."""
    if given:
        return [_known(file, name) for name in given]
    named = [name for name in LABELS if name in file.columns]
    possible = [name for name in sorted(file.columns - {without}) if 1 < len(_values(file, name)) <= file.size / 2]
    likely = [name for name in possible if max(map(len, _values(file, name))) <= LONGEST]
    return named[:1] or likely


def certain(file: File, columns: Sequence[str]) -> bool:
    """Return whether nothing but these columns can have the labels: a single one, or one of 0 and 1 for each label."""
    return len(columns) == 1 or _are_flags(file, columns)


def _are_flags(file: File, columns: Sequence[str]) -> bool:
    return len(columns) > 1 and all({v.lower() for v in _values(file, name)} <= TRUE | FALSE for name in columns)


def questions(file: File, columns: Sequence[str], *, defined: Mapping[str, str]) -> dict[str, Question]:
    """Return the questions whose answers the columns have; ``defined`` are definitions of labels."""
    if _are_flags(file, columns):
        labels = {name: defined.get(name, "") for name in columns}
        return {"labels": Question(labels, several=True, flags={name: name for name in columns})}
    found = {name: _question(file, name, defined=defined) for name in columns}
    return {"labels": found[columns[0]]} if len(columns) == 1 else found


def _question(file: File, column: str, *, defined: Mapping[str, str]) -> Question:
    cells = file.column(column)
    lists = [list_of(cell) for cell in cells]
    separator = next((mark for mark in SEPARATORS if _joins(_values(file, column), mark)), None)
    cut = (text_of(cell).split(separator) if separator else [text_of(cell)] for cell in cells)
    parts = Counter(map(str.strip, chain.from_iterable(filter(None, lists)) if any(lists) else chain(*cut)))
    # of several spellings the commonest
    spelt = sorted(parts, key=lambda part: (parts[part], part))
    labels = {normal(name): name for name in [*spelt, *reversed(list(defined))] if normal(name)}
    most = min(MOST_LABELS, max(FEW, file.size // 2))
    if len(labels) > most or not labels or max(map(len, labels.values())) > LONGEST:
        detail = f"column {column} has {len(labels)} different values, or long ones: these are no labels"
        raise _refused(file, detail)
    names = [name for name in [*defined, *sorted(labels.values())] if labels.pop(normal(name), None) is not None]
    several = separator is not None or any(part is not None for part in lists)
    return Question({name: defined.get(name, "") for name in names}, several, column, separator or "|")


def _joins(values: set[str], mark: str) -> bool:
    """Return whether values are labels joined by a mark; a comma may be part of one, unless its parts are values."""
    joined = {value for value in values if mark in value}
    parts = {part.strip() for value in joined for part in value.split(mark)}
    return bool(joined) and (mark != "," or len(parts | values - joined) < len(values))


def of_scheme(file: File, columns: Sequence[str], *, scheme: Scheme) -> dict[str, Question]:
    """Return the questions of a scheme with the column that has the answers to each."""
    made = {}
    for key, category in scheme.categories.items():
        labels = {label.name: label.definition for label in category.labels}
        flags = {label: normal(label) for label in labels if normal(label) in file.columns}
        own = [name for name in file.columns if name in (normal(key), normal(category.title))]
        [column, *_] = [*own, *(columns if len(scheme.categories) == 1 else ()), ""]
        several = category.kind == "multi"
        separator = next((mark for mark in SEPARATORS if column and _joins(_values(file, column), mark)), "|")
        if not column and len(flags) < len(labels):
            raise _refused(file, f"category {key} has no column of its name, nor one for each of its labels")
        made[key] = Question(labels, several, column, separator, {} if column else flags)
    return made


def _values(file: File, column: str) -> set[str]:
    return {text_of(cell).strip() for cell in file.column(column)} - {""}


def _known(file: File, name: str) -> str:
    if normal(name) not in file.columns:
        raise _refused(file, f"it has no column {name}, but {', '.join(sorted(file.columns))}")
    return normal(name)


def _refused(file: File, detail: str) -> DataError:
    return DataError("BadLabels", file=file.name, detail=detail)
