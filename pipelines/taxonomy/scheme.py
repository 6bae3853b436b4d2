"""Define the classes of a label scheme: labels, their categories, and the scheme of a corpus."""

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
    """A scheme has no category of this key, or several and no key was given."""

    message = "Scheme '{scheme}' has no category '{key}'."
    remedy = "Name one of {known}."


@dataclass(frozen=True)
class Label:
    """One label of a record.

    ``attributes`` are used by rules and tables (CRADLE: type, level, time). ``task`` is false for labels that
    annotators may use but models are not asked for (SPEC 1.1, item 1: third-person descriptions, and a None that is the
    empty set).
    """

    name: str
    code: str
    definition: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    task: bool = True


@dataclass(frozen=True)
class Merge:
    """Labels that are treated as one."""

    labels: frozenset[str]
    into: str


@dataclass(frozen=True)
class Category:
    """One question about a record and its possible answers.

    ``none`` is the label for "none of these": if it belongs to the task, it excludes all others (CRADLE's no_crisis);
    if not, it is another name of the empty set (FigSIM). ``severities`` has each label's severity, 0 if the scheme
    gives none. ``guidelines``, ``special`` and ``brief`` go into prompts only.
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
        """Return the labels that models are asked for, in the scheme's order (for an ordinal, its own order)."""
        return tuple(label.name for label in self.labels if label.task)

    @cached_property
    def attributes(self) -> dict[str, Mapping[str, str]]:
        """Return the attributes of every label by its name."""
        return {label.name: label.attributes for label in self.labels}

    @cached_property
    def spellings(self) -> dict[str, str]:
        """Return the label of each normalised spelling: its name, its code or one of its aliases."""
        return {rules.normal(s): x.name for x in self.labels for s in (x.name, x.code, *x.aliases)}

    def check(self, values: Iterable[str], *, mode: Mode, tiers: Collection[str], task: bool = True) -> Checked:
        """Check whether ``values`` are a valid label set of this category, or repair them.

        Args:
            values: the strings given, in any order.
            mode: ``strict`` reports what is wrong, ``repair`` corrects what it can and counts each repair.
            tiers: which rules apply: ``base`` is SPEC 23 (a) to (c), ``improved`` (d) and (e), ``soft`` (f).
            task: whether to keep only labels that models are asked for; false accepts all labels of annotators.

        Returns:
            The label set, the repairs and the violations. Repair names: ``alias``, ``duplicate``, ``empty``,
            ``exclusive``, ``excluded``, the task's merge and the scheme's own rules. Violations that cannot be
            repaired: ``unknown_label``; ``several`` or ``empty`` if exactly one label is required.
        """
        return rules.check(self, values=values, mode=mode, tiers=tiers, task=task)

    def merge(self, labels: frozenset[str], *, merge: str) -> frozenset[str]:
        """Return ``labels`` with the labels of the merge replaced by their common label.

        Raises:
            KeyError: the category has no merge of this name.
        """
        found = self.merges[merge]
        return labels - found.labels | {found.into} if labels & found.labels else labels

    def severity(self, labels: Iterable[str]) -> int:
        """Return the highest severity of the labels, 0 for no labels."""
        return max((self.severities.get(label, 0) for label in labels), default=0)

    def valid_sets(self, *, most: int = 4) -> list[frozenset[str]]:
        """Return every set of at most ``most`` labels that the hard rules allow, small ones first, in a fixed order.

        The default, four, is the maximum of a CRADLE post (CRADLE T2).
        """
        sizes = range(2) if self.kind == "single" else range(most + 1)
        sets = (frozenset(c) for size in sizes for c in combinations(self.names, size))
        hard = rules.tiers_of("improved")
        return [s for s in sets if not self.check(s, mode="strict", tiers=hard).violations]


@dataclass(frozen=True)
class Scheme:
    """The label scheme of a corpus.

    ``display`` has the rows of a table of types and the labels that each sums up (CRADLE T1). ``item``, ``role`` and
    ``purpose`` are used in prompts. ``digest`` is the SHA-256 of the data file.
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
        """Return the category of this key, or the only category if no key is given.

        Raises:
            UnknownCategory: there is no such key, or no key was given and there are several categories.
        """
        chosen = next(iter(self.categories)) if key is None and len(self.categories) == 1 else key
        if chosen is None or chosen not in self.categories:
            raise UnknownCategory(scheme=self.name, key=key or "", known=", ".join(self.categories))
        return self.categories[chosen]
