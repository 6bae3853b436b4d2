"""Select records for a takedown: by criteria of a requester, or because an approval or a retention period has ended.

Every version of the corpus is searched for criteria, not only the newest: records in old versions are taken down as
well. A post that was never collected is selected too; its tombstone keeps it out.

The source of a record is the one in the table ``records`` of its month. A record of an imported dataset, or one that is
in no month's table any more, belongs to no source of ``params.yaml``: nothing ends for it, and it is only counted.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.collect.refresh_store import RefreshStore
from pipelines.collect.sources import sources_of
from pipelines.core.config.collect import SourceEntry
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.store import tables
from pipelines.store.vault import checks
from pipelines.store.vault.vault import Vault
from pipelines.takedown.object_versions import Objects
from pipelines.takedown.redaction import TOKEN, is_table
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.objects import TREE

FULLNAME = re.compile(r"(?:t3_)?([0-9a-z]{1,13})")
ADDRESS = re.compile(
    r"https?://(?:redd\.it/|(?:[a-z]+\.)?reddit\.com/(?:(?:r|user)/[\w-]+/)?(?:comments|gallery)/)([0-9a-z]{1,13})(?:[/?#].*)?",
    re.IGNORECASE,
)
# A record of a source with ids of its own.
SCHEMED = re.compile(r"(?!https?:)[a-z][a-z0-9_-]*:.")
SHA256 = re.compile(r"[0-9a-f]{64}")
HASHES = ("fingerprint", "inner_fingerprint", "outer_fingerprint")
DOMAIN = "takedown"
STDIN = Path("-")


@dataclass(frozen=True)
class Criteria:
    """The criteria by which a takedown selects records, as the requester wrote them; never logged or stored.

    Args:
        records: Reddit ids, fullnames or URLs, ``SCHEME:ID`` of another source, or record ids of the corpus.
        authors: user names; ``SCHEME:NAME`` at a source with ids of its own.
        images: SHA-256 of a stored picture, or the path of a picture file.
        sources: names of sources whose approval ends (retention).
        files: files with one criterion per line: a post, ``u/NAME`` or the SHA-256 of a picture; ``-`` is the standard
            input, which no other process can read, unlike arguments.
        near: also take down records with near-duplicates of the pictures, by fingerprint; otherwise only count them.
    """

    records: Sequence[str] = ()
    authors: Sequence[str] = ()
    images: Sequence[str] = ()
    subreddits: Sequence[str] = ()
    sources: Sequence[str] = ()
    files: Sequence[Path] = ()
    near: bool = False


@dataclass(frozen=True)
class Selection:
    """The records that a takedown concerns.

    ``key`` is a keyed digest of the criteria, which identifies a repeated takedown and reveals nothing without the
    secret. ``counts`` are by criterion; ``near`` are records with a near-duplicate picture, for the person who decides,
    and ``near_taken`` those of them that are selected, too.
    """

    key: str
    records: frozenset[str] = field(repr=False)
    counts: dict[str, int]
    near: frozenset[str] = field(default=frozenset(), repr=False)


def select(
    asked: Criteria, *, vault: Vault, objects: Objects, params: Params, refreshed: str | None = None
) -> Selection:
    """Return the records that match the criteria; ``refreshed`` is the address of the store of refreshes."""
    if not any(value for name, value in asdict(asked).items() if name != "near"):
        raise _refused("has no criterion: give --post, --author, --image, --subreddit, ...")
    asked = _read(asked)
    authors = {name.removeprefix("u/").lower() for name in asked.authors}
    subreddits = {name.removeprefix("r/").lower() for name in asked.subreddits}
    # ids of Reddit need no source
    schemed = any(SCHEMED.match(post.strip()) for post in asked.records)
    schemes = {source.scheme for source in sources_of(params).values()} if schemed else set()
    selected = {"records": {_record(post, schemes=schemes, vault=vault) for post in asked.records}}
    columns = {
        "authors": ("author_id", set(map(vault.author_id, authors))),
        "subreddits": ("subreddit", subreddits),
        "sources": ("source", set(asked.sources)),
    }
    for name, (column, values) in columns.items():
        selected[name] = (
            _where(column, values, objects=objects) | _waiting(column, values, refreshed) if values else set()
        )
    pictures, codes = _pictures(asked.images, params=params)
    selected["images"] = _where("sha256", pictures, objects=objects) if pictures else set()
    near = _near(selected["images"], codes, objects=objects, radius=params.dedupe.radius) if asked.images else set()
    near -= selected["images"]
    records = set().union(*selected.values(), near if asked.near else set())
    counts = {name: len(ids) for name, ids in selected.items()} | {
        "near": len(near),
        "near_taken": asked.near * len(near),
    }
    criteria = {
        "records": sorted(selected["records"]),
        "authors": sorted(authors),
        "images": sorted(pictures),
        "subreddits": sorted(subreddits),
        "sources": sorted(asked.sources),
        "near": asked.near,
    }
    key = vault.record_id(json.dumps(criteria), domain=DOMAIN)
    return Selection(key, frozenset(records), counts, frozenset(near))


def _refused(detail: str, *, where: str = "takedown") -> BadParams:
    return BadParams("BadArgument", where=where, detail=detail)


def _record(post: str, *, schemes: Collection[str], vault: Vault) -> str:
    text = post.strip()
    if TOKEN.fullmatch(text):
        return text
    if SCHEMED.match(text) and text.partition(":")[0] in schemes:
        return vault.record_id(text)
    match = ADDRESS.fullmatch(text) or FULLNAME.fullmatch(text.lower())
    if not match:
        raise _refused("has a value that is neither a Reddit id, a fullname, a URL nor SCHEME:ID of another source")
    return vault.record_id(f"t3_{match[1].lower()}")


def _read(asked: Criteria) -> Criteria:
    """Return the criteria with the lines of their files."""
    lines = [line for path in asked.files for line in _lines(path)]
    authors = [line for line in lines if line.startswith("u/")]
    images = [line for line in lines if SHA256.fullmatch(line)]
    posts = [line for line in lines if line not in {*authors, *images}]
    return replace(
        asked, records=[*asked.records, *posts], authors=[*asked.authors, *authors], images=[*asked.images, *images]
    )


def _lines(path: Path) -> list[str]:
    try:
        text = sys.stdin.read() if path == STDIN else path.read_text()
        return [line.strip() for line in text.splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(f"a file of ids cannot be read ({type(error).__name__})") from None


def _tables(columns: Sequence[str], *, objects: Objects) -> Iterator[pa.Table]:
    for digest in objects.digests():
        if digest.endswith(TREE):
            continue
        with objects.file(digest) as path:
            if is_table(path) and set(columns) <= set(pq.read_schema(path).names):
                yield pq.read_table(path, columns=list(columns))


def _where(column: str, values: set[str], *, objects: Objects) -> set[str]:
    wanted, records = pa.array(sorted(values), pa.string()), set[str]()
    for table in _tables(["record_id", column], objects=objects):
        cells = pc.utf8_lower(table[column]) if column == "subreddit" else table[column]
        records.update(table.filter(pc.is_in(cells, value_set=wanted))["record_id"].to_pylist())
    return records


def _waiting(column: str, values: set[str], url: str | None) -> set[str]:
    if url is None:
        return set()
    with RefreshStore.existing(url) as store:
        return store.select(column, values) if store else set()


def _pictures(images: Iterable[str], *, params: Params) -> tuple[set[str], set[int]]:
    """Return the digests of the pictures as stored in the corpus, and the fingerprints of those given as files."""
    digests, codes = set[str](), set[int]()
    for image in images:
        if SHA256.fullmatch(image):
            digests.add(image)
            continue
        from pipelines.collect.read.decode import Decoder
        from pipelines.collect.read.fingerprint import fingerprints

        try:
            data = Path(image).read_bytes()
        except OSError as error:
            raise _refused(f"is not a readable file ({type(error).__name__})", where="--image") from None
        with Decoder(params.images.decode) as decoder:
            picture = decoder.decode(data)
        if isinstance(picture, str):
            raise _refused(f"is not a picture that the corpus can store ({picture})", where="--image")
        # it may have a caption, which nothing reads here
        hashes = fingerprints(picture.data, min_energy=params.images.fingerprint.min_energy, captioned=True)
        digests.update({picture.sha256, hashlib.sha256(data).hexdigest()})
        codes.update(code for code in hashes[:3] if code is not None)
    return digests, codes


def _near(records: set[str], codes: set[int], *, objects: Objects, radius: int) -> set[str]:
    """Return the records with a picture that has a fingerprint within ``radius`` bits of one of these."""
    rows = {
        (record_id, code)
        for table in _tables(["record_id", *HASHES], objects=objects)
        for column in table.column_names[1:]
        for record_id, code in zip(table["record_id"].to_pylist(), table[column].to_pylist(), strict=True)
        if code is not None
    }
    centres = codes | {code for record_id, code in rows if record_id in records}
    return {record_id for record_id, code in rows if any((code ^ centre).bit_count() <= radius for centre in centres)}


def check_out(clone: Workspace, *, corpora: Iterable[str]) -> None:
    """Check out only the table ``records`` of every month of these corpora in a clone."""
    for corpus in corpora:
        clone.checkout_months(corpus, "records.parquet")


def by_record(root: Path, *, corpus: str, column: str) -> dict[str, str]:
    """Return a column of the table ``records`` by record id, from every month that is checked out under ``root``."""
    paths = sorted((root / "data" / corpus).glob("*/records.parquet"))
    posts = tables.concat(paths, name="records", columns=["record_id", column])
    return dict(zip(posts["record_id"].to_pylist(), posts[column].to_pylist(), strict=True))


def waiting(url: str | None, *, corpus: str, column: str) -> dict[str, str]:
    """Return ``source`` or ``subreddit`` by record id of the posts that wait in the store of refreshes, if any."""
    if url is None:
        return {}
    with RefreshStore.existing(url) as store:
        return store.origins(corpus, column=column) if store else {}


def published(settings: Settings, *, corpus: str, column: str) -> dict[str, str]:
    """Return ``source`` or ``subreddit`` by record id, from the corpus branch's newest commit and unpublished posts."""
    with workspace(settings) as clone:
        check_out(clone, corpora=[corpus])
        of_months = by_record(clone.path, corpus=corpus, column=column)
    return waiting(settings.refresh_url, corpus=corpus, column=column) | of_months


APPROVAL_ENDED, RETENTION = "approval-ended", "retention"


def expired(params: Params, vault: Vault, *, now: datetime, root: Path, refreshed: str | None = None) -> dict[str, str]:
    """Return the records of all corpora whose retention or approval has ended: record id -> code of the reason.

    ``approval-ended``: today is the source's ``expires`` or later, as for the collectors. ``retention``: the record was
    first seen ``retention_days`` ago or earlier. ``root`` is a checkout with ``records`` of every month.
    """
    rows = _rows(params, vault, now=now, root=root, url=refreshed)
    return {record: reason for record, _, _, _, reason in rows if reason}


def listing(
    params: Params, vault: Vault, *, now: datetime, root: Path, refreshed: str | None = None
) -> list[dict[str, Any]]:
    """Count by corpus, source and month the records that were not deleted and, by reason, the expired ones of them.

    ``source`` is ``None`` for records that are in no month's table: their retention is unknown.
    """
    kept: dict[tuple[str, str, str], Counter[str]] = {}
    for _, corpus, source, month, reason in _rows(params, vault, now=now, root=root, url=refreshed):
        counts = kept.setdefault((corpus, source or "", month), Counter())
        counts["records"] += 1
        counts[reason or "kept"] += 1
    return [
        {
            "corpus": corpus,
            "source": source or None,
            "month": month,
            "records": counts["records"],
            "expired": {why: counts[why] for why in (APPROVAL_ENDED, RETENTION) if counts[why]},
        }
        for (corpus, source, month), counts in sorted(kept.items())
    ]


def _rows(
    params: Params, vault: Vault, *, now: datetime, root: Path, url: str | None
) -> Iterator[tuple[str, str, str | None, str, str | None]]:
    """Yield record id, corpus, source, month and reason for every live record."""
    for corpus in params.corpora:
        # of posts that wait for their month, too
        sources = waiting(url, corpus=corpus, column="source") | by_record(root, corpus=corpus, column="source")
        with vault.database.reading() as connection:
            records = checks.known(connection, corpus=corpus)
        for known in records:
            source = sources.get(known.record_id)
            terms = next((terms for name, terms in params.sources.items() if name == source), None)
            reason = _reason(terms, first_seen=known.first_seen, now=now) if terms else None
            yield known.record_id, corpus, source, known.month, reason


def _reason(terms: SourceEntry, *, first_seen: datetime, now: datetime) -> str | None:
    if terms.expires is not None and terms.expires <= now.astimezone(UTC).date():
        return APPROVAL_ENDED
    if terms.retention_days is not None and first_seen + timedelta(days=terms.retention_days) <= now:
        return RETENTION
    return None
