"""Define the section ``doctor`` of ``params.yaml``: the limits of ``corpus doctor``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipelines.config.base import Positive, Section

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
