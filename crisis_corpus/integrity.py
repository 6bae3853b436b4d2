"""Check a model version's files without loading them: complete, unaltered, not pickled, with a model card.

A version's files are MLflow's own (``MLmodel``, the model's code) and, below them, exactly one model package: the
folder that contains ``files.json``.
"""

from __future__ import annotations

import hashlib
import json
import pickletools
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, ValidationError

from crisis_corpus import formats
from crisis_corpus.errors import RegistryError
from crisis_corpus.model_opening import COPY

MODEL, CARD, PAGE, FILES, RECORDS = "model.json", "card.json", "card.md", "files.json", "records.parquet"
# Extensions of files that are or may be pickles: PyTorch's, joblib's, NumPy's object arrays.
PICKLED = frozenset({".pkl", ".pickle", ".dill", ".joblib", ".pt", ".pth", ".bin", ".ckpt", ".npy", ".npz"})
# Pickle opcodes that import or call code, and the first opcode of every pickle since protocol 2.
CALLS = frozenset({"PROTO", "GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD"})
# A safetensors file begins with the length of its JSON header; the safetensors reader has the same limit (100 MB).
HEADER_BYTES = 100_000_000
SHOWN = 5  # ours: file names per reason


class NoPack(RegistryError):
    """A model version has no model package, or its model package cannot be read."""

    message = "The files of this model version cannot be read: {detail}."
    remedy = (
        "Use another version, or run `corpus register NAME`, which packages the model again and registers the result."
    )
    exit_code = 65


class Learnt(BaseModel, frozen=True):
    """The number of a model's training records and the SHA-256 of their sorted ids, one id per line."""

    records: int
    digest: str


class TrainedWeights(BaseModel, frozen=True):
    """The MLflow run of a training, if it was tracked, and the SHA-256 of each file that the training wrote."""

    run: str | None
    files: dict[str, str]


class PackManifest(BaseModel, frozen=True):
    """The fields of ``model.json`` that the registry reads; other fields are used only when the model is loaded.

    ``inputs`` are the columns that the model reads: ``title`` and ``body``, ``image`` and ``text``, or some of these.
    """

    kind: str
    task: str
    labels: tuple[str, ...]
    inputs: tuple[str, ...]
    scheme_digest: str
    data_commit: str
    split_digest: str
    votes_digest: str | None = None
    train: Learnt
    weights: TrainedWeights | None = None


def place(version: Path) -> Path:
    """Return the folder of the model package in a version's folder."""
    lists = sorted(version.rglob(FILES))
    if len(lists) != 1:
        raise NoPack(detail=f"{len(lists)} files named {FILES} found, expected one")
    return lists[0].parent


def read_manifest(path: Path) -> PackManifest:
    """Read ``model.json`` of a model package."""
    try:
        facts = json.loads(path.read_bytes())
        formats.require(facts.get("format"), name="model_package", known=formats.MODEL_PACKAGE)
        return PackManifest.model_validate(facts)
    except OSError:
        raise NoPack(detail=f"{MODEL} is missing") from None
    except (AttributeError, json.JSONDecodeError, UnicodeDecodeError):
        raise NoPack(detail=f"{MODEL} is not a JSON object") from None
    except ValidationError as error:
        names = sorted({".".join(map(str, fault["loc"])) or "all" for fault in error.errors()})
        raise NoPack(detail=f"{MODEL} has missing or invalid fields: {', '.join(names)}") from None


def listing(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder by its relative POSIX path, sorted by path."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: sha256(paths[name]) for name in sorted(paths) if name != COPY}


def weights_of(listed: Mapping[str, str]) -> dict[str, str]:
    """Return the model weights (``*.safetensors``) in the result of :func:`listing`."""
    return {name: value for name, value in listed.items() if name.endswith(".safetensors")}


def different(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Return the sorted names of files that are altered, missing or added in one listing compared with another."""
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


def digest(folder: Path) -> str:
    """Return the SHA-256 of the ``sha256sum`` listing of all files below a folder, including MLflow's own files.

    The digest changes if a file is changed, added, removed or renamed. Files that MLflow adds to downloaded copies are
    not included.
    """
    lines = "".join(f"{value}  {name}\n" for name, value in listing(folder).items())
    return hashlib.sha256(lines.encode()).hexdigest()


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def faults(version: Path, *, registered: str | None, weights: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """Return the problems of a version's files by check (``files``, ``pickle``, ``card``); an empty list means passed.

    Args:
        registered: the digest of the version's files that the journal recorded at registration.
        weights: the SHA-256 of the package's files of weights at registration; ``None`` if none were recorded.
    """
    return {
        "files": [*_changed(version, registered=registered), *_misnamed(version, weights=weights)],
        "pickle": [f"{name} is or may be a pickle" for name in pickles(version)],
        "card": list(_card(version)),
    }


def pickles(folder: Path) -> list[str]:
    """Return the paths of files that are pickles or may contain one, and of files falsely named ``*.safetensors``.

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
    present = digest(version)
    if registered is None:
        yield "the journal has no registration of this version, so its files cannot be verified"
    elif present != registered:
        yield f"its files have the digest {present[:12]}, but {registered[:12]} was registered"


def _misnamed(version: Path, *, weights: Mapping[str, str] | None) -> Iterator[str]:
    """Yield the differences between the pack's files and ``files.json``, and from the registered weights."""
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
    present = listing(folder)
    if weights is not None and (names := different(weights_of(present), weights)):
        yield f"{len(names)} files of weights are not the registered ones: {', '.join(names[:SHOWN])}"
    present.pop(FILES, None)
    wanted.pop(FILES, None)
    for name in (MODEL, RECORDS):
        if name not in wanted:
            yield f"{FILES} does not list {name}"
    altered = sorted(name for name in wanted.keys() & present.keys() if wanted[name] != present[name])
    for what, names in {
        "differ from": altered,
        "are missing although listed in": sorted(wanted.keys() - present.keys()),
        "are not in": sorted(present.keys() - wanted.keys()),
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
