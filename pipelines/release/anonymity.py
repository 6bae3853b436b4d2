"""Generalise released metadata so that at least k authors share every combination (k-anonymity, Sweeney 2002).

Authors are counted, not rows: five posts of one person protect no one. Each row is generalised only as far as needed
(local recoding): its month becomes a quarter, then a year, then its subreddit becomes ``other``, then the year is
dropped. Rows whose class is still too small are left out and counted. Labels are released unchanged.

Ids and addresses differ in every release; labels, splits and metadata do not. An attacker who has two releases can
match the posts whose combination of values is unique in both: here once with all columns that both have and once
without metadata, because metadata may be generalised differently. Classes of several posts are not matched, though they
narrow the choice.
"""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pipelines.core.config.operate import METADATA
from pipelines.core.config.settings import Settings
from pipelines.release.release_store import DRAFT, ReleaseEntry, entries, manifest_of, release_ids
from pipelines.store.vault.vault import Vault

ANY = "any"
OTHER = "other"


@dataclass(frozen=True)
class Person:
    """The author (a pseudonym) and the complete metadata of one row of a release, before generalisation.

    Unknown metadata (such as an imported post's month) has the coarsest value from the start.
    """

    author: str
    month: str | None
    subreddit: str | None


@dataclass(frozen=True)
class Coarse:
    """The generalised metadata of all rows of a release, in the order of the input.

    Args:
        values: for each row, column -> value, or ``None`` if the row must be left out.
        levels: number of rows by level of generalisation (``month+subreddit`` .. ``any+other``).
        smallest: the number of authors of the smallest class (rows of equal values) that is released; 0 without any.
    """

    values: tuple[Mapping[str, str] | None, ...]
    levels: Mapping[str, int]
    suppressed: int
    smallest: int


MONTHS: dict[str, Callable[[str], str]] = {
    "month": lambda month: month,
    "quarter": lambda month: f"{month[:4]}-Q{(int(month[5:7]) + 2) // 3}",
    "year": lambda month: month[:4],
    ANY: lambda _: ANY,
}
SUBREDDITS: dict[str, Callable[[str], str]] = {"subreddit": lambda name: name.lower(), OTHER: lambda _: OTHER}
# From fine to coarse. Rows of a later level may join a class of an earlier one with equal values.
PATH = (("month", "subreddit"), ("quarter", "subreddit"), ("year", "subreddit"), ("year", OTHER), (ANY, OTHER))


def coarsen(rows: Sequence[Person], *, columns: Sequence[str], k: int) -> Coarse:
    """Generalise metadata until at least ``k`` authors share each combination of values.

    Args:
        rows: the rows of a release in any order, on which the generalisation does not depend.
        columns: which of ``month`` and ``subreddit`` are released; with none, nothing is generalised.
    """
    values: list[Mapping[str, str] | None] = [None if columns else {} for _ in rows]
    levels: dict[str, int] = {}
    released = set[tuple[tuple[str, str], ...]]()
    smallest, left = 0, list(range(len(rows))) if columns else []
    for month, subreddit in PATH:
        step = {"month": month, "subreddit": subreddit}
        classes: dict[tuple[tuple[str, str], ...], list[int]] = defaultdict(list)
        for i in left:
            row = rows[i]
            coarse = {
                "month": MONTHS[month](row.month) if row.month else ANY,
                "subreddit": SUBREDDITS[subreddit](row.subreddit) if row.subreddit else OTHER,
            }
            classes[tuple((c, coarse[c]) for c in columns)].append(i)
        left = []
        for combination, members in classes.items():
            authors = len({rows[i].author for i in members})
            if authors < k and combination not in released:
                left += members
                continue
            if combination not in released:
                smallest = min(smallest or authors, authors)
                released.add(combination)
            level = "+".join(value if value in (ANY, OTHER) else step[column] for column, value in combination)
            levels[level] = levels.get(level, 0) + len(members)
            for i in members:
                values[i] = dict(combination)
    return Coarse(tuple(values), levels, suppressed=len(left), smallest=smallest)


# The files of the form `annotations`; the others are named for their split.
ANNOTATIONS = ("annotations.csv", "splits.csv")
# Of no use to the attack: different in every release.
KEYED = ("fetch.csv",)

Values = Mapping[str, frozenset[tuple[str, str]]]


def values(tables: Mapping[str, str]) -> dict[str, Values]:
    """Return by release id what a release's tables state of a post: for each column, its values by picture."""
    by_id: dict[str, dict[str, set[tuple[str, str]]]] = defaultdict(lambda: defaultdict(set))
    for name, text in tables.items():
        for row in csv.DictReader(io.StringIO(text, newline="")):
            columns = by_id[row["id"]]
            for column in row.keys() - {"id", "image"}:
                columns[column].add((row.get("image", "0"), row[column]))
            if name not in ANNOTATIONS:
                columns["split"].add((row.get("image", "0"), name.removesuffix(".csv")))
    return {i: {column: frozenset(cells) for column, cells in columns.items()} for i, columns in by_id.items()}


def unique(posts: Mapping[str, Values], *, columns: Collection[str]) -> dict[object, str]:
    """Return the release ids of posts whose combination of values in ``columns`` no other post has, by combination."""
    combined = {i: tuple(cells.get(column, frozenset()) for column in sorted(columns)) for i, cells in posts.items()}
    counts = Counter(combined.values())
    return {combination: i for i, combination in combined.items() if counts[combination] == 1}


def matched(posts: Mapping[str, Values], other: Mapping[str, Values]) -> set[tuple[str, str]]:
    """Return the pairs of ids in two releases whose posts have equal values that no other post of their release has."""
    shared = _columns(posts) & _columns(other)
    pairs = set[tuple[str, str]]()
    for columns in (shared, shared - set(METADATA)):
        here, there = unique(posts, columns=columns), unique(other, columns=columns)
        pairs |= {(here[combination], there[combination]) for combination in here.keys() & there.keys()}
    return pairs


def measured(
    tables: Mapping[str, str],
    *,
    release: str,
    corpus: str,
    record_ids: Mapping[str, str],
    settings: Settings,
    vault: Vault,
) -> dict[str, float | None]:
    """Return the share of a new release's posts that :func:`matched` matches correctly with each approved release.

    ``record_ids`` has the record id by release id of the new release. The share is by the name of the other release,
    retired ones included; ``None`` if its package is not in its folder.
    """
    mine, shares = values(tables), dict[str, float | None]()
    for entry in entries(settings):
        state = entry.state()
        if entry.name == release or state["corpus"] != corpus or state["status"] == DRAFT:
            continue
        theirs = _published(entry)
        if theirs is None:
            shares[entry.name] = None
            continue
        names = release_ids(record_ids.values(), release=entry.name, vault=vault)
        right = {i for i, theirs_id in matched(mine, theirs) if names[record_ids[i]] == theirs_id}
        shares[entry.name] = round(len(right) / len(mine), 4)
    return shares


def _columns(posts: Mapping[str, Values]) -> set[str]:
    return {column for cells in posts.values() for column in cells}


def _published(entry: ReleaseEntry) -> dict[str, Values] | None:
    state = entry.state()
    if manifest_of(entry.package(state), entry.name) is None:
        return None
    names = [file for file in state["files"] if file.endswith(".csv") and file not in KEYED]
    texts = {name: entry.text(state, name) for name in names}
    if None in texts.values():
        return None
    return values({name: text for name, text in texts.items() if text is not None})
