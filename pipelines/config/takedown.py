"""The section ``takedown`` of ``params.yaml``: the effect of takedowns on registered models."""

from __future__ import annotations

from pipelines.config.base import Fraction, Section


class Takedown(Section):
    """When a takedown withdraws a registered model version; the default is ours, not from a paper.

    Args:
        withdraw_share: the share of a version's training records from which on their takedown withdraws the version:
            it loses its aliases, and rollback skips it. If a smaller share was taken down, the version is only tagged.
    """

    withdraw_share: Fraction
