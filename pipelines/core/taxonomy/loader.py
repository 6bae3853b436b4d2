"""Load label schemes from their data files, and reject inconsistent schemes."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipelines.core.config.base import Section, read_section
from pipelines.core.errors import ConfigError
from pipelines.core.taxonomy.scheme import Category, Label, LearntRule, Merge, Preference, Scheme, Text, normal

FOLDER = Path(__file__).parent / "schemes"
# Schemes of a team's own, beside params.yaml in a checkout or a clone.
OWN = Path("schemes")


class _Severity(Section):
    where: dict[str, str]
    level: Annotated[int, Field(alias="is", ge=0)]


class _CategoryFile(Section):
    kind: Literal["single", "multi"]
    ordinal: bool = False
    none: str | None = None
    task: Text
    labels: Annotated[tuple[Label, ...], Field(min_length=1)]
    rules: tuple[Preference, ...] = ()
    merges: dict[str, Merge] = Field(default_factory=dict)
    task_merge: str | None = None
    severity: tuple[_Severity, ...] = ()
    guidelines: tuple[Text | LearntRule, ...] = ()
    special: tuple[Text | LearntRule, ...] = ()
    brief: tuple[Text | LearntRule, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> _CategoryFile:
        for rule in self.rules:
            if rule.keep == rule.drop or rule.of in rule.same:
                raise ValueError(f"rule {rule.name}: keep and drop must differ, and same must not contain `of`")
        names = {label.name for label in self.labels}
        merged = {name for m in self.merges.values() for name in (*m.labels, m.into)}
        if unknown := ({self.none} - {None} | merged) - names:
            raise ValueError(f"there is no label {', '.join(sorted(map(str, unknown)))}")
        if self.task_merge is not None and self.task_merge not in self.merges:
            raise ValueError(f"task_merge names {self.task_merge}, which merges does not have")
        if not any(label.task for label in self.labels):
            raise ValueError("every label has task: false")
        meant: dict[str, str] = {}
        for label in self.labels:
            for spelling in (label.name, label.code, *label.aliases):
                if not normal(spelling) or meant.setdefault(normal(spelling), label.name) != label.name:
                    raise ValueError(f"'{spelling}' is empty or means more than one label")
        if len(names) < len(self.labels):
            raise ValueError("two labels have the same name")
        return self

    def made(self, key: str) -> Category:
        severities = {
            label.name: max((s.level for s in self.severity if s.where.items() <= label.attributes.items()), default=0)
            for label in self.labels
        }
        rules = {name: getattr(self, name) for name in ("guidelines", "special", "brief")}
        learnt = {rule.text: rule for texts in rules.values() for rule in texts if isinstance(rule, LearntRule)}
        fields = {name: value for name, value in self if name != "severity"}
        fields |= {name: tuple(getattr(rule, "text", rule) for rule in texts) for name, texts in rules.items()}
        return Category(key=key, severities=severities, learnt=learnt, **fields)


class _SchemeFile(Section):
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    version: Annotated[int, Field(ge=1)]
    title: Text
    item: Text
    role: Text
    purpose: Text
    display: dict[str, tuple[Text, ...]] = Field(default_factory=dict)
    categories: Annotated[dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], _CategoryFile], Field(min_length=1)]

    @model_validator(mode="after")
    def _displayed(self) -> _SchemeFile:
        names = {label.name for category in self.categories.values() for label in category.labels}
        if unknown := {name for row in self.display.values() for name in row} - names:
            raise ValueError(f"display names labels that no category has: {', '.join(sorted(unknown))}")
        return self


def available(*, root: Path = Path()) -> list[str]:
    """Return the names of the label schemes in the package and in the folder ``schemes`` below ``root``."""
    return sorted(_files(root))


def _files(root: Path) -> dict[str, Path]:
    return {path.stem: path for folder in (root / OWN, FOLDER) for path in folder.glob("*.yaml")}


def path_of(name: str, *, root: Path = Path()) -> Path:
    """Return the data file of the label scheme ``name``; ``root`` is the checkout or clone that has the parameters."""
    files = _files(root)
    if name not in files:
        raise ConfigError("UnknownScheme", name=name, known=", ".join(sorted(files)))
    return files[name].resolve()


def load(name: str, *, root: Path = Path()) -> Scheme:
    """Load the label scheme ``name``; ``root`` is as for :func:`path_of`."""
    return _loaded(path_of(name, root=root))


def labels_of_all() -> set[str]:
    """Return the names of the labels of all schemes in the package."""
    categories = (category for name in available() for category in load(name).categories.values())
    return {label.name for category in categories for label in category.labels}


@cache
def _loaded(path: Path) -> Scheme:
    return load_file(path)


def load_file(path: Path) -> Scheme:
    """Read a label scheme from a data file."""
    described = read_section(
        _SchemeFile, path, refuse=lambda detail: ConfigError("BadScheme", file=path.name, detail=detail)
    )
    categories = {key: category.made(key) for key, category in described.categories.items()}
    return Scheme(**dict(described) | {"categories": categories}, digest=hashlib.sha256(path.read_bytes()).hexdigest())
