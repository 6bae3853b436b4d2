"""A published split is taken as its authors made it, member by member, from the import to the split."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.annotate import gold
from pipelines.curate import sample, split
from pipelines.curate.dedupe import dedupe
from pipelines.store import tables
from pipelines.workspace.clone import workspace
from tests.annotate import published_sets as sets
from tests.annotate.test_imports import NOW, Imports, empty, params, run, settings, vault
from tests.contexts import context_of

__all__ = ["empty", "params", "run", "settings", "vault"]
FOLDER = "annotations/posts/replica"
MAPPING = {
    **{"dataset": "replica", "title": "A replica", "source": "made here", "tried": "yes", "assumed": "nothing"},
    **{"scheme": "cradle", "level": "item", "format": "jsonl", "month": "2017-12"},
    "columns": {"own": ["id"], "own_author": ["user"], "body": ["body"]},
    "parts": {name: {"split": name, "columns": ["split"], "values": [name]} for name in ("train", "dev", "test")},
    "labels": {"labels": {"columns": ["label"]}},
    "lengths": {"min_words": 1, "max_words": 2000},
}
# 15 % of the authors who have two posts have them in two splits, and 12 % of the posts have a near-duplicate
AUTHORS = {
    **{f"test {n}": f"train {n}" for n in range(3)},
    **{f"dev {n}": f"train {n + 3}" for n in range(2)},
    **{f"test {n}": "dev 2" for n in (3, 4)},
}
COPIES = {
    **{"test 5": "train 5", "test 6": "train 6", "dev 5": "train 12", "test 9": "dev 6"},  # across splits
    **{"test 8": "test 7", "train 11": "train 10"},  # inside one
    "test 10": "test 0",  # of an item that leaks
}
LEAKS = {*(f"test {n}" for n in (0, 1, 2, 3, 4, 5, 6, 9, 10)), "dev 0", "dev 1", "dev 5"}
# later posts without a split: by an author in two splits, by one in test, a copy, and others
LATER = {"later 0": "train 0", "later 1": "test 7", **{f"later {n}": f"later {n}" for n in range(2, 8)}}


def rows() -> list[dict[str, str]]:
    """Return T8's shape in small: 60, 20 and 20 posts, and later ones that no split has."""
    names = [f"{name} {n}" for name, size in (("train", 60), ("dev", 20), ("test", 20)) for n in range(size)]
    draw = random.Random(1)
    bodies: dict[str, str] = {}
    for name in [*names, *LATER]:
        copied = {**COPIES, "later 2": "train 20"}.get(name)
        bodies[name] = f"{bodies[copied]} again" if copied else " ".join(draw.choices(sets.prose(name).split(), k=8))
    return []


@pytest.mark.parametrize("name", ["x"])
def test_x(name: str) -> None: ...
