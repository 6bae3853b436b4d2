"""Check a version's files without loading them: complete, unaltered, not pickled, with a card.

A version's files are MLflow's own (``MLmodel``, the model's code) and, below them, exactly one model package: the
folder that contains ``files.json``.
"""

from __future__ import annotations

import json
import pickletools
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from pipelines.errors import RegistryError
from pipelines.registry.versions import digest, listing

MODEL, CARD, PAGE, FILES, RECORDS = "model.json", "card.json", "card.md", "files.json", "records.parquet"
# Extensions of files that are or may be pickles: PyTorch's, joblib's, NumPy's object arrays.
PICKLED = frozenset({".pkl", ".pickle", ".dill", ".joblib", ".pt", ".pth", ".bin", ".ckpt", ".npy", ".npz"})
# Pickle opcodes that import or call code, and the first opcode of every pickle since protocol 2.
CALLS = frozenset({"PROTO", "GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD"})
# A safetensors file begins with the length of its JSON header; the safetensors reader has the same limit (100 MB).
HEADER_BYTES = 100_000_000
SHOWN = 5  # ours: file names per reason


class NoPack(RegistryError):
    """A version has no model package, or its model package cannot be read."""

    message = "The files of this model version cannot be read: {detail}."
    remedy = "Package the model again and register it as a new version: `corpus register NAME`."
    exit_code = 65


class Learnt(BaseModel):
    """The number of training records and the SHA-256 of their sorted ids, one per line."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    records: int
    digest: str


class PackManifest(BaseModel):
    """The fields of ``model.json`` that the registry reads; the rest is for the model."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())

    kind: str
    task: str
    labels: tuple[str, ...]
    scheme_digest: str
    data_commit: str
    split_digest: str
    votes_digest: str | None = None
    train: Learnt


@dataclass(frozen=True)
class Pack:
    """The model package of a downloaded version: folder, manifest, ids of the training records."""

    folder: Path
    manifest: PackManifest
    records: frozenset[str]

    @classmethod
    def read(cls, version: Path) -> Pack:
        """Read the model package below a version's folder.

        Raises:
            NoPack: there is no model package or more than one, or ``model.json`` or ``records.parquet`` is invalid.
        """
        folder = place(version)
        return cls(folder, read_manifest(folder / MODEL), read_records(folder / RECORDS))


def place(version: Path) -> Path:
    """Return the folder of a version's model package.

    Raises:
        NoPack: there is no model package, or more than one.
    """
    found = sorted(version.rglob(FILES))
    if len(found) != 1:
        raise NoPack(detail=f"{len(found)} files named {FILES} found, expected one")
    return found[0].parent


def read_manifest(path: Path) -> PackManifest:
    """Read ``model.json`` of a model package.

    Raises:
        NoPack: the file is missing, or a field is missing or invalid.
    """
    try:
        return PackManifest.model_validate_json(path.read_bytes())
    except OSError:
        raise NoPack(detail=f"{MODEL} is missing") from None
    except ValidationError as error:
        names = sorted({".".join(map(str, fault["loc"])) or "all" for fault in error.errors()})
        raise NoPack(detail=f"{MODEL} has missing or invalid fields: {', '.join(names)}") from None


def read_records(path: Path) -> frozenset[str]:
    """Return the ids of the records that a model was trained or selected on, from ``records.parquet``.

    Raises:
        NoPack: the table is missing or unreadable.
    """
    try:
        return frozenset(pq.read_table(path, columns=["record_id"])["record_id"].to_pylist())
    except (OSError, ValueError, KeyError):
        raise NoPack(detail=f"{RECORDS} is missing or unreadable") from None


def faults(version: Path, *, registered: str | None) -> dict[str, list[str]]:
    """Return the faults of a version's files by check (``files``, ``pickle``, ``card``); an empty list means passed.

    Args:
        version: the folder to which the version was downloaded.
        registered: the digest of the version's files that the journal recorded at registration.
    """
    return {
        "files": [*_changed(version, registered=registered), *_misnamed(version)],
        "pickle": [f"{name} is or may be a pickle" for name in pickles(version)],
        "card": list(_card(version)),
    }


def pickles(folder: Path) -> list[str]:
    """Return the paths of files that are or may be pickles, or falsely have a safetensors extension.

    Names and contents are checked: a pickle with another extension is found by parsing its opcodes, without running
    them.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path.relative_to(folder).as_posix() for path in paths if _suspicious(path)]


def _suspicious(path: Path) -> bool:
    if path.suffix.lower() == ".safetensors":
        return not _is_safetensors(path)
    if path.suffix.lower() in PICKLED or _reads_as_pickle(path):
        return True
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(Path(name).suffix.lower() in PICKLED for name in archive.namelist())


def _is_safetensors(path: Path) -> bool:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return 2 <= length <= HEADER_BYTES and file.read(1) == b"{"


def _reads_as_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            # parsing ends at STOP, the last opcode of every protocol, and fails at the first invalid opcode
            codes = [code.name for code, _, _ in pickletools.genops(file)]
        except (ValueError, OverflowError):
            return False
        # a text may begin with a full stop, which is the opcode STOP
        return bool(CALLS.intersection(codes)) or (len(codes) > 1 and not file.read(1))


def _changed(version: Path, *, registered: str | None) -> Iterator[str]:
    found = digest(version)
    if registered is None:
        yield "the journal has no registration of this version, so its files cannot be verified"
    elif found != registered:
        yield f"its files have the digest {found[:12]}, but {registered[:12]} was registered"


def _misnamed(version: Path) -> Iterator[str]:
    """Yield the differences between the pack's files and ``files.json``."""
    try:
        folder = place(version)
        listed = json.loads((folder / FILES).read_bytes())
        wanted = {str(name): str(value) for name, value in listed.items()}
    except NoPack as error:
        yield str(error.fields["detail"])
        return
    except (ValueError, AttributeError):
        yield f"{FILES} is not a list of digests"
        return
    found = listing(folder)
    found.pop(FILES, None)
    wanted.pop(FILES, None)
    for name in (MODEL, RECORDS):
        if name not in wanted:
            yield f"{FILES} does not list {name}"
    altered = sorted(name for name in wanted.keys() & found.keys() if wanted[name] != found[name])
    for what, names in {
        "differ from": altered,
        "are missing although listed in": sorted(wanted.keys() - found.keys()),
        "are not in": sorted(found.keys() - wanted.keys()),
    }.items():
        if names:
            more = ", ..." if len(names) > SHOWN else ""
            yield f"{len(names)} files {what} {FILES}: {', '.join(names[:SHOWN])}{more}"


def _card(version: Path) -> Iterator[str]:
    try:
        folder = place(version)
    except NoPack:
        yield "there is no card, because there is no pack"
        return
    for name in (CARD, PAGE):
        path = folder / name
        if not path.is_file() or not path.stat().st_size:
            yield f"{name} is missing or empty"
    try:
        if (folder / CARD).is_file() and not json.loads((folder / CARD).read_bytes()):
            yield f"{CARD} has no content"
    except ValueError:
        yield f"{CARD} is not valid JSON"
