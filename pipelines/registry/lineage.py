"""Trace model versions to their training data, and records to the model versions that learnt from them.

A version leads to its training run, the commit of the corpus, the digests of split and votes, and the ids of the
records that it learnt from or was selected on; a record leads back to its versions. The ids are stored in the model
packages in MLflow. A copy of each package's ids (nothing else) is cached under ``<CORPUS_HOME>/registry`` by the digest
of the version's files, so that a takedown does not download every model.
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from crisis_corpus.integrity import FILES, MODEL, RECORDS, NoPack, PackManifest, read_manifest
from crisis_corpus.versions import Version
from pipelines.core.config.settings import Settings
from pipelines.registry.candidate import read_records, scratch
from pipelines.registry.versions import Registry

# The tag names a folder, and anyone can write tags: accept only digests.
DIGESTED = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Lineage:
    """The training data of one model version.

    Args:
        manifest: kind, task, commit of the corpus, digests of scheme, split and votes, from the model package.
    """

    version: Version
    manifest: PackManifest
    records: frozenset[str] = field(repr=False)

    def summary(self) -> dict[str, object]:
        """Return this training data as JSON: model, commit, counts and digests, without record ids."""
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
    """The model versions that were trained or selected on given records.

    Args:
        versions: record id -> versions; records that no version was trained or selected on are absent.
        unknown: versions whose model package cannot be read, so that their records are unknown.
    """

    versions: Mapping[str, tuple[Version, ...]] = field(repr=False)
    unknown: tuple[Version, ...]


def of_version(version: Version, *, registry: Registry, settings: Settings) -> Lineage:
    """Return the training data (lineage) of a model version."""
    if not DIGESTED.fullmatch(version.digest):
        # without a digest a cached copy could not be matched to the files
        with scratch(settings) as folder:
            return _read(version, _download(version, registry=registry, to=folder))
    kept = _place(version, settings=settings)
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with scratch(settings) as folder:
            made = _download(version, registry=registry, to=folder)
            # another process may have been faster; its copy is the same
            with suppress(OSError):
                made.rename(kept)
    return _read(version, kept)


def versions_of(record_ids: Collection[str], *, registry: Registry, settings: Settings) -> Holders:
    """Return the model versions that were trained or selected on each of these records."""
    wanted = frozenset(record_ids)
    versions: dict[str, list[Version]] = defaultdict(list)
    unknown = []
    for version, records in learnt(registry.names(), registry=registry, settings=settings):
        if records is None:
            unknown.append(version)
        for record_id in wanted & (records or frozenset()):
            versions[record_id].append(version)
    return Holders({record_id: tuple(versions[record_id]) for record_id in sorted(versions)}, tuple(unknown))


def learnt(
    names: Iterable[str], *, registry: Registry, settings: Settings
) -> Iterator[tuple[Version, frozenset[str] | None]]:
    """Yield each version of these models with its training record ids, ``None`` if its package cannot be read."""
    for version in (version for name in names for version in registry.versions(name)):
        records = None
        with suppress(NoPack):
            records = of_version(version, registry=registry, settings=settings).records
        yield version, records


def forget(version: Version, *, settings: Settings) -> None:
    """Delete the cached training record ids of a model version, so that no copy survives a takedown."""
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
        raise NoPack(detail=f"{len(packs)} files named {FILES} found, expected one")
    made = to / "pack"
    made.mkdir()
    for name in (MODEL, RECORDS):
        if f"{packs[0]}{name}" not in names:
            raise NoPack(detail=f"{name} is missing")
        registry.fetch(version, to=to / "all", path=f"{packs[0]}{name}").rename(made / name)
    return made
