"""Convert the rows of a published dataset to one entry per item: the record's name, its labels and its text.

An invalid row is left out and counted by its reason: ``fields``, ``not_json``, ``formula``, ``not_joined``,
``joined_twice``, ``no_id``, ``image``, ``no_picture``, ``picture_outside`` (of the folder), ``created``, ``no_text``,
``not_a_list``, ``cut`` (in its first post), ``no_part``, ``two_splits``, ``conflict`` (the rows of an item differ), or
``<category>: <fault>`` for invalid labels. A row without an answer to be had is ``unlabelled``, which is no fault.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from pipelines.annotate.imports.cells import (
    Cells,
    Names,
    complete_posts,
    first,
    flag_of,
    fullname_of,
    list_of,
    moment_of,
    normal,
    plain_number,
    text_of,
)
from pipelines.annotate.imports.join import has
from pipelines.annotate.imports.mapping import EVERYTHING, DatasetMapping, Labels, Part
from pipelines.annotate.imports.published_files import File, FileRow
from pipelines.collect.month import Window
from pipelines.core.taxonomy import Category, Scheme
from pipelines.core.taxonomy.scheme import TIERS

# Repairs that do not change the meaning of an answer; other faults make the row invalid.
HARMLESS = {"alias", "duplicate"}
# A row whose cell for the label is blank, where the mapping says that such rows are to come.
UNLABELLED = "unlabelled"
ONE_PART = {EVERYTHING: Part(files=("*",))}
# Reddit's subreddit names. ``u_name`` is a user's profile page, which would reveal the user's name.
SUBREDDIT = re.compile(r"(?!u_)[A-Za-z0-9][A-Za-z0-9_]{1,20}", re.IGNORECASE)
# The name of a column that an error may show: no text, and no id, which has digits (ours).
NAME = re.compile(r"[^\W\d_]{1,12}")
# Title and body in one cell, as models read them (pipelines/datasets/post.py).
JOINED = re.compile(r"\s*+Title:(?P<title>.*?)\bText:(?P<body>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Text:
    """The content and metadata of one post, or of all posts of one person joined."""

    title: str
    body: str
    author: str | None
    subreddit: str
    created: datetime


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a dataset: the name of its file, and its bytes if they are in the table."""

    name: str
    cell: Any = field(default=None, compare=False, repr=False)

    @property
    def data(self) -> bytes | None:
        value = self.cell.as_py() if isinstance(self.cell, pa.Scalar) else self.cell
        return value.get("bytes") if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class ImportEntry:
    """One item of a dataset. ``name`` is the item's fullname if ``reddit`` is true, else the dataset's own name;
    ``digest`` is the SHA-256 of the file; ``text`` is ``None`` if the dataset has no content; ``cut`` is true if the
    end of the text was cut off and its complete posts are kept."""

    name: str
    reddit: bool
    image: int
    parts: frozenset[str]
    split: str | None
    answers: dict[str, frozenset[str]]
    text: Text | None
    digest: str
    cut: bool = False
    picture: Picture | None = None

    @property
    def said(self) -> tuple[object, ...]:
        """The values that must be the same in all rows of one item, its labels first."""
        return self.answers, self.split, self.text, self.picture


class BadRow(Exception):
    """A row of a dataset is invalid; it is always caught, and the row is skipped and counted by this reason."""

    def __init__(self, reason: str, *, unknown: int = 0) -> None:
        self.reason, self.unknown = reason, unknown
        super().__init__(reason)


def entry_of(
    row: FileRow, *, file: File, mapping: DatasetMapping, scheme: Scheme, foreign: Mapping[str, Collection[str]]
) -> ImportEntry:
    """Convert a row of a dataset to an entry, or raise :class:`BadRow`; ``foreign`` are labels of other categories."""
    if row.fault:
        raise BadRow(row.fault)
    cells = row.cells
    picture = _picture(cells, file=file, mapping=mapping) if has(file, mapping.columns.picture) else None
    text, cut = _text(cells, mapping=mapping) if has(file, mapping.content) else (None, False)
    reddit, name = _name(cells, mapping=mapping, text=text, picture=picture)
    parts, split = _parts(cells, file=file, mapping=mapping)
    answers = {
        key: _answer(cells, file=file, labels=labels, category=scheme.category(key), foreign=foreign[key])
        for key, labels in mapping.labels.items()
    }
    image = plain_number(text_of(first(cells, mapping.columns.image)).strip()) or "0"
    # the tables store images as 16-bit integers
    if not image.isdecimal() or len(image) > 5 or int(image) >= 2**15:
        raise BadRow("image")
    return ImportEntry(name, reddit, int(image), parts, split, answers, text, file.digest, cut=cut, picture=picture)


def _picture(cells: Cells, *, file: File, mapping: DatasetMapping) -> Picture:
    """Return the picture of a row; a name may not lead out of the folder of the pictures."""
    cell = first(cells, mapping.columns.picture)
    value = cell.as_py() if isinstance(cell, pa.Scalar) else cell
    name, data = (value.get("path"), value.get("bytes")) if isinstance(value, dict) else (value, None)
    if isinstance(name, bytes):
        name, data = None, name
    path = PurePosixPath(text_of(name).strip().replace("\\", "/"))
    if data is None and (path.is_absolute() or ".." in path.parts):
        raise BadRow("picture_outside")
    if isinstance(data, bytes):
        return Picture(str(path) if path.name else hashlib.sha256(data).hexdigest(), cell)
    if not path.name:
        raise BadRow("no_picture")
    return Picture(str(PurePosixPath(file.folder, path)))


def _name(cells: Cells, *, mapping: DatasetMapping, text: Text | None, picture: Picture | None) -> tuple[bool, str]:
    """Return whether the record's name is a Reddit fullname, and the name."""
    for column in mapping.columns.reddit:
        if (fullname := fullname_of(cells.get(normal(column)))) is not None:
            return True, fullname
    if own := text_of(first(cells, mapping.columns.own)).strip():
        return False, f"{mapping.dataset}/{own}"
    if picture is not None:
        return False, f"{mapping.dataset}/{picture.name}"
    if mapping.columns.text and text is not None:
        digest = hashlib.sha256("\0".join((text.title, text.body)).encode()).hexdigest()
        return False, f"{mapping.dataset}/{digest}"
    raise BadRow("no_id")


def _text(cells: Cells, *, mapping: DatasetMapping) -> tuple[Text, bool]:
    """Return the text, and whether its end was cut off."""
    columns = mapping.columns
    body, cut = _body(cells, mapping=mapping)
    title = text_of(first(cells, columns.title))
    if columns.joined and not title.strip() and (both := JOINED.fullmatch(body)) and both["body"].strip():
        title, body = both["title"].strip(), both["body"].lstrip()
    author = text_of(first(cells, columns.author)).strip()
    if own := text_of(first(cells, columns.own_author)).strip():
        author = f"{mapping.dataset}/{own}"  # no Reddit name contains a slash
    subreddit = text_of(first(cells, columns.subreddit)).strip().removeprefix("r/")
    written = first(cells, columns.created)
    created = Window.from_key(mapping.month).start if written is None and mapping.month else moment_of(written)
    if created is None:
        raise BadRow("created")
    text = Text(
        title=title,
        body=body,
        author=author if author and author.lower() != "[deleted]" else None,
        subreddit=subreddit if SUBREDDIT.fullmatch(subreddit) else mapping.dataset,
        created=created,
    )
    return text, cut


def _body(cells: Cells, *, mapping: DatasetMapping) -> tuple[str, bool]:
    """Return the text, a person's posts joined by blank lines, and whether its end was cut off."""
    value = first(cells, mapping.columns.body)
    cut = False
    if mapping.level == "user":
        posts = list_of(value)
        if posts is None and mapping.cut_from and len(text_of(value)) >= mapping.cut_from:
            posts, cut = complete_posts(value), True
        if posts is None:
            raise BadRow("not_a_list")
        value = "\n\n".join(post.strip() for post in posts if post.strip())
    body = text_of(value)
    if not (body.strip() or mapping.columns.picture or text_of(first(cells, mapping.columns.title)).strip()):
        raise BadRow("cut" if cut else "no_text")
    return body, cut


def _parts(cells: Cells, *, file: File, mapping: DatasetMapping) -> tuple[frozenset[str], str | None]:
    parts = mapping.parts or ONE_PART
    mine = frozenset(name for name, part in parts.items() if _claims(part, cells=cells, file=file))
    if not mine:
        raise BadRow("no_part")
    splits = {parts[name].split for name in mine} - {None}
    if len(splits) > 1:
        raise BadRow("two_splits")
    return mine, next(iter(splits), None)


def _claims(part: Part, *, cells: Cells, file: File) -> bool:
    if has(file, part.columns):
        return any(normal(text_of(cells.get(normal(name)))) in part.meant for name in part.columns)
    return any(fnmatchcase(file.name.lower(), pattern.lower()) for pattern in part.files)


def _answer(
    cells: Cells, *, file: File, labels: Labels, category: Category, foreign: Collection[str]
) -> frozenset[str]:
    if flagged(file, labels):
        values, others = _flags(cells, labels, category=category), False
    else:
        named = _values(cells, labels, category)
        own = [value for value in named if normal(value) not in foreign]
        values, others = [_named(value, labels) for value in own], len(own) < len(named) or not named
    checked = category.check(values, mode="repair", tiers={"base"}, task=False)
    merged = {category.merges[category.task_merge].into} if category.task_merge else set()
    if checked.violations:
        raise BadRow(f"{category.key}: {checked.violations[0]}", unknown=checked.unknown)
    # a column of several categories has none of this one
    if set(checked.repairs) - HARMLESS - ({"empty"} if others and foreign else set()):
        raise BadRow(f"{category.key}: against_rules")
    # a merged label exists only in the models' label space
    if merged & checked.labels:
        raise BadRow(f"{category.key}: merged_label")
    return checked.labels


def _named(value: str, labels: Labels) -> str:
    """Return the label that a value means; a column of whole numbers may have them with a fraction of 0."""
    return labels.values.get(value) or labels.values.get(plain_number(value), value)


def foreign_labels(mapping: DatasetMapping, *, scheme: Scheme) -> dict[str, frozenset[str]]:
    """Return by category the spellings that in its column are labels of other categories only."""
    spelt = {
        key: frozenset(map(normal, labels.values)) | scheme.category(key).spellings.keys()
        for key, labels in mapping.labels.items()
    }
    columns = {key: set(map(normal, labels.columns)) for key, labels in mapping.labels.items()}
    return {
        key: frozenset[str]().union(*(spelt[o] for o in spelt if o != key and columns[o] & columns[key])) - spelt[key]
        for key in spelt
    }


def _flags(cells: Cells, labels: Labels, *, category: Category) -> list[str]:
    flags = {name: flag_of(first(cells, columns)) for name, columns in labels.flags.items()}
    if None in flags.values():
        raise BadRow(f"{category.key}: not_0_or_1")
    chosen = [name for name, is_set in flags.items() if is_set]
    # if a column exists for "nothing of this", a row without any flag is unanswered
    if not chosen and category.none in {category.spellings[normal(name)] for name in flags}:
        raise BadRow(f"{category.key}: empty")
    return chosen


def _values(cells: Cells, labels: Labels, category: Category) -> list[str]:
    value = first(cells, labels.columns)
    if value is None or not text_of(value).strip():
        if labels.blank == "none":
            return []
        raise BadRow(UNLABELLED if labels.blank == UNLABELLED else f"{category.key}: empty")
    if isinstance(value, int | float):
        value = text_of(value)
    if isinstance(value, str) and not value.lstrip().startswith("["):
        return [part.strip() for part in value.split(labels.separator) if part.strip()]
    listed = list_of(value)
    if listed is None:
        raise BadRow(f"{category.key}: not_a_list")
    return listed


def flagged(file: File, labels: Labels) -> bool:
    """Return whether the file has a 0/1 column for each label."""
    return bool(labels.flags) and all(has(file, names) for names in labels.flags.values())


@dataclass(frozen=True)
class GatheredEntries:
    """The items of a dataset sorted by name, with the numbers of invalid and of repeated rows.

    ``bad`` maps each reason to the (file, line) of the invalid rows. ``repeated`` counts rows that repeat another row
    of the same item. ``cut`` are the (file, line) of the rows whose text was cut off after some complete posts, which
    are imported. ``unknown`` counts strings that are not labels. ``rules`` counts, by rule of the scheme beyond the
    hard rules (SPEC 23), the items whose labels break the rule; such items are imported.
    """

    entries: list[ImportEntry]
    rows: int
    bad: dict[str, list[tuple[str, int]]]
    repeated: int
    cut: list[tuple[str, int]]
    unknown: int
    rules: dict[str, int]

    @property
    def bad_rows(self) -> int:
        """The number of invalid rows."""
        return sum(len(places) for reason, places in self.bad.items() if reason != UNLABELLED)


def missing_columns(files: Iterable[File], *, mapping: DatasetMapping) -> list[str]:
    """Return the required fields of the mapping that at least one file has no column for."""
    missing = set()
    for file in files:
        columns = mapping.columns
        names = (*columns.reddit, *columns.own, *columns.picture)
        if not (has(file, names) or (columns.text and has(file, columns.body))):
            missing.add("the record's name (columns.reddit, own, picture or text)" + _nearest(names, file=file))
        for key, labels in mapping.labels.items():
            if not (flagged(file, labels) or has(file, labels.columns)):
                missing.add(f"labels.{key}" + _nearest(labels.columns, file=file))
        if mapping.level == "user" and not has(file, columns.body):
            missing.add("columns.body" + _nearest(columns.body, file=file))
    return sorted(missing)


def plain_names(file: File) -> list[str]:
    """Return the names of a file's columns, but none that may be a text or an id of a file without names."""
    return [] if file.headerless else sorted(name for name in file.columns if NAME.fullmatch(name))


def _nearest(names: Names, *, file: File) -> str:
    if twice := sorted({normal(name) for name in names} & file.twice):
        return f" ({file.name} has several columns {twice[0]}: rename all but one)"
    close = [near for name in names for near in get_close_matches(normal(name), plain_names(file), n=1)]
    return f" (the mapping has {', '.join(names)}; nearest: {close[0]})" if close else ""


def merged(rows: Sequence[ImportEntry], *, mapping: DatasetMapping, scheme: Scheme) -> ImportEntry | None:
    """Return the entry of an item by its rows, in the order of the files, or ``None`` if they contradict each other."""
    head = replace(
        rows[0],
        parts=frozenset[str]().union(*(row.parts for row in rows)),
        digest=min(row.digest for row in rows),
    )
    if mapping.conflict == "first" or all(row.said == head.said for row in rows):
        return head
    if mapping.conflict == "drop" or any(row.said[1:] != head.said[1:] for row in rows):
        return None
    answers = {}
    for key in head.answers:
        counts = Counter(chain.from_iterable(row.answers[key] for row in rows))
        needed = len(rows) / 2 if mapping.conflict == "majority" else 0
        labels = {label for label, count in counts.items() if count > needed}
        checked = scheme.category(key).check(labels, mode="repair", tiers={"base"}, task=False)
        if checked.violations or checked.labels != labels:
            return None
        answers[key] = checked.labels
    return replace(head, answers=answers)


def gather(files: Sequence[File], *, mapping: DatasetMapping, scheme: Scheme) -> GatheredEntries:
    """Combine the rows of an item into one entry; items whose rows contradict each other are left out."""
    bad: dict[str, list[tuple[str, int]]] = {}
    by_item: dict[tuple[bool, str, int], list[tuple[ImportEntry, tuple[str, int]]]] = {}
    unknown, foreign, used = 0, foreign_labels(mapping, scheme=scheme), mapping.used
    for file in sorted(files, key=lambda f: (f.name, f.digest)):
        for row in file.rows(only=used, empty=mapping.empty):
            place = (file.name, row.line)
            try:
                for answered in mapping.by_annotator(row.cells):
                    entry = entry_of(row, file=file, mapping=answered, scheme=scheme, foreign=foreign)
                    by_item.setdefault((entry.reddit, entry.name, entry.image), []).append((entry, place))
            except BadRow as error:
                unknown += error.unknown
                bad.setdefault(error.reason, []).append(place)
    entries, cut = [], []
    for _, same in sorted(by_item.items()):
        if combined := merged([entry for entry, _ in same], mapping=mapping, scheme=scheme):
            entries.append(combined)
            cut += [place for each, place in same if each.cut]
        else:
            bad.setdefault("conflict", []).extend(dict.fromkeys(place for _, place in same))
    rows = sum(file.size for file in files)
    repeated = rows - len(entries) - sum(len(places) for places in bad.values())
    rules = Counter(
        rule
        for entry in entries
        for key, labels in entry.answers.items()
        for rule in set(scheme.category(key).check(labels, mode="repair", tiers=TIERS, task=False).repairs)
    )
    counted = dict(sorted(rules.items()))
    return GatheredEntries(entries, rows, dict(sorted(bad.items())), repeated, sorted(cut), unknown, counted)
