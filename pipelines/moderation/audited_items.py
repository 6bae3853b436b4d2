"""Read the items of a corpus that moderation systems are asked about: those with gold, with their labels and groups."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipelines.config.params import Params
from pipelines.datasets.example import Item, NoGold, groups_apart
from pipelines.datasets.memes import opened
from pipelines.moderation.systems import AuditedItem
from pipelines.storage import tables
from pipelines.storage.seal import open_posts
from pipelines.taxonomy import Category, Scheme
from pipelines.taxonomy import load as scheme_of
from pipelines.vault.vault import Vault


@dataclass(frozen=True)
class AuditedItems:
    """The items of an audit, sorted, with the gold labels by category and the group of near-duplicates of each.

    ``taken_down`` counts the items whose record was taken down; they are not among the items.
    """

    scheme: Scheme
    items: Mapping[Item, AuditedItem]
    labels: Mapping[str, Mapping[Item, frozenset[str]]]
    groups: Mapping[Item, str]
    taken_down: int

    @property
    def by(self) -> Category:
        """The category by whose labels figures are given: the ordinal one (severity), or the scheme's first."""
        categories = list(self.scheme.categories.values())
        return next((one for one in categories if one.ordinal), categories[0])

    def levels(self, item: Item) -> frozenset[str]:
        """Return the labels of an item in the category :attr:`by`; an empty set is the label for none."""
        found = self.labels.get(self.by.key, {}).get(item, frozenset())
        return found or frozenset({self.by.none} if self.by.none else ())

    def figurative(self, item: Item) -> bool | None:
        """Return whether an item has figurative language; ``None`` if the scheme does not say or it has no gold."""
        category = self.scheme.categories.get("figurative")
        found = self.labels.get("figurative", {}).get(item)
        return None if category is None or found is None else bool(found - {category.none})


def read(corpus: str, *, params: Params, vault: Vault, root: Path = Path()) -> AuditedItems:
    """Read at most ``moderation.items`` items of a corpus with gold in the category of the figures.

    A smaller number is drawn by a digest of seed and item: a new snapshot draws the items again that it still has.
    """
    folder = root / "snapshot" / corpus
    splits, gold = folder / "split" / "splits.parquet", folder / "gold" / "gold.parquet"
    if not (splits.is_file() and gold.is_file()):
        raise NoGold(corpus=corpus)
    placed = groups_apart(tables.read(splits, name="splits").to_pylist(), corpus=corpus)
    scheme = scheme_of(params.corpora[corpus].scheme, root=root)
    labels: dict[str, dict[Item, frozenset[str]]] = {}
    for row in tables.read(gold, name="gold").to_pylist():
        item = (str(row["record_id"]), int(row["image"]))
        labels.setdefault(row["category"], {})[item] = frozenset(row["labels"])
    found = AuditedItems(scheme, {}, labels, {}, 0)
    labelled = placed.keys() & labels.get(found.by.key, {}).keys()
    chosen = drawn(labelled, most=params.moderation.items, seed=params.moderation.seed)
    content = _images if params.corpora[corpus].content == "images" else _texts
    items = content(corpus, chosen, vault=vault, root=root)
    groups = {item: placed[item][1] for item in items}
    return AuditedItems(scheme, dict(sorted(items.items())), labels, groups, len(chosen) - len(items))


def drawn(items: Collection[Item], *, most: int | None, seed: int) -> list[Item]:
    """Return at most ``most`` items, those with the least digests of seed and item; all of them without a number."""
    if most is None or len(items) <= most:
        return sorted(items)

    def digest(item: Item) -> str:
        return hashlib.sha256(f"{seed} {item[0]} {item[1]}".encode()).hexdigest()

    return sorted(sorted(items, key=digest)[:most])


def _images(corpus: str, items: Collection[Item], *, vault: Vault, root: Path) -> dict[Item, AuditedItem]:
    found, gone = opened(corpus, items=set(items), vault=vault, root=root)
    return {
        item: AuditedItem(item[0], title="", body=text, images=() if picture is None else (picture,))
        for item, (text, picture) in found.items()
        if item[0] not in gone
    }


def _texts(corpus: str, items: Collection[Item], *, vault: Vault, root: Path) -> dict[Item, AuditedItem]:
    months = sorted((root / "data" / corpus).glob("*/posts.parquet"))
    wanted = tables.strings(sorted({record_id for record_id, _ in items}))
    table = tables.concat(months, name="posts", columns=["record_id", "title", "body"])
    table = table.filter(pa.compute.is_in(table["record_id"], value_set=wanted))
    return {
        (record_id, 0): AuditedItem(record_id, title=title, body=body)
        for record_id, title, body in open_posts(table, vault=vault)
    }
