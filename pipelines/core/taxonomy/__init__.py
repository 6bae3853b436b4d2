"""Load label schemes from data files: their labels, definitions, and rules for valid label sets.

A scheme is one file in ``schemes/``, or ``corpora/<name>/scheme.yaml``; adding one needs no code.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path

from pipelines.core.config.base import CORPORA, read_section
from pipelines.core.errors import ConfigError
from pipelines.core.taxonomy.scheme import Category, Checked, Label, Scheme, tiers_of

__all__ = ("Category", "Checked", "Label", "Scheme", "tiers_of")

FOLDER = Path(__file__).parent / "schemes"
# Schemes of a team's own, beside params.yaml in a checkout or a clone.
OWN = Path("schemes")


def available(*, root: Path = Path()) -> list[str]:
    """Return the names of the label schemes in the package and of the team's own below ``root``."""
    return sorted(_files(root))


def own(root: Path) -> dict[str, Path]:
    """Return the files of a team's own label schemes in a checkout or clone, by name."""
    files = {path.stem: path for path in (root / OWN).glob("*.yaml")}
    return files | {path.parent.name: path for path in (root / CORPORA).glob("*/scheme.yaml")}


def _files(root: Path) -> dict[str, Path]:
    return own(root) | {path.stem: path for path in FOLDER.glob("*.yaml")}


def path_of(name: str, *, root: Path = Path()) -> Path:
    """Return the data file of the label scheme ``name``; ``root`` is the checkout or clone that has the parameters."""
    files = _files(root)
    if name not in files:
        raise ConfigError("UnknownScheme", name=name, known=", ".join(sorted(files)))
    return files[name].resolve()


def load(name: str, *, root: Path = Path()) -> Scheme:
    """Load the label scheme ``name``; ``root`` is as for :func:`path_of`."""
    path = path_of(name, root=root)
    if (scheme := load_file(path)).name != name:
        raise ConfigError(
            "BadScheme", file=path.name, detail=f"its name is {scheme.name}, and not {name} as its place says"
        )
    return scheme


def load_file(path: Path) -> Scheme:
    """Read a label scheme from a data file."""
    # a person edits it between two commands of one process
    return _read(path, path.stat().st_mtime_ns if path.exists() else 0)


@cache
def _read(path: Path, changed: int) -> Scheme:
    scheme = read_section(Scheme, path, refuse=lambda detail: ConfigError("BadScheme", file=path.name, detail=detail))
    categories = {key: replace(category, key=key) for key, category in scheme.categories.items()}
    return replace(scheme, categories=categories, digest=hashlib.sha256(path.read_bytes()).hexdigest())
