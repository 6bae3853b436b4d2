"""The sections ``sweep`` (re-checks on Reddit) and ``takedown`` (its effect on models) of ``params.yaml``."""

from __future__ import annotations

from itertools import pairwise

from pydantic import model_validator

from pipelines.config.base import Fraction, Positive, Section


class Band(Section):
    """Records younger than ``until_days`` (``None``: all others) are re-checked every ``every_days`` days."""

    until_days: Positive | None
    every_days: Positive


class Sweep(Section):
    """All values are ours.

    Args:
        bands: by age, youngest first; the last one has no end.
        requests: how many one run may send.
        remain: the share of the client id's requests in Reddit's period that must be left to the collectors.
        recheck_hours: how long after it was missed, or found deleted, a record is re-checked; less than a day,
            so that every daily run does, and long enough that two misses are not one outage.
        max_missing: from this share of a run's records on, what Reddit does not show is an outage and no deletion.
        max_gone: the same for those missing and those marked as deleted or removed together.
        few: so many are taken at their word whatever their share.
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
            raise ValueError("the last of bands, and no other, has until_days: null")
        if any(a >= b for a, b in pairwise(end for end in ends if end is not None)):
            raise ValueError("bands must rise in until_days")
        return self


class Takedown(Section):
    """When a takedown withdraws a registered model version; the default is ours, not from a paper.

    Args:
        withdraw_share: the share of a version's training records from which on their takedown withdraws the version:
            it loses its aliases, and rollback skips it. If a smaller share was taken down, the version is only tagged.
    """

    withdraw_share: Fraction
