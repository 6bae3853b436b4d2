"""Save a model package as an MLflow pyfunc model with its code and signature, without pickles.

MLflow runs a script to load the model (MLflow's "models from code"). The script and the code that it imports are stored
with the model version, so that consumers need only the libraries in ``requirements.txt``, not this repository.

MLflow puts a version's code first on the import path, and Python imports each name once. Under this package's own name,
two versions in one process would share the modules of the first one, and a consumer who has the repository installed
would run its current code instead of the version's. So the name of the copy contains the digest of its content.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from crisis_corpus import integrity
from crisis_corpus.integrity import digest
from crisis_corpus.versions import delete_compiled
from pipelines.core.errors import ConfigError, RegistryError
from pipelines.registry.packaging.described import PICTURES, Described
from pipelines.registry.packaging.inputs import REQUIRED, TYPES

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models import ModelSignature

ROOT = Path(__file__).resolve().parents[3]
# Package of this project -> where its copy is, below the package of the version.
OURS = {"pipelines": "", "crisis_corpus": "crisis_corpus"}
LOCK = "requirements.lock"
MENTIONED = re.compile(rf"\b({'|'.join(OURS)})(?=\.\w|\s+import\b)")


def closure(roots: Sequence[str]) -> dict[str, Path]:
    """Return by name the files of the modules ``roots``, of all modules that they import, and of parent packages.

    Only modules of this project are included. Imports inside functions count; imports under ``TYPE_CHECKING`` do not.
    Modules that are imported by a computed name must be among the roots.
    """
    files: dict[str, Path] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        path = _file(name)
        if path is None or name in files:
            continue
        files[name] = path
        waiting += [parent for parent, _, _ in [name.rpartition(".")] if parent]
        waiting += [other for other, _ in imported(path) if other.partition(".")[0] in OURS]
    return dict(sorted(files.items()))


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield each module name that a file may import, and whether the import runs when the file is imported."""
    yield from _imports(ast.parse(path.read_bytes()), at_once=True)


def _imports(node: ast.AST, *, at_once: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, at_once) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from ((name, at_once) for name in (node.module, *(f"{node.module}.{a.name}" for a in node.names)))
    elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
        late = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from _imports(child, at_once=at_once and not late)


def write(roots: Sequence[str], *, to: Path) -> str:
    """Write the Python package with the modules that ``roots`` need and their weights below ``to``; return its name."""
    files = closure(roots)
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    digest = hashlib.sha256("".join(f"{name}\n{text}\n" for name, text in texts.items()).encode())
    for path in (data := _data(files)):
        digest.update(path.read_bytes())
    package = f"corpus_model_{digest.hexdigest()[:16]}"
    copies = {top: ".".join(filter(None, (package, place))) for top, place in OURS.items()}
    for name, text in texts.items():
        top = name.partition(".")[0]
        place = to / package / OURS[top] / files[name].relative_to(ROOT / top)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(MENTIONED.sub(lambda match: copies[match[1]], text), encoding="utf-8")
    for path in data:
        shutil.copy(path, to / package / path.relative_to(ROOT / "pipelines"))
    return package


def _data(files: dict[str, Path]) -> list[Path]:
    # ``<module>.<part>.onnx`` beside a module, and the texts of errors
    patterns = ("{}.*.onnx", "{}.toml")
    return sorted(f for path in files.values() for p in patterns for f in path.parent.glob(p.format(path.stem)))


def requirements(roots: Sequence[str], *, more: Sequence[str] = (), lock: Path = ROOT / LOCK) -> list[str]:
    """Return pinned requirements of the libraries in ``more`` and of those that the modules' closure imports."""
    names = {name for path in closure(roots).values() for name, at_once in imported(path) if at_once}
    foreign = {name.partition(".")[0] for name in {*names, *more}} - {*OURS, *sys.stdlib_module_names}
    lines = lock.read_text().splitlines() if lock.is_file() else []
    pins = {line.partition("==")[0]: line.split()[0] for line in lines if "==" in line and line[0].isalnum()}
    libraries = {_distribution(name) for name in foreign if name in _packages()}
    # a library that is named, by its import, must not be lost
    for library in sorted((libraries - pins.keys()) | ({*more} - _packages().keys())):
        raise ConfigError("NotLocked", library=library)
    return sorted(pins[library] for library in libraries)


def _file(name: str) -> Path | None:
    path = ROOT / name.replace(".", "/")
    if (path / "__init__.py").is_file():
        return path / "__init__.py"
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else None


@cache
def _packages() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def _distribution(package: str) -> str:
    """Return the distribution that provides an importable package: of several, the one of its name."""
    owners = sorted(map(canonicalize_name, _packages()[package]))
    return name if (name := canonicalize_name(package)) in owners else owners[0]


ARTIFACT, SCRIPT = "pack", "serve.py"
ENTRY = '''"""Opens the pack that came with this version."""

import sys

from mlflow.models import set_model

# compiled files would change the digest of the version's files
compiling, sys.dont_write_bytecode = sys.dont_write_bytecode, True
try:
    from {package}.registry.packaging.served import Served
finally:
    sys.dont_write_bytecode = compiling

set_model(Served())
'''


def save(pack: Path, *, to: Path) -> Path:
    """Write the MLflow model of a model package to the folder ``to``, which must be new or empty; return ``to``."""
    from mlflow import pyfunc

    described = _checked(pack)
    roots = roots_of(described)
    with TemporaryDirectory() as scratch:
        code = Path(scratch) / "code"
        code.mkdir()
        package = write(roots, to=code)
        script = Path(scratch) / SCRIPT
        script.write_text(ENTRY.format(package=package))
        with _importable(code, package=package), warnings.catch_warnings():
            # MLflow warns of missing type hints and examples; the signature is given
            warnings.simplefilter("ignore", UserWarning)
            pyfunc.save_model(
                str(to),
                python_model=str(script),
                artifacts={ARTIFACT: str(pack)},
                code_paths=[str(code / package)],
                signature=signature(described.inputs),
                input_example=example(described.inputs),
                pip_requirements=requirements(roots, more=_unimported(described)),
            )
    # MLflow has imported the code, and bytecode differs between machines
    delete_compiled(to)
    return to


def example(inputs: Sequence[str]) -> pd.DataFrame:
    """Return one input of a registered model with these columns: mild, synthetic, and of no record."""
    import pandas as pd

    row = {"title": "A title", "body": "This text shows the form of the input. It is no post.", "text": "words"}
    return pd.DataFrame([{column: _blank() if column == "image" else row[column] for column in inputs}])


def _blank() -> bytes:
    from PIL import Image

    blank = io.BytesIO()
    Image.new("RGB", (64, 48), "white").save(blank, "PNG")
    return blank.getvalue()


def signature(inputs: Sequence[str]) -> ModelSignature:
    """Return the MLflow signature (input and output columns) of a registered model with these input columns.

    Any cell may be null; the words of a picture are then read from it.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import Array

    asked = [ColSpec(TYPES[column], column, required=column in REQUIRED) for column in inputs]
    answered = [
        ColSpec(Array(DataType.string), "labels"),
        ColSpec(Array(DataType.double), "probabilities"),
        ColSpec(DataType.boolean, "abstain"),
        ColSpec(Array(DataType.string), "alerts"),
    ]
    return ModelSignature(inputs=Schema(asked), outputs=Schema(answered))


def _checked(pack: Path) -> Described:
    """Check a pack's files and return its description."""
    described = Described.read(pack)
    faults = integrity.faults(pack, registered=digest(pack))
    if wrong := [*faults["files"], *faults["pickle"], *faults["card"]]:
        raise RegistryError("NotServable", name=described.name, detail="; ".join(wrong))
    return described


def roots_of(described: Described) -> list[str]:
    """Return the modules with which a version answers, and those that they import by a computed name."""
    spec = described.entry
    roots = ["pipelines.registry.packaging.served", *spec.roots]
    if described.decode is not None:
        roots += [PICTURES, "pipelines.collect.read.decode_child"]
    if described.ocr is not None:
        roots.append(f"pipelines.collect.read.ocr.{described.ocr.engine}")
        roots += ["pipelines.collect.read.confined_engine", "pipelines.collect.read.ocr_child"]
    return roots


def _unimported(described: Described) -> list[str]:
    """Return the libraries that are needed although no module imports them."""
    return ["mlflow", *described.entry.libraries]


@contextmanager
def _importable(code: Path, *, package: str) -> Iterator[None]:
    """Make the code importable while MLflow runs the script to validate it; remove it afterwards."""
    sys.path.insert(0, str(code))
    # bytecode that is written here would be copied, too
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = written
        sys.path.remove(str(code))
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
