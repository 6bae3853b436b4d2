"""Store the state of each release under ``<CORPUS_HOME>/releases/<name>``.

The folder holds ``release.json`` (path of the package, approver, digests of its files), every id that the release ever
had, the withdrawn ids, and the key. Ids are specific to the release and cannot be resolved to records without the
vault, so that releases cannot be joined by id: they are derived from the project secret and the release's name, and can
be recomputed after a takedown. Addresses and digests use a random key of the release, which is handed to consumers
separately from the package; the same key gives the same bytes. Code that both sides need is in
:mod:`crisis_corpus.hydrate`, which imports nothing of this project.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from crisis_corpus import hydrate
from pipelines.core import formats, untrusted
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, ConfigError, DataError
from pipelines.store.vault.locks import alone
from pipelines.store.vault.vault import Vault

# Ours: valid as a folder name on every file system and as an id domain.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def checked_name(name: str) -> str:
    """Return the name of a release if it is valid."""
    if not NAME.fullmatch(name):
        raise BadParams(where="release", detail="a name has 1 to 64 lower-case letters, digits and ._- after the first")
    return name


def release_ids(record_ids: Iterable[str], *, release: str, vault: Vault) -> dict[str, str]:
    """Return the release id of each record: 32 hexadecimal digits of an HMAC that is specific to the release."""
    return {r: vault.record_id(r, domain=f"release/{release}") for r in record_ids}


def own_key(path: Path) -> bytes:
    """Return a release's random key of 32 bytes from its file; create the file with mode 600 on first use."""
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = path.with_name(f"{path.name}.part")
        made.unlink(missing_ok=True)
        made.touch(mode=0o600)
        made.write_text(secrets.token_hex(hydrate.KEY_BYTES) + "\n")
        made.replace(path)
    try:
        return hydrate.read_key(path)
    except hydrate.Stop:
        raise BadParams(where=path.name, detail="is not a release key; restore the file from a backup") from None


@dataclass(frozen=True)
class Content:
    """The content of a post that consumers of a release can verify: scrubbed text and each picture's first address."""

    text: str = field(repr=False)
    pictures: tuple[str, ...] = field(repr=False)


def fetch_row(key: bytes, *, release_id: str, image: int, fullname: str, content: Content) -> dict[str, str]:
    """Return the row of ``fetch.csv`` with which a consumer fetches an item and verifies its content."""
    post = hydrate.Address(fullname, hydrate.known_ends(content.text))
    address = content.pictures[image] if image < len(content.pictures) else ""
    picture = hydrate.picture_digest(key, release_id=release_id, image=image, address=address) if address else ""
    return {
        "id": release_id,
        "image": str(image),
        "address": hydrate.seal_address(key, post, release_id=release_id),
        "text": hydrate.text_digest(key, release_id=release_id, text=content.text, ends=post.ends),
        "picture": picture,
    }


# A release that is retired is not handed out any more; its removal list continues.
DRAFT, APPROVED, RETIRED = "DRAFT", "APPROVED", "RETIRED"
MANIFEST, REMOVAL = "manifest.json", "removal.json"
PROGRAM = "hydrate.py"


class NoSuchRelease(ConfigError):
    """There is no release of this name, draft or approved, on this deployment."""


class PackageAltered(DataError):
    """A file of a release package was changed after it was written."""


def digest(text: str) -> str:
    """Return the SHA-256 of the text of a file."""
    return sha256(text.encode()).hexdigest()


def program() -> str:
    """Return the text of the program ``hydrate``, which every release package contains."""
    return Path(hydrate.__file__).read_text()


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a text file atomically, with these permissions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.part")
    made.unlink(missing_ok=True)
    made.touch(mode=mode)
    made.write_text(text, newline="")
    made.replace(path)


def dumped(value: Mapping[str, Any]) -> str:
    """Serialise a value as JSON with sorted keys."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


@contextmanager
def locked(settings: Settings) -> Iterator[Path]:
    """Lock the folder of all releases for one writer at a time, on all hosts that share it, and yield the folder."""
    home = settings.home / "releases"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with alone(settings, "releases"):
        yield home


@dataclass(frozen=True)
class ReleaseEntry:
    """The files of one release of this deployment: its state, ids, removal list, key and package."""

    name: str
    folder: Path

    @classmethod
    def of(cls, settings: Settings, name: str) -> ReleaseEntry:
        """Return the entry of the release ``name``, which need not exist."""
        return cls(name, settings.home / "releases" / checked_name(name))

    @property
    def key(self) -> Path:
        """The path of the release's key file, which consumers receive separately from the package."""
        return self.folder / f"{self.name}.key"

    def package(self, state: Mapping[str, Any]) -> Path:
        """Return the folder of the release's package: below CORPUS_HOME, or the one that was requested."""
        return self.folder / str(state["package"])

    def state(self) -> dict[str, Any]:
        try:
            return formats.opened("release", json.loads((self.folder / "release.json").read_text()))
        except FileNotFoundError:
            raise NoSuchRelease(name=self.name) from None

    def put(self, state: Mapping[str, Any]) -> None:
        write(self.folder / "release.json", dumped(formats.stamped("release", state)), mode=0o600)

    @property
    def exists(self) -> bool:
        return (self.folder / "release.json").exists()

    def ids(self) -> frozenset[str]:
        return frozenset((self.folder / "ids.txt").read_text().split())

    def put_ids(self, ids: Collection[str]) -> None:
        write(self.folder / "ids.txt", "".join(f"{i}\n" for i in sorted(ids)), mode=0o600)

    def removal(self) -> dict[str, Any]:
        """Return the list of release ids that were removed, as published: its ``number`` and ``ids``."""
        return formats.opened("release_package", json.loads((self.folder / REMOVAL).read_text()))

    def withdrawn(self) -> frozenset[str]:
        """Return the ids, in this release, of the records on its published removal list."""
        return frozenset(self.removal()["ids"])

    def removal_text(self, ids: Collection[str], *, number: int) -> str:
        """Return the text of a removal list, authenticated with the release's key."""
        return self.authenticated("removal list", {"release": self.name, "number": number, "ids": sorted(ids)})

    def authenticated(self, purpose: str, facts: Mapping[str, Any]) -> str:
        """Return these facts as the text of a JSON file that ``hydrate`` verifies with the release's key."""
        return dumped(hydrate.authenticated(own_key(self.key), purpose, facts))

    def stamp(self, state: Mapping[str, Any]) -> None:
        """Update the manifest of the release's package: status, approval date, digests and number of withdrawn ids."""
        folder = self.package(state)
        if (facts := manifest_of(folder, self.name)) is None:
            raise PackageAltered(name=self.name, file=MANIFEST)
        facts |= {key: state[key] for key in ("status", "files", "withdrawn")}
        if state["status"] != DRAFT:
            facts["approved_on"] = state["approved"][:10]
        write(folder / MANIFEST, self.authenticated("manifest", facts))

    def check_draft(self, state: Mapping[str, Any]) -> None:
        """Compare every file of a draft's package with the digest in its state."""
        for file, known in {**state["files"], MANIFEST: state["manifest"]}.items():
            text = self.text(state, file)
            if text is None or digest(text) != known:
                raise PackageAltered(name=self.name, file=file)

    def text(self, state: Mapping[str, Any], file: str) -> str | None:
        """Return the text of a file in the release's package, or ``None`` if it is missing or not text."""
        try:
            return untrusted.read(self.package(state) / file).decode()
        except (OSError, UnicodeDecodeError):
            return None


def manifest_of(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the manifest in ``folder``, or ``None`` if the folder is not the package of the release ``name``."""
    try:
        facts = formats.opened("release_package", json.loads(untrusted.read(folder / MANIFEST)))
    except (OSError, ValueError):
        return None
    return facts if facts.get("release") == name else None


def summary(settings: Settings) -> list[dict[str, Any]]:
    """Return the status and the counts of every release for ``corpus release list``, without ids."""
    rows = []
    for entry in entries(settings):
        state = entry.state()
        shown = {key: state.get(key) for key in ("release", "corpus", "status", "drafted", "approved", "who")}
        rows.append({**shown, "records": len(entry.ids()), "withdrawn": len(entry.withdrawn())})
    return rows


def entries(settings: Settings) -> list[ReleaseEntry]:
    """Return all releases of this deployment, sorted by name."""
    paths = (settings.home / "releases").glob("*/release.json")
    return [ReleaseEntry(path.parent.name, path.parent) for path in sorted(paths)]
