"""Registries of parts that are declared once: a class in a module of a package, or in another distribution.

The module has the part's name: a name is known without an import, and one part is imported without the others. Another
distribution offers parts through entry points of the group ``crisis_corpus.<package>``; a deployment allows it by name,
version and digest in section ``distributions`` of ``params.yaml``, which the stages that use such parts depend on.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from pipelines.core.config.base import Distribution, Entry, faults
from pipelines.core.errors import BadParams, ConfigError

Part = TypeVar("Part")


Allowed = Mapping[str, Distribution]


@dataclass(frozen=True)
class Parts(Generic[Part]):
    """All parts of one kind: subclasses of ``base`` in the modules of ``package``, and in allowed distributions.

    Args:
        package: such as ``pipelines.collect.sources``.
        base: what each part is a subclass of; itself not a part.
        key: the key of an entry of the parameters that names its part.
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
        modules = pkgutil.iter_modules(importlib.import_module(self.package).__path__)
        own = {module.name for module in modules if not module.name.startswith("_")}
        return tuple(sorted(own | self._foreign(allowed).keys()))

    def get(self, name: str, allowed: Allowed) -> type[Part]:
        """Return the class of a part; ``ConfigError`` (``UnknownName``) lists the known ones."""
        if point := self._foreign(allowed).get(name):
            part = point.load()
            if isinstance(part, type) and issubclass(part, self.base):
                return part
            raise ConfigError("BadPart", name=name, group=self.group, base=self.base.__name__)
        if name not in self.names(allowed):
            raise ConfigError(
                "UnknownName", kind=self.base.__name__.lower(), name=name, known=", ".join(self.names(allowed))
            )
        module = importlib.import_module(f"{self.package}.{name}")
        [part] = [
            value for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, self.base) and value.__module__ == module.__name__
        ]  # fmt: skip
        return part

    def origin(self, name: str, allowed: Allowed) -> str:
        """Return the SHA-256 of the distribution that a part comes from, ``""`` for one of the package."""
        found = (entry.sha256 for other, entry in allowed.items() if name in self._foreign({other: entry}))
        return next(found, "")

    def of(self, entry: Entry, allowed: Allowed, *, where: str) -> Part:
        """Return the part that an entry of the parameters names: a pydantic model of the whole entry.

        Raises:
            BadParams: there is no such part, or it refuses the entry, whose key is ``where``.
        """
        name, names = getattr(entry, self.key), self.names(allowed)
        if name not in names:
            detail = f"{where}.{self.key}: is none of {', '.join(names)}"
            raise BadParams(where="params.yaml", detail=detail)
        model: Any = self.get(name, allowed)
        try:
            part: Part = model.model_validate(entry.model_dump())
        except ValidationError as error:
            raise BadParams(where="params.yaml", detail=faults(error, where)) from None
        return part

    def _foreign(self, allowed: Allowed) -> dict[str, metadata.EntryPoint]:
        points: dict[str, metadata.EntryPoint] = {}
        for name, wanted in allowed.items():
            version, sha256 = installed(name)
            if (version, sha256) != (wanted.version, wanted.sha256):
                raise ConfigError("OtherDistribution", name=name, version=version, sha256=sha256)
            points |= {point.name: point for point in metadata.distribution(name).entry_points.select(group=self.group)}
        return points


@cache
def installed(name: str) -> tuple[str, str]:
    """Return the version of an installed distribution, and the digest of its files' names and hashes."""
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise ConfigError("NoDistribution", name=name) from None
    files = [
        file
        for file in distribution.files or ()
        if file.hash and not {"__pycache__", "direct_url.json"} & {*file.parts}
    ]
    hashes = [f"{file} {hashlib.sha256(file.read_binary()).hexdigest()}" for file in files]
    return distribution.version, hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()
