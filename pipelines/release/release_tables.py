"""Build the tables of a release, as annotations and splits or as a file for each split, from fixed columns.

One function produces the cells of all columns; a column that it does not know cannot be released.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from crisis_corpus.hydrate import FULLNAME, joined
from pipelines.core.config.operate import AGREEMENT, METADATA, VOTES, Shape
from pipelines.core.config.params import Params
from pipelines.core.errors import BadParams, DataError
from pipelines.core.taxonomy import Category, load
from pipelines.datasets.annotators import answers_of
from pipelines.release.anonymity import Person
from pipelines.release.release_store import Content
from pipelines.store import tables
from pipelines.store.seal import open_column
from pipelines.store.vault.vault import Vault

COLUMNS = ("author_id", "subreddit", "created")
SEALED = ("title", "body", "media")
Item = tuple[str, int]
GOLD = "gold"
# CRADLE 5.1: what is unanimous is within the consensus
RELEASED = ("unanimous", "consensus")


@dataclass(frozen=True)
class ReleasedPost:
    """One post that may be released: Reddit's fullname, author and metadata, and content."""

    fullname: str = field(repr=False)
    person: Person
    content: Content


@dataclass(frozen=True)
class ReleaseMaterial:
    """The posts that may be released, by record id, and the omitted records: taken down, or without a Reddit id."""

    posts: dict[str, ReleasedPost]
    taken_down: frozenset[str]
    no_address: frozenset[str]


def read(corpus: str, *, record_ids: Collection[str], vault: Vault, root: Path) -> ReleaseMaterial:
    """Read and decrypt the posts of these records, for a release.

    An imported record may have no Reddit id. Such a record is not released, because consumers could not fetch it, and a
    deletion on Reddit would never be noticed.
    """
    wanted = pa.array(sorted(record_ids), pa.string())
    people: dict[str, tuple[Person, Content]] = {}
    for path in sorted((root / "data" / corpus).glob("*/records.parquet")):
        table = tables.read(path, name="records", columns=["record_id", *COLUMNS, *SEALED])
        table = table.filter(pc.is_in(table["record_id"], value_set=wanted))
        plain = [open_column(table, name="records", column=column, vault=vault) for column in SEALED]
        rows = table.select(["record_id", *COLUMNS]).to_pylist()
        for row, title, body, media in zip(rows, *plain, strict=True):
            created = row["created"]
            month = f"{created:%Y-%m}" if created else None
            person = Person(row["author_id"] or row["record_id"], month, row["subreddit"])
            pictures = tuple(addresses[0] for addresses in json.loads(media)) if media else ()
            text = joined(*((value or b"").decode() for value in (title, body)))
            people[row["record_id"]] = (person, Content(text, pictures))
    # checked after opening: a record taken down meanwhile opens as None and must not be taken for an empty post
    gone = vault.tombstoned(record_ids)
    fullnames = vault.fullnames([r for r in record_ids if r not in gone])
    lost = [r for r in fullnames if r not in people]
    if lost:
        raise DataError("SchemaMismatch", table="records", detail=f"{len(lost)} records of the split are missing")
    there = {r: name for r, name in fullnames.items() if FULLNAME.fullmatch(name)}
    posts = {r: ReleasedPost(name, *people[r]) for r, name in there.items()}
    # records taken down between the two queries have no name any more
    gone |= set(record_ids) - gone - fullnames.keys()
    return ReleaseMaterial(posts, frozenset(gone), frozenset(fullnames.keys() - there.keys()))


@dataclass(frozen=True)
class Labelled:
    """An item of the split with its labels by category, in the scheme's order; ``None`` for a category without any.

    ``votes`` is the cell of the column of that name: JSON, by category the number of annotators who gave each label.
    """

    split: str
    labels: Mapping[str, tuple[str, ...] | None]
    agreement: str
    votes: str = ""


@dataclass(frozen=True)
class Released:
    """One row of a release: an item with its release id and generalised metadata."""

    id: str
    image: int
    labelled: Labelled
    metadata: Mapping[str, str]


def categories(corpus: str, *, shape: Shape, params: Params, root: Path) -> dict[str, Category]:
    """Return by name the label categories that a release of this form (``shape``) contains."""
    scheme = load(params.corpora[corpus].scheme, root=root)
    if unknown := [c for c in shape.categories if c not in scheme.categories]:
        known = ", ".join([*METADATA, AGREEMENT, VOTES, *scheme.categories])
        detail = f"{', '.join(unknown)} may not be released; allowed are {known}"
        raise BadParams(where=f"release.corpora.{corpus}.columns", detail=detail)
    return {c: scheme.categories[c] for c in shape.categories}


def labelled(
    corpus: str, *, categories: Mapping[str, Category], shape: Shape, params: Params, root: Path
) -> tuple[dict[Item, Labelled], int]:
    """Return the items of the split that have labels to release, and the number of other items.

    Gold is released in every split. With the column ``agreement``, a train item without gold has the labels of the
    ensemble (``train.rows``) if its members agreed in every category. The field ``agreement`` is ``unanimous``,
    ``consensus`` or ``gold``.
    """
    folder = root / "snapshot" / corpus
    splits = tables.read(folder / "split" / "splits.parquet", name="splits").to_pylist()
    by_item: dict[Item, dict[str, tuple[str, ...]]] = {}
    for row in tables.read(folder / "gold" / "gold.parquet", name="gold").to_pylist():
        if row["category"] in categories:
            labels = _ordered(row["labels"], category=categories[row["category"]])
            by_item.setdefault((row["record_id"], row["image"]), {})[row["category"]] = labels
    silver = (
        _silver(folder, ensemble=params.ensemble(corpus), categories=categories) if AGREEMENT in shape.columns else {}
    )
    votes = _votes(corpus, categories=categories, root=root) if VOTES in shape.columns else {}
    items: dict[Item, Labelled] = {}
    for row in splits:
        item = (str(row["record_id"]), int(row["image"]))
        if item in by_item:
            agreement, known = GOLD, by_item[item]
        elif row["split"] == tables.TRAIN and item in silver:
            agreement, known = silver[item]
        else:
            continue
        items[item] = Labelled(str(row["split"]), {c: known.get(c) for c in categories}, agreement, votes.get(item, ""))
    return items, len(splits) - len(items)


def _votes(corpus: str, *, categories: Mapping[str, Category], root: Path) -> dict[Item, str]:
    """Return the cell of the column ``votes`` of the items that two or more annotators answered."""
    answers, counts = answers_of(corpus, root=root), dict[Item, dict[str, dict[str, int]]]()
    for key, category in categories.items():
        for item, sets in answers.get(key, {}).items():
            given = Counter(label for labels in sets for label in _ordered(labels, category=category))
            ordered = {label.name: given[label.name] for label in category.labels if given[label.name]}
            counts.setdefault(item, {})[key] = ordered
    return {item: json.dumps(each, ensure_ascii=False) for item, each in counts.items()}


def shared_votes(items: Mapping[Item, Labelled], *, authors: Mapping[str, str], k: int) -> dict[Item, Labelled]:
    """Return the items without votes that fewer than ``k`` authors share together with the labels."""
    people: dict[object, set[str]] = {}
    for (record_id, _), item in items.items():
        people.setdefault((item.votes, *item.labels.items()), set()).add(authors.get(record_id, record_id))
    few = {key for key, known in people.items() if len(known) < k}
    return {
        key: replace(item, votes="") if (item.votes, *item.labels.items()) in few else item
        for key, item in items.items()
    }


def _silver(
    folder: Path, *, ensemble: str | None, categories: Mapping[str, Category]
) -> dict[Item, tuple[str, dict[str, tuple[str, ...]]]]:
    """Return the weakest agreement and the labels by category of items that the ensemble agreed on."""
    path = folder / "silver" / str(ensemble) / "silver.parquet"
    if not path.is_file():
        return {}
    columns = ["record_id", "image", "category", "labels", "agreement"]
    agreed: dict[Item, dict[str, tuple[str, tuple[str, ...]]]] = {}
    for row in tables.read(path, name="silver", columns=columns).to_pylist():
        if (category := categories.get(row["category"])) and row["labels"] is not None and row["agreement"] in RELEASED:
            labels = _ordered(row["labels"], category=category)
            agreed.setdefault((row["record_id"], row["image"]), {})[category.key] = row["agreement"], labels
    return {
        item: (
            max((how for how, _ in found.values()), key=RELEASED.index),
            {c: labels for c, (_, labels) in found.items()},
        )
        for item, found in agreed.items()
        if found.keys() == categories.keys()
    }


def _ordered(labels: Iterable[str], *, category: Category) -> tuple[str, ...]:
    chosen = set(labels) or ({category.none} if category.none else set())
    return tuple(label.name for label in category.labels if label.name in chosen)


def key_columns(content: str) -> list[str]:
    """Return the columns that identify an item of a corpus with this content."""
    return ["id", "image"] if content == "images" else ["id"]


def files(rows: Sequence[Released], *, shape: Shape, content: str) -> dict[str, str]:
    """Return by name the text of each file of labels and splits in a release, sorted by the release's own ids."""
    key = key_columns(content)

    def table(columns: Sequence[str], chosen: Iterable[Released]) -> str:
        ordered = sorted(chosen, key=lambda row: (row.id, row.image))
        return written(columns, ({column: _cell(row, column, shape=shape) for column in columns} for row in ordered))

    if shape.form == "annotations":
        return {
            "annotations.csv": table([*key, *shape.columns], rows),
            "splits.csv": table([*key, "split"], rows),
        }
    return {
        f"{split}.csv": table([*key, *shape.columns], [row for row in rows if row.labelled.split == split])
        for split in sorted({row.labelled.split for row in rows})
    }


def _cell(row: Released, column: str, *, shape: Shape) -> str:
    if column in shape.categories:
        return "|".join(row.labelled.labels[column] or ())
    if column in shape.metadata:
        return row.metadata[column]
    item = row.labelled
    return {"id": row.id, "image": str(row.image), "split": item.split, AGREEMENT: item.agreement, VOTES: item.votes}[
        column
    ]


def written(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    """Format rows as CSV, with equal bytes on every machine."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def without(text: str, *, ids: frozenset[str]) -> str:
    """Remove the rows with these ids (column ``id``) from CSV text; the bytes of the other rows do not change."""
    table = csv.DictReader(io.StringIO(text, newline=""))
    return written(table.fieldnames or (), (row for row in table if row["id"] not in ids))
