"""What the columns of a published dataset mean: one YAML file of ``mappings/`` a dataset, and no code.

We have none of these files ourselves. What a mapping says of column names is therefore an assumption, stated in its
comments; several names may be given for everything, and a file with others needs a changed copy of the mapping only.
Names of columns are compared by their letters and digits, whatever their case.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from pipelines.annotate.imports.counts import Expected, unknown_names
from pipelines.config.base import Month, Positive, Section
from pipelines.errors import ConfigError
from pipelines.taxonomy import Category, Scheme, load
from pipelines.taxonomy.rules import normal

FOLDER = Path(__file__).parent / "mappings"
Names = tuple[Annotated[str, Field(min_length=1)], ...]


class BadMapping(ConfigError):
    """A column-mapping file is not there or does not hold together."""

    message = "Mapping {mapping}: {detail}."
    remedy = "Name one of {known}, or the path of a copy of one that you changed (pipelines/annotate/imports/mappings)."


class Columns(Section):
    """Where everything but the labels stands: for each thing the names to try, none where the dataset lacks it.

    A record is named by the first of these that the file has: ``reddit`` (a fullname, a bare id or an address of a
    post), ``own`` (the dataset's own number or user), ``text`` (true: the digest of its title and body, for datasets
    that give no id at all). Only the first meets what was collected from Reddit.
    """

    reddit: Names = ()
    own: Names = ()
    text: bool = False
    image: Names = ()
    author: Names = ()
    subreddit: Names = ()
    created: Names = ()
    title: Names = ()
    body: Names = ()

    @model_validator(mode="after")
    def _named(self) -> Columns:
        if not (self.reddit or self.own or self.text):
            raise ValueError("give reddit, own or text, for a record needs a name")
        if self.text and not self.body:
            raise ValueError("text names records by their body, and no column of it is given")
        return self


class Part(Section):
    """A part of the dataset, such as its test set or the unanimous share of its training set.

    A row belongs to every part that claims it: by a column of ``columns`` holding one of ``values``, or, where the
    file has no such column, by ``files``, patterns of the file's name. ``split`` is what the row's item becomes in
    ``splits.csv`` (``None``: no split). ``human`` tells whether people gave its labels; what models gave is no gold.
    """

    split: str | None = None
    human: bool = True
    columns: Names = ()
    values: Names = ()
    files: Names = ()

    @property
    def meant(self) -> frozenset[str]:
        """The values, by letters and digits."""
        return frozenset(normal(value) for value in self.values)


class Labels(Section):
    """How one category is written: a 0/1 column a label (``flags``: any spelling of the label to the names to try), or
    one column (``columns``) with a label, a list, or labels joined by ``separator``.

    Where both are given, the flags count if the file has a column for each of them. A blank cell of ``columns`` is
    ``missing`` and spoils its row, unless the dataset writes the empty set so (``none``).
    """

    flags: dict[str, Names] = Field(default_factory=dict)
    columns: Names = ()
    separator: Annotated[str, Field(min_length=1)] = "|"
    blank: Literal["missing", "none"] = "missing"

    @model_validator(mode="after")
    def _somewhere(self) -> Labels:
        if not (self.flags or self.columns):
            raise ValueError("give flags or columns")
        return self


class Lengths(Section):
    """Words that a text may have, in place of ``texts.min_words`` and ``texts.max_words`` of params.yaml."""

    min_words: Positive
    max_words: Positive


class Mapping(Section):
    """A mapping file. ``month`` is the partition that content without a date goes to; its rows are dated its first day.

    ``level: user``: a row is a person with all their posts, which become one text; the dataset's own names of people
    are kept apart from Reddit's.
    """

    dataset: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
    title: str
    source: str
    scheme: str
    level: Literal["item", "user"]
    format: Literal["csv", "jsonl", "json", "parquet"]
    columns: Columns
    parts: dict[str, Part] = Field(default_factory=dict)
    labels: dict[str, Labels]
    month: Month | None = None
    lengths: Lengths | None = None
    expected: dict[str, Expected] = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The first 16 hex digits of the SHA-256 of what the mapping says."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    @model_validator(mode="after")
    def _parts(self) -> Mapping:
        if unknown := sorted(set(self.expected) - (set(self.parts) or {EVERYTHING})):
            raise ValueError(f"expected names no part: {', '.join(unknown)}")
        if self.columns.body and not (self.month or self.columns.created):
            raise ValueError("texts need a month or a column created")
        return self


# the one part of a dataset that names none
EVERYTHING = "all"


def available() -> list[str]:
    """Return the names of the mappings that the package brings along."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(name: str) -> Mapping:
    """Return the mapping of this name, or the one in a file of this path.

    Raises:
        BadMapping: there is none, or it contradicts itself or its scheme.
        UnknownScheme: its scheme is not described.
    """
    path = FOLDER / f"{name}.yaml" if name in available() else Path(name)
    known = ", ".join(available())
    try:
        mapping = Mapping.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadMapping(mapping=path.stem, detail=f"cannot be read ({type(error).__name__})", known=known) from None
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'mapping'}: {e['msg']}" for e in error.errors())
        raise BadMapping(mapping=path.stem, detail=faults, known=known) from None
    if faults := _faults(mapping, scheme=load(mapping.scheme)):
        raise BadMapping(mapping=path.stem, detail=faults, known=known)
    return mapping


def _faults(mapping: Mapping, *, scheme: Scheme) -> str:
    """Say what of a mapping its scheme does not know."""
    faults = [f"no category {key}" for key in mapping.labels if key not in scheme.categories]
    for key, labels in mapping.labels.items():
        faults += _unknown_flags(labels, category=scheme.categories.get(key))
    for part, expected in mapping.expected.items():
        faults += [f"expected.{part} names no {what}" for what in unknown_names(expected, scheme=scheme)]
    return "; ".join(faults)


def _unknown_flags(labels: Labels, *, category: Category | None) -> list[str]:
    if category is None:
        return []
    return [f"{category.key} has no label {label}" for label in labels.flags if normal(label) not in category.spellings]
