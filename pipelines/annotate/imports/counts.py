"""Compare the counts of an imported dataset with the counts printed in its paper.

A published file may differ from its paper. A difference is therefore reported and does not stop the import.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from pipelines.core.config.base import Section
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy.scheme import normal

# one item's labels by category
Answers = Mapping[str, frozenset[str]]


class Expected(Section):
    """The counts that a paper states for one part of its dataset; counts that it does not state are left out.

    ``labels`` is the total number of labels. ``by_label`` is the number of items by label; a key is any spelling that
    means exactly one label of the scheme (the label's code, if two categories share a name). The name of a category's
    empty set, as a key, means the items without a label. ``by_size`` is the number of items by their total number of
    labels, ``by_row`` the number of labels by row of the scheme's ``display``, ``by_attribute`` the number of labels by
    attribute and value.
    """

    source: str
    items: int | None = None
    labels: int | None = None
    by_label: dict[str, int] = Field(default_factory=dict)
    by_size: dict[int, int] = Field(default_factory=dict)
    by_row: dict[str, int] = Field(default_factory=dict)
    by_attribute: dict[str, dict[str, int]] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CountComparison:
    """A comparison of one count in a paper with the same count in the imported files."""

    part: str
    what: str
    expected: int
    found: int

    @property
    def matches(self) -> bool:
        """Whether the two counts are equal."""
        return self.expected == self.found

    def __str__(self) -> str:
        return f"{self.part}, {self.what}: {self.found} found, {self.expected} expected"


def unknown_names(expected: Expected, *, scheme: Scheme) -> list[str]:
    """Return the label names in ``expected`` that the scheme lacks or that are ambiguous in it."""
    unknown = [f"one label {name}" for name in expected.by_label if len(_meant(name, scheme=scheme)) != 1]
    unknown += [f"display row {row}" for row in expected.by_row if row not in scheme.display]
    labels = [label for category in scheme.categories.values() for label in category.labels]
    for attribute, values in expected.by_attribute.items():
        known = {label.attributes.get(attribute) for label in labels}
        unknown += [f"{attribute} {value}" for value in values if value not in known]
    return unknown


def compare(expected: Expected, items: Collection[Answers], *, part: str, scheme: Scheme) -> list[CountComparison]:
    """Compare each count of ``expected`` with the same count over ``items``."""
    return [
        CountComparison(part, what, value, count) for what, value, count in _figures(expected, items, scheme=scheme)
    ]


def totals(items: Collection[Answers], *, scheme: Scheme) -> dict[str, dict[str, int]]:
    """Count the items by category and label, in the scheme's order; labels without items are left out."""
    counts = _by_label(items, scheme=scheme)
    return {
        key: {label.name: n for label in category.labels if (n := counts[key, label.name])}
        for key, category in scheme.categories.items()
    }


def _figures(expected: Expected, items: Collection[Answers], *, scheme: Scheme) -> Iterator[tuple[str, int, int]]:
    if expected.items is not None:
        yield "items", expected.items, len(items)
    counts = _by_label(items, scheme=scheme)
    chosen = Counter((key, label) for answers in items for key, labels in answers.items() for label in labels)
    if expected.labels is not None:
        yield "labels", expected.labels, chosen.total()
    for name, value in expected.by_label.items():
        [(key, label)] = _meant(name, scheme=scheme)
        yield name, value, counts[key, label]
    sizes = Counter(sum(len(labels) for labels in answers.values()) for answers in items)
    for size, value in expected.by_size.items():
        yield f"items with {size} label{'s' * (size != 1)}", value, sizes[size]
    for row, value in expected.by_row.items():
        yield f"labels of {row}", value, sum(n for (_, label), n in chosen.items() if label in scheme.display[row])
    for attribute, values in expected.by_attribute.items():
        for wanted, value in values.items():
            of = {pair: scheme.categories[pair[0]].attributes[pair[1]].get(attribute) for pair in chosen}
            matching = sum(n for pair, n in chosen.items() if of[pair] == wanted)
            yield f"labels with {attribute} {wanted}", value, matching


def _by_label(items: Iterable[Answers], *, scheme: Scheme) -> Counter[tuple[str, str]]:
    """Count the items with each label; an item without labels counts under the category's name for the empty set."""
    counts: Counter[tuple[str, str]] = Counter()
    for answers in items:
        for key, labels in answers.items():
            nothing = scheme.categories[key].none
            counts.update((key, label) for label in labels or ([] if nothing is None else [nothing]))
    return counts


def _meant(name: str, *, scheme: Scheme) -> Sequence[tuple[str, str]]:
    spellings = ((key, category.spellings.get(normal(name))) for key, category in scheme.categories.items())
    return [(key, label) for key, label in spellings if label is not None]
