"""Registries of parts that are declared once: a class in a module of a package, or in another distribution.

The module has the part's name: a name is known without an import, and one part is imported without the others. Another
distribution offers parts through entry points of the group ``crisis_corpus.<package>``; a deployment allows it by name,
version and digest in section ``distributions`` of ``params.yaml``, which the stages that use such parts depend on. It
cannot replace a part of the package, and such parts work without it.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from pipelines.core.config.base import Distribution, Entry, faults
from pipelines.core.errors import BadParams, ConfigError

Part = TypeVar("Part")


Allowed = Mapping[str, Distribution]


@dataclass(frozen=True)
class Parts(Generic[Part]):
    """All parts of one kind: subclasses of ``base`` in the modules of ``package``, and in allowed distributions.

    ``key`` is the key of an entry of the parameters that names its part.
    """

    package: str
    base: type[Part]
    key: str = "kind"

    @property
    def group(self) -> str:
        """The group of entry points, such as ``crisis_corpus.sources``."""
        return f"crisis_corpus.{self.package.rpartition('.')[2]}"

    def names(self, allowed: Allowed) -> tuple[str, ...]:
        """Return the names of all parts, sorted."""
        verify(allowed)
        return tuple(sorted(self._own().union(*(self._points(other) for other in allowed))))

    def get(self, name: str, allowed: Allowed) -> type[Part]:
        """Return the class of a part; ``ConfigError`` (``UnknownName``) lists the known ones."""
        for other in self._offering(name, allowed):
            verify({other: allowed[other]})
            try:
                part = self._points(other)[name].load()
            except Exception:
                part = None
            if isinstance(part, type) and issubclass(part, self.base):
                return part
            raise ConfigError("BadPart", name=name, group=self.group, base=self.base.__name__)
        if name not in self._own():
            known = ", ".join(self.names(allowed))
            raise ConfigError("UnknownName", kind=self.base.__name__.lower(), name=name, known=known)
        module = importlib.import_module(f"{self.package}.{name}")
        [part] = [
            value for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, self.base) and value.__module__ == module.__name__
        ]  # fmt: skip
        return part

    def origin(self, name: str, allowed: Allowed) -> str:
        """Return the SHA-256 of the distribution that a part comes from, ``""`` for one of the package."""
        return next((allowed[other].sha256 for other in self._offering(name, allowed)), "")

    def of(self, entry: Entry, allowed: Allowed, *, where: str) -> Part:
        """Return the part that an entry of the parameters, whose key is ``where``, names: a model of the entry."""
        name = getattr(entry, self.key)
        if name not in self._own() and not self._offering(name, allowed):
            detail = f"{where}.{self.key}: is none of {', '.join(self.names(allowed))}"
            raise BadParams(where="params.yaml", detail=detail)
        model: Any = self.get(name, allowed)
        try:
            part: Part = model.model_validate(entry.model_dump())
        except ValidationError as error:
            raise BadParams(where="params.yaml", detail=faults(error, where)) from None
        return part

    def _own(self) -> frozenset[str]:
        folders = tuple(importlib.import_module(self.package).__path__)
        return _modules(folders, tuple(Path(folder).stat().st_mtime_ns for folder in folders))

    def _offering(self, name: str, allowed: Allowed) -> list[str]:
        """Return the distributions with a part of this name; none for a name of the package."""
        return [] if name in self._own() else [other for other in allowed if name in self._points(other)]

    def _points(self, distribution: str) -> dict[str, metadata.EntryPoint]:
        """Return a distribution's parts, not yet verified; none if it is not installed."""
        try:
            points = metadata.distribution(distribution).entry_points
        except metadata.PackageNotFoundError:
            return {}
        return {point.name: point for point in points.select(group=self.group)}


@cache
def _modules(folders: tuple[str, ...], changed: tuple[int, ...]) -> frozenset[str]:
    """Return the modules of a package whose folders last changed then: reading the parameters asks 200 times."""
    return frozenset(module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_"))


def verify(allowed: Allowed) -> None:
    """Check that distributions are installed as they are allowed."""
    for name, wanted in allowed.items():
        version, sha256 = installed(name)
        if (version, sha256) != (wanted.version, wanted.sha256):
            raise ConfigError("OtherDistribution", name=name, version=version, sha256=sha256)


@cache
def installed(name: str) -> tuple[str, str]:
    """Return the version of an installed distribution, and the digest of its files' names and hashes.

    What differs between two installations of it is left out: scripts, and how it was installed.
    """
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise ConfigError("NoDistribution", name=name) from None
    files = [
        file
        for file in distribution.files or ()
        if file.hash and not {"__pycache__", "..", "INSTALLER", "REQUESTED", "direct_url.json"} & {*file.parts}
    ]
    if all(file.parts[0].endswith(".dist-info") or re.match(r"__editable__|.*\.pth$", file.name) for file in files):
        raise ConfigError("EditableDistribution", name=name)
    hashes = [f"{file} {hashlib.sha256(file.read_binary()).hexdigest()}" for file in files]
    return distribution.version, hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()
