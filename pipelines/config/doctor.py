"""Define the section ``doctor`` of ``params.yaml``: the limits of ``corpus doctor``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipelines.config.base import Positive, Section

Limit = Annotated[float, Field(ge=0)]


class Doctor(Section):
    """Limits used by the checks of ``corpus doctor``; all values are this project's own choice.

    Args:
        free_gb: the minimum free space, in GB, below ``CORPUS_HOME``, the cache and a remote that is a folder.
        memory_gb: the minimum available memory, in GB.
        skew_seconds: the maximum difference between this clock and a server's.
        backup_hours: the maximum age of the newest backup of the vault.
        expires_days: an approval of a source or provider that ends within this many days is a warning.
        sweep_hours: the maximum time since the deletion sweep of a corpus last succeeded.
        queued_minutes: an Airflow task that is queued for longer is reported as having no worker.
        objects: how many objects of the DVC cache are compared with their digests; ``--deep`` compares all.
    """

    free_gb: Limit
    memory_gb: Limit
    skew_seconds: Limit
    backup_hours: Positive
    expires_days: Positive
    sweep_hours: Positive
    queued_minutes: Positive
    objects: Positive
