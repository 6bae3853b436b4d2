"""Labelled posts of the sandbox's own writer, short, for the offline labellers."""

from __future__ import annotations

from random import Random

from crisis_corpus_sandbox.reddit import label_quotas, narratives
from pipelines.datasets.post import Post

Gold = list[tuple[Post, frozenset[str]]]


def written(count: int, *, seed: int, words: int = 40) -> Gold:
    """Return posts with CRADLE's marginals and the labels that their sentences carry."""
    rng = Random(seed)
    made = []
    for number, chosen in enumerate(label_quotas.cradle(count, rng=rng)):
        told = narratives.write(chosen, rng=rng, words=words)
        made.append((Post(f"{seed:04x}{number:04x}", told.title, told.body), frozenset(chosen)))
    return made


def pairs(count: int) -> list[str]:
    """Return groups of two."""
    return [f"group{number // 2}" for number in range(count)]
