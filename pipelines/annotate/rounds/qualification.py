"""Let annotators join rounds after they qualified on a shared set of hard cases (CRADLE 3.2 and A).

A round of phase ``qualification`` asks people who took no part in earlier rounds about items that these rounds found
hard: adjudicated, or marked as ambiguous. At its end each person's answers are compared with the labels that were
settled then. A later round that names it takes only people of the earlier rounds, and people who reached its bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pipelines.annotate.forms import manifest as manifests
from pipelines.annotate.forms.protocol import Planned
from pipelines.annotate.gold import settle
from pipelines.annotate.response_validation import UNFIT, Question, Row, answered, item_of, marked
from pipelines.core.errors import AnnotationError
from pipelines.core.taxonomy import Scheme
from pipelines.store.tables import Item

PHASE = "qualification"
# Ours: who skipped more than half of the set is not measured by it.
LEAST_SHARE = 0.5


def eligible(planned: Planned, *, people: Sequence[str], corpus: str, root: Path) -> list[str]:
    """Return those of ``people`` who may take part in a planned round, in their order."""
    earlier = {m.round: m for m in manifests.opened(root, corpus)}

    def of(rounds: Collection[str]) -> set[str]:
        return {person for name in rounds if name in earlier for person in earlier[name].annotators}

    allowed = list(people)
    if planned.phase == PHASE:
        allowed = [person for person in people if person not in of(planned.again)]
    elif planned.qualification is not None:
        test = earlier.get(planned.qualification)
        passed = {p for p, score in test.scores.items() if score >= (test.bound or 0)} if test else set()
        known = of(test.again if test else ()) | passed
        allowed = [person for person in people if person in known]
    if len(allowed) < planned.annotators and planned.qualification is not None:
        counts = {"needed": planned.annotators, "found": len(allowed), "qualification": planned.qualification}
        raise AnnotationError("NotQualified", corpus=corpus, name=planned.name, **counts)
    return allowed


def hard(annotations: Sequence[Row], adjudications: Sequence[Row]) -> set[Item]:
    """Return the items of rounds that were adjudicated, or that an annotator marked as ambiguous or unfit."""
    return {item_of(row) for row in adjudications} | marked(annotations)


def settled(
    rounds: Sequence[tuple[Sequence[Row], Sequence[Row], Sequence[Row]]], *, scheme: Scheme
) -> dict[Question, frozenset[str]]:
    """Return the label sets on which earlier rounds ended: (assignments, annotations, adjudications) of each."""
    known: dict[Question, frozenset[str]] = {}
    for assignments, answers, log in rounds:
        gold = settle(answers, assignments=assignments, log=log, scheme=scheme, name="")
        known |= {question: label.labels for question, label in gold.items() if question[1] != UNFIT}
    return known


def scores(
    annotations: Sequence[Row], *, known: Mapping[Question, frozenset[str]], people: Sequence[str], items: int
) -> dict[str, float]:
    """Return each person's mean Jaccard index against the settled labels, over categories and then over items.

    Two empty sets agree. Skipped items do not count; who answered fewer than half of the set has no score.
    """
    by_person: dict[str, dict[Item, list[float]]] = {person: defaultdict(list) for person in people}
    for (item, key), by_annotator in answered(annotations).items():
        truth = known.get((item, key))
        if truth is None:
            continue
        for person, labels in by_annotator.items():
            union = labels | truth
            by_person[person][item].append(len(labels & truth) / len(union) if union else 1.0)
    means = {}
    for person, by_item in by_person.items():
        if by_item and len(by_item) >= LEAST_SHARE * items:
            means[person] = round(sum(sum(v) / len(v) for v in by_item.values()) / len(by_item), 4)
    return dict(sorted(means.items()))
