"""Propose from a file what its columns are: what names the posts, what has labels, and which questions these answer.

Read are the names of the columns, and the different values of those with labels; nothing of the files is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain, product
from pathlib import Path
from typing import Any

from pipelines.annotate.imports.cells import FALSE, TRUE, first, fullname_of, list_of, normal, text_of
from pipelines.annotate.imports.grid import Layout
from pipelines.annotate.imports.published_files import File, read_files
from pipelines.core.errors import DataError
from pipelines.core.taxonomy import Scheme
from pipelines.workspace.declare import Question, commented

# Names under which files usually have them, the likeliest first; ours.
IDS = ("reddit", "fullname", "redditid", "postid", "submissionid", "id", "name", "post", "permalink", "url", "link")
LABELS = ("labels", "label", "class", "category")
# Ours: more different values, or in more than half of the rows, or longer ones, are no labels; a few may be.
MOST_LABELS, FEW, LONGEST = 100, 10, 60
SEPARATORS = ("|", ";", ",", "/", "+")
# Names of other columns, as normalised, the likeliest first; ours.
ROLES = {
    "own": ("id", "key"),
    "picture": ("filename", "image", "img", "picture", "imagepath", "imagename", "file"),
    "title": ("title", "posttitle"),
    "body": ("selftext", "body", "text", "post", "posttext", "content", "caption", "ocrtext"),
    "author": ("author", "username"),
    "own_author": ("user", "userid", "person", "participant"),
    "subreddit": ("subreddit", "community"),
    "created": ("createdutc", "created", "socialtimestamp", "timestamp", "date"),
}
# Words that publishers write into an empty cell.
PLACEHOLDERS = {"emptypost", "nan", "none", "null", "n/a", "na", "empty"}
SPLITS = {"train": ("train",), "dev": ("dev", "val"), "test": ("test",)}
SPLIT_COLUMNS = ("split", "datasplit", "partition", "subset", "fold", "set")
COLUMN = "EDIT: a column of the file"
EDIT = "EDIT: a label of the scheme"


def id_column(file: File, *, given: str | None) -> str | None:
    """Return the column with Reddit's ids, fullnames or addresses: the given one, or what most rows of one are."""
    if not file.size:
        raise _refused(file, "it has no rows below the names of its columns")
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


def questions(
    file: File, columns: Sequence[str], *, defined: Mapping[str, str], several: bool = False
) -> dict[str, Question]:
    """Return the questions whose answers the columns have; ``defined`` are definitions of labels."""
    if _are_flags(file, columns):
        labels = {name: defined.get(name, "") for name in columns}
        return {"labels": Question(labels, several=True, flags={name: name for name in columns})}
    found = {name: _question(file, name, defined=defined, several=several) for name in columns}
    return {"labels": found[columns[0]]} if len(columns) == 1 else found


def _question(file: File, column: str, *, defined: Mapping[str, str], several: bool) -> Question:
    cells = file.column(column)
    lists = [list_of(cell) for cell in cells]
    separator = next((mark for mark in SEPARATORS if _joins(_values(file, column), mark)), None)
    cut = (text_of(cell).split(separator) if separator else [text_of(cell)] for cell in cells)
    parts = Counter(map(str.strip, chain.from_iterable(filter(None, lists)) if any(lists) else chain(*cut)))
    # of several spellings the commonest
    spelt = sorted(parts, key=lambda part: (parts[part], part))
    for name in defined:
        near = get_close_matches(name, spelt, n=1)
        if near and normal(name) not in map(normal, spelt):
            raise _refused(file, f"no row has label {name}, which --label defines; nearest: {near[0]}")
    labels = {normal(name): name for name in [*spelt, *reversed(list(defined))] if normal(name)}
    most = min(MOST_LABELS, max(FEW, file.size // 2))
    if len(labels) > most or not labels or max(map(len, labels.values())) > LONGEST:
        detail = f"column {column} has {len(labels)} different values, or long ones: these are no labels"
        raise _refused(file, detail)
    names = [name for name in [*defined, *sorted(labels.values())] if labels.pop(normal(name), None) is not None]
    several = several or separator is not None or any(part is not None for part in lists)
    if len(names) < 2 and not several:
        raise _refused(file, f"all rows of column {column} have the same label, so that nothing can be learnt")
    return Question({name: defined.get(name, "") for name in names}, several, column, separator or "|")


def _joins(values: set[str], mark: str, known: Collection[str] = ()) -> bool:
    """Return whether values are labels joined by a mark: | or ;, or one whose parts are labels or other values."""
    joined = {value for value in values if mark in value}
    parts = {part.strip() for value in joined for part in value.split(mark)}
    return bool(joined) and (
        mark in "|;" or {*map(normal, parts)} <= {*known} or len(parts | values - joined) < len(values)
    )


def of_scheme(file: File, columns: Sequence[str], *, scheme: Scheme) -> dict[str, Question]:
    """Return the questions of a scheme with the column that has the answers to each."""
    made = {}
    for key, category in scheme.categories.items():
        labels = {label.name: label.definition for label in category.labels}
        flags = {label: normal(label) for label in labels if normal(label) in file.columns}
        own = [name for name in file.columns if name in (normal(key), normal(category.title))]
        [column, *_] = [*own, *(columns if len(scheme.categories) == 1 else ()), ""]
        several = category.kind == "multi"
        marks = (mark for mark in SEPARATORS if column and _joins(_values(file, column), mark, category.spellings))
        separator = next(marks, "|")
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


def mapping_text(paths: Sequence[Path], *, scheme: Scheme, content: str, month: str) -> str:
    """Return the text of a mapping of files, to be edited; content without a date is assigned to ``month``."""
    layout: dict[str, Any] = {}
    files = read_files(paths)
    if any(file.headerless for file in files):
        layout = {"header": [f"column {at}" for at, _ in enumerate(files[0].grid.header, start=1)]}
        files = read_files(paths, layout=Layout.model_validate(layout))
    file, labels = _labelled(files, scheme=scheme)
    ids = id_column(file, given=None)
    posts = next((each for each in files if each.columns & {*ROLES["body"]}), file)
    join = [] if posts.columns & {*file.columns} or posts is file else _join(file, posts)
    known = (file.columns | posts.columns if join else file.columns) - {ids, *join[1:]}
    roles = {role: next((n for n in names if n in known), None) for role, names in ROLES.items()}
    roles |= {"picture": roles["picture"] if content == "images" else None}
    roles["own"] = roles["own"] or _key(file) or roles["own_author"]
    if roles["own"] == roles["own_author"] and not _is_key(file, str(roles["own"])):
        # a person has several rows: each is named by its text, or else they would contradict each other
        roles["own"] = None
    columns: dict[str, Any] = ({"reddit": [ids]} if ids else {}) | {role: [n] for role, n in roles.items() if n}
    if not (ids or roles["own"] or roles["picture"]):
        columns |= {"text": True} if roles["body"] else {"own": [COLUMN]}
    if content == "images" and not roles["picture"]:
        columns.pop("body", None)
    texts = (posts.column(name) for name in (roles["body"], roles["title"]) if name in posts.columns)
    seen = {text_of(cell).strip().casefold() for cells in texts for cell in cells}
    return commented(
        {
            "dataset": normal(scheme.name)[:20] + "_import",
            "title": "EDIT: what the dataset is",
            "source": "EDIT: who published it, and where",
            "rights": "EDIT: the terms on which it may be used",
            "scheme": scheme.name,
            "level": "item",
            **layout,
            "columns": columns,
            **({"empty": empty} if (empty := sorted(seen & PLACEHOLDERS)) else {}),
            **({"parts": parts} if (parts := _parts(files)) else {}),
            **({"join": join} if join else {}),
            "labels": labels,
            **({"conflict": "majority"} if any("annotators" in entry for entry in labels.values()) else {}),
            **({} if "created" in columns else {"month": month}),
        }
    )


def _labelled(files: Sequence[File], *, scheme: Scheme) -> tuple[File, dict[str, Any]]:
    """Return the file with the labels, and the entry of each category."""
    made = []
    for file in files:
        likely = label_columns(file, given=(), without=str(id_column(file, given=None)))
        made.append((file, {key: _labels(file, key, scheme=scheme, likely=likely) for key in scheme.categories}))
    return min(made, key=lambda pair: str(pair[1]).count(COLUMN))


def _is_key(file: File, name: str) -> bool:
    """Return whether each row has a short value of its own in a column."""
    values = _values(file, name) if name in file.columns else set[str]()
    return len(values) == len(file.grid.numbers) > 0 and max(map(len, values)) <= LONGEST


def _key(file: File) -> str | None:
    return next((n for n in sorted(file.columns) if n.endswith(("id", "key", "no")) and _is_key(file, n)), None)


def _join(file: File, posts: File) -> list[str]:
    """Return the columns of two files that have most values in common, of those with a value for each row."""
    keys = [[name for name in sorted(each.columns) if _is_key(each, name)] for each in (file, posts)]
    shared = {pair: len(_values(file, pair[0]) & _values(posts, pair[1])) for pair in product(*keys)}
    pair = max(shared, key=lambda pair: shared[pair], default=None)
    return [*dict.fromkeys(pair)] if pair and shared[pair] else []


def _flag_columns(file: File, labels: Sequence[str]) -> dict[str, list[str]]:
    """Return the column of 0 and 1 of each label, named as it is or with words before; none if one has none."""
    ending = {name: [n for n in sorted(file.columns, key=len) if n.endswith(normal(name))][:1] for name in labels}
    columns = [name for found in ending.values() for name in found]
    exact = all(found == [normal(name)] for name, found in ending.items())
    whole = len({*columns}) == len(labels)
    return ending if whole and (exact or _are_flags(file, columns)) else {}


def _labels(file: File, key: str, *, scheme: Scheme, likely: Sequence[str]) -> dict[str, Any]:
    """Return the entry of a category: its flags, the column with most of its labels, or values to be edited."""
    category = scheme.category(key)
    if flags := _flag_columns(file, [label.name for label in category.labels]):
        return {"flags": flags}
    known = category.spellings.keys()
    shares = {name: _share(_parts_of(file, name, known), known) for name in sorted(file.columns)}
    column = max(shares, key=lambda name: (shares[name], name == normal(key), name in likely), default="")
    if not shares.get(column):
        column = next((name for name in (normal(key), *likely) if name in file.columns), COLUMN)
    found = _parts_of(file, column, known) if column in file.columns else set[str]()
    joined = _values(file, column) if found and not any(map(list_of, file.column(column))) else set[str]()
    separator = next((mark for mark in SEPARATORS if _joins(joined, mark, known)), None)
    others = frozenset[str]().union(*(c.spellings.keys() for c in scheme.categories.values()))
    strange = sorted(value for value in found if normal(value) not in others)
    more: dict[str, Any] = {"separator": separator} if separator else {}
    if column in file.columns and not all(text_of(cell).strip() for cell in file.column(column)):
        nothing = category.check([], mode="repair", tiers={"base"}, task=False)
        more["blank"] = "unlabelled" if nothing.violations else "none"
    stem = column.rstrip("0123456789")
    mates = [name for name in shares if re.fullmatch(rf"{stem}\d+", name) and shares[name] == shares[column]]
    more |= {"annotators": True} if len(mates) > 1 else {}
    columns = mates if len(mates) > 1 else [column]
    return {"columns": columns, **more, **({"values": dict.fromkeys(strange, EDIT)} if strange else {})}


def _parts_of(file: File, column: str, known: Collection[str]) -> set[str]:
    """Return the different labels in a column, of lists too; none if there are too many or too long ones."""
    cells = [first({column: cell}, (column,)) for cell in file.column(column)]
    lists = [list_of(cell) for cell in cells]
    found = set(chain.from_iterable(filter(None, lists))) if any(lists) else _values(file, column)
    mark = next((mark for mark in SEPARATORS if not any(lists) and _joins(found, mark, known)), None)
    parts = {part.strip() for value in found for part in (value.split(mark) if mark else [value])} - {""}
    return parts if len(parts) <= MOST_LABELS and max(map(len, parts), default=0) <= LONGEST else set()


def _share(values: set[str], known: Mapping[str, str] | Any) -> float:
    return sum(normal(value) in known for value in values) / len(values) if values else 0.0


def _parts(files: Sequence[File]) -> dict[str, Any]:
    """Return the splits that a column or the names of the files state."""
    for column in (name for name in SPLIT_COLUMNS if name in files[0].columns):
        values = _values(files[0], column)
        by = {split: sorted(v for v in values if v.lower().startswith(words)) for split, words in SPLITS.items()}
        if sum(map(len, by.values())) == len(values) > 0:
            return {s: {"split": s, "columns": [column], "values": found} for s, found in by.items() if found}
    named = {
        split: [f"*{word}*" for word in words if any(word in file.name.lower() for file in files)]
        for split, words in SPLITS.items()
    }
    return {split: {"split": split, "files": patterns} for split, patterns in named.items() if patterns}
