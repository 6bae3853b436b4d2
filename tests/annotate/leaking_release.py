"""A replica of FigSIM's release whose split leaks: the labels of its Table 8, repeat posters, and near-duplicates.

Of the authors 15 % post three memes each, and 12 % of the memes are near-duplicates in pairs; the split knows neither.
"""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
import yaml
from PIL import Image

from pipelines.annotate.imports import mapping
from tests.annotate import published_sets as sets

REPEATING, EACH, PAIRS = 121, 3, 63
ORDER = ("train", "validation", "test")


@dataclass(frozen=True)
class Release:
    """What is true of each meme: its split, its author, and the near-duplicate that it copies."""

    split: dict[str, str]
    author: dict[str, str]
    copies: dict[str, str]

    def leaking(self) -> set[str]:
        """Return the memes that authors and near-duplicates link to an earlier split, over any number of memes.

        Memes of later splits do not count: two of validation that only a meme of test links are not linked.
        """
        found: set[str] = set()
        for n, own in enumerate(ORDER):
            known = {name for name, split in self.split.items() if split in ORDER[: n + 1]}
            links = nx.Graph((name, self.author[name]) for name in known)
            links.add_edges_from(pair for pair in self.copies.items() if known.issuperset(pair))
            for group in nx.connected_components(links):
                memes = group & known
                if any(self.split[name] != own for name in memes):
                    found |= {name for name in memes if self.split[name] == own}
        return found


def write(folder: Path) -> Release:
    """Write ``labels.csv``, its ``mapping.yaml`` and the folder ``pictures``."""
    chance, noise = random.Random(8), np.random.default_rng(8)
    sets.figsim(folder / "figsim.csv")
    with (folder / "figsim.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = [f"m{n:04d}" for n in range(len(rows))]
    authors = [f"repeats {n}" for n in range(REPEATING) for _ in range(EACH)]
    authors += [f"once {n}" for n in range(len(rows) - len(authors))]
    chance.shuffle(authors)
    paired = chance.sample(names, 2 * PAIRS)
    copies = dict(zip(paired[::2], paired[1::2], strict=True))
    captions = {name: f"I thought of the {' '.join(chance.choices(sets.WORDS, k=9))}, number {name}" for name in names}
    grounds = {name: noise.integers(0, 255, (6, 6), np.uint8) for name in names}
    (folder / "pictures").mkdir()
    for name in names:
        seen = copies.get(name, name)
        picture = Image.fromarray(grounds[seen]).resize((128, 128), Image.Resampling.BICUBIC)
        picture.save(folder / "pictures" / f"{name}.jpg", quality=60 if name in copies else 90)
    lines = [
        [name, author, f"{name}.jpg", captions[copies.get(name, name)], *list(row.values())[1:]]
        for name, author, row in zip(names, authors, rows, strict=True)
    ]
    sets.table(folder / "labels.csv", ["id", "user", "picture", "caption", *list(rows[0])[1:]], lines)
    made = yaml.safe_load((mapping.FOLDER / "figsim.yaml").read_text())
    columns = {"own": ["id"], "own_author": ["user"], "picture": ["picture"], "body": ["caption"]}
    made |= {"dataset": "replica", "columns": columns, "month": "2017-12", "rights": "ours"}
    (folder / "mapping.yaml").write_text(yaml.safe_dump(made))
    split = {name: row["split"].replace("val", "validation") for name, row in zip(names, rows, strict=True)}
    return Release(split, dict(zip(names, authors, strict=True)), copies)
