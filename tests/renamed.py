"""Give the corpora, the schemes, their categories and labels other names, in a profile, in scheme files and back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from pipelines.core.config.params import read_params
from pipelines.core.taxonomy import path_of

ROOT = Path(__file__).resolve().parents[1]
CORPORA = {"memes": "zines", "posts": "letters"}
SCHEMES = {"figsim": "marks", "cradle": "alarms"}
CATEGORIES = {
    "context": "background",
    "figurative": "devices",
    "labels": "kinds_of_alarm",
    "modality": "medium",
    "related": "shown",
    "severity": "stage_of",
}
REGISTERED = {
    "crisis-posts": "alarm-letters",
    "meme-severity": "zine-stage",
    "meme-figurative": "zine-devices",
    "meme-related": "zine-shown",
}
# What `pipelines/curate/balance.py` calls an empty set of labels.
NONE = "None"
# Sections that are about none of them: the sandbox's sizes, names of files with protocols, and pages of licences.
OTHERS = ("sandbox", "round", "providers", "collect", "images")


class Names:
    """The new names of the corpora, schemes, categories, labels and registered models.

    Categories and labels sort as before, also beside ``NONE``: the stage ``split`` balances labels by the order of
    their names, and has that one for an empty set.
    """

    words = CORPORA | SCHEMES | CATEGORIES | REGISTERED

    @cached_property
    def labels(self) -> dict[str, str]:
        """New names of labels by the old ones, the same in each category that has one."""
        old = sorted({label["name"] for scheme in SCHEMES for label in _labels(_scheme(scheme))})
        marks = ("N" if name == NONE else "M" if name < NONE else "O" for name in old)
        return {
            name: f"{mark}{place:02d}_{name[::-1].lower()}"
            for place, (mark, name) in enumerate(zip(marks, old, strict=True))
        }

    def scheme(self, name: str) -> dict[str, Any]:
        """Return a scheme under its new names."""
        scheme = _scheme(name)
        scheme["name"] = SCHEMES[name]
        scheme["errors_by"] = [CATEGORIES[key] for key in scheme.get("errors_by", ())]
        scheme["display"] = {row: [*map(self.labels.get, names)] for row, names in scheme.get("display", {}).items()}
        for key, category in scheme["categories"].items():
            category.setdefault("title", key.capitalize())
        scheme["categories"] = {CATEGORIES[key]: self._category(each) for key, each in scheme["categories"].items()}
        return scheme

    def _category(self, category: dict[str, Any]) -> dict[str, Any]:
        for label in category["labels"]:
            label["name"] = self.labels[label["name"]]
        if category.get("none"):
            category["none"] = self.labels[category["none"]]
        floors = category.get("recall_floors", {})
        category["recall_floors"] = {self.labels[name]: floor for name, floor in floors.items()}
        for merge in category.get("merges", {}).values():
            merge.update(labels=[self.labels[name] for name in merge["labels"]], into=self.labels[merge["into"]])
        return category

    def values(self, value: Any) -> Any:
        """Return the values of parameters under the new names."""
        if isinstance(value, Mapping):
            return {self.values(key): self.values(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.values(each) for each in value]
        return self.words.get(value, value) if isinstance(value, str) else value

    def profile(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a profile that has all of these parameters under the new names, and the old corpora no more."""
        renamed = {name: section if name in OTHERS else self.values(section) for name, section in values.items()}
        protocols = {CORPORA[corpus]: name for corpus, name in values["round"]["protocol"].items()}
        floors = {
            REGISTERED[name]: {self.labels[label]: floor for label, floor in each.items()}
            for name, each in values["promote"]["recall_floors"].items()
        }
        renamed["round"] = values["round"] | {"protocol": protocols}
        renamed["promote"] = renamed["promote"] | {"recall_floors": floors}
        # in the order of the old ones, although the files of parameters have them first
        return renamed | {"corpora": dict.fromkeys(CORPORA) | renamed["corpora"]}

    def back(self, value: Any) -> Any:
        """Return values of results under the old names; lists of labels are sorted."""
        if isinstance(value, Mapping):
            return {self.back(key): self.back(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            members = [self.back(each) for each in value]
            return (
                sorted(members)
                if members and all(isinstance(each, str) and each in self._old for each in members)
                else members
            )
        return self._new.sub(lambda match: self._back[match[0]], value) if isinstance(value, str) else value

    @cached_property
    def _old(self) -> set[str]:
        return {*self.labels}

    @cached_property
    def _back(self) -> dict[str, str]:
        return {new: old for old, new in (self.words | self.labels).items()}

    @cached_property
    def _new(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, sorted(self._back, key=len, reverse=True)))
        return re.compile(rf"(?<![A-Za-z0-9_])(?:{names})(?![A-Za-z0-9_])")


def _scheme(name: str) -> dict[str, Any]:
    scheme: dict[str, Any] = yaml.safe_load(path_of(name).read_text())
    return scheme


def _labels(scheme: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for category in scheme["categories"].values():
        yield from category["labels"]


def parameters() -> dict[str, Any]:
    """Return the parameters of the checkout."""
    return read_params(ROOT)
