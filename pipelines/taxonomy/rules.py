"""Check label sets against a scheme's rules: report violations (strict) or repair and count them (repair).

The result does not depend on the order of the labels, and repairing a repaired set changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

Mode = Literal["strict", "repair"]
TIERS = ("base", "improved", "soft")


def tiers_of(mode: Literal["paper", "improved"]) -> frozenset[str]:
    """Return the tiers of rules that a mode applies before a vote: SPEC 27, (a) to (c) or (a) to (e).

    The tier ``soft`` is in neither: rule (f) assumes that labels share an incident, and is applied only on request.
    """
    return frozenset({"base"} if mode == "paper" else {"base", "improved"})


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of a check.

    ``repairs`` has one rule name per repair, sorted. ``violations`` has what remains wrong, sorted; if there are any in
    strict mode, ``labels`` is the input. ``unknown`` counts strings that the scheme does not know: they are violations
    in both modes and are never turned into a label.
    """

    labels: frozenset[str]
    repairs: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Preference:
    """Rule: of two labels with equal attributes ``same``, the one whose ``of`` is ``keep`` displaces ``drop``."""

    name: str
    tier: str
    same: tuple[str, ...]
    of: str
    keep: str
    drop: str

    def displaced(self, labels: Collection[str], *, attributes: Mapping[str, Mapping[str, str]]) -> set[str]:
        """Return the labels that another label displaces; an attribute that both lack counts as equal."""

        def place(label: str) -> tuple[str | None, ...]:
            return tuple(attributes[label].get(a) for a in self.same)

        kept = {place(label) for label in labels if attributes[label].get(self.of) == self.keep}
        return {label for label in labels if attributes[label].get(self.of) == self.drop and place(label) in kept}


class Checkable(Protocol):
    """The properties of :class:`pipelines.taxonomy.scheme.Category` that the rules read."""

    @property
    def kind(self) -> str: ...
    @property
    def none(self) -> str | None: ...
    @property
    def names(self) -> Collection[str]: ...
    @property
    def rules(self) -> Iterable[Preference]: ...
    @property
    def task_merge(self) -> str | None: ...
    @property
    def attributes(self) -> Mapping[str, Mapping[str, str]]: ...
    @property
    def spellings(self) -> Mapping[str, str]: ...
    def merge(self, labels: frozenset[str], *, merge: str) -> frozenset[str]: ...


def normal(spelling: str) -> str:
    """Return the normalised form of a spelling: its letters and digits in lower case."""
    return "".join(c for c in spelling.casefold() if c.isalnum())


def check(
    category: Checkable, *, values: Iterable[str], mode: Mode, tiers: Collection[str], task: bool = True
) -> Checked:
    """Check ``values`` against a category; see :meth:`pipelines.taxonomy.scheme.Category.check`."""
    given = list(values)
    repairs: list[str] = []
    labels, unknown = _named(category, values=given, repairs=repairs)
    labels = _within(category, labels=labels, task=task, base="base" in tiers, repairs=repairs)
    if not labels and not unknown and "base" in tiers and category.none in category.names:
        labels = {str(category.none)}
        repairs.append("empty")
    for rule in category.rules:
        if rule.tier in tiers:
            gone = rule.displaced(labels, attributes=category.attributes)
            labels -= gone
            repairs += [rule.name] * len(gone)
    wrong = ["unknown_label"] * unknown
    if category.kind == "single" and not unknown and len(labels) != 1:
        wrong.append("several" if labels else "empty")
    if mode == "repair":
        return Checked(frozenset(labels), tuple(sorted(repairs)), tuple(sorted(wrong)), unknown)
    wrong += repairs
    return Checked(frozenset(given if wrong else labels), (), tuple(sorted(wrong)), unknown)


def _named(category: Checkable, *, values: list[str], repairs: list[str]) -> tuple[set[str], int]:
    """Return the labels that the values name, and the number of values that name no label."""
    found = [v if v in category.attributes else category.spellings.get(normal(v)) for v in values]
    known = [name for name in found if name is not None]
    labels = set(known)
    repairs += ["alias"] * sum(name not in (None, v) for name, v in zip(found, values, strict=True))
    repairs += ["duplicate"] * (len(known) - len(labels))
    return labels, len(found) - len(known)


def _within(category: Checkable, *, labels: set[str], task: bool, base: bool, repairs: list[str]) -> set[str]:
    """Return the labels that remain: those of the task, if asked for, and without a none label beside others."""
    none, stands_alone = category.none, category.kind == "multi" and base
    if none in labels and none not in category.names:
        # another name of the empty set (SPEC 1.1, item 3), so it is a repair only if there are other labels
        repairs += ["exclusive"] if len(labels) > 1 else []
        labels = labels - {none}
    if task:
        labels = _of_the_task(category, labels=labels, repairs=repairs)
    if stands_alone and none in labels and len(labels) > 1:
        repairs.append("exclusive")
        labels = labels - {none}
    return labels


def _of_the_task(category: Checkable, *, labels: set[str], repairs: list[str]) -> set[str]:
    merged = category.merge(frozenset(labels), merge=category.task_merge) if category.task_merge else frozenset(labels)
    repairs += [str(category.task_merge)] * len(labels - merged)
    kept = merged.intersection(category.names)
    repairs += ["excluded"] * (len(merged) - len(kept))
    return set(kept)
