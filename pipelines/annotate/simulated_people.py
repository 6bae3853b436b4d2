"""Draw the posts that the sandbox's simulated annotators label, where people label only some splits (CRADLE 3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from random import Random

import numpy as np

from pipelines.config.params import Params
from pipelines.curate.items import load, published_split
from pipelines.curate.units import resolve, target_sizes
from pipelines.storage.tables import Item
from pipelines.vault.vault import Vault


def asked_of(corpus: str, sample: Collection[Item], *, params: Params, vault: Vault, root: Path) -> set[Item]:
    """Return the sampled items that simulated annotators label: all, or as many as the splits in ``gold`` hold.

    ``gold.<corpus>.splits`` in ``params.yaml`` names these splits; without it, all items are returned.

    Items that are assigned to these splits come first, then whole groups of linked items, drawn at random.
    """
    within, section = params.gold[corpus].splits, params.split[corpus]
    if within is None:
        return set(sample)
    promised = {**vault.assignments(corpus, version=section.version), **published_split(section, root=root)}
    asked = {item for item, split in promised.items() if split in within and item in sample}
    sizes = dict(zip(section.ratios, target_sizes(len(sample), ratios=section.ratios), strict=True))
    room = sum(sizes[name] for name in within) - len(asked)
    for group in _groups(corpus, sample, params=params, root=root):
        if len(group) <= room and promised.keys().isdisjoint(group):
            asked.update(group)
            room -= len(group)
    return asked


def _groups(corpus: str, sample: Collection[Item], *, params: Params, root: Path) -> list[list[Item]]:
    everything = load(corpus, params=params, root=root)
    units = resolve(everything.links, assigned=np.full(len(everything), -1, np.int64))
    groups = defaultdict(list)
    for item, i in everything.at(sample).items():
        groups[units.unit[i]].append(item)
    drawn = list(groups.values())
    Random(params.split[corpus].seed).shuffle(drawn)  # noqa: S311 (a draw that must repeat, not a secret)
    return drawn
