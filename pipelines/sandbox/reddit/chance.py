"""Provide the generator's only source of randomness, seeded by a name for each purpose."""

from __future__ import annotations

from random import Random


def seeded(*name: object) -> Random:
    """Return a generator that depends on ``name`` alone, so that one part's draws never shift another's."""
    return Random("-".join(map(str, name)))  # noqa: S311 - nothing here is a secret
