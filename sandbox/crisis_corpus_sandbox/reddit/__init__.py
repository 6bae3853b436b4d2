"""Generate the offline Reddit (synthetic memes and posts) and its ground truth."""

from __future__ import annotations

from random import Random


def seeded(*name: object) -> Random:
    """Return a random generator seeded by ``name``, so that draws of one part do not change those of another."""
    return Random("-".join(map(str, name)))  # noqa: S311 - nothing here is a secret


def split(text: str) -> tuple[str, ...]:
    """Return the phrases of a list, which vertical bars separate."""
    return tuple(text.split("|"))
