"""Define the sections of ``params.yaml`` for data releases and exported models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipelines.core.config.base import Section

Text = Annotated[str, Field(min_length=1)]
# Metadata of a post beside its labels; each has steps of generalisation (:mod:`pipelines.release.anonymity`).
METADATA = ("month", "subreddit")
AGREEMENT = "agreement"


class Shape(Section):
    """The file format and the columns in which one corpus is released.

    Args:
        form: the files of the release: ``annotations`` has ``annotations.csv`` and ``splits.csv`` (FigSIM), ``splits``
            one file for each split (CRADLE).
        title: the title of the release's datasheet.
        columns: the columns that may be released: categories of the scheme, ``month``, ``subreddit`` and
            ``agreement`` (how far the labellers agreed on the record's labels); without the last one, only labels that
            people gave are released. Authors, groups and content cannot be released.
    """

    form: Literal["annotations", "splits"]
    title: Text
    columns: tuple[Text, ...]

    @model_validator(mode="after")
    def _fitting(self) -> Shape:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("a column is named twice")
        if not self.categories:
            raise ValueError("columns must name at least one label category")
        return self

    @property
    def categories(self) -> tuple[str, ...]:
        """The names of the categories whose labels are released, one column for each."""
        return tuple(c for c in self.columns if c not in (*METADATA, AGREEMENT))

    @property
    def metadata(self) -> tuple[str, ...]:
        """The released columns other than labels and agreement, in the order of :data:`METADATA`."""
        return tuple(c for c in METADATA if c in self.columns)


class RemovalSchedule(Section):
    """When removals of posts from a release are published: in batches, on days that do not depend on a takedown."""

    every_days: Annotated[int, Field(ge=1)]
    at_least: Annotated[int, Field(ge=1)]
    at_most_days: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _reachable(self) -> RemovalSchedule:
        if self.at_most_days < 2 * self.every_days:
            raise ValueError("at_most_days must be at least twice every_days")
        return self


class Release(Section):
    """Parameters of data releases, explained in ``params.yaml``; ours, because the papers state no metadata.

    A release with more than ``max_alone`` or ``max_joined`` (the attack of :mod:`pipelines.release.anonymity`) cannot
    be approved, and a corpus without an entry in ``corpora`` cannot be released.
    """

    k: Annotated[int, Field(ge=2)]
    max_alone: Annotated[float, Field(ge=0, le=1)]
    max_joined: Annotated[float, Field(ge=0, le=1)]
    removal: RemovalSchedule
    licence: Text
    contact: Text | None
    corpora: dict[str, Shape]


class Export(Section):
    """Parameters of exports: ``licence`` is the text of ``LICENSE`` beside an exported model."""

    licence: Annotated[str, Field(min_length=1)]


class ReleaseSections(Section):
    release: Release
    export: Export
