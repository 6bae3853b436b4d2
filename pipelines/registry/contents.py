"""What a version's files must be before any of them is believed: all of them, unaltered, none pickled, with a card.

A version is what MLflow stored (``MLmodel``, the model's code) and, somewhere below it, one *pack*: the folder that has
``files.json``. What is wrong is told in words with numbers, and nothing is loaded here.
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
# What only ever holds a pickle, or may: PyTorch's, joblib's, NumPy's arrays of objects.
PICKLED = frozenset({".pkl", ".pickle", ".dill", ".joblib", ".pt", ".pth", ".bin", ".ckpt", ".npy", ".npz"})
# Opcodes of a pickle that bring in code, and the one that every pickle since protocol 2 begins with.
CALLS = frozenset({"PROTO", "GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD"})
# A safetensors file begins with the length of its JSON header, which its own reader bounds so (100 MB).
HEADER_BYTES = 100_000_000
SHOWN = 5  # ours: names of files in one reason


class NoPack(RegistryError):
    """A version has no pack, or one whose description cannot be read."""

    message = "Its pack cannot be read: {detail}."
    remedy = "Package and register it again: `corpus register`."
    exit_code = 65


class Learnt(BaseModel):
    """How many records a model has learnt from, and the SHA-256 of their sorted ids, a line each."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    records: int
    digest: str


class Manifest(BaseModel):
    """What the registry itself reads of ``model.json``; the rest is the model's."""

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
    """The pack of a version that was downloaded: its folder, what it says of itself, whose records it learnt from."""

    folder: Path
    manifest: Manifest
    records: frozenset[str]

    @classmethod
    def read(cls, version: Path) -> Pack:
        """Read the pack below a version's folder.

        Raises:
            NoPack: there is none or more than one, or ``model.json`` or ``records.parquet`` is not as it must be.
        """
        folder = place(version)
        return cls(folder, read_manifest(folder / MODEL), read_records(folder / RECORDS))


def place(version: Path) -> Path:
    """Return the folder of a version's pack.

    Raises:
        NoPack: there is none, or more than one.
    """
    found = sorted(version.rglob(FILES))
    if len(found) != 1:
        raise NoPack(detail=f"{len(found)} files {FILES} are there, where one must be")
    return found[0].parent


def read_manifest(path: Path) -> Manifest:
    """Read ``model.json``.

    Raises:
        NoPack: it is missing, or says too little.
    """
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except OSError:
        raise NoPack(detail=f"{MODEL} is missing") from None
    except ValidationError as error:
        names = sorted({".".join(map(str, fault["loc"])) or "all" for fault in error.errors()})
        raise NoPack(detail=f"{MODEL} lacks a valid {', '.join(names)}") from None


def read_records(path: Path) -> frozenset[str]:
    """Return the ids of the records that a model has learnt from or was chosen by.

    Raises:
        NoPack: the table is missing or is none.
    """
    try:
        return frozenset(pq.read_table(path, columns=["record_id"])["record_id"].to_pylist())
    except (OSError, ValueError, KeyError):
        raise NoPack(detail=f"{RECORDS} is missing or unreadable") from None


def faults(version: Path, *, registered: str | None) -> dict[str, list[str]]:
    """Return what is wrong with a version's files, by check: ``files``, ``pickle``, ``card``; empty lists for nothing.

    Args:
        version: the folder that it was downloaded to.
        registered: the digest of its files when it was registered, as the journal has it.
    """
    return {
        "files": [*_changed(version, registered=registered), *_misnamed(version)],
        "pickle": [f"{name} is or may be a pickle" for name in pickles(version)],
        "card": list(_card(version)),
    }


def pickles(folder: Path) -> list[str]:
    """Return the paths of the files that hold a pickle, or are of a kind that may, or call themselves safetensors.

    Looks at names and contents: a pickle under another name is found by reading it as one, without running it.
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
            # the first thing that is no opcode ends it; pickles of every protocol end with STOP
            codes = [code.name for code, _, _ in pickletools.genops(file)]
        except (ValueError, OverflowError):
            return False
        # a text may begin with a full stop, which is STOP
        return bool(CALLS.intersection(codes)) or (len(codes) > 1 and not file.read(1))


def _changed(version: Path, *, registered: str | None) -> Iterator[str]:
    found = digest(version)
    if registered is None:
        yield "the journal does not know its registration, so nothing says what its files must be"
    elif found != registered:
        yield f"its files have the digest {found[:12]}, and {registered[:12]} was registered"


def _misnamed(version: Path) -> Iterator[str]:
    """Tell which files of the pack are not as ``files.json`` lists them."""
    try:
        folder = place(version)
        listed = json.loads((folder / FILES).read_bytes())
        wanted = {str(name): str(value) for name, value in listed.items()}
    except NoPack as error:
        yield str(error.fields["detail"])
        return
    except (ValueError, AttributeError):
        yield f"{FILES} is no list of digests"
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
        "are missing of": sorted(wanted.keys() - found.keys()),
        "are not in": sorted(found.keys() - wanted.keys()),
    }.items():
        if names:
            more = ", ..." if len(names) > SHOWN else ""
            yield f"{len(names)} files {what} {FILES}: {', '.join(names[:SHOWN])}{more}"


def _card(version: Path) -> Iterator[str]:
    try:
        folder = place(version)
    except NoPack:
        yield "without a pack there is no card"
        return
    for name in (CARD, PAGE):
        path = folder / name
        if not path.is_file() or not path.stat().st_size:
            yield f"{name} is missing or empty"
    try:
        if (folder / CARD).is_file() and not json.loads((folder / CARD).read_bytes()):
            yield f"{CARD} says nothing"
    except ValueError:
        yield f"{CARD} is no JSON"
