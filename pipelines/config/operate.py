"""Define the sections of ``params.yaml`` for checks, housekeeping, deletion sweeps and takedowns."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field, model_validator

from pipelines.config.base import Fraction, Positive, Section

Limit = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class Doctor(Section):
    """Limits used by the checks of ``corpus doctor``; all values are this project's own choice.

    Args:
        free_gb: the minimum free space, in GB, below ``CORPUS_HOME``, the cache and a remote that is a folder.
        memory_gb: the minimum available memory, in GB.
        skew_seconds: the maximum difference between this clock and a server's.
        backup_hours: the maximum age of the newest backup of the vault.
        expires_days: an approval of a source or provider that ends within this many days is a warning.
        sweep_hours: the maximum time since the deletion sweep of a corpus last succeeded.
        refresh_hours: a read of Reddit's listing that is due for longer is late.
        takedown_hours: a takedown request that is open for longer is past its deadline.
        budget_share: the share of ``votes.budget_usd`` that may be paid or reserved; 1 warns of no budget.
        queued_minutes: an Airflow task that is queued for longer is reported as having no worker.
        housekeeping_hours: the maximum time since the Dag ``housekeeping`` last succeeded, if it is not paused.
        objects: how many objects of the DVC cache are compared with their digests; ``--deep`` compares all.
    """

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
    """Ages after which ``corpus housekeeping`` removes what no corpus needs; all values are this project's own choice.

    Args:
        airflow_days: runs, XCom and events in Airflow's database, which no unfinished run needs.
        logs_days: files of logs to which nothing was written for so long.
        log_mb: the log of an embedded component that is larger is cut to its newest half of this size, in MB.
        mlflow_days: runs and traces in MLflow to which nothing on record refers; a run is then deleted, which a person
            can undo.
        trash_days: deleted runs leave MLflow for good, with their files, after this many days.
    """

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
    """Parameters of a deletion sweep, which re-checks records on Reddit; the values are this project's own.

    Args:
        bands: re-check intervals by age, youngest first; the last band has ``until_days: null``.
        requests: the maximum number of requests to Reddit that one run sends.
        remain: the share of the client id's requests in Reddit's rate-limit period that is left to the collectors.
        recheck_hours: hours until a record that was missing or marked as deleted is re-checked; less than a day, so
            that the next daily run re-checks the record, and long enough that one outage does not make it missing
            twice.
        max_missing: if a larger share of a run's records is missing on Reddit, the run stops, because an outage is more
            likely.
        max_gone: the same limit for the sum of missing records and records marked as deleted or removed.
        few: up to this number of records, neither limit applies.
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

    Args:
        withdraw_share: if at least this share of a model version's training records was taken down, the version is
        withdrawn:
            it loses its aliases, and rollback skips it. With a smaller share, it may be used until the deadline.
        weights_days: days from the takedown to the deadline, on which the weights of every model that was trained on a
            deleted record are removed, and its alias moves to another version. Until then, train the model again.
        scan_days: the index of records is rebuilt from the objects by the first daily sweep that is this many days
            after the last rebuild. It should be within the month that the GDPR allows for an erasure (Art. 12(3)), so
            that an entry that is authentic but wrong delays a deletion no longer than that.
    """

    withdraw_share: Fraction
    weights_days: Positive = 30
    scan_days: Positive = 28
