"""Load label schemes from their data files and reject inconsistent ones."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipelines.errors import ConfigError, UnknownScheme
from pipelines.taxonomy.rules import Preference, normal
from pipelines.taxonomy.scheme import Category, Label, Merge, Scheme

FOLDER = Path(__file__).parent / "schemes"
Tier = Literal["improved", "soft"]
Text = Annotated[str, Field(min_length=1)]


class BadScheme(ConfigError):
    """The data file of a label scheme is invalid or inconsistent."""

    message = "Scheme file {file}: {detail}."
    remedy = "Correct the file; pipelines/taxonomy/schemes/cradle.yaml is an example that uses every key."


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Label(_Part):
    name: Text
    code: Text
    definition: Text
    attributes: dict[str, str] = {}
    aliases: tuple[Text, ...] = ()
    task: bool = True


class _Rule(_Part):
    name: Text
    tier: Tier
    same: tuple[Text, ...]
    of: Text
    keep: Text
    drop: Text

    @model_validator(mode="after")
    def _two_values(self) -> _Rule:
        if self.keep == self.drop or self.of in self.same:
            raise ValueError(f"rule {self.name} compares a value with itself")
        return self


class _Merge(_Part):
    labels: tuple[Text, ...]
    into: Text


class _Severity(_Part):
    where: dict[str, str]
    level: Annotated[int, Field(alias="is", ge=0)]


class _Category(_Part):
    kind: Literal["single", "multi"]
    ordinal: bool = False
    none: str | None = None
    task: Text
    labels: Annotated[tuple[_Label, ...], Field(min_length=1)]
    rules: tuple[_Rule, ...] = ()
    merges: dict[str, _Merge] = {}
    task_merge: str | None = None
    severity: tuple[_Severity, ...] = ()
    guidelines: tuple[Text, ...] = ()
    special: tuple[Text, ...] = ()
    brief: tuple[Text, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> _Category:
        names = {label.name for label in self.labels}
        merged = {name for m in self.merges.values() for name in (*m.labels, m.into)}
        if unknown := ({self.none} - {None} | merged) - names:
            raise ValueError(f"there is no label {', '.join(sorted(map(str, unknown)))}")
        if self.task_merge is not None and self.task_merge not in self.merges:
            raise ValueError(f"there is no merge {self.task_merge}")
        if not any(label.task for label in self.labels):
            raise ValueError("no label belongs to the task")
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
            label.name: max(
                (s.level for s in self.severity if s.where.items() <= label.attributes.items()),
                default=0,
            )
            for label in self.labels
        }
        return Category(
            key=key,
            kind=self.kind,
            ordinal=self.ordinal,
            task=self.task,
            labels=tuple(Label(**label.model_dump()) for label in self.labels),
            none=self.none,
            rules=tuple(Preference(**rule.model_dump()) for rule in self.rules),
            merges={name: Merge(labels=frozenset(m.labels), into=m.into) for name, m in self.merges.items()},
            task_merge=self.task_merge,
            severities=severities,
            guidelines=self.guidelines,
            special=self.special,
            brief=self.brief,
        )


class _Scheme(_Part):
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    version: Annotated[int, Field(ge=1)]
    title: Text
    item: Text
    role: Text
    purpose: Text
    display: dict[str, tuple[Text, ...]] = {}
    categories: Annotated[dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], _Category], Field(min_length=1)]

    @model_validator(mode="after")
    def _displayed(self) -> _Scheme:
        names = {label.name for category in self.categories.values() for label in category.labels}
        if unknown := {name for row in self.display.values() for name in row} - names:
            raise ValueError(f"display names unknown labels: {', '.join(sorted(unknown))}")
        return self


def available() -> list[str]:
    """Return the names of the schemes in the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@cache
def load(name: str) -> Scheme:
    """Return the scheme ``name``.

    Raises:
        UnknownScheme: there is no such scheme.
        BadScheme: its file is invalid or inconsistent.
    """
    if name not in available():
        raise UnknownScheme(name=name, known=", ".join(available()))
    return load_file(FOLDER / f"{name}.yaml")


def load_file(path: Path) -> Scheme:
    """Return the scheme that a data file describes.

    Raises:
        BadScheme: the file is invalid; the error names the file and every invalid key.
    """
    try:
        content = path.read_bytes()
        described = _Scheme.model_validate(yaml.safe_load(content))
    except (OSError, yaml.YAMLError) as error:
        raise BadScheme(file=path.name, detail=f"cannot be read ({type(error).__name__})") from None
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'scheme'}: {e['msg']}" for e in error.errors())
        raise BadScheme(file=path.name, detail=faults) from None
    return Scheme(
        name=described.name,
        version=described.version,
        title=described.title,
        item=described.item,
        role=described.role,
        purpose=described.purpose,
        categories={key: category.made(key) for key, category in described.categories.items()},
        display=described.display,
        digest=hashlib.sha256(content).hexdigest(),
    )
