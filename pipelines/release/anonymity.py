"""Generalise released metadata so that at least k authors share every combination (k-anonymity, Sweeney 2002).

Authors are counted, not rows: five posts of one person protect no one. Each row is generalised only as far as needed
(local recoding): its month becomes a quarter, then a year, then its subreddit becomes ``other``, then the year is
dropped. Rows whose class is still too small are left out and counted. Labels are released unchanged.

Ids and addresses differ in every release; labels, splits and metadata do not, or little. :func:`joined` is what an
attacker does who has two releases: join posts by their values, whatever was renamed or changed between them. Choices
among ``k`` or more equal posts do not count, though they narrow the choice.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

# Ours: both columns of metadata and a changed one; rounds until a translation is learnt, and passes of a greedy one;
# pairs of an optimal assignment, in each round and in the last (of 5,000 posts it takes a minute).
OMITTED, ROUNDS, PASSES = 3, 4, 8
QUICK, ASSIGNABLE = 250_000, 25_000_000

Values = Mapping[str, frozenset[tuple[str, str]]]
Posts = Mapping[str, Values]


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


def joined(
    posts: Mapping[str, Values], other: Mapping[str, Values], *, counterparts: Mapping[str, str], k: int
) -> float:
    """Return the share of ``posts`` that the best of the attacks on two releases joins with the right post.

    The attacks are equality of the shared columns, up to :data:`OMITTED` of them left out, and an optimal assignment
    whose translation of values is learnt: at first by equality or frequency, then by mutual information of the posts
    that it assigned, each with and without metadata. Of posts that the attack cannot tell apart it joins one at
    random, with some luck; where they are ``k`` or more, this is chance and does not count.

    Args:
        counterparts: by id of a post, the id of the same post in the other release.
    """
    right = [_equal(posts, other, counterparts=counterparts, k=k)]
    for left_out in (set[str](), set(METADATA)):
        here, there = _Kinds.of(posts, without=left_out), _Kinds.of(other, without=left_out)
        pairs = [(here.kind[i], there.kind[j]) for i, j in counterparts.items() if i in here.kind and j in there.kind]
        for by_name in (True, False):
            right += _assigned(here, there, pairs=pairs, by_name=by_name, k=k)
    return max(right) / len(posts)


def _equal(
    posts: Mapping[str, Values], other: Mapping[str, Values], *, counterparts: Mapping[str, str], k: int
) -> float:
    shared, best = sorted(_columns(posts) & _columns(other)), 0.0
    for size in range(max(1, len(shared) - OMITTED), len(shared) + 1):
        for columns in itertools.combinations(shared, size):
            here, there = (
                {i: tuple(cells.get(column) for column in columns) for i, cells in each.items()}
                for each in (posts, other)
            )
            counts, others = Counter(here.values()), Counter(there.values())
            equal = (here[i] for i, j in counterparts.items() if i in here and here[i] == there.get(j, ()))
            few = (max(counts[values], others[values]) for values in equal)
            best = max(best, _most([1 / most for most in few if most < k]))
    return best


def _most(chances: Sequence[float]) -> float:
    """Return how many joins of these probabilities a lucky attacker gets right: two deviations above the mean."""
    return min(len(chances), sum(chances) + 2 * math.sqrt(sum(p * (1 - p) for p in chances)))


@dataclass(frozen=True)
class _Kinds:
    """The posts of a release that have equal values: the kind of each post, and of each kind its marks and size."""

    kind: Mapping[str, int]
    tokens: Sequence[tuple[str, ...]]
    marks: NDArray[np.float32]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, posts: Mapping[str, Values], *, without: Collection[str]) -> _Kinds:
        stated = {
            i: frozenset(
                (column, image, label)
                for column, pairs in cells.items()
                if column not in without
                for image, cell in pairs
                for label in cell.split("|")
            )
            for i, cells in posts.items()
        }
        counts = Counter(stated.values())
        place = {tokens: number for number, tokens in enumerate(counts)}
        tokens = sorted(set[tuple[str, ...]]().union(*counts))
        column = {token: number for number, token in enumerate(tokens)}
        marks = np.zeros((len(counts), len(tokens)), np.float32)
        for number, each in enumerate(counts):
            marks[number, [column[token] for token in each]] = 1
        return cls({i: place[each] for i, each in stated.items()}, tokens, marks, np.array(list(counts.values())))


def _assigned(here: _Kinds, there: _Kinds, *, pairs: Sequence[tuple[int, int]], by_name: bool, k: int) -> list[float]:
    """Return how many posts each round of assignment and translation joins rightly at most."""
    few = [(i, j) for i, j in pairs if max(here.sizes[i], there.sizes[j]) < k]
    if not few:
        return []
    # kinds of k or more do not count, so that k of them are enough
    mine, theirs = (np.repeat(np.arange(len(side.sizes)), np.minimum(side.sizes, k)) for side in (here, there))
    weights, right = _first(here, there, by_name=by_name), []
    for number in range(ROUNDS):
        optimal = len(mine) * len(theirs) <= (QUICK, ASSIGNABLE)[number == ROUNDS - 1]
        a, b = _best(here.marks @ weights @ there.marks.T, mine, theirs, optimal=optimal)
        counts = Counter(zip(a.tolist(), b.tolist(), strict=True))
        right.append(_most([counts[i, j] / float(here.sizes[i] * there.sizes[j]) for i, j in few if (i, j) in counts]))
        x, y = here.marks[a], there.marks[b]
        expected = np.outer(x.sum(0), y.sum(0)) / max(1, len(a))
        weights = np.log((x.T @ y + 0.5) / (expected + 0.5)).astype(np.float32)
    return right


def _first(here: _Kinds, there: _Kinds, *, by_name: bool) -> NDArray[np.float32]:
    """Return the first translation of values: equal ones, and the others (or all) by how near their frequencies are."""
    rarity, others = (-np.log(side.sizes @ side.marks / side.sizes.sum()) for side in (here, there))
    near = np.minimum.outer(rarity, others) * np.exp(-10 * np.abs(np.subtract.outer(rarity, others)))
    if by_name:
        equal = np.array([[u == v for v in there.tokens] for u in here.tokens], dtype=bool)
        near[np.logical_or.outer(equal.any(1), equal.any(0)) & ~equal] = 0
    weights: NDArray[np.float32] = near.astype(np.float32)
    return weights


def _best(
    scores: NDArray[np.floating[Any]], mine: NDArray[np.int64], theirs: NDArray[np.int64], *, optimal: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the assigned pairs of kinds: those of the highest sum, or in passes those that are each other's best."""
    if optimal:
        from scipy.optimize import linear_sum_assignment

        a, b = linear_sum_assignment(scores[np.ix_(mine, theirs)], maximize=True)
        return mine[a], theirs[b]
    scores, found = scores.copy(), []
    for _ in range(PASSES):
        forth, back = scores.argmax(1), scores.argmax(0)
        free = np.isfinite(scores[np.arange(len(forth)), forth])
        mutual = np.flatnonzero((back[forth] == np.arange(len(forth))) & free)
        found.append((mutual, forth[mutual]))
        scores[mutual], scores[:, forth[mutual]] = -np.inf, -np.inf
    return np.concatenate([a for a, _ in found]), np.concatenate([b for _, b in found])


def measured(
    tables: Mapping[str, str],
    *,
    release: str,
    corpus: str,
    record_ids: Mapping[str, str],
    k: int,
    settings: Settings,
    vault: Vault,
) -> dict[str, float | None]:
    """Return the share of a new release's posts that can be :func:`joined` with each approved release.

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
        counterparts = {i: names[record_ids[i]] for i in mine}
        shares[entry.name] = round(joined(mine, theirs, counterparts=counterparts, k=k), 4)
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
