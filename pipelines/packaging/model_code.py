"""Copy the code that a registered model needs into a uniquely named Python package; follow imports to find it.

MLflow puts a version's code first on the import path, and Python imports each name once. Under this package's own name,
two versions in one process would share the modules of the first one, and a consumer who has the repository installed
would run its current code instead of the version's. So the name of the copy contains the digest of its content.
"""

from __future__ import annotations

import ast
import hashlib
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from pipelines.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
# Package of this project -> where its copy is, below the package of the version.
OURS = {"pipelines": "", "crisis_corpus": "crisis_corpus"}
LOCK = "requirements.lock"
MENTIONED = re.compile(rf"\b({'|'.join(OURS)})(?=\.\w|\s+import\b)")
# Libraries and modules that no consumer should need.
SETTINGS = "pipelines.config.params"
UNWANTED = frozenset({"airflow", "dvc", "sqlalchemy", "label_studio_sdk", "argilla", SETTINGS})


class TooMuchCode(ConfigError):
    """The code of a registered model imports, possibly indirectly, a library that its users should not need."""

    message = (
        "The code of a registered model imports {libraries}, which consumers should not have to install. These modules "
        "import them: {modules}."
    )
    remedy = "Move the code that needs these libraries to a module that predictions do not import, then register again."


class NotLocked(ConfigError):
    """A library that a registered model needs has no pinned version."""

    message = "A registered model needs {library}, which is not pinned in requirements.lock."
    remedy = (
        "Run the command in a checkout of the project. If the library is new, resolve the extras "
        "into requirements.lock again; see docs/dependencies.md."
    )


def closure(roots: Sequence[str]) -> dict[str, Path]:
    """Return by name the files of the modules ``roots``, of all modules that they import, and of parent packages.

    Only modules of this project are included. Imports inside functions count; imports under ``TYPE_CHECKING`` do not.
    Modules that are imported by a computed name must be among the roots.
    """
    found: dict[str, Path] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        path = _file(name)
        if path is None or name in found:
            continue
        found[name] = path
        waiting += [parent for parent, _, _ in [name.rpartition(".")] if parent]
        waiting += [other for other, _ in imported(path) if other.partition(".")[0] in OURS]
    return dict(sorted(found.items()))


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield each module name that a file may import, and whether the import runs when the file is imported."""
    tree = ast.parse(path.read_bytes())
    late = {id(node) for each in ast.walk(tree) if isinstance(each, _FUNCTION) for node in ast.walk(each)}
    skipped = {
        id(node)
        for each in ast.walk(tree)
        if isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test)
        for line in each.body
        for node in ast.walk(line)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) not in late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                yield name, id(node) not in late


_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def write(roots: Sequence[str], *, to: Path) -> str:
    """Write the Python package with the modules that ``roots`` need and their weights below ``to``; return its name."""
    files = closure(roots)
    refuse(files)
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    digest = hashlib.sha256("".join(f"{name}\n{text}\n" for name, text in texts.items()).encode())
    for path in (weights := _weights(files)):
        digest.update(path.read_bytes())
    package = f"corpus_model_{digest.hexdigest()[:16]}"
    for name, text in texts.items():
        top = name.partition(".")[0]
        place = to / package / OURS[top] / files[name].relative_to(ROOT / top)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(MENTIONED.sub(lambda found: _copied(found[1], package), text), encoding="utf-8")
    for path in weights:
        shutil.copy(path, to / package / path.relative_to(ROOT / "pipelines"))
    return package


def _weights(files: dict[str, Path]) -> list[Path]:
    """Return the weights ``<module>.<part>.onnx`` that modules have beside them."""
    return sorted(found for path in files.values() for found in path.parent.glob(f"{path.stem}.*.onnx"))


def _copied(top: str, package: str) -> str:
    return f"{package}.{OURS[top]}" if OURS[top] else package


def refuse(files: dict[str, Path]) -> None:
    """Raise TooMuchCode if modules (name -> file) import, even in functions, a library that users should not need."""
    guilty: dict[str, set[str]] = {}
    for module, path in files.items():
        for name, _ in imported(path):
            library = name if name == SETTINGS else name.partition(".")[0]
            if library in UNWANTED:
                guilty.setdefault(library, set()).add(module)
    if guilty:
        modules = sorted(set().union(*guilty.values()))
        raise TooMuchCode(libraries=", ".join(sorted(guilty)), modules=", ".join(modules))


def requirements(roots: Sequence[str], *, more: Sequence[str] = (), lock: Path = ROOT / LOCK) -> list[str]:
    """Return pinned requirements of the libraries in ``more`` and of those that the modules of :func:`closure` import."""
    names = {name for path in closure(roots).values() for name, at_once in imported(path) if at_once}
    foreign = {name for name in {*names, *more} if name.partition(".")[0] not in {*OURS, *sys.stdlib_module_names}}
    pins = _pins(lock)
    found = {_distribution(name) for name in foreign}
    for library in sorted(found - {None} - pins.keys(), key=str):
        raise NotLocked(library=library)
    return sorted(pins[library] for library in found if library)


def _file(name: str) -> Path | None:
    path = ROOT / name.replace(".", "/")
    if (path / "__init__.py").is_file():
        return path / "__init__.py"
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else None


@cache
def _packages() -> dict[str, list[str]]:
    return {name: sorted(set(owners)) for name, owners in metadata.packages_distributions().items()}


def _distribution(name: str) -> str | None:
    """Return the distribution that provides an importable name, or ``None`` if there is none."""
    top = name.partition(".")[0]
    owners = [_normal(owner) for owner in _packages().get(top, ())]
    if len(owners) < 2 or _normal(top) in owners:
        return _normal(top) if _normal(top) in owners else next(iter(owners), None)
    place = name.replace(".", "/")
    for owner in owners:
        files = map(str, metadata.files(owner) or ())
        if any(file in {f"{place}.py", f"{place}/__init__.py"} for file in files):
            return owner
    return None


def _pins(lock: Path) -> dict[str, str]:
    lines = lock.read_text().splitlines() if lock.is_file() else []
    return {_normal(line.partition("==")[0]): line.split()[0] for line in lines if "==" in line and line[0].isalnum()}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
