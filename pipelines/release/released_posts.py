"""Read the posts of a release: author, month, subreddit, and the content that a consumer can verify."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from crisis_corpus.hydrate import FULLNAME, joined
from pipelines.errors import SchemaMismatch
from pipelines.release.anonymity import Person
from pipelines.release.rekey import Content
from pipelines.storage import tables
from pipelines.storage.seal import open_column
from pipelines.vault.vault import Vault

COLUMNS = ("author_id", "subreddit", "created")
SEALED = ("title", "body", "media")


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
    for path in sorted((root / "data" / corpus).glob("*/posts.parquet")):
        table = tables.read(path, name="posts", columns=["record_id", *COLUMNS, *SEALED])
        table = table.filter(pc.is_in(table["record_id"], value_set=wanted))
        plain = [open_column(table, name="posts", column=column, vault=vault) for column in SEALED]
        rows = table.select(["record_id", *COLUMNS]).to_pylist()
        for row, title, body, media in zip(rows, *plain, strict=True):
            created = row["created"]
            month = f"{created:%Y-%m}" if created else None
            person = Person(row["author_id"] or row["record_id"], month, row["subreddit"])
            pictures = tuple(found[0] for found in json.loads(media)) if media else ()
            text = joined(*((value or b"").decode() for value in (title, body)))
            people[row["record_id"]] = (person, Content(text, pictures))
    # checked after opening: a record taken down meanwhile opens as None and must not be taken for an empty post
    gone = vault.tombstoned(record_ids)
    fullnames = vault.fullnames([r for r in record_ids if r not in gone])
    lost = [r for r in fullnames if r not in people]
    if lost:
        raise SchemaMismatch(table="posts", detail=f"{len(lost)} records of the split are missing")
    there = {r: name for r, name in fullnames.items() if FULLNAME.fullmatch(name)}
    posts = {r: ReleasedPost(name, *people[r]) for r, name in there.items()}
    # records taken down between the two queries have no name any more
    gone |= set(record_ids) - gone - fullnames.keys()
    return ReleaseMaterial(posts, frozenset(gone), frozenset(fullnames.keys() - there.keys()))
