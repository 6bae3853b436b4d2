"""Validate annotators' answers against the scheme; return rows for the table ``annotations`` and counts of problems.

A label set outside the scheme counts as missing and does not affect the item's other categories. Skips are counted in
total and never per person, so that skipping has no consequences for an annotator.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, cast

from pipelines.annotate import form
from pipelines.store.tables import Row, item_of

if TYPE_CHECKING:
    from pipelines.annotate.backends import AnnotatorAnswer, Item
    from pipelines.annotate.manifest import RoundManifest
    from pipelines.core.taxonomy import Scheme

Question = tuple["Item", str]
"""An item and a category of the scheme."""
# Values of the column ``outcome``; only answered rows have labels.
ANSWERED, SKIPPED, UNFIT = "answered", "skipped", form.UNFIT
# What is wrong with a cell of an answer, in words for the person who filled it in.
WRONG = {
    "outside_scheme": "no label of the list",
    "against_rules": "several labels, or labels that exclude each other",
    "incomplete": "empty",
    "not_assigned": "not in this person's queue",
    "without_rationale": "empty; a decision needs a reason",
    "not_later": "changed at the time of the last decision",
}
# A category, or another column, with what is wrong with it.
Fault = tuple[str, str]
# Category and outcome of one more row of an answer whose item the annotator marked as ambiguous; the labels count.
AMBIGUOUS = "ambiguous"


@dataclass(frozen=True)
class ReadAnswers:
    """The annotators' answers of a round after validation.

    ``rows`` are unencrypted rows of the table ``annotations`` for :func:`pipelines.store.seal.write_rows`: one for
    each answered category, or, for a skipped or unfit item, one for each category without labels. Only the first row of
    an answer has the note and the seconds, so that sums are correct. ``problems`` counts faults by pseudonym and by
    name: categories for ``outside_scheme`` and ``against_rules``, items for ``unanswered``, ``answered_twice``,
    ``incomplete``, ``not_assigned`` and ``other_account``.
    ``answered`` counts the items that each pseudonym has finished, *including skipped items*, so that the count does
    not reveal one person's skips. ``skipped`` counts the skips of all annotators together. ``rejected`` are the cells
    that were not taken, by pseudonym, with their place and the reason, of answers that have a place.
    """

    rows: list[dict[str, object]]
    problems: dict[str, dict[str, int]]
    rejected: dict[str, list[str]]
    answered: dict[str, int]
    skipped: int


def read(
    answers: Mapping[str, Sequence[AnnotatorAnswer]],
    *,
    assignments: Sequence[Row],
    scheme: Scheme,
    manifest: RoundManifest,
    accounts: Mapping[str, str],
) -> ReadAnswers:
    """Return the validated answers of a round's queues; the result does not depend on the order of the input.

    Of several answers to an item, the latest complete and valid answer counts, or the latest if none is complete and
    valid. A category counts as unanswered if a label is unknown to the scheme or the set breaks the scheme's rules; the
    item's other categories are kept. Answers to unassigned items and answers from another account than the person's in
    ``accounts``, if it has one, are left out.
    """
    asked: dict[str, dict[Item, Row]] = defaultdict(dict)
    for assignment in assignments:
        asked[str(assignment["annotator"])][item_of(assignment)] = assignment
    rows: list[dict[str, object]] = []
    problems: dict[str, dict[str, int]] = {}
    rejected: dict[str, list[str]] = {}
    answered: dict[str, int] = {}
    skipped = 0
    for annotator in sorted(asked.keys() | answers.keys()):
        submitted = answers.get(annotator, ())
        own, wrong = _own(submitted, asked=asked[annotator], account=accounts.get(annotator))
        lines = [
            line for a in submitted if a.item not in asked[annotator] for line in places(a, [("item", "not_assigned")])
        ]
        for item in sorted(own):
            whole = [a for a in own[item] if not a.skipped and not check(a, scheme=scheme)[1]]
            answer = max(whole or own[item], key=latest)
            skipped += answer.skipped
            labels, faults = check(answer, scheme=scheme)
            wrong += counted(faults)
            lines += places(answer, faults)
            place = {name: asked[annotator][item][name] for name in ("record_id", "image", "annotator", "batch")}
            place |= {"round": manifest.round, "guideline": manifest.guideline}
            rows.extend(_rows(answer, labels, shared=place, keys=scheme.categories))
        if named := {name: count for name, count in sorted(wrong.items()) if count}:
            problems[annotator] = named
        if lines:
            rejected[annotator] = lines
        answered[annotator] = len(own)
    return ReadAnswers(rows=rows, problems=problems, rejected=rejected, answered=answered, skipped=skipped)


def labels_of(row: Row) -> frozenset[str]:
    """Return the label set of a table row, which is empty if the row has no labels."""
    return frozenset(cast("list[str] | None", row["labels"]) or ())


def roster(assignments: Sequence[Row]) -> dict[Item, tuple[str, ...]]:
    """Return the sorted annotators of each item, from rows of the table ``assignments``."""
    by_item: dict[Item, set[str]] = defaultdict(set)
    for row in assignments:
        by_item[item_of(row)].add(str(row["annotator"]))
    return {item: tuple(sorted(annotators)) for item, annotators in by_item.items()}


def answered(annotations: Sequence[Row]) -> dict[Question, dict[str, frozenset[str]]]:
    """Return the label sets by (item, category) and annotator from rows of the table ``annotations``, without skips."""
    sets: dict[Question, dict[str, frozenset[str]]] = defaultdict(dict)
    for row in annotations:
        if row["outcome"] == ANSWERED:
            sets[item_of(row), str(row["category"])][str(row["annotator"])] = labels_of(row)
    return dict(sets)


def unfit(annotations: Sequence[Row], *, assignments: Sequence[Row]) -> set[Item]:
    """Return the items that all their assigned annotators found unfit."""
    annotators_of: dict[Item, set[str]] = defaultdict(set)
    for row in annotations:
        if row["outcome"] == UNFIT:
            annotators_of[item_of(row)].add(str(row["annotator"]))
    return {item for item, annotators in roster(assignments).items() if annotators_of[item].issuperset(annotators)}


def marked(annotations: Sequence[Row]) -> set[Item]:
    """Return the items that at least one annotator marked as ambiguous or unfit."""
    return {item_of(row) for row in annotations if row["outcome"] in (AMBIGUOUS, UNFIT)}


def agreed(labels: Mapping[str, frozenset[str]], *, annotators: Sequence[str]) -> frozenset[str] | None:
    """Return the label set on which all ``annotators`` agree, or ``None`` if answers are missing or differ."""
    sets = {labels.get(annotator) for annotator in annotators}
    return sets.pop() if len(sets) == 1 else None


def latest(answer: AnnotatorAnswer) -> tuple[object, ...]:
    """Return a sort key of an answer: its time, then its id (decimal, so that a longer one is later)."""
    return answer.answered, len(answer.id), answer.id


def counted(faults: Iterable[Fault]) -> Counter[str]:
    """Count the faults of an answer by name, ``incomplete`` once."""
    return Counter(fault for _, fault in {("" if fault == "incomplete" else key, fault) for key, fault in faults})


def places(answer: AnnotatorAnswer, faults: Iterable[Fault]) -> list[str]:
    """Return where a person finds each fault of an answer, and what it is; empty for an answer without a place."""
    return [f"{answer.place}, {column}: {WRONG[fault]}" for column, fault in faults if answer.place]


def check(answer: AnnotatorAnswer, *, scheme: Scheme) -> tuple[dict[str, frozenset[str]], list[Fault]]:
    """Check an answer against the scheme; return its valid label sets by category, and its faults.

    A category without a choice is unanswered and ``incomplete``. A category that the scheme does not have is
    ``outside_scheme``. A skip has neither labels nor faults.
    """
    labels: dict[str, frozenset[str]] = {}
    if answer.skipped or answer.unfit:
        return labels, []
    faults = [(key, "outside_scheme") for key in sorted(answer.values.keys() - {*scheme.categories, UNFIT})]
    if not {form.FIT, form.DOUBTFUL}.issuperset(answer.values.get(UNFIT, ())):
        faults.append((UNFIT, "outside_scheme"))
    for key, category in scheme.categories.items():
        values = answer.values.get(key, ())
        if not values:
            faults.append((key, "incomplete"))
            continue
        checked = form.read_values(category, values)
        if (problem := form.problem(checked)) is None:
            labels[key] = checked.labels
        else:
            faults.append((key, problem))
    return labels, faults


def _own(
    submitted: Sequence[AnnotatorAnswer], *, asked: Mapping[Item, Row], account: str | None
) -> tuple[dict[Item, list[AnnotatorAnswer]], Counter[str]]:
    """Return the annotator's own answers by item, and the faults of the queue as a whole."""
    own: dict[Item, list[AnnotatorAnswer]] = defaultdict(list)
    strange: dict[str, set[Item]] = {"other_account": set(), "not_assigned": set()}
    for answer in submitted:
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


def _rows(
    answer: AnnotatorAnswer, labels: Mapping[str, frozenset[str]], *, shared: Row, keys: Iterable[str]
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    outcome = SKIPPED if answer.skipped else UNFIT if answer.unfit else ANSWERED
    noted = [AMBIGUOUS] if answer.ambiguous else []
    for key in [*keys, *noted]:
        if outcome == ANSWERED and key not in labels and key != AMBIGUOUS:
            continue
        row = {**shared, "category": key, "outcome": AMBIGUOUS if key == AMBIGUOUS else outcome, "seconds": None}
        row["labels"] = sorted(labels[key]) if key in labels and outcome == ANSWERED else None
        rows.append(row | {"answered": answer.answered.astimezone(UTC), "note": None})
    if rows:
        rows[0] |= {"seconds": answer.seconds, "note": answer.note.strip() or None}
    return rows
