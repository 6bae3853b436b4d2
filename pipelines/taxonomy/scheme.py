"""The shapes of a label scheme: labels, the categories that they belong to, and the scheme of one corpus."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Literal

from pipelines.errors import ConfigError
from pipelines.taxonomy import rules
from pipelines.taxonomy.rules import Checked, Mode, Preference


class UnknownCategory(ConfigError):
    """A scheme has no category of this key, or several where one was to be implied."""

    message = "Scheme '{scheme}' has no category '{key}'."
    remedy = "Name one of {known}."


@dataclass(frozen=True)
class Label:
    """One thing that can be said of a record.

    ``attributes`` is what rules and tables go by (CRADLE: type, level, time). ``task`` is false for what annotators may
    say but models are not asked about (SPEC 1.1, item 1: third-person descriptions, and a None that is the empty set).
    """

    name: str
    code: str
    definition: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    task: bool = True


@dataclass(frozen=True)
class Merge:
    """Labels that count as one."""

    labels: frozenset[str]
    into: str


@dataclass(frozen=True)
class Category:
    """One question about a record and everything that may be answered.

    ``none`` is the label that says "nothing of this": where it belongs to the task it stands alone (CRADLE's
    no_crisis), where it does not it is another word for the empty set (FigSIM). ``severities`` has each label's
    severity, 0 where the scheme gives none. ``guidelines``, ``special`` and ``brief`` go into prompts only.
    """

    key: str
    kind: Literal["single", "multi"]
    ordinal: bool
    task: str
    labels: tuple[Label, ...]
    none: str | None
    rules: tuple[Preference, ...]
    merges: Mapping[str, Merge]
    task_merge: str | None
    severities: Mapping[str, int]
    guidelines: tuple[str, ...]
    special: tuple[str, ...]
    brief: tuple[str, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The labels that models are asked about, in the scheme's order (an ordinal's own order)."""
        return tuple(label.name for label in self.labels if label.task)

    @cached_property
    def attributes(self) -> dict[str, Mapping[str, str]]:
        """The attributes of every label by its name."""
        return {label.name: label.attributes for label in self.labels}

    @cached_property
    def spellings(self) -> dict[str, str]:
        """The label that a normalised spelling means: its name, its code or one of its aliases."""
        return {rules.normal(s): x.name for x in self.labels for s in (x.name, x.code, *x.aliases)}

    def check(self, values: Iterable[str], *, mode: Mode, tiers: Collection[str], task: bool = True) -> Checked:
        """Tell whether ``values`` make a label set of this category, or make one of them.

        Args:
            values: the strings given, in any order.
            mode: ``strict`` names what is wrong, ``repair`` puts right what it can and counts each repair.
            tiers: which rules apply: ``base`` is SPEC 23 (a) to (c), ``improved`` (d) and (e), ``soft`` (f).
            task: whether only what models are asked about may stand; false accepts everything annotators may say.

        Returns:
            the label set, the repairs and the violations. Repair names: ``alias``, ``duplicate``, ``empty``,
            ``exclusive``, ``excluded``, the task's merge and the scheme's own rules. Violations that no repair heals:
            ``unknown_label``; ``several`` or ``empty`` where exactly one label is wanted.
        """
        return rules.check(self, values=values, mode=mode, tiers=tiers, task=task)

    def merge(self, labels: frozenset[str], *, merge: str) -> frozenset[str]:
        """Return ``labels`` with those of the merge replaced by what they count as.

        Raises:
            KeyError: if the category has no merge of this name.
        """
        found = self.merges[merge]
        return labels - found.labels | {found.into} if labels & found.labels else labels

    def severity(self, labels: Iterable[str]) -> int:
        """Return how severe the gravest of the labels is, 0 for none."""
        return max((self.severities.get(label, 0) for label in labels), default=0)

    def valid_sets(self, *, most: int = 4) -> list[frozenset[str]]:
        """Return every set of at most ``most`` labels that the hard rules allow, small ones first, in a fixed order.

        Four is the most that a CRADLE post carries (CRADLE T2).
        """
        sizes = range(2) if self.kind == "single" else range(most + 1)
        sets = (frozenset(c) for size in sizes for c in combinations(self.names, size))
        hard = rules.tiers_of("improved")
        return [s for s in sets if not self.check(s, mode="strict", tiers=hard).violations]


@dataclass(frozen=True)
class Scheme:
    """The label scheme of a corpus.

    ``display`` names the rows that a table of types has and the labels that each sums (CRADLE T1). ``item``, ``role``
    and ``purpose`` are for prompts. ``digest`` is the SHA-256 of the data file.
    """

    name: str
    version: int
    title: str
    item: str
    role: str
    purpose: str
    categories: Mapping[str, Category]
    display: Mapping[str, tuple[str, ...]]
    digest: str

    def category(self, key: str | None = None) -> Category:
        """Return the category of this key, or the one category that there is.

        Raises:
            UnknownCategory: if there is no such key, or no key was given and there are several.
        """
        chosen = next(iter(self.categories)) if key is None and len(self.categories) == 1 else key
        if chosen is None or chosen not in self.categories:
            raise UnknownCategory(scheme=self.name, key=key or "", known=", ".join(self.categories))
        return self.categories[chosen]
