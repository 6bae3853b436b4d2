"""A small sealed corpus of memes with pictures, split and with gold, on which a tiny model can learn something.

A label shows as a word in the text, as a patch of its own colour in the picture, or as both. Words are mild and ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any, Literal

from PIL import Image, ImageDraw

from pipelines.core.config.params import Params
from pipelines.core.config.params import load as load_params
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets import items
from pipelines.datasets.example import Item, Material
from pipelines.store.vault.vault import Vault
from tests import small_corpus
from tests.small_corpus import MONTHS, NOW, write_table
from tests.small_corpus import ROOT as REPO

__all__ = ["MONTHS", "NOW", "REPO", "write_table"]
SIZES = {"train": 60, "validation": 20, "test": 20}
SIDE = 64  # pixels of a picture, which is a grid of four by four patches
Shows = Literal["text", "image", "both"]
# category -> label of the annotators -> the word that gives it away
WORDS: dict[str, dict[str, str]] = {
    "figurative": {"Metaphor": "boat", "Pun/Double meaning": "crayon", "Irony/sarcasm": "lovely"},
    "severity": {
        "None": "monday",
        "Wish to be dead": "fog",
        "Suicide ideation": "cloud",
        "Suicide planning": "calendar",
        "Suicide attempts": "door",
        "Suicide death": "chair",
    },
    "related": {
        "Suicide methods/locations: stylized depiction": "cartoon",
        "Suicide methods/locations: naturalistic depiction": "photo",
        "Protective factors": "dog",
        "Harmful factors": "storm",
        "Third-person description": "cousin",
    },
}
FILLERS = ("when", "you", "see", "the", "week", "again", "so", "here", "we", "go")
PALETTE = ("red", "lime", "blue", "yellow", "magenta", "cyan", "orange", "purple", "brown", "pink", "navy", "teal")


@dataclass(frozen=True)
class Meme:
    """One meme in plain; ``text`` is ``None`` where the picture has no words."""

    fullname: str
    split: str
    labels: Mapping[str, frozenset[str]]
    text: str | None
    image: bytes


@dataclass(frozen=True)
class SmallMemes:
    """A corpus on disk below ``root``; ``memes`` has what went in."""

    root: Path
    vault: Vault
    params: Params
    memes: Mapping[Item, Meme]

    def task(self, key: str) -> Task:
        return task_of(load_scheme("figsim"), key)

    def load(self, key: str = "figurative", subset: str | None = "gold", **changed: Any) -> Material:
        given = {"params": self.params, "vault": self.vault, "root": self.root}
        return items.load("memes", task=self.task(key), subset=subset, ensemble="cradle", **given | changed)


def write(
    root: Path, *, vault: Vault, sizes: Mapping[str, int] | None = None, shows: Shows = "both", seed: int = 7
) -> SmallMemes:
    """Write data, split and gold of the corpus ``memes``: two months, each in two shards; one text in ten is missing.

    Every second item of a split shares its group with the one before it. Severities take turns, so that each split of
    six items or more has them all; the other labels come with a third each.
    """
    rng = Random(seed)
    names = [split for split, size in (sizes or SIZES).items() for _ in range(size)]
    memes = [_meme(number, split, rng=rng, shows=shows) for number, split in enumerate(names)]
    by_item = {(vault.record_id(meme.fullname), 0): meme for meme in memes}
    for month in range(len(MONTHS)):
        _month(root, month, items=list(by_item.items())[month :: len(MONTHS)], vault=vault)
    small_corpus.write_splits(root, {item: meme.split for item, meme in by_item.items()}, corpus="memes")
    write_gold(root, {item: meme.labels for item, meme in by_item.items()})
    return SmallMemes(root, vault, load_params(REPO), by_item)


def write_gold(root: Path, labels: Mapping[Item, Mapping[str, frozenset[str]]]) -> None:
    """Write the results of the stages ``gold`` and ``few_shot``."""
    rows = small_corpus.gold_rows(labels)
    write_table(root / "snapshot" / "memes" / "gold" / "gold.parquet", rows, name="gold")
    small_corpus.write_examples(root / "snapshot" / "memes")


def picture(labels: Mapping[str, frozenset[str]]) -> bytes:
    """Draw each label's patch, at its own place and in its own colour, as PNG."""
    image = Image.new("RGB", (SIDE, SIDE), "white")
    draw = ImageDraw.Draw(image)
    patches = [(key, label) for key, words in WORDS.items() for label in words]
    for place, (key, label) in enumerate(patches):
        if label in labels[key]:
            side = SIDE // 4
            x, y = place % 4 * side, place // 4 * side
            draw.rectangle((x, y, x + side - 1, y + side - 1), fill=PALETTE[place % len(PALETTE)])
    buffer = BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def _meme(number: int, split: str, *, rng: Random, shows: Shows) -> Meme:
    severities = list(WORDS["severity"])
    labels = {
        "figurative": frozenset(label for label in WORDS["figurative"] if rng.random() < 1 / 3),
        "severity": frozenset({severities[number % len(severities)]}),
        "related": frozenset(label for label in WORDS["related"] if rng.random() < 1 / 3),
        "modality": frozenset({rng.choice(["complementary", "text", "image"])}),
        "context": frozenset({rng.choice(["no-context-required", "context-required"])}),
    }
    words = rng.sample(FILLERS, 4)
    if shows != "image":
        words += [word for key, known in WORDS.items() for label, word in known.items() if label in labels[key]]
    rng.shuffle(words)
    text = None if number % 10 == 9 else " ".join(words)
    nothing: dict[str, frozenset[str]] = dict.fromkeys(WORDS, frozenset())
    return Meme(f"t3_m{number}", split, labels, text, picture(nothing if shows == "text" else labels))


def _month(root: Path, month: int, *, items: list[tuple[Item, Meme]], vault: Vault) -> None:
    name = MONTHS[month]
    small_corpus.admit(vault, {item[0]: meme.fullname for item, meme in items}, corpus="memes", month=name)
    shards = [
        [{"record_id": r, "image": n, "bytes": meme.image, "text": meme.text or ""} for (r, n), meme in items[shard::2]]
        for shard in range(2)
    ]
    small_corpus.write_images(root, shards, corpus="memes", month=name, vault=vault)
