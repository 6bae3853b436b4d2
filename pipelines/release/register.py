"""What the house remembers of each release, under ``<CORPUS_HOME>/releases/<name>``.

``release.json`` (where its package lies, who approved it, digests of its files), the ids that it ever had, those that
were withdrawn, and its key. Ids are the release's own: nobody finds a record by them without the vault.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pipelines.config.settings import Settings
from pipelines.errors import ConfigError, DataError
from pipelines.release.rekey import checked_name

DRAFT, APPROVED = "DRAFT", "APPROVED"
MANIFEST, REMOVAL = "manifest.json", "removal.csv"


class NoSuchRelease(ConfigError):
    """No release of this name was ever drafted here."""

    message = "There is no release '{name}'."
    remedy = "`corpus release list` names those that there are."


class ReleaseApproved(ConfigError):
    """A release that was approved is never made again: consumers hold it."""

    message = "Release '{name}' was approved on {on}."
    remedy = "Give the new one another name; its ids will be others, too."


class PackageAltered(DataError):
    """A file of a package is not what was written."""

    message = "{file} of release '{name}' is not what was drafted."
    remedy = "Nothing was approved. Make the draft again."


def digest(text: str) -> str:
    """Return the SHA-256 of a file's text."""
    return sha256(text.encode()).hexdigest()


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write one file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.part")
    made.unlink(missing_ok=True)
    made.touch(mode=mode)
    made.write_text(text, newline="")
    made.replace(path)


def dumped(value: Mapping[str, Any]) -> str:
    """Return JSON that is the same for the same values."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


@contextmanager
def locked(settings: Settings) -> Iterator[Path]:
    """Hold the register for one writer at a time, between processes too; gives its folder."""
    home = settings.home / "releases"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield home


@dataclass(frozen=True)
class Entry:
    """One release in the register; ``folder`` is its own."""

    name: str
    folder: Path

    @classmethod
    def of(cls, settings: Settings, name: str) -> Entry:
        """Return the entry of this name, made or not.

        Raises:
            BadParams: the name is none.
        """
        return cls(name, settings.home / "releases" / checked_name(name))

    @property
    def key(self) -> Path:
        """Where the key is that consumers are handed apart from the package."""
        return self.folder / f"{self.name}.key"

    def package(self, state: Mapping[str, Any]) -> Path:
        """Return the folder of the package: in the register, so that both move together, or where it was asked for."""
        return self.folder / str(state["package"])

    def state(self) -> dict[str, Any]:
        """Return ``release.json``.

        Raises:
            NoSuchRelease: there is none.
        """
        try:
            found: dict[str, Any] = json.loads((self.folder / "release.json").read_text())
        except FileNotFoundError:
            raise NoSuchRelease(name=self.name) from None
        return found

    def put(self, state: Mapping[str, Any]) -> None:
        """Write ``release.json``."""
        write(self.folder / "release.json", dumped(state), mode=0o600)

    @property
    def exists(self) -> bool:
        """Whether a release of this name was drafted."""
        return (self.folder / "release.json").exists()

    def ids(self) -> frozenset[str]:
        """Return every id that the release ever had."""
        return frozenset((self.folder / "ids.txt").read_text().split())

    def put_ids(self, ids: Collection[str]) -> None:
        """Remember the ids of a draft."""
        write(self.folder / "ids.txt", "".join(f"{i}\n" for i in sorted(ids)), mode=0o600)

    def withdrawn(self) -> frozenset[str]:
        """Return the ids on the removal list."""
        return frozenset((self.folder / REMOVAL).read_text().split()[1:])

    def stamp(self, state: Mapping[str, Any]) -> None:
        """Bring the package's manifest in step: status, date of approval, digests, how many were withdrawn.

        Raises:
            PackageAltered: there is none, or it is of another release.
        """
        folder = self.package(state)
        if (facts := manifest_of(folder, self.name)) is None:
            raise PackageAltered(name=self.name, file=MANIFEST)
        facts |= {key: state[key] for key in ("status", "files", "withdrawn")}
        if state["status"] == APPROVED:
            facts["approved_on"] = state["approved"][:10]
        write(folder / MANIFEST, dumped(facts))

    def check_draft(self, state: Mapping[str, Any]) -> None:
        """Compare every file of a draft with what was written.

        Raises:
            PackageAltered: one is something else, or is missing.
        """
        for file, known in {**state["files"], MANIFEST: state["manifest"]}.items():
            text = self.text(state, file)
            if text is None or digest(text) != known:
                raise PackageAltered(name=self.name, file=file)

    def text(self, state: Mapping[str, Any], file: str) -> str | None:
        """Return a file of the package; ``None`` where it is missing or no text."""
        try:
            return (self.package(state) / file).read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            return None


def manifest_of(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the manifest of the package in ``folder``; ``None`` where it is none of this release."""
    try:
        facts: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return None
    return facts if facts.get("release") == name else None


def summary(settings: Settings) -> list[dict[str, Any]]:
    """Return what ``corpus release list`` shows of every release: states and counts, no id."""
    rows = []
    for entry in entries(settings):
        state = entry.state()
        shown = {key: state.get(key) for key in ("release", "corpus", "status", "drafted", "approved", "who")}
        rows.append({**shown, "records": len(entry.ids()), "withdrawn": len(entry.withdrawn())})
    return rows


def entries(settings: Settings) -> list[Entry]:
    """Return every release that was drafted here, by name."""
    found = (settings.home / "releases").glob("*/release.json")
    return [Entry(path.parent.name, path.parent) for path in sorted(found)]
