"""The section ``takedown`` of ``params.yaml``: the effect of takedowns on registered models."""

from __future__ import annotations

from pipelines.config.base import Fraction, Section


class Takedown(Section):
    """All values are ours.

    Args:
        withdraw_share: a registered version of whose training records at least this share was taken down is withdrawn:
            it loses its aliases, and rollback skips it. Below the share a version is tagged and kept.
    """

    withdraw_share: Fraction
