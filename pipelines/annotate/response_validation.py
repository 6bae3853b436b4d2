"""What people answered, held against the scheme: rows for the table ``annotations``, and counts of what is wrong.

Whatever a tool hands over, one rule decides: an answer that the scheme does not know is no answer, and it harms nothing
beside it. Skips are counted for all together and never by person: skipping costs nobody anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, cast

from pipelines.annotate import form

if TYPE_CHECKING:
    from pipelines.annotate.backends.backend import Answer, Item
    from pipelines.annotate.manifest import Manifest
    from pipelines.taxonomy import Scheme

Row = Mapping[str, object]
Question = tuple["Item", str]
"""An item and a category."""
# ``outcome`` of the table: labels stand in rows that are answered, and in no others
ANSWERED, SKIPPED = "answered", "skipped"


@dataclass(frozen=True)
class Read:
    """What a pull found.

    ``rows`` are plain rows of ``store.tables.ANNOTATIONS``, for :func:`pipelines.storage.seal.write_rows`: one for each
    category that was answered, or one for each category of a skipped item, without labels. The first row of an answer
    carries its note and its seconds, so that sums are right. ``problems`` counts by pseudonym and by name
    (``backend.PROBLEMS``): categories for ``outside_scheme`` and ``against_rules``, items for the others.
    ``answered`` counts the items that each pseudonym is done with, *skipped ones included*: nobody's skips can be
    reckoned from it. ``skipped`` counts skips of all together.
    """

    rows: list[dict[str, object]]
    problems: dict[str, dict[str, int]]
    answered: dict[str, int]
    skipped: int


def read(
    answers: Mapping[str, Sequence[Answer]],
    *,
    assignments: Sequence[Row],
    scheme: Scheme,
    manifest: Manifest,
    accounts: Mapping[str, str],
) -> Read:
    """Read the queues of a round; the order of answers and of assignments changes nothing.

    Of several answers to one item the latest counts that is complete and valid, or, if none is, the latest of all. A
    category whose labels the scheme does not know or forbids counts as unanswered, the item's others stay. Answers to
    items that were not assigned, and answers of another account, are left out.

    Args:
        answers: what each pseudonym's queue holds, unchecked.
        assignments: rows of ``store.tables.ASSIGNMENTS``.
        scheme: of the corpus.
        manifest: of the round.
        accounts: the account (``Answer.by``) that each pseudonym answers from; one that is not named may use any.
    """
    asked: dict[str, dict[Item, Row]] = defaultdict(dict)
    for assignment in assignments:
        asked[str(assignment["annotator"])][item_of(assignment)] = assignment
    rows: list[dict[str, object]] = []
    problems: dict[str, dict[str, int]] = {}
    answered: dict[str, int] = {}
    skipped = 0
    for annotator in sorted(asked.keys() | answers.keys()):
        own, wrong = _own(answers.get(annotator, ()), asked=asked[annotator], account=accounts.get(annotator))
        for item in sorted(own):
            answer = _chosen(own[item], scheme=scheme)
            skipped += answer.skipped
            labels, faults = check(answer, scheme=scheme)
            wrong += faults
            rows.extend(_rows(answer, labels, assignment=asked[annotator][item], scheme=scheme, of=manifest))
        if named := {name: count for name, count in sorted(wrong.items()) if count}:
            problems[annotator] = named
        answered[annotator] = len(own)
    return Read(rows=rows, problems=problems, answered=answered, skipped=skipped)


def item_of(row: Row) -> Item:
    """Return the item that a row of any table speaks of."""
    return str(row["record_id"]), cast(int, row["image"])


def labels_of(row: Row) -> frozenset[str]:
    """Return the label set of a row; an empty one where it has none."""
    return frozenset(cast("list[str] | None", row["labels"]) or ())


def roster(assignments: Sequence[Row]) -> dict[Item, tuple[str, ...]]:
    """Return the annotators that each item was assigned to, sorted."""
    found: dict[Item, set[str]] = defaultdict(set)
    for row in assignments:
        found[item_of(row)].add(str(row["annotator"]))
    return {item: tuple(sorted(annotators)) for item, annotators in found.items()}


def answered(annotations: Sequence[Row]) -> dict[Question, dict[str, frozenset[str]]]:
    """Return the label sets that were really given, by question and annotator."""
    found: dict[Question, dict[str, frozenset[str]]] = defaultdict(dict)
    for row in annotations:
        if row["outcome"] == ANSWERED:
            found[item_of(row), str(row["category"])][str(row["annotator"])] = labels_of(row)
    return dict(found)


def agreed(given: Mapping[str, frozenset[str]], *, annotators: Sequence[str]) -> frozenset[str] | None:
    """Return the one label set that every annotator gave, or ``None`` where one is missing or two differ."""
    sets = {given.get(annotator) for annotator in annotators}
    return sets.pop() if len(sets) == 1 else None


def latest(answer: Answer) -> tuple[object, ...]:
    """Order answers by time; numbers as ids are strings, so that the longer one is the later one."""
    return answer.answered, len(answer.id), answer.id


def check(answer: Answer, *, scheme: Scheme) -> tuple[dict[str, frozenset[str]], Counter[str]]:
    """Return the valid label sets of an answer by category, and what is wrong with the rest.

    Nothing chosen is no answer (``incomplete``, once an item); a question that the scheme does not have is
    ``outside_scheme``. A skip has neither labels nor faults.
    """
    labels: dict[str, frozenset[str]] = {}
    faults: Counter[str] = Counter()
    if answer.skipped:
        return labels, faults
    faults["outside_scheme"] = len(answer.values.keys() - scheme.categories.keys())
    for key, category in scheme.categories.items():
        values = answer.values.get(key, ())
        if not values:
            faults["incomplete"] = 1
            continue
        checked = form.read_values(category, values)
        if (problem := form.problem(checked)) is None:
            labels[key] = checked.labels
        else:
            faults[problem] += 1
    return labels, faults


def _own(
    given: Sequence[Answer], *, asked: Mapping[Item, Row], account: str | None
) -> tuple[dict[Item, list[Answer]], Counter[str]]:
    """Return the answers that count as the annotator's, by item, and what is wrong with the queue as a whole."""
    own: dict[Item, list[Answer]] = defaultdict(list)
    strange: dict[str, set[Item]] = {"other_account": set(), "not_assigned": set()}
    for answer in given:
        if account is not None and answer.by != account:
            strange["other_account"].add(answer.item)
        elif answer.item not in asked:
            strange["not_assigned"].add(answer.item)
        else:
            own[answer.item].append(answer)
    problems = Counter({name: len(items) for name, items in strange.items()})
    problems["unanswered"] = len(asked.keys() - own.keys())
    problems["answered_twice"] = sum(sum(not a.skipped for a in answers) > 1 for answers in own.values())
    return own, problems


def _chosen(answers: Sequence[Answer], *, scheme: Scheme) -> Answer:
    whole = [a for a in answers if not a.skipped and not check(a, scheme=scheme)[1].total()]
    return max(whole or answers, key=latest)


def _rows(
    answer: Answer, labels: Mapping[str, frozenset[str]], *, assignment: Row, scheme: Scheme, of: Manifest
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for key in scheme.categories:
        if not answer.skipped and key not in labels:
            continue
        rows.append(
            {
                **{name: assignment[name] for name in ("record_id", "image", "annotator", "batch")},
                "category": key,
                "round": of.round,
                "guideline": of.guideline,
                "outcome": SKIPPED if answer.skipped else ANSWERED,
                "labels": None if answer.skipped else sorted(labels[key]),
                "seconds": None if rows else answer.seconds,
                "answered": answer.answered.astimezone(UTC),
                "note": None if rows else answer.note.strip() or None,
            }
        )
    return rows
