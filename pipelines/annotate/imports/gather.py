"""Merge the rows of all files of a dataset into one entry per item, and count the invalid rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pipelines.annotate.imports.mapping import Mapping
from pipelines.annotate.imports.published_files import File
from pipelines.annotate.imports.rows import BadRow, ImportEntry, entry_of, flagged, has
from pipelines.taxonomy import Scheme
from pipelines.taxonomy.scheme import TIERS


@dataclass(frozen=True)
class GatheredEntries:
    """The items of a dataset sorted by name, with the numbers of invalid and of repeated rows.

    ``bad`` maps each reason to the (file, line) of the invalid rows. ``repeated`` counts rows that repeat another row
    of the same item. ``cut`` are the (file, line) of the rows whose text was cut off after some complete posts, which
    are imported. ``unknown`` counts strings that are not labels. ``rules`` counts, by rule of the scheme beyond the
    hard rules (SPEC 23), the items whose labels break the rule; such items are imported.
    """

    entries: list[ImportEntry]
    rows: int
    bad: dict[str, list[tuple[str, int]]]
    repeated: int
    cut: list[tuple[str, int]]
    unknown: int
    rules: dict[str, int]

    @property
    def bad_rows(self) -> int:
        """The number of invalid rows."""
        return sum(len(places) for places in self.bad.values())


def missing_columns(files: Iterable[File], *, mapping: Mapping) -> list[str]:
    """Return the required fields of the mapping that at least one file has no column for."""
    found = set()
    for file in files:
        columns = mapping.columns
        named = has(file, (*columns.reddit, *columns.own)) or (columns.text and has(file, columns.body))
        found |= set() if named else {"the record's name (columns.reddit, own or text)"}
        for key, labels in mapping.labels.items():
            if not (flagged(file, labels) or has(file, labels.columns)):
                found.add(f"labels.{key}")
        if mapping.level == "user" and not has(file, columns.body):
            found.add("columns.body")
    return sorted(found)


def gather(files: Sequence[File], *, mapping: Mapping, scheme: Scheme) -> GatheredEntries:
    """Combine the rows of each item into one entry; invalid rows are counted by reason (``rows.py``, or ``conflict``).

    Equal rows of one item become one entry, which belongs to the parts of all of them. If rows of one item differ, all
    are left out with the reason ``conflict``, because the correct one is unknown.
    """
    bad: dict[str, list[tuple[str, int]]] = {}
    found: dict[tuple[bool, str, int], list[tuple[ImportEntry, tuple[str, int]]]] = {}
    unknown = 0
    for file in sorted(files, key=lambda f: (f.name, f.digest)):
        for row in file.rows:
            place = (file.name, row.line)
            try:
                entry = entry_of(row, file=file, mapping=mapping, scheme=scheme)
                found.setdefault((entry.reddit, entry.name, entry.image), []).append((entry, place))
            except BadRow as error:
                unknown += error.unknown
                bad.setdefault(error.reason, []).append(place)
    entries, cut = [], []
    for _, same in sorted(found.items()):
        one = same[0][0]
        if all(entry.said == one.said for entry, _ in same):
            parts = frozenset[str]().union(*(entry.parts for entry, _ in same))
            entries.append(replace(one, parts=parts, digest=min(entry.digest for entry, _ in same)))
            cut += [place for entry, place in same if entry.cut]
        else:
            bad.setdefault("conflict", []).extend(place for _, place in same)
    rows = sum(len(file.rows) for file in files)
    repeated = rows - len(entries) - sum(len(places) for places in bad.values())
    rules = _rules(entries, scheme=scheme)
    return GatheredEntries(entries, rows, dict(sorted(bad.items())), repeated, sorted(cut), unknown, rules)


def _rules(entries: Iterable[ImportEntry], *, scheme: Scheme) -> dict[str, int]:
    broken: Counter[str] = Counter()
    for entry in entries:
        for key, labels in entry.answers.items():
            checked = scheme.category(key).check(labels, mode="repair", tiers=TIERS, task=False)
            broken.update(set(checked.repairs))
    return dict(sorted(broken.items()))
