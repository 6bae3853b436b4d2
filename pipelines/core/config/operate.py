"""Define the sections of ``params.yaml`` for checks, housekeeping, deletion sweeps, takedowns, releases and exports."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipelines.core.config.base import Fraction, Positive, Section

Limit = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class Doctor(Section):
    """Limits of the checks of ``corpus doctor``, explained in ``params.yaml``; all are this project's own choice."""

    free_gb: Limit
    memory_gb: Limit
    skew_seconds: Limit
    backup_hours: Positive
    expires_days: Positive
    sweep_hours: Positive
    refresh_hours: Positive
    takedown_hours: Positive
    budget_share: Share
    queued_minutes: Positive
    housekeeping_hours: Positive
    objects: Positive


class Housekeeping(Section):
    """Ages after which ``corpus housekeeping`` removes what no corpus needs, explained in ``params.yaml``; all ours."""

    airflow_days: Positive
    logs_days: Positive
    log_mb: Positive
    mlflow_days: Positive
    trash_days: Positive


class Band(Section):
    """An age band of the sweep: re-check records younger than ``until_days`` every ``every_days`` days.

    ``until_days: null`` means all older records.
    """

    until_days: Positive | None
    every_days: Positive


class Sweep(Section):
    """Parameters of a deletion sweep, which re-checks records on Reddit, explained in ``params.yaml``; all ours.

    ``recheck_hours``, after which a record that was missing or marked as deleted is checked again, is less than a day,
    so that the next daily run does it, and long enough that one outage does not make the record missing twice.
    """

    bands: tuple[Band, ...]
    requests: Positive
    remain: Fraction
    recheck_hours: Positive
    max_missing: Fraction
    max_gone: Fraction
    few: Positive

    @model_validator(mode="after")
    def _rising(self) -> Sweep:
        ends = [band.until_days for band in self.bands]
        if not ends or ends[-1] is not None or None in ends[:-1]:
            raise ValueError("the last entry of bands, and no other, must have until_days: null")
        if any(a >= b for a, b in pairwise(end for end in ends if end is not None)):
            raise ValueError("the entries of bands must be in ascending order of until_days")
        return self


class Takedown(Section):
    """What a takedown does to models that were trained on a deleted record; the defaults are this project's own.

    From ``withdraw_share`` on, a version is withdrawn: it loses its aliases, rollback skips it. With a smaller share
    it may be used until its weights are removed after ``weights_days``. The index of records is rebuilt every
    ``scan_days``: within the month that the GDPR allows for an erasure (Art. 12(3)), so that an entry that is authentic
    but wrong delays a deletion no longer than that.
    """

    withdraw_share: Fraction
    weights_days: Positive = 30
    scan_days: Positive = 28


Text = Annotated[str, Field(min_length=1)]
# Metadata of a post beside its labels; each has steps of generalisation (:mod:`pipelines.release.anonymity`).
METADATA = ("month", "subreddit")
AGREEMENT, VOTES = "agreement", "votes"


class Shape(Section):
    """The file format and the columns in which one corpus is released.

    Args:
        form: the files of the release: ``annotations`` has ``annotations.csv`` and ``splits.csv`` (FigSIM), ``splits``
            one file for each split (CRADLE).
        title: the title of the release's datasheet.
        columns: the columns that may be released: categories of the scheme, ``month``, ``subreddit`` and
            ``agreement`` (how far the labellers agreed on the record's labels), without which only labels that people
            gave are released; ``votes`` (how many of the item's annotators gave each label, if ``k`` authors share
            labels and votes). Authors, annotators, groups and content cannot be released.
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
        return tuple(c for c in self.columns if c not in (*METADATA, AGREEMENT, VOTES))

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


class OperateSections(Section):
    sweep: Sweep
    takedown: Takedown
    doctor: Doctor
    housekeeping: Housekeeping
    release: Release
    export: Export
