"""Which version was made of what, and which versions have learnt from a record: asked in both directions.

A version leads to its run, the commit of the corpus, the digests of split and votes, and the ids of the records that it
learnt from or was chosen by; a record leads back to its versions. The ids stand in the packs that MLflow has. A copy of
each pack's ids is kept by the digest of the version's files under ``<CORPUS_HOME>/registry``, so that a takedown does
not download every model: ids of records, nothing else.
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.config.settings import Settings
from pipelines.registry.candidate import scratch
from pipelines.registry.contents import FILES, MODEL, RECORDS, Manifest, NoPack, read_manifest, read_records
from pipelines.registry.versions import NAMES, Registry, Version

# A tag is whatever somebody wrote there, and this one names a folder.
DIGESTED = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Lineage:
    """What one version was made of.

    Args:
        version: which.
        manifest: kind, task, commit of the corpus, digests of scheme, split and votes, as the pack says.
        records: whose records it has learnt from or was chosen by.
    """

    version: Version
    manifest: Manifest
    records: frozenset[str] = field(repr=False)

    def summary(self) -> dict[str, object]:
        """Return it as JSON for people: counts and digests, no id of a record."""
        return {
            "name": self.version.name,
            "version": self.version.version,
            "files": self.version.digest,
            "run_id": self.version.run_id,
            "kind": self.manifest.kind,
            "task": self.manifest.task,
            "data_commit": self.manifest.data_commit,
            "scheme": self.manifest.scheme_digest,
            "split": self.manifest.split_digest,
            "votes": self.manifest.votes_digest,
            "train": self.manifest.train.model_dump(),
            "records": len(self.records),
        }


@dataclass(frozen=True)
class Holders:
    """Who has learnt from some records.

    Args:
        versions: record id -> its versions; a record that none has learnt from is not there.
        unknown: versions whose pack does not say; nobody can tell of them.
    """

    versions: Mapping[str, tuple[Version, ...]] = field(repr=False)
    unknown: tuple[Version, ...]


def of_version(version: Version, *, registry: Registry, settings: Settings) -> Lineage:
    """Return what a version was made of.

    Raises:
        NoPack: its pack does not say.
        RegistryUnavailable: MLflow does not answer.
    """
    if not DIGESTED.fullmatch(version.digest):
        # nothing says that another time its files are the same
        with scratch(settings) as folder:
            return _read(version, _download(version, registry=registry, to=folder))
    kept = _place(version, settings=settings)
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with scratch(settings) as folder:
            made = _download(version, registry=registry, to=folder)
            # another process may be faster; its copy is the same
            with suppress(OSError):
                made.rename(kept)
    return _read(version, kept)


def versions_of(
    record_ids: Collection[str], *, registry: Registry, settings: Settings, names: Iterable[str] = tuple(NAMES)
) -> Holders:
    """Return the versions that have learnt from each of these records.

    Args:
        record_ids: whose.
        registry: where the versions are.
        settings: for the place of the copies.
        names: the registered models to look at.

    Raises:
        RegistryUnavailable: MLflow does not answer.
    """
    wanted = frozenset(record_ids)
    found: dict[str, list[Version]] = defaultdict(list)
    unknown = []
    for version in (version for name in names for version in registry.versions(name)):
        try:
            learnt = of_version(version, registry=registry, settings=settings).records
        except NoPack:
            unknown.append(version)
            continue
        for record_id in wanted & learnt:
            found[record_id].append(version)
    return Holders({record_id: tuple(found[record_id]) for record_id in sorted(found)}, tuple(unknown))


def forget(version: Version, *, settings: Settings) -> None:
    """Remove the copy of a version's ids, for a takedown that leaves none anywhere."""
    if DIGESTED.fullmatch(version.digest):
        shutil.rmtree(_place(version, settings=settings), ignore_errors=True)


def _place(version: Version, *, settings: Settings) -> Path:
    return settings.home / "registry" / version.digest


def _read(version: Version, folder: Path) -> Lineage:
    return Lineage(version, read_manifest(folder / MODEL), read_records(folder / RECORDS))


def _download(version: Version, *, registry: Registry, to: Path) -> Path:
    """Return a folder with ``model.json`` and ``records.parquet`` of a version."""
    names = registry.files(version)
    packs = [name.removesuffix(FILES) for name in names if name.rpartition("/")[2] == FILES]
    if len(packs) != 1:
        raise NoPack(detail=f"{len(packs)} files {FILES} are there, where one must be")
    made = to / "pack"
    made.mkdir()
    for name in (MODEL, RECORDS):
        if f"{packs[0]}{name}" not in names:
            raise NoPack(detail=f"{name} is missing")
        registry.fetch(version, to=to / "all", path=f"{packs[0]}{name}").rename(made / name)
    return made
