"""Download a model version's files and verify them against the journal before any of its code runs."""

from __future__ import annotations

import shutil
from pathlib import Path

from filelock import FileLock

from crisis_corpus import integrity
from crisis_corpus.errors import RegistryError
from crisis_corpus.integrity import NoPack, digest, listing
from crisis_corpus.journal import JournalRow
from crisis_corpus.trusted import Trusted
from crisis_corpus.versions import RegistryReader, delete_compiled


class FilesChanged(RegistryError):
    """The files of a model version differ from the files that were registered."""

    message = "The files of version {version} of '{name}' are not those that were registered: {detail}."
    remedy = "None of its code was run. Report it to the registry's maintainer; details: `corpus registry {name}`."
    exit_code = 65


def verified(trusted: Trusted, *, registry: RegistryReader, cache: Path) -> Path:
    """Download and verify a model version's files and return their folder; one process at a time does this.

    Args:
        trusted: the model version and the digest that its files must have.
        registry: the registry that has its files.
        cache: the folder for verified files, by their digest; cached files are verified again.
    """
    version, wanted = trusted.version, trusted.files
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    place, half = cache / wanted, cache / f"{wanted}.half"
    with FileLock(cache / f"{wanted}.lock"):
        if place.is_dir():
            # a server that was started on the folder may have compiled code there
            delete_compiled(place)
            if digest(place) == wanted:
                return place
            shutil.rmtree(place)
        # left behind by a killed process
        shutil.rmtree(half, ignore_errors=True)
        try:
            fetched = registry.fetch(version, to=half)
            if wrong := _faults(fetched, row=trusted.registered):
                raise FilesChanged(name=version.name, version=version.version, detail="; ".join(wrong))
            fetched.rename(place)
        finally:
            shutil.rmtree(half, ignore_errors=True)
    return place


def _faults(folder: Path, *, row: JournalRow) -> list[str]:
    """Return the faults of a version's files, naming also the altered files outside the pack."""
    found = integrity.faults(folder, registered=row.files, weights=row.metrics.get("weights"))
    wrong = [reason for check in found.values() for reason in check]
    outside, now = row.metrics.get("outside"), listing(folder)
    if found["files"] and outside is not None:
        altered = sorted(path for path, value in outside.items() if now.get(path) != value)
        try:
            inside = f"{integrity.place(folder).relative_to(folder).as_posix()}/"
        except NoPack:
            return wrong
        added = sorted(path for path in now.keys() - outside.keys() if not path.startswith(inside))
        wrong += [f"{path} is altered or missing" for path in altered] + [f"{path} was added" for path in added]
    return wrong
