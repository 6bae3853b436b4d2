"""The section ``takedown`` of ``params.yaml``: what a deletion does beyond deleting."""

from __future__ import annotations

from pipelines.config.base import Fraction, Section


class Takedown(Section):
    """All values are ours.

    Args:
        withdraw_share: a registered version of whose training records at least this share was taken down is withdrawn:
            it loses its aliases and is no champion to go back to. Below it a version is tagged and stays.
    """

    withdraw_share: Fraction
