"""Load the items of a corpus, images or texts, decrypted in memory only: as examples for models, or as posts to label.

Train has silver labels (decided by an ensemble of models) or gold ones (by people), validation and test gold. Labels
are mapped to the task's label space (``Task.seen``), which merges some and leaves others out.

Access is restricted (:mod:`pipelines.datasets.example`): examples of test carry no labels, and ``only`` refuses
examples of another split. In addition, an item of train never has a label from outside its subset, and the items of
validation whose answers are shown in the prompt (CRADLE B) are not used for validation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.core.config.params import Params
from pipelines.core.errors import BadParams, ConfigError, DataError
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import TEST, TRAIN, VALIDATION, Item, LabelSet, Material, NoGold, groups_apart, material
from pipelines.datasets.post import Post
from pipelines.store import tables
from pipelines.store.seal import open_columns, open_posts
from pipelines.store.vault.vault import Vault

GOLD = "gold"
# CRADLE 5.1: the agreement that a silver label needs; unanimous items are part of the consensus
AGREEMENTS: dict[str, frozenset[str]] = {
    "unanimous": frozenset({"unanimous"}),
    "consensus": frozenset({"unanimous", "consensus"}),
}
# the names that corpora use for the validation split
VALIDATIONS = ("dev", VALIDATION)


def opened_posts(corpus: str, *, ids: Collection[str], vault: Vault, root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield record id, decrypted title and body of those of a corpus's posts in ``ids`` that were not taken down."""
    wanted = tables.strings(sorted(ids))
    for path in sorted((root / "data" / corpus).glob("*/records.parquet")):
        table = tables.read(path, name="records", columns=["record_id", "title", "body"])
        yield from open_posts(table.filter(pa.compute.is_in(table["record_id"], value_set=wanted)), vault=vault)


def months_of(corpus: str, *, root: Path) -> dict[str, str]:
    """Return the month of creation of each record, empty if it is not known, as of an imported one."""
    paths = sorted((root / "data" / corpus).glob("*/records.parquet"))
    table = tables.concat(paths, name="records", columns=["record_id", "created"])
    created = table["created"].to_pylist()
    return {
        record: f"{at:%Y-%m}" if at else "" for record, at in zip(table["record_id"].to_pylist(), created, strict=True)
    }


def open_images(
    folder: Path, *, items: Collection[Item], vault: Vault
) -> Iterator[tuple[Item, tuple[str, bytes | None]]]:
    """Yield the text and picture of ``items``; the content of a file with none of them is never loaded."""
    for path in sorted(folder.glob("*/images/*.parquet")):
        wanted = [
            item in items for item in tables.items_of(tables.read(path, name="images", columns=["record_id", "image"]))
        ]
        if not any(wanted):
            continue
        table = tables.read(path, name="images", columns=["record_id", "image", "bytes", "text"])
        table = table.filter(pa.array(wanted, pa.bool_()))
        texts, pictures = open_columns(table, name="images", columns=["text", "bytes"], vault=vault)
        for item, text, picture in zip(tables.items_of(table), texts, pictures, strict=True):
            yield item, ((text or b"").decode(), picture)


def _texts(corpus: str, *, items: Collection[Item], vault: Vault, root: Path) -> Iterator[tuple[Item, Post]]:
    for post in opened_posts(corpus, ids={record_id for record_id, _ in items}, vault=vault, root=root):
        yield (post[0], 0), Post(*post)


def _images(corpus: str, *, items: Collection[Item], vault: Vault, root: Path) -> Iterator[tuple[Item, Post]]:
    for item, (text, picture) in open_images(root / "data" / corpus, items=items, vault=vault):
        yield item, Post(item[0], title="", body=text, images=() if picture is None else (picture,))


@dataclass(frozen=True)
class _Content:
    """How items of one content are read: what they have as input, and what a model of text reads of one."""

    inputs: tuple[str, ...]
    table: str
    read: Callable[..., Iterator[tuple[Item, Post]]]
    text: Callable[[Post], str]


CONTENTS = {
    "texts": _Content(("text",), "records", _texts, lambda post: post.text),
    "images": _Content(("text", "image"), "images", _images, lambda post: post.body),
}


def opened(
    corpus: str, *, content: str, items: Collection[Item], vault: Vault, root: Path
) -> tuple[dict[Item, Post], Collection[str]]:
    """Return items as posts, sorted, and the records of ``items`` that were taken down; these have no post.

    The body of an image's post is the text read from it, its title is empty.
    """
    how = CONTENTS[content]
    found = dict(sorted(how.read(corpus, items=items, vault=vault, root=root), key=lambda pair: pair[0]))
    # queried after the opening: a record taken down meanwhile opens as empty and must be excluded
    gone = vault.tombstoned({record_id for record_id, _ in items})
    if lost := sum(item[0] not in gone and item not in found for item in items):
        raise DataError("SchemaMismatch", table=how.table, detail=f"{lost} items of the split are missing")
    return {item: post for item, post in found.items() if item[0] not in gone}, gone


@dataclass(frozen=True)
class SplitItems:
    """The items in the splits of a corpus, decrypted in memory, with their splits, groups and existing gold labels.

    ``gold`` has label sets by category and item; ``examples`` are the items whose answers the prompts show.
    """

    posts: dict[Item, Post]
    split: dict[Item, str]
    group: dict[Item, str]
    gold: dict[str, dict[Item, LabelSet]]
    examples: tuple[Item, ...]
    scheme: Scheme
    root: Path = Path()

    @classmethod
    def read(cls, corpus: str, *, params: Params, vault: Vault, root: Path) -> SplitItems:
        """Read the items of all splits of a corpus, sorted, without those whose record was taken down."""
        folder = _snapshot(corpus, root=root)
        placed = tables.splits(folder)
        content = params.corpora[corpus].content
        return cls(
            posts=opened(corpus, content=content, items=placed.keys(), vault=vault, root=root)[0],
            split={item: split for item, (split, _) in placed.items()},
            group={item: group for item, (_, group) in placed.items()},
            gold=tables.gold(folder, within=placed),
            examples=tuple(sorted(tables.examples(folder))),
            scheme=scheme_of(params.corpora[corpus].scheme, root=root),
            root=root,
        )

    def shards(self, *, size: int) -> list[list[Item]]:
        """Return the items with content in shards of ``size``, in their order."""
        items = list(self.posts)
        return [items[i : i + size] for i in range(0, len(items), size)]


def _snapshot(corpus: str, *, root: Path) -> Path:
    folder = root / "snapshot" / corpus
    for path in ("split/splits.parquet", "gold/gold.parquet", "few_shot/examples.parquet"):
        if not (folder / path).is_file():
            raise NoGold(corpus=corpus)
    return folder


def load(
    corpus: str,
    *,
    task: Task,
    subset: str | None,
    ensemble: str | None,
    params: Params,
    vault: Vault,
    root: Path = Path(),
    weighted: bool = False,
) -> Material:
    """Return the items with labels of the task as examples by split; records that were taken down are only counted.

    The labels of train are those of a ``subset``: ``unanimous`` or ``consensus`` of the silver of ``ensemble``, or
    ``gold`` (of people); ``None`` loads train without labels, for prediction only. With ``weighted``, an example of
    train has the posterior of its silver labels as its weight (mean 1 over train).
    """
    folder = _snapshot(corpus, root=root)
    placed = groups_apart(tables.read(folder / "split" / "splits.parquet", name="splits").to_pylist(), corpus=corpus)
    named = {*params.split[corpus].ratios, *(split for split, _ in placed.values())}
    if (name := next((name for name in VALIDATIONS if named == {TRAIN, name, TEST}), None)) is None:
        detail = f"models need the splits {TRAIN}, {' or '.join(VALIDATIONS)}, {TEST}"
        raise BadParams(where=f"split.{corpus}.ratios", detail=detail)
    own = {TRAIN: TRAIN, name: VALIDATION, TEST: TEST}
    inside = {item: (own[split], group) for item, (split, group) in placed.items()}
    gold = tables.gold(folder, within=inside).get(task.key, {})
    # the prompt shows their answers
    shown = {item for item in tables.examples(folder) & gold.keys() if inside[item][0] == VALIDATION}
    labels = {item: task.seen(chosen) for item, chosen in gold.items() if item not in shown}
    posterior: dict[Item, float] = {}
    if subset != GOLD:
        labels = {item: chosen for item, chosen in labels.items() if inside[item][0] != TRAIN}
    if subset not in (None, GOLD):
        silver, posterior = _silver(corpus, subset=str(subset), ensemble=str(ensemble), task=task, root=root)
        labels |= {item: silver[item] for item, (split, _) in inside.items() if split == TRAIN and item in silver}
    content = params.corpora[corpus].content
    posts, gone = opened(corpus, content=content, items=labels.keys(), vault=vault, root=root)
    gone = {*gone, *vault.tombstoned({record_id for record_id, _ in inside})}
    posts = {item: post for item, post in posts.items() if item[0] not in gone}
    loaded = material(
        task,
        placed=inside,
        gold=labels,
        posts=posts,
        text=CONTENTS[content].text,
        gone=gone,
        validation_name=name,
        examples=sum(item[0] not in gone for item in shown),
    )
    # as in the table of splits, with the corpus's own names
    loaded = replace(loaded, placed=placed)
    return replace(loaded, train=_weighted(loaded, posterior=posterior)) if weighted and posterior else loaded


def _silver(
    corpus: str, *, subset: str, ensemble: str, task: Task, root: Path
) -> tuple[dict[Item, LabelSet], dict[Item, float]]:
    """Return the labels, and their posterior if known, of the items on which the ensemble agrees enough."""
    if subset not in AGREEMENTS:
        raise BadParams(where=f"train.rows.{corpus}.subsets", detail=f"there is no training subset '{subset}'")
    path = root / "snapshot" / corpus / "silver" / ensemble / "silver.parquet"
    if not path.is_file():
        raise ConfigError("NoSilver", corpus=corpus, ensemble=ensemble)
    columns = ["record_id", "image", "category", "labels", "agreement", "posterior"]
    rows: dict[Item, dict[str, Any]] = {
        (row["record_id"], row["image"]): row
        for row in tables.read(path, name="silver", columns=columns).to_pylist()
        if row["category"] == task.key and row["labels"] is not None and row["agreement"] in AGREEMENTS[subset]
    }
    labels = {item: task.seen(frozenset(row["labels"])) for item, row in rows.items()}
    return labels, {item: row["posterior"] for item, row in rows.items() if row["posterior"] is not None}


def _weighted(loaded: Material, *, posterior: Mapping[Item, float]) -> tuple[Any, ...]:
    mean = sum(posterior.get(e.item, 1.0) for e in loaded.train) / max(1, len(loaded.train))
    return tuple(replace(e, weight=posterior.get(e.item, 1.0) / mean) for e in loaded.train)


def split_digest(corpus: str, *, root: Path) -> str:
    """Return the SHA-256 of a corpus's split; results on splits with different digests are not comparable."""
    placed = tables.splits(root / "snapshot" / corpus)
    return digest_of(f"{record_id} {image} {split}" for (record_id, image), (split, _) in placed.items())


def digest_of(lines: Iterable[str]) -> str:
    """Return the SHA-256 of the lines, sorted and each with a line end."""
    return hashlib.sha256("".join(f"{line}\n" for line in sorted(lines)).encode()).hexdigest()
