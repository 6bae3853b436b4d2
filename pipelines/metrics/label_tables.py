"""Format counts of label sets like Tables 1, 2, 3, 5, 6, 7, 11 and 12 of the paper CRADLE.

Counts go in, rows of text come out, and a :class:`Sheet` renders them for a terminal or as markdown. Counts come from
label sets (:meth:`Distribution.of`) or are given, such as a paper's own. A percentage is the exact quotient rounded
half up, once. (The paper rounds some figures twice: 134 of 443 is 30.248 %, printed as 30.3.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.table import Table

    from pipelines.core.taxonomy import Category, Scheme

UNDEFINED = "–"


@dataclass(frozen=True)
class Distribution:
    """Label counts of a set of posts: number of posts, posts by label, and posts by number of labels."""

    instances: int
    labels: Mapping[str, int]
    sizes: Mapping[int, int]

    @classmethod
    def of(cls, sets: Iterable[frozenset[str]]) -> Distribution:
        """Count label sets, each of which belongs to one post."""
        sets = list(sets)
        labels = Counter(label for values in sets for label in values)
        return cls(len(sets), dict(sorted(labels.items())), dict(sorted(Counter(map(len, sets)).items())))

    @property
    def total(self) -> int:
        """The total number of labels, the denominator of percentages of labels."""
        return sum(self.labels.values())

    def plain(self) -> dict[str, Any]:
        return {
            "instances": self.instances,
            "labels": dict(self.labels),
            "sizes": {str(size): n for size, n in self.sizes.items()},
        }

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Distribution:
        return cls(plain["instances"], plain["labels"], {int(size): n for size, n in plain["sizes"].items()})


@dataclass(frozen=True)
class Layout:
    """The rows of a scheme's tables: the labels in order, and the labels of each type and of each time.

    ``display`` gives CRADLE's Table 11 another name for a label; ``times`` is empty if labels have none.
    """

    labels: tuple[str, ...]
    types: Mapping[str, tuple[str, ...]]
    times: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, scheme: Scheme, *, category: Category) -> Layout:
        """Return the table layout of one category; if the scheme groups its labels by no type, each is a type."""
        names = set(category.names)
        types = {name: tuple(label for label in labels if label in names) for name, labels in scheme.display.items()}
        if {label for labels in types.values() for label in labels} != names:
            types = {label: (label,) for label in category.names}
        times: dict[str, tuple[str, ...]] = {}
        for label in category.labels:
            if "time" in label.attributes and label.name in names:
                time = label.attributes["time"].replace("_", " ").capitalize()
                times[time] = (*times.get(time, ()), label.name)
        order = ("Ongoing", "Past")
        times = {time: times[time] for time in sorted(times, key=lambda t: (t not in order, t))}
        return cls(tuple(category.names), types, times)


@dataclass(frozen=True)
class Sheet:
    """A table of text cells, to print at a terminal, as Markdown or on a page.

    On a page, a ``prose`` table has sentences in its cells and shows each row as a card on a phone, a ``folded`` one is
    collapsed. ``values`` are the numbers of a heat map's cells (1 is dark); ``svg`` is a plot, whose numbers the table
    has and whose caption its title is.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    form: Literal["plain", "prose", "folded"] = "plain"
    values: tuple[tuple[float | None, ...], ...] = ()
    svg: str = ""

    def folded(self) -> Sheet:
        return replace(self, form="folded")

    def rich(self) -> Table:
        from rich.table import Table

        table = Table(title=self.title, title_justify="left")
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="right" if i else "left")
        for row in self.rows:
            table.add_row(*row)
        return table

    def parts(self, width: int) -> list[Table]:
        """Split the table into tables of at most ``width`` characters, each with the first column."""
        # the border and the padding of a column take three characters
        widths = [3 + max(map(len, cells)) for cells in zip(self.columns, *self.rows, strict=True)]
        groups: list[list[int]] = [[0]]
        for i in range(1, len(widths)):
            if len(groups[-1]) > 1 and 1 + sum(widths[j] for j in (*groups[-1], i)) > width:
                groups.append([0])
            groups[-1].append(i)
        cells = [[tuple(row[i] for i in group) for row in (self.columns, *self.rows)] for group in groups]
        tables = [Sheet(self.title, columns, tuple(rows)).rich() for columns, *rows in cells]
        for table in tables[1:]:
            table.title = None
        return tables

    def markdown(self) -> str:
        lines = [
            f"**{self.title}**",
            "",
            f"| {' | '.join(self.columns)} |",
            f"|---|{'---:|' * (len(self.columns) - 1)}",
            *(f"| {' | '.join(row)} |" for row in self.rows),
        ]
        return "\n".join(lines) + "\n"


def decimals(part: int, whole: int, *, digits: int, scale: int = 1) -> str:
    """Format ``scale * part / whole`` with ``digits`` decimals, rounding halves up; undefined if ``whole`` is 0."""
    if not whole:
        return UNDEFINED
    units = (2 * scale * part * 10**digits + whole) // (2 * whole)
    if not digits:
        return str(units)
    return f"{units // 10**digits}.{units % 10**digits:0{digits}d}"


def percent(part: int, whole: int, *, digits: int = 2) -> str:
    return decimals(part, whole, digits=digits, scale=100)


def _shares(name: str, counts: Iterable[tuple[int, int]], *, digits: int) -> tuple[str, ...]:
    return (name, *(f"{n:,} ({percent(n, whole, digits=digits)}%)" for n, whole in counts))


def _pairs(name: str, counts: Iterable[tuple[int, int]]) -> tuple[str, ...]:
    return (name, *(cell for n, whole in counts for cell in (f"{n:,}", percent(n, whole))))


def _sums(counts: Mapping[str, int], parts: Mapping[str, Sequence[str]]) -> dict[str, int]:
    return {name: sum(counts.get(label, 0) for label in labels) for name, labels in parts.items()}


def table_1(splits: Mapping[str, Distribution], *, layout: Layout) -> Sheet:
    """Return a table of crisis types of gold by split; percentages are of labels, not posts (CRADLE Table 1)."""
    return _types("Crisis types (% of labels)", splits, names=list(layout.types), layout=layout, digits=1)


def table_6(subsets: Mapping[str, Distribution], *, layout: Layout) -> Sheet:
    """Return a table of crisis types of the training subsets, the most frequent type first (CRADLE Table 6)."""
    first = _sums(next(iter(subsets.values())).labels, layout.types) if subsets else {}
    names = sorted(layout.types, key=lambda name: -first.get(name, 0))
    return _types("Crisis types of the training subsets (% of labels)", subsets, names=names, layout=layout, digits=2)


def _types(
    title: str, splits: Mapping[str, Distribution], *, names: Sequence[str], layout: Layout, digits: int
) -> Sheet:
    sums = {split: _sums(d.labels, layout.types) for split, d in splits.items()}
    averages = [f"{d.total:,} ({decimals(d.total, d.instances, digits=2)})" for d in splits.values()]
    rows = [_shares(name, [(sums[s][name], d.total) for s, d in splits.items()], digits=digits) for name in names]
    rows.append(("Total instances", *(f"{d.instances:,}" for d in splits.values())))
    return Sheet(title, ("Type", *splits), (*rows, ("Total / Avg. labels", *averages)))


def table_2(splits: Mapping[str, Distribution]) -> Sheet:
    """Return a table of the number of labels per post by split; percentages are of posts (CRADLE Table 2)."""
    columns = [c for split, d in splits.items() for c in (f"{split} (n={d.instances:,}) #", "%")]
    return Sheet("Labels per post (% of posts)", ("#Labels", *columns), tuple(_sizes(splits)))


def _sizes(splits: Mapping[str, Distribution], *, unit: str = "") -> list[tuple[str, ...]]:
    rows = []
    for size in sorted({size for d in splits.values() for size in d.sizes}):
        name = f"{size}{unit and f' {unit}'}{'s' if unit and size != 1 else ''}"
        rows.append(_pairs(name, [(d.sizes.get(size, 0), d.instances) for d in splits.values()]))
    return rows


def table_3(splits: Mapping[str, Distribution], *, layout: Layout) -> Sheet:
    """Return a table of time tags by split; percentages are of labels, which have one tag each (CRADLE Table 3)."""
    sums = {split: _sums(d.labels, layout.times) for split, d in splits.items()}
    rows = [_shares(time, [(sums[s][time], d.total) for s, d in splits.items()], digits=1) for time in layout.times]
    return Sheet("Time tags (% of labels)", ("Temporal", *splits), tuple(rows))


def table_5(splits: Mapping[str, Mapping[str, int]], *, members: int = 3) -> Sheet:
    """Return a table of how far the label sets by the members of an ensemble agree (CRADLE Table 5).

    ``splits``: split -> {"unanimous", "consensus", "none"} -> number of records; *consensus* is a non-unanimous
    majority. ``members``: the number of members, which sets the names of the rows.
    """
    three = members == 3
    names = {
        "unanimous": "All three agree" if three else "All agree",
        "consensus": "Partial agree (2:1)" if three else "Majority agrees",
        "none": "All three disagree" if three else "No majority",
    }
    totals = {split: sum(counts.values()) for split, counts in splits.items()}
    rows = [
        _shares(name, [(counts.get(key, 0), totals[split]) for split, counts in splits.items()], digits=1)
        for key, name in names.items()
    ]
    rows.append(("Total count", *(f"{total:,}" for total in totals.values())))
    return Sheet("Agreement between the labellers", ("Agreement", *splits), tuple(rows))


def table_7(subsets: Mapping[str, Distribution], *, layout: Layout) -> Sheet:
    """Return a table of labels per post and of time tags in the training subsets (CRADLE Table 7)."""
    rows = _sizes(subsets, unit="label")
    sums = {subset: _sums(d.labels, layout.times) for subset, d in subsets.items()}
    for time in layout.times:
        rows.append(_pairs(time, [(sums[subset][time], d.total) for subset, d in subsets.items()]))
    columns = [c for subset in subsets for c in (f"{subset} #", "%")]
    return Sheet("Training subsets (labels: % of posts; times: % of labels)", ("", *columns), tuple(rows))


def table_11(splits: Mapping[str, Distribution], *, layout: Layout) -> Sheet:
    """Return a table of every label by split, the most frequent label first (CRADLE Table 11)."""
    first = next(iter(splits.values())).labels if splits else {}
    labels = sorted(layout.labels, key=lambda label: -first.get(label, 0))
    rows = [_pairs(label, [(d.labels.get(label, 0), d.total) for d in splits.values()]) for label in labels]
    columns = [c for split in splits for c in (f"{split} #", "%")]
    return Sheet("Labels (% of labels)", ("Label", *columns), tuple(rows))


SCORES = {
    "exact": "Exact",
    "jaccard": "Jaccard",
    "micro_f1": "Micro F1",
    "macro_f1": "Macro F1",
    "micro_recall": "Micro Recall",
    "macro_recall": "Macro Recall",
}


def table_12(scored: Mapping[str, Any], *, name: str) -> Sheet:
    """Return a table of one labeller's metrics on its valid answers and on all records (CRADLE Table 12)."""
    blocked = scored["n"] - scored["n_valid"]
    rows = [
        (f"Valid samples only (n={scored['n_valid']})", *_scores(scored["valid"])),
        (f"All samples (n={scored['n']}, without a valid answer: {blocked})", *_scores(scored["all"])),
    ]
    return Sheet(name, ("", *SCORES.values()), tuple(rows))


def _scores(metrics: Mapping[str, float] | None) -> list[str]:
    return [UNDEFINED if metrics is None else f"{metrics[key]:.4f}" for key in SCORES]
