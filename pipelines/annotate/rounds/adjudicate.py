"""Select items for adjudication with anonymous answers, and validate the adjudicator's decisions.

Decisions are stored in the table ``adjudications``, called the log. The log is append-only: a changed decision is a new
row with a later time, and the last row of an item and category counts. A decision without a rationale is ignored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, cast

from pipelines.annotate.response_validation import (
    UNFIT,
    Fault,
    Question,
    agreed,
    answered,
    check,
    counted,
    labels_of,
    latest,
    places,
    roster,
    unfit,
)
from pipelines.store.tables import Row, item_of

if TYPE_CHECKING:
    from pipelines.annotate.backends import AnnotatorAnswer, Item
    from pipelines.annotate.manifest import RoundManifest
    from pipelines.core.taxonomy import Scheme

Side = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class AdjudicationCase:
    """One item for the adjudicator: its disputed ``categories`` in the scheme's order, and the conflicting answers.

    ``sides`` are the annotators' answers to all categories, without the annotators' names and in an order drawn per
    item; an unanswered item has no sides. An empty set is shown by the scheme's name for it (FigSIM's "None"), if there
    is one.
    """

    item: Item
    categories: tuple[str, ...]
    sides: tuple[Side, ...]


@dataclass(frozen=True)
class Decided:
    """The adjudicator's decisions, stored and new, and the problems found in the adjudicator's queue.

    ``rows`` are unencrypted rows of the table ``adjudications``: the stored rows first and unchanged, then the new
    rows. ``problems`` counts categories for ``unanswered`` (not decided yet), ``outside_scheme``, ``against_rules``,
    ``not_assigned`` and ``not_later`` (a changed decision with the same time as the stored one, which is ignored); it
    counts items for ``without_rationale``. ``rejected`` is as in :class:`response_validation.ReadAnswers`.
    """

    rows: list[dict[str, object]]
    problems: dict[str, int]
    rejected: list[str]


def cases(
    annotations: Sequence[Row], *, assignments: Sequence[Row], scheme: Scheme, seed: int
) -> list[AdjudicationCase]:
    """Return the items of an annotation round that need adjudication, sorted.

    A category of an item is disputed if an assigned annotator did not answer the category, or if the answers differ.
    For an item with one assigned annotator, only unanswered categories are disputed. An item that all its annotators
    found unfit is left out; one that only some of them found unfit has unanswered categories.
    """
    answers, rejected = answered(annotations), unfit(annotations, assignments=assignments)
    disputes = []
    for item, annotators in sorted(roster(assignments).items()):
        if item in rejected:
            continue
        disputed = tuple(
            key for key in scheme.categories if agreed(answers.get((item, key), {}), annotators=annotators) is None
        )
        if disputed:
            sides = [_side(item, annotator, sets=answers, scheme=scheme) for annotator in annotators]
            disputes.append(AdjudicationCase(item, disputed, _shuffled([s for s in sides if s], item=item, seed=seed)))
    return disputes


def review_cases(
    gold: Sequence[Row],
    votes: Mapping[str, Sequence[Row]],
    *,
    against: Sequence[str],
    splits: Collection[Item],
    seed: int,
    marked: Collection[Item] = frozenset(),
) -> tuple[list[AdjudicationCase], int]:
    """Return the items whose gold differs from the valid votes of all labellers in ``against`` (CRADLE 3.4, SPEC 31).

    Items that an annotator marked as ambiguous or unfit are returned too, in all categories with gold and with as many
    votes as there are (CRADLE A).

    The sides of a case (conflicting answers) are the distinct label sets of gold and votes. A set that two labellers
    gave appears once, so that the adjudicator cannot recognize gold as the only different set. An item without a valid
    vote from every labeller (a refusal is not a vote) is left out; the second result counts such items. Labels are
    compared unchanged, so annotators and models must use the same labels of the scheme, as in CRADLE.
    """
    ballots = {
        (name, str(row["record_id"]), str(row["category"])): labels_of(row)
        for name in against
        for row in votes.get(name, ())
        if row["outcome"] == "vote"
    }
    disputed: dict[Item, dict[str, list[frozenset[str]]]] = defaultdict(dict)
    unvoted = set()
    for row in gold:
        item, key, labels = item_of(row), str(row["category"]), labels_of(row)
        if item not in splits:
            continue
        others = [ballots.get((name, item[0], key)) for name in against]
        if None in others:
            unvoted.add(item)
        if item in marked or not (not others or labels in others or None in others):
            sets = {labels, *(other for other in others if other is not None)}
            disputed[item][key] = sorted(sets, key=sorted)
    return [_review(item, disputed[item], seed=seed) for item in sorted(disputed)], len(unvoted)


def read_decisions(
    answers: Sequence[AnnotatorAnswer],
    *,
    cases: Sequence[AdjudicationCase],
    known: Sequence[Row],
    scheme: Scheme,
    manifest: RoundManifest,
) -> Decided:
    """Return the table ``adjudications`` with the adjudicator's new answers added; repeated answers add nothing."""
    sides = {(case.item, key): len(case.sides) for case in cases for key in case.categories}
    rows = [dict(row) for row in known]
    last = {(item_of(row), str(row["category"])): row for row in sorted(rows, key=_when)}
    sides = {question: cast(int, row["sides"]) for question, row in last.items()} | sides
    sides |= {(item, UNFIT): count for (item, _), count in sides.items()}
    problems: Counter[str] = Counter()
    rejected_cells: list[str] = []
    by_item: dict[Item, list[AnnotatorAnswer]] = defaultdict(list)
    for answer in answers:
        by_item[answer.item].append(answer)
    for item in sorted(by_item):
        faults: list[Fault] = []
        wrong: list[str] = []
        # of two answers with the same time, only the one with the later id counts
        for answer in {a.answered: a for a in sorted(by_item[item], key=latest)}.values():
            labels, faults = _decisions(answer, asked=sides.keys(), scheme=scheme)
            for key in labels:
                row = _row(answer, key, labels=labels[key], sides=sides[item, key], manifest=manifest)
                before = _valid(last, item, key=key, scheme=scheme)
                if before is None or (_when(row) > _when(before) and _differ(row, before)):
                    last[item, key] = row
                    rows.append(row)
                elif _when(row) == _when(before) and _differ(row, before):
                    faults.append((key, "not_later"))
            wrong = places(answer, faults)
        problems += counted(faults)
        rejected_cells += wrong
    out = rejected(rows)
    problems["unanswered"] = sum(q not in last and q[0] not in out for q in sides if q[1] != UNFIT)
    counts = {name: count for name, count in sorted(problems.items()) if count}
    return Decided(rows=rows, problems=counts, rejected=rejected_cells)


def rejected(log: Sequence[Row]) -> set[Item]:
    """Return the items that the adjudicator's last decision in ``log`` (rows of ``adjudications``) declares unfit."""
    last = {item_of(row): row for row in sorted(log, key=_when)}
    return {item for item, row in last.items() if row["category"] == UNFIT}


def _valid(
    last: Mapping[Question, dict[str, object]], item: Item, *, key: str, scheme: Scheme
) -> dict[str, object] | None:
    replaced = [*scheme.categories, UNFIT] if key == UNFIT else [key, UNFIT]
    return max((last[item, name] for name in replaced if (item, name) in last), key=_when, default=None)


def _side(
    item: Item, annotator: str, *, sets: Mapping[Question, Mapping[str, frozenset[str]]], scheme: Scheme
) -> dict[str, tuple[str, ...]]:
    side = {}
    for key, category in scheme.categories.items():
        labels = sets.get((item, key), {}).get(annotator)
        if labels is not None:
            names = tuple(label.name for label in category.labels if label.name in labels)
            side[key] = (category.none,) if not labels and category.none is not None else names
    return side


def _shuffled(sides: Sequence[Side], *, item: Item, seed: int) -> tuple[Side, ...]:
    order = list(sides)
    Random(f"{seed}/{item[0]}/{item[1]}").shuffle(order)  # noqa: S311 (a draw that must repeat, not a secret)
    return tuple(order)


def _review(item: Item, sets: Mapping[str, Sequence[frozenset[str]]], *, seed: int) -> AdjudicationCase:
    most = max(len(choices) for choices in sets.values())
    sides = [
        {key: tuple(sorted(choices[at])) for key, choices in sets.items() if at < len(choices)} for at in range(most)
    ]
    return AdjudicationCase(item, tuple(sets), _shuffled(sides, item=item, seed=seed))


def _decisions(
    answer: AnnotatorAnswer, *, asked: Collection[Question], scheme: Scheme
) -> tuple[dict[str, frozenset[str]], list[Fault]]:
    """Return an answer's decisions on the asked categories, and its faults."""
    chosen = {key for key, values in answer.values.items() if values}
    if answer.skipped or not chosen:
        return {}, []
    if not answer.note.strip():
        return {}, [("note", "without_rationale")]
    if answer.unfit:
        own = (answer.item, UNFIT) in asked
        return ({UNFIT: frozenset()}, []) if own else ({}, [(UNFIT, "not_assigned")])
    labels, faults = check(answer, scheme=scheme)
    # a category left empty keeps what the annotators agreed on
    faults = [(key, fault) for key, fault in faults if fault != "incomplete"]
    other = [key for key in scheme.categories if key in chosen and (answer.item, key) not in asked]
    faults += [(key, "not_assigned") for key in other]
    return {key: decision for key, decision in labels.items() if (answer.item, key) in asked}, faults


def _row(
    answer: AnnotatorAnswer, key: str, *, labels: frozenset[str], sides: int, manifest: RoundManifest
) -> dict[str, object]:
    row = {"record_id": answer.item[0], "image": answer.item[1], "category": key, "labels": sorted(labels)}
    row |= {"decided": answer.answered.astimezone(UTC), "rationale": answer.note.strip(), "sides": sides}
    return row | {name: getattr(manifest, name) for name in ("round", "guideline", "adjudicator")}


def _when(row: Row) -> datetime:
    return cast(datetime, row["decided"])


def _differ(row: Row, last: Row) -> bool:
    return any(row[name] != last[name] for name in ("category", "labels", "rationale"))
