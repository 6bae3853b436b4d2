"""Match the posts of two releases by labels, splits and metadata, as an attacker who has both could.

Ids and addresses differ in every release; labels, splits and metadata do not. The attack matches the posts whose
combination of values is unique in both, once with all columns that both have and once without metadata, because
metadata may be generalised differently. Classes of several posts are not matched, though they narrow the choice.
"""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

from pipelines.config.release import METADATA
from pipelines.config.settings import Settings
from pipelines.release.rekey import release_ids
from pipelines.release.release_store import DRAFT, ReleaseEntry, entries, manifest_of
from pipelines.vault.vault import Vault

FIGSIM = ("annotations.csv", "splits.csv")
# Of no use to the attack: different in every release.
KEYED = ("fetch.csv",)

Values = Mapping[str, frozenset[tuple[str, str]]]


def values(tables: Mapping[str, str]) -> dict[str, Values]:
    """Return by release id what a release's tables state of a post: for each column, its values by picture."""
    found: dict[str, dict[str, set[tuple[str, str]]]] = defaultdict(lambda: defaultdict(set))
    for name, text in tables.items():
        for row in csv.DictReader(io.StringIO(text, newline="")):
            of = found[row["id"]]
            for column in row.keys() - {"id", "image"}:
                of[column].add((row.get("image", "0"), row[column]))
            if name not in FIGSIM:
                of["split"].add(("0", name))
    return {i: {column: frozenset(cells) for column, cells in of.items()} for i, of in found.items()}


def unique(posts: Mapping[str, Values], *, columns: Collection[str]) -> dict[object, str]:
    """Return the release ids of posts whose combination of values in ``columns`` no other post has, by combination."""
    of = {i: tuple(found.get(column, frozenset()) for column in sorted(columns)) for i, found in posts.items()}
    counts = Counter(of.values())
    return {combination: i for i, combination in of.items() if counts[combination] == 1}


def matched(one: Mapping[str, Values], other: Mapping[str, Values]) -> set[tuple[str, str]]:
    """Return the pairs of ids in two releases whose posts have equal values that no other post of their release has."""
    shared = _columns(one) & _columns(other)
    pairs = set[tuple[str, str]]()
    for columns in (shared, shared - set(METADATA)):
        here, there = unique(one, columns=columns), unique(other, columns=columns)
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

    Args:
        tables: the tables of the new release, by file name.
        release: the name of the new release.
        record_ids: release id -> record id of the new release, to tell correct matches from wrong ones.

    Returns:
        by name of the other release (also retired ones), the share; ``None`` if its package is not in its folder.
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
        right = {i for i, found in matched(mine, theirs) if names[record_ids[i]] == found}
        shares[entry.name] = round(len(right) / len(mine), 4)
    return shares


def _columns(posts: Mapping[str, Values]) -> set[str]:
    return {column for found in posts.values() for column in found}


def _published(entry: ReleaseEntry) -> dict[str, Values] | None:
    state = entry.state()
    if manifest_of(entry.package(state), entry.name) is None:
        return None
    names = [file for file in state["files"] if file.endswith(".csv") and file not in KEYED]
    texts = {name: entry.text(state, name) for name in names}
    if None in texts.values():
        return None
    return values({name: text for name, text in texts.items() if text is not None})
