"""Download a model version and inspect its files; open the registry, journal, vault and clone that decisions need."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from crisis_corpus import integrity
from crisis_corpus.integrity import MODEL, RECORDS, NoPack, PackManifest, digest, place, read_manifest
from crisis_corpus.journal import JournalRow
from crisis_corpus.versions import Version
from pipelines.core.config.models import Promote
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.process import now
from pipelines.registry.journal import Journal
from pipelines.registry.versions import TAKEN_DOWN, Registry, entry
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import workspace


@dataclass(frozen=True)
class Pack:
    """The model package of a downloaded model version: its folder, manifest and ids of training records."""

    folder: Path
    manifest: PackManifest
    records: frozenset[str]

    @classmethod
    def read(cls, version: Path) -> Pack:
        folder = place(version)
        return cls(folder, read_manifest(folder / MODEL), read_records(folder / RECORDS))


def read_records(path: Path) -> frozenset[str]:
    """Return the ids of the records that a model was trained or selected on, from ``records.parquet``."""
    try:
        return frozenset(pq.read_table(path, columns=["record_id"])["record_id"].to_pylist())
    except (OSError, ValueError, KeyError):
        raise NoPack(detail=f"{RECORDS} is missing or unreadable") from None


# The stage outputs that a model is tested on.
TESTED_ON = ("split", "gold", "few_shot", "predictions")


def present(*paths: str) -> None:
    """Place no files, because the clone has all of them."""


@dataclass(frozen=True)
class Context:
    """The inputs of all decisions about models: registry, journal, parameters, settings, vault, and a clone.

    Args:
        terms: the section ``promote`` of the parameters.
        root: the clone, with the data of one corpus if the context was opened for a model.
        check_out: places further files that DVC tracks in the clone.
    """

    registry: Registry
    journal: Journal
    params: Params
    terms: Promote
    settings: Settings
    vault: Vault
    root: Path = Path()
    check_out: Callable[..., None] = present


@dataclass(frozen=True)
class Candidate:
    """A downloaded model version after inspection.

    ``found`` is the digest of its files, ``faults`` has the problems by check, and ``pack`` is its model package,
    ``None`` if it cannot be read.
    """

    version: Version
    folder: Path
    found: str
    faults: Mapping[str, list[str]]
    pack: Pack | None

    @property
    def sound(self) -> bool:
        """Whether the version's files are the registered ones without pickles, so that its code may be run."""
        return not (self.faults["files"] or self.faults["pickle"])

    def taken_down(self, vault: Vault) -> int:
        """Count the version's training records that were taken down, those removed from its list of ids included."""
        listed = vault.tombstoned(self.pack.records) if self.pack else ()
        return int(self.version.tags.get(TAKEN_DOWN, 0)) + len(listed)


def enter(version: Version, *, context: Context, folder: Path) -> Candidate:
    """Download a model version below ``folder`` and inspect its files without running its code."""
    place = context.registry.fetch(version, to=folder / str(version.version))
    registered = registration(context.journal, version)
    try:
        pack = Pack.read(place)
    except NoPack:
        pack = None
    weights = registered.metrics.get("weights") if registered else None
    faults = integrity.faults(place, registered=registered.files if registered else None, weights=weights)
    return Candidate(version, place, digest(place), faults, pack)


def registration(journal: Journal, version: Version) -> JournalRow | None:
    """Return the last journal row that registered a model version, or ``None``."""
    rows = [r for r in journal.rows(version.name) if r.event == "registered" and r.to_version == version.version]
    return rows[-1] if rows else None


@contextmanager
def opened(
    settings: Settings,
    *,
    name: str | None = None,
    base: str | None = None,
    vault: Vault | None = None,
    parts: bool = True,
) -> Iterator[Context]:
    """Yield a :class:`Context` with a clone of the commit ``base``, with the data of the corpus of model ``name``."""
    with (
        nullcontext(vault) if vault else Vault.open(settings.vault_url, secret=settings.secret()) as held,
        Journal.of(settings, clock=now) as journal,
        workspace(settings, revision=base) as clone,
    ):
        params = load(clone.path, parts=parts)
        if name is not None:
            corpus = entry(name, params=params).corpus
            clone.checkout(f"data/{corpus}", *(f"snapshot/{corpus}/{part}" for part in TESTED_ON))
        registry = Registry.open(settings)
        yield Context(registry, journal, params, params.promote, settings, held, clone.path, clone.checkout)


@contextmanager
def scratch(settings: Settings) -> Iterator[Path]:
    """Yield a temporary folder; if this process is killed, a later process removes the folder."""
    place = settings.home / "scratch"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{socket.gethostname()}-{os.getpid()}-", dir=place) as folder:
        yield Path(folder)
