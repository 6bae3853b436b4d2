"""Define a label scheme: labels, categories, the rules of valid label sets, and the result of a check."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from math import comb
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from pipelines.core.errors import ConfigError

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Tier = Literal["improved", "soft"]
Mode = Literal["strict", "repair"]
# No unknown keys in a scheme's file.
CLOSED = ConfigDict(extra="forbid")
TIERS = ("base", "improved", "soft")
# Ours: every set is scored for every item.
MOST_SETS = 20_000


def _reserved(_: object) -> str:
    raise ValueError("not a key of a scheme's file")


Reserved = Annotated[str, BeforeValidator(_reserved)]
"""A field that the loader sets after the file was read."""


def tiers_of(mode: Literal["paper", "improved"]) -> frozenset[str]:
    """Return the tiers of rules that a mode applies to labels before a vote: (a) to (c) or (a) to (e) of SPEC 27.

    The tier ``soft`` is in neither: rule (f) assumes that labels share an incident, and is applied only on request.
    """
    return frozenset({"base"} if mode == "paper" else {"base", "improved"})


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking a label set: its repaired labels, the repairs and the violations.

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
    """A rule on two labels: the one whose attribute ``of`` is ``keep`` displaces the one whose is ``drop``.

    It applies to labels that have equal attributes ``same``. An example: of two labels of one crisis type, the one with
    time ``ongoing`` displaces the one with time ``past``.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CLOSED

    name: Text
    tier: Tier
    same: tuple[Text, ...]
    of: Text
    keep: Text
    drop: Text

    def displaced(self, labels: Collection[str], *, attributes: Mapping[str, Mapping[str, str]]) -> set[str]:
        """Return those of ``labels`` that others displace by this rule; attributes that both lack count as equal."""

        def place(label: str) -> tuple[str | None, ...]:
            return tuple(attributes[label].get(a) for a in self.same)

        kept = {place(label) for label in labels if attributes[label].get(self.of) == self.keep}
        return {label for label in labels if attributes[label].get(self.of) == self.drop and place(label) in kept}


def normal(spelling: str) -> str:
    """Return the spelling of a label with its letters and digits only, in lower case, for comparison."""
    return "".join(c for c in spelling.casefold() if c.isalnum())


@dataclass(frozen=True)
class Label:
    """One label that a record may have.

    ``attributes`` are used by rules and tables (CRADLE: type, level, time). ``task`` is false for labels that
    annotators may use but models are not asked for (SPEC 1.1, item 1: third-person descriptions, and a None that is the
    empty set).
    """

    __pydantic_config__: ClassVar[ConfigDict] = CLOSED

    name: Text
    code: Text
    definition: Text
    attributes: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[Text, ...] = ()
    task: bool = True


@dataclass(frozen=True)
class Merge:
    """A set of labels (``labels``) that is treated as one label (``into``)."""

    __pydantic_config__: ClassVar[ConfigDict] = CLOSED

    labels: frozenset[Text]
    into: Text


@dataclass(frozen=True)
class LearntRule:
    """A guideline (``text``) that was written after its source had printed errors on its test set (``learnt_from``).

    Annotators and prompts in mode ``improved`` are given ``text``; prompts in mode ``paper`` are given ``paper``, or
    nothing if it is ``None``, because a model that knows the errors on test is not scored on unseen items.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CLOSED

    text: Text
    learnt_from: Text
    paper: Text | None = None


@dataclass(frozen=True)
class Severity:
    """The severity (``is``) of the labels that have these attributes."""

    __pydantic_config__: ClassVar[ConfigDict] = CLOSED

    where: Mapping[str, str]
    level: Annotated[int, Field(alias="is", ge=0)]


@dataclass(frozen=True)
class Category:
    """One question about a record, with its possible labels.

    ``none`` is the label for "none of these": if it belongs to the task, it excludes all others (CRADLE's no_crisis);
    if not, it is another name of the empty set (FigSIM). ``guidelines`` and ``special`` are for annotators and prompts,
    ``brief`` is for fine-tuning prompts. ``learnt`` has those of their rules that were learnt from printed test errors,
    by text. ``predicted`` is false for what annotators say and models are not asked. ``recall_floors`` are the least
    recalls of alerts, by label (:mod:`pipelines.metrics.recall_constraints`). ``title`` names the category in reports,
    ``compared_by`` what items are compared by, if not by its labels.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CLOSED

    kind: Literal["single", "multi"]
    task: Text
    labels: Annotated[tuple[Label, ...], Field(min_length=1)]
    key: Reserved = ""
    title: str = ""
    compared_by: str = ""
    ordinal: bool = False
    predicted: bool = True
    recall_floors: Mapping[str, Annotated[float, Field(ge=0, le=1)]] = field(default_factory=dict)
    none: str | None = None
    rules: tuple[Preference, ...] = ()
    merges: Mapping[str, Merge] = field(default_factory=dict)
    task_merge: str | None = None
    levels: Annotated[tuple[Severity, ...], Field(alias="severity")] = ()
    guidelines: tuple[Text, ...] = ()
    special: tuple[Text, ...] = ()
    brief: tuple[Text, ...] = ()
    learnt: Mapping[str, LearntRule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a category that contradicts itself."""
        for rule in self.rules:
            if rule.keep == rule.drop or rule.of in rule.same:
                raise ValueError(f"rule {rule.name}: keep and drop must differ, and same must not contain `of`")
        names = {label.name for label in self.labels}
        merged = {name for m in self.merges.values() for name in (*m.labels, m.into)}
        if unknown := ({self.none} - {None} | merged | self.recall_floors.keys()) - names:
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
        if len(names) < len(self.labels) or "|" in "".join(names):
            raise ValueError("two labels have the same name, or one has |, which joins an item's labels in files")

    def worded(self, mode: Literal["paper", "improved"]) -> Category:
        """Return the category with the rules of prompts in a mode: in ``paper`` without learnt ones."""
        if mode == "improved" or not self.learnt:
            return self

        def told(rules: tuple[str, ...]) -> tuple[str, ...]:
            texts = [self.learnt[rule].paper if rule in self.learnt else rule for rule in rules]
            return tuple(rule for rule in texts if rule is not None)

        return replace(
            self, guidelines=told(self.guidelines), special=told(self.special), brief=told(self.brief), learnt={}
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the labels that models may give, in the scheme's order (ordinal order for an ordinal one)."""
        return tuple(label.name for label in self.labels if label.task)

    @cached_property
    def severities(self) -> dict[str, int]:
        """The severity of every label, 0 if the scheme gives none, by the label's name."""
        return {
            label.name: max((s.level for s in self.levels if s.where.items() <= label.attributes.items()), default=0)
            for label in self.labels
        }

    @cached_property
    def attributes(self) -> dict[str, Mapping[str, str]]:
        """The attributes of every label, such as type and time, by the label's name."""
        return {label.name: label.attributes for label in self.labels}

    @cached_property
    def spellings(self) -> dict[str, str]:
        """The name of the label that each spelling means: normalised spelling of a name, code or alias -> name."""
        return {normal(s): x.name for x in self.labels for s in (x.name, x.code, *x.aliases)}

    def check(self, values: Iterable[str], *, mode: Mode, tiers: Collection[str], task: bool = True) -> Checked:
        """Check whether ``values`` are a valid label set of this category, and repair them if possible.

        The result does not depend on the order of the labels, and repairing a repaired set changes nothing. ``tiers``:
        ``base`` is SPEC 23 (a) to (c), ``improved`` (d) and (e), ``soft`` (f). ``task``: keep only labels that models
        are asked for.

        Repairs: ``alias``, ``duplicate``, ``empty``, ``exclusive``, ``excluded``, the task's merge and the scheme's own
        rules. Violations that cannot be repaired: ``unknown_label``; ``several`` or ``empty`` if exactly one label is
        required.
        """
        strings = list(values)
        repairs: list[str] = []
        labels, unknown = self._named(strings, repairs=repairs)
        labels = self._within(labels, task=task, base="base" in tiers, repairs=repairs)
        if not labels and not unknown and "base" in tiers and self.none in self.names:
            labels = {str(self.none)}
            repairs.append("empty")
        for rule in self.rules:
            if rule.tier in tiers:
                gone = rule.displaced(labels, attributes=self.attributes)
                labels -= gone
                repairs += [rule.name] * len(gone)
        wrong = ["unknown_label"] * unknown
        if self.kind == "single" and not unknown and len(labels) != 1:
            wrong.append("several" if labels else "empty")
        if mode == "repair":
            return Checked(frozenset(labels), tuple(sorted(repairs)), tuple(sorted(wrong)), unknown)
        wrong += repairs
        return Checked(frozenset(strings if wrong else labels), (), tuple(sorted(wrong)), unknown)

    def _named(self, values: list[str], *, repairs: list[str]) -> tuple[set[str], int]:
        """Return the labels that the values name, and the number of values that name no label."""
        names = [v if v in self.attributes else self.spellings.get(normal(v)) for v in values]
        known = [name for name in names if name is not None]
        labels = set(known)
        repairs += ["alias"] * sum(name not in (None, v) for name, v in zip(names, values, strict=True))
        repairs += ["duplicate"] * (len(known) - len(labels))
        return labels, len(names) - len(known)

    def _within(self, labels: set[str], *, task: bool, base: bool, repairs: list[str]) -> set[str]:
        """Return the labels that remain: those of the task, if asked for, and without a none label beside others."""
        none, stands_alone = self.none, self.kind == "multi" and base
        if none in labels and none not in self.names:
            # another name of the empty set (SPEC 1.1, item 3), so it is a repair only if there are other labels
            repairs += ["exclusive"] if len(labels) > 1 else []
            labels = labels - {none}
        if task:
            merged = self.merge(frozenset(labels), merge=self.task_merge) if self.task_merge else frozenset(labels)
            repairs += [str(self.task_merge)] * len(labels - merged)
            labels = set(merged.intersection(self.names))
            repairs += ["excluded"] * (len(merged) - len(labels))
        if stands_alone and none in labels and len(labels) > 1:
            repairs.append("exclusive")
            labels = labels - {none}
        return labels

    def merge(self, labels: frozenset[str], *, merge: str) -> frozenset[str]:
        """Return ``labels``, of which those that belong to the merge named ``merge`` are replaced by one label."""
        rule = self.merges[merge]
        return labels - rule.labels | {rule.into} if labels & rule.labels else labels

    def severity(self, labels: Iterable[str]) -> int:
        """Return the highest severity among the labels, or 0 without labels."""
        return max((self.severities.get(label, 0) for label in labels), default=0)

    def nothing(self, labels: Collection[str]) -> bool:
        """Return whether a label set says that nothing is there: severity 0 or, without severities, none or no label.

        No label set of a category of one label without either says so.
        """
        if self.levels:
            return self.severity(labels) == 0
        return {*labels} <= {self.none} and (self.kind == "multi" or self.none is not None)

    def valid_sets(self, *, most: int = 4) -> list[frozenset[str]]:
        """Return the sets of at most ``most`` labels that the hard rules allow, smallest first (CRADLE T2: four).

        Of a category with so many labels that there are more than :data:`MOST_SETS`, the largest sets are left out.
        """
        while most > 1 and sum(comb(len(self.names), size) for size in range(most + 1)) > MOST_SETS:
            most -= 1
        if most not in self._valid:
            sizes = range(2) if self.kind == "single" else range(most + 1)
            sets = (frozenset(c) for size in sizes for c in combinations(self.names, size))
            hard = tiers_of("improved")
            self._valid[most] = [s for s in sets if not self.check(s, mode="strict", tiers=hard).violations]
        return list(self._valid[most])

    @cached_property
    def _valid(self) -> dict[int, list[frozenset[str]]]:
        return {}


def _with_learnt(category: Any) -> Any:
    """Set the learnt rules of a category of a file apart, by their texts."""
    if not isinstance(category, dict):
        return category
    if "learnt" in category:
        _reserved("learnt")
    category, learnt = dict(category), dict[Any, Any]()
    for name in ("guidelines", "special", "brief"):
        if isinstance(rules := category.get(name), list):
            learnt |= {rule.get("text"): rule for rule in rules if isinstance(rule, dict)}
            category[name] = [rule.get("text") if isinstance(rule, dict) else rule for rule in rules]
    return category | {"learnt": learnt}


@dataclass(frozen=True)
class Scheme:
    """The label scheme of a corpus: its categories, with their labels and rules.

    ``display`` maps each row of a table of types to the labels that the row sums up (CRADLE T1). ``errors_by`` names
    the categories by whose labels the errors of ordinal tasks (FigSIM T12) and, by the first of them, the scores of
    moderation systems (Figure 3) are broken down. ``item``, ``role`` and
    ``purpose`` are used in prompts, ``items`` (the plural) in reports. ``digest`` is the SHA-256 of the data file.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CLOSED

    name: Name
    version: Annotated[int, Field(ge=1)]
    title: Text
    item: Text
    role: Text
    purpose: Text
    categories: Annotated[Mapping[Name, Annotated[Category, BeforeValidator(_with_learnt)]], Field(min_length=1)]
    items: Text = "records"
    display: Mapping[str, tuple[Text, ...]] = field(default_factory=dict)
    errors_by: tuple[Name, ...] = ()
    digest: Reserved = ""

    def __post_init__(self) -> None:
        """Refuse a table with unknown labels."""
        names = {label.name for category in self.categories.values() for label in category.labels}
        if unknown := {name for row in self.display.values() for name in row} - names:
            raise ValueError(f"display names labels that no category has: {', '.join(sorted(unknown))}")
        if missing := set(self.errors_by) - self.categories.keys():
            raise ValueError(f"errors_by names categories that there are not: {', '.join(sorted(missing))}")

    def category(self, key: str | None = None) -> Category:
        """Return the category with this key; without a key, return the only category."""
        chosen = next(iter(self.categories)) if key is None and len(self.categories) == 1 else key
        if chosen is None or chosen not in self.categories:
            raise ConfigError("UnknownCategory", scheme=self.name, key=key or "", known=", ".join(self.categories))
        return self.categories[chosen]

    def turned(self) -> Scheme:
        """Return the scheme with its categories, and the labels of each, in the opposite order."""
        turned = {
            key: replace(self.categories[key], labels=self.categories[key].labels[::-1]) for key in self.categories
        }
        return replace(self, categories=dict(reversed(turned.items())))

    def title_of(self, key: str) -> str:
        """Return the title of a category for headings."""
        category = self.categories.get(key)
        return (category and category.title) or key.capitalize()

    def compared_by(self, key: str) -> str:
        """Return the title of what items are compared by in tests of a category."""
        category = self.categories.get(key)
        return (category and category.compared_by) or self.title_of(key)

    def in_order(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by category in the scheme's order, then those of other names."""
        known = [key for key in self.categories if key in values]
        return {key: values[key] for key in (*known, *sorted(values.keys() - {*known}))}
