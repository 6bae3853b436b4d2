"""Load column mappings of published datasets: one YAML file in ``mappings/`` per dataset, and no code.

Most datasets were not available to us: a mapping states in ``tried`` what was read with it and in ``assumed`` what is
not known. It may list several names for each column; a file with other names needs only an edited copy of the mapping.
Column names are compared by letters and digits, ignoring case.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipelines.annotate.imports.cells import Cells, Names, first, normal
from pipelines.annotate.imports.grid import Layout
from pipelines.core.config.base import Month, Positive, Section, read_section
from pipelines.core.errors import ConfigError
from pipelines.core.taxonomy import Scheme, load

# one item's labels by category
Answers = Mapping[str, frozenset[str]]


class Expected(Section):
    """The counts that a paper states for one part of its dataset; counts that it does not state are left out.

    ``labels`` is the total number of labels. ``by_label`` is the number of items by label; a key is any spelling that
    means exactly one label of the scheme (the label's code, if two categories share a name). The name of a category's
    empty set, as a key, means the items without a label. ``by_size`` is the number of items by their total number of
    labels, ``by_row`` the number of labels by row of the scheme's ``display``, ``by_attribute`` the number of labels by
    attribute and value.
    """

    source: str
    items: int | None = None
    labels: int | None = None
    by_label: dict[str, int] = Field(default_factory=dict)
    by_size: dict[int, int] = Field(default_factory=dict)
    by_row: dict[str, int] = Field(default_factory=dict)
    by_attribute: dict[str, dict[str, int]] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CountComparison:
    """A comparison of one count in a paper with the same count in the imported files."""

    part: str
    what: str
    expected: int
    found: int

    @property
    def matches(self) -> bool:
        """Whether the two counts are equal."""
        return self.expected == self.found

    def __str__(self) -> str:
        return f"{self.part}, {self.what}: {self.found} found, {self.expected} expected"


def unknown_names(expected: Expected, *, scheme: Scheme) -> list[str]:
    """Return the label names in ``expected`` that the scheme lacks or that are ambiguous in it."""
    unknown = [f"one label {name}" for name in expected.by_label if len(_meant(name, scheme=scheme)) != 1]
    unknown += [f"display row {row}" for row in expected.by_row if row not in scheme.display]
    labels = [label for category in scheme.categories.values() for label in category.labels]
    for attribute, values in expected.by_attribute.items():
        known = {label.attributes.get(attribute) for label in labels}
        unknown += [f"{attribute} {value}" for value in values if value not in known]
    return unknown


def compare_counts(
    expected: Expected, items: Collection[Answers], *, part: str, scheme: Scheme
) -> list[CountComparison]:
    """Compare each count of ``expected`` with the same count over ``items``; a difference does not stop the import."""
    return [
        CountComparison(part, what, value, count) for what, value, count in _figures(expected, items, scheme=scheme)
    ]


def totals(items: Collection[Answers], *, scheme: Scheme) -> dict[str, dict[str, int]]:
    """Count the items by category and label, in the scheme's order; labels without items are left out."""
    counts = _by_label(items, scheme=scheme)
    return {
        key: {label.name: n for label in category.labels if (n := counts[key, label.name])}
        for key, category in scheme.categories.items()
    }


def _figures(expected: Expected, items: Collection[Answers], *, scheme: Scheme) -> Iterator[tuple[str, int, int]]:
    if expected.items is not None:
        yield "items", expected.items, len(items)
    counts = _by_label(items, scheme=scheme)
    chosen = Counter((key, label) for answers in items for key, labels in answers.items() for label in labels)
    if expected.labels is not None:
        yield "labels", expected.labels, chosen.total()
    for name, value in expected.by_label.items():
        [(key, label)] = _meant(name, scheme=scheme)
        yield name, value, counts[key, label]
    sizes = Counter(sum(len(labels) for labels in answers.values()) for answers in items)
    for size, value in expected.by_size.items():
        yield f"items with {size} label{'s' * (size != 1)}", value, sizes[size]
    for row, value in expected.by_row.items():
        yield f"labels of {row}", value, sum(n for (_, label), n in chosen.items() if label in scheme.display[row])
    for attribute, values in expected.by_attribute.items():
        for wanted, value in values.items():
            of = {pair: scheme.categories[pair[0]].attributes[pair[1]].get(attribute) for pair in chosen}
            matching = sum(n for pair, n in chosen.items() if of[pair] == wanted)
            yield f"labels with {attribute} {wanted}", value, matching


def _by_label(items: Iterable[Answers], *, scheme: Scheme) -> Counter[tuple[str, str]]:
    """Count the items with each label; an item without labels counts under the category's name for the empty set."""
    counts: Counter[tuple[str, str]] = Counter()
    for answers in items:
        for key, labels in answers.items():
            nothing = scheme.categories[key].none
            counts.update((key, label) for label in labels or ([] if nothing is None else [nothing]))
    return counts


def _meant(name: str, *, scheme: Scheme) -> Sequence[tuple[str, str]]:
    spellings = ((key, category.spellings.get(normal(name))) for key, category in scheme.categories.items())
    return [(key, label) for key, label in spellings if label is not None]


FOLDER = Path(__file__).parent / "mappings"


class Columns(Section):
    """The names of the dataset's columns other than labels; each field lists the names to try, or none if it is absent.

    A record is named by the first of these fields that the file has: ``reddit`` (a fullname, a bare id or a post's
    URL), ``own`` (the dataset's own number or user), ``picture`` (its file), ``text`` (if true, by the digest of title
    and body, for datasets without ids). Only records named by ``reddit`` can match posts collected from Reddit.
    ``author`` is a Reddit name; ``own_author`` is the dataset's own name or number of an author. With ``joined``, a
    body ``Title: ... Text: ...`` of a file without a title is taken apart into both. ``picture`` is the name of a file,
    or the picture itself (Parquet, as the Hugging Face Hub has them); ``body`` is then the text that the publisher read
    in it.
    """

    reddit: Names = ()
    own: Names = ()
    text: bool = False
    image: Names = ()
    picture: Names = ()
    author: Names = ()
    own_author: Names = ()
    subreddit: Names = ()
    created: Names = ()
    title: Names = ()
    body: Names = ()
    joined: bool = False

    @model_validator(mode="after")
    def _named(self) -> Columns:
        if not (self.reddit or self.own or self.picture or self.text):
            raise ValueError("one of reddit, own, picture and text must name the records")
        if self.text and not self.body:
            raise ValueError("text: true requires the columns of body")
        return self


class Part(Section):
    """A part of the dataset, such as its test set or the unanimous share of its training set.

    A row belongs to the part if a column of ``columns`` holds one of ``values`` or, without such a column, if the
    file's name matches a pattern of ``files``. A row may belong to several parts. ``split`` is the split that
    ``splits.csv`` gives the part's items (``None`` means no split). ``human`` is true if people gave the labels; labels
    from models are not gold, and ``agreement`` says how far the models agreed on those of the part.
    """

    split: str | None = None
    human: bool = True
    agreement: Literal["unanimous", "consensus"] = "consensus"
    columns: Names = ()
    values: Names = ()
    files: Names = ()

    @property
    def meant(self) -> frozenset[str]:
        """``values``, each reduced to its letters and digits in lower case."""
        return frozenset(normal(value) for value in self.values)


class Labels(Section):
    """The columns of one category. ``flags`` maps each label, in any spelling, to the names of its 0/1 column;
    ``columns`` are the names of one column with a label, a list, or labels joined by ``separator``; ``values`` maps
    what the column holds to labels, where it holds no spelling of them. Of a column that several categories name, each
    takes its own labels.

    If both are given, ``flags`` are used for a file that has a column for each of them, else ``columns``. With ``blank:
    missing``, a blank cell of ``columns`` makes the row invalid; with ``blank: none``, it means the empty set; with
    ``blank: unlabelled``, the row is left out. With ``annotators``, each of ``columns`` has one annotator's labels, and
    ``conflict`` of the mapping says what becomes of those that differ.
    """

    flags: dict[str, Names] = Field(default_factory=dict)
    columns: Names = ()
    values: dict[str, str] = Field(default_factory=dict)
    separator: Annotated[str, Field(min_length=1)] = "|"
    blank: Literal["missing", "none", "unlabelled"] = "missing"
    annotators: bool = False

    @model_validator(mode="after")
    def _somewhere(self) -> Labels:
        if not (self.flags or self.columns):
            raise ValueError("flags or columns must be set")
        return self


class Lengths(Section):
    """The allowed length of a text in words, which replaces ``texts.min_words`` and ``texts.max_words``."""

    min_words: Positive
    max_words: Positive


class DatasetMapping(Layout):
    """The content of a mapping file; items without a date are assigned to the first day of ``month``.

    ``empty`` are texts that mean an empty cell. If posts and labels are in different files, ``join`` are the names of
    the column that both have. ``conflict`` says what becomes of rows of one item whose labels differ: ``drop`` leaves
    the item out, ``first`` takes the first row, ``all`` every label of any row, ``majority`` what more than half of the
    rows have. ``rights`` states on what terms the content may be used; pictures need it.

    With ``level: user``, a row is a person with all their posts, which become one text. The dataset's own user names
    are never matched with Reddit's. A list of posts that ends before its bracket in a cell of at least ``cut_from``
    characters was cut by a spreadsheet: its complete posts are imported.
    """

    dataset: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
    title: str
    source: str
    tried: str = ""
    assumed: str = ""
    scheme: str
    level: Literal["item", "user"]
    rights: str = ""
    columns: Columns
    parts: dict[str, Part] = Field(default_factory=dict)
    labels: dict[str, Labels]
    empty: tuple[str, ...] = ()
    join: Names = ()
    conflict: Literal["drop", "first", "all", "majority"] = "drop"
    cut_from: Positive | None = None
    month: Month | None = None
    lengths: Lengths | None = None
    expected: dict[str, Expected] = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The first 16 hex digits of the SHA-256 of the mapping's values."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    @model_validator(mode="after")
    def _parts(self) -> DatasetMapping:
        if unknown := sorted(set(self.expected) - (set(self.parts) or {EVERYTHING})):
            raise ValueError(f"expected names parts that `parts` lacks: {', '.join(unknown)}")
        if self.content and not (self.month or self.columns.created):
            raise ValueError("a mapping with texts must set month or columns.created")
        if self.columns.picture and not self.rights.strip():
            raise ValueError("a mapping with pictures must state their rights, such as their licence")
        return self

    def by_annotator(self, cells: Cells) -> list[DatasetMapping]:
        """Return a mapping for each annotator who labelled a row, or this one if no columns are annotators'."""
        several = {key: labels for key, labels in self.labels.items() if labels.annotators}
        made = []
        for at in range(max((len(labels.columns) for labels in several.values()), default=0)):
            mine = {key: labels.columns[at : at + 1] for key, labels in several.items()}
            if any(first(cells, names) is not None for names in mine.values()):
                own = {key: several[key].model_copy(update={"columns": names}) for key, names in mine.items()}
                made.append(self.model_copy(update={"labels": self.labels | own}))
        return made or [self]

    @property
    def content(self) -> Names:
        """The names of the columns with the content of items; without any, the labels are of collected posts."""
        return self.columns.picture or self.columns.body

    @property
    def used(self) -> frozenset[str]:
        """The normalised names of all columns that the mapping reads."""
        named = [value for value in dict(self.columns).values() if isinstance(value, tuple)]
        named += [part.columns for part in self.parts.values()]
        named += [names for labels in self.labels.values() for names in (labels.columns, *labels.flags.values())]
        return frozenset(map(normal, chain(self.join, *named)))


# The single part of a dataset that defines no parts.
EVERYTHING = "all"


def available() -> list[str]:
    """Return the names of the column mappings included in the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(name: str, *, root: Path = Path()) -> DatasetMapping:
    """Read the column mapping with this name, or from the file at this path; ``root`` has a team's own schemes."""
    path = FOLDER / f"{name}.yaml" if name in available() else Path(name)

    def refuse(detail: str) -> ConfigError:
        return ConfigError("BadMapping", mapping=path.stem, detail=detail, known=", ".join(available()))

    mapping = read_section(DatasetMapping, path, refuse=refuse)
    if faults := _faults(mapping, scheme=load(mapping.scheme, root=root)):
        raise refuse(faults)
    return mapping


def _faults(mapping: DatasetMapping, *, scheme: Scheme) -> str:
    """Return the parts of a mapping that its scheme does not know, as one message."""
    faults = [f"no category {key}" for key in mapping.labels if key not in scheme.categories]
    for key, labels in mapping.labels.items():
        spellings = scheme.categories[key].spellings if key in scheme.categories else {}
        named = (*labels.flags, *labels.values.values())
        faults += [f"{key} has no label {label}" for label in named if spellings and normal(label) not in spellings]
    for part, expected in mapping.expected.items():
        faults += [f"expected.{part} does not name {what}" for what in unknown_names(expected, scheme=scheme)]
    return "; ".join(faults)
