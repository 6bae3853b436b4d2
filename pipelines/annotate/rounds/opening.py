"""Plan an annotation round: draw its items, assign them and build its manifest.

Items are drawn by keyed hashes, so that neither the order of rows nor items added later change the result.

Annotators join rounds after they qualified on a shared set of hard cases (CRADLE 3.2 and A). A round of phase
``qualification`` asks people who took no part in earlier rounds about items that these rounds found hard: adjudicated,
or marked as ambiguous. At its end each person's answers are compared with the labels that were settled then. A later
round that names it takes only people of the earlier rounds, and people who reached its bound.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.annotate import manifest as manifests
from pipelines.annotate.backends import Item
from pipelines.annotate.gold import settle
from pipelines.annotate.manifest import Planned, RoundManifest
from pipelines.annotate.response_validation import UNFIT, Question, answered, marked
from pipelines.annotate.rounds import store
from pipelines.annotate.rounds.adjudicate import AdjudicationCase, review_cases
from pipelines.core.config.label import Round
from pipelines.core.config.params import Params, load
from pipelines.core.errors import AnnotationError, BadParams
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.guideline import digest, guideline
from pipelines.store import approvals, tables
from pipelines.store.tables import Row, item_of
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import Workspace

ITEM = ["record_id", "image"]


def draw(candidates: Collection[Item], *, taken: Collection[Item], size: int, seed: int) -> list[Item]:
    """Draw at most ``size`` candidate items that are not in ``taken``, in the order of their keyed hashes."""
    free = set(candidates) - set(taken)
    return _shuffled(free, key=f"round/{seed}")[: max(0, size)]


def assign(
    items: Sequence[Item], *, annotators: Sequence[str], overlap: int, batch_size: int, seed: int
) -> list[dict[str, Any]]:
    """Assign each item to ``overlap`` different annotators, so that the annotators' loads differ by at most one item.

    The items are divided, in their order, into batches of ``batch_size``. Within a batch each annotator has a different
    order, so that fatigue does not affect the same items for all.

    Returns:
        Rows of the table ``assignments`` without the round. ``batch`` counts from 0 and is the same for all annotators
        of the item; ``position`` counts from 0 in the annotator's own queue, batch after batch.
    """
    if len(set(annotators)) < max(len(annotators), overlap):
        detail = f"{len(set(annotators))} different names of {len(annotators)}, but each item needs {overlap}"
        raise BadParams(where="round.annotators", detail=detail)
    queues: dict[str, list[dict[str, Any]]] = {annotator: [] for annotator in annotators}
    loads: Counter[str] = Counter()
    for batch, start in enumerate(range(0, len(items), batch_size)):
        drawn: dict[str, list[Item]] = {annotator: [] for annotator in annotators}
        for item in items[start : start + batch_size]:
            # a hash breaks ties of the loads, so that pairs vary
            ranked = sorted(annotators, key=lambda a: (loads[a], _hash(item, key=f"assign/{seed}/{a}"), a))
            for annotator in ranked[:overlap]:
                drawn[annotator].append(item)
                loads[annotator] += 1
        for annotator, queue in queues.items():
            for record, image in _shuffled(drawn[annotator], key=f"order/{seed}/{annotator}"):
                place = {"annotator": annotator, "batch": batch, "position": len(queue)}
                queue.append({"record_id": record, "image": image, **place})
    return [row for queue in queues.values() for row in queue]


def _shuffled(items: Collection[Item], *, key: str) -> list[Item]:
    return sorted(items, key=lambda item: (_hash(item, key=key), item))


def _hash(item: Item, *, key: str) -> bytes:
    # a BLAKE2b key has at most 64 bytes, so the key is part of the hashed text instead
    return hashlib.blake2b(f"{key}/{item[0]}/{item[1]}".encode(), digest_size=16).digest()


@dataclass(frozen=True)
class RoundPlan:
    """A planned annotation round that is not opened yet; ``rows`` are those of the table ``assignments``."""

    manifest: RoundManifest
    rows: list[dict[str, Any]]
    unvoted: int


def planned_of(corpus: str, name: str, *, params: Params) -> Planned:
    """Return the plan of an annotation round in the corpus's protocol."""
    if corpus not in params.round.protocol:
        raise BadParams(where="round.protocol", detail=f"corpus {corpus} has no protocol")
    return manifests.round_of(manifests.load_protocol(params.round.protocol[corpus]), name, corpus=corpus)


def permit(corpus: str, *, params: Params, root: Path, now: datetime) -> None:
    """Raise ``UseNotApproved`` if an approval of the corpus's sources does not cover that people label its records."""
    approvals.require("annotate", approvals.sources_of(corpus, params=params, root=root), today=now.date())


def plan(clone: Workspace, *, corpus: str, planned: Planned, asking: Round, vault: Vault, now: datetime) -> RoundPlan:
    """Draw an annotation round's items from the published split or sample, and return the plan of the round.

    ``asking`` is section ``round`` of the parameters with what the command states otherwise.

    Items of the corpus's other rounds are not drawn again, except in a review (``draw: disagreement``). If fewer items
    are left than the protocol's size, the round contains all of them.
    """
    params, name = load(clone.path), planned.name
    permit(corpus, params=params, root=clone.path, now=now)
    fit = eligible(planned, people=asking.annotators, corpus=corpus, root=clone.path)
    people = tuple(fit[: planned.annotators])
    if len(people) < planned.annotators:
        detail = f"round {name} needs {planned.annotators} people (`--annotators NAME,NAME`)"
        raise BadParams(where="round.annotators", detail=detail)
    candidates, left_out = _candidates(clone, corpus=corpus, planned=planned, vault=vault)
    # a review and a round that labels again draw items of other rounds
    taken = _of_rounds(clone, corpus=corpus) if planned.draw == "sample" else set()
    items = draw(candidates, taken=taken, size=planned.size, seed=planned.seed)
    if not items:
        raise AnnotationError(
            "NothingToDraw", corpus=corpus, name=name, candidates=len(candidates), taken=len(candidates & taken)
        )
    scheme = _scheme(planned, corpus=corpus, params=params, root=clone.path)
    manifest = RoundManifest(
        corpus=corpus,
        round=name,
        protocol=params.round.protocol[corpus],
        scheme=scheme.name,
        scheme_digest=scheme.digest[:16],
        guideline_version=scheme.version,
        guideline=digest(guideline(scheme, content=params.corpora[corpus].content)),
        size=len(items),
        annotators=people,
        **asking.model_dump(include={"adjudicator", "backend", "daily_cap"}),
        **planned.model_dump(exclude={"name", "size", "annotators", "scheme"}),
        base=clone.head,
        status="open" if people else "adjudicating",
        opened=now,
    )
    # without annotators, the items go directly to the adjudicator
    asked, overlap = (people, planned.overlap) if people else ((asking.adjudicator,), 1)
    drawn = assign(items, annotators=asked, overlap=overlap, batch_size=planned.batch_size, seed=planned.seed)
    return RoundPlan(manifest, [row | {"round": name} for row in drawn], left_out)


def review(
    clone: Workspace, *, plan: Planned | RoundManifest, corpus: str, items: Collection[Item]
) -> tuple[list[AdjudicationCase], int]:
    """Return the cases of those ``items`` whose gold differs from the votes of all labellers of the review.

    The second result is the number of items that lack the vote of a labeller.
    """
    store.fetch_stages(clone, f"gold@{corpus}", *(f"votes@{corpus}-{labeller}" for labeller in plan.against))
    folder = clone.path / "snapshot" / corpus
    gold = tables.read(folder / "gold" / "gold.parquet", name="gold").to_pylist()
    votes = {n: tables.read(folder / "votes" / n / "votes.parquet", name="votes").to_pylist() for n in plan.against}
    noted = set()
    if plan.marked:
        noted = marked(_rows(clone, corpus=corpus, table="annotations", columns=[*ITEM, "outcome"]))
    return review_cases(gold, votes, against=plan.against, splits=items, seed=plan.seed, marked=noted)


def _scheme(planned: Planned, *, corpus: str, params: Params, root: Path) -> Scheme:
    """Return the label scheme of a round: its own, or the corpus's."""
    usual = load_scheme(params.corpora[corpus].scheme, root=root)
    if planned.scheme is None:
        return usual
    own = load_scheme(planned.scheme, root=root)
    if list(own.categories) != list(usual.categories):
        detail = f"round {planned.name}: its scheme {own.name} has other categories than {usual.name}"
        raise BadParams(where=f"round.protocol.{corpus}", detail=detail)
    return own


def _candidates(clone: Workspace, *, corpus: str, planned: Planned, vault: Vault) -> tuple[set[Item], int]:
    """Return the items that a round may draw, and the number that a review leaves out."""
    within = planned.splits or load(clone.path).gold[corpus].splits
    # without labels there is no split yet: it will be balanced on those that people give
    stage, name = ("split", "splits") if within or f"split@{corpus}" in clone.lock() else ("sample", "sample")
    store.fetch_stages(clone, f"{stage}@{corpus}")
    rows = tables.read(clone.path / "snapshot" / corpus / stage / f"{name}.parquet", name=name).to_pylist()
    fit = {item_of(row) for row in rows if within is None or row["split"] in within}
    gone = vault.tombstoned({record_id for record_id, _ in fit})
    fit = {item for item in fit if item[0] not in gone}
    if planned.draw == "sample":
        return fit, 0
    if planned.draw == "again":
        if planned.bound is None:
            return fit & _of_rounds(clone, corpus=corpus, names=planned.again), 0
        given: dict[str, Any] = {"corpus": corpus, "rounds": planned.again}
        annotations = _rows(clone, table="annotations", columns=[*ITEM, "outcome"], **given)
        return fit & hard(annotations, _rows(clone, table="adjudications", columns=ITEM, **given)), 0
    cases, unvoted = review(clone, plan=planned, corpus=corpus, items=fit)
    return {case.item for case in cases}, unvoted


def _of_rounds(clone: Workspace, *, corpus: str, names: Collection[str] | None = None) -> set[Item]:
    return {item_of(row) for row in _rows(clone, corpus=corpus, table="assignments", columns=ITEM, rounds=names)}


def _rows(
    clone: Workspace, *, corpus: str, table: str, columns: list[str], rounds: Collection[str] | None = None
) -> list[dict[str, object]]:
    """Return rows of a table of all rounds, or of those in ``rounds``, fetched into the clone."""
    pointers = sorted((clone.path / "annotations" / corpus).glob(f"*/{table}.parquet.dvc"))
    paths = [path.with_suffix("") for path in pointers if rounds is None or path.parent.name in rounds]
    clone.checkout(*(path.with_suffix("").relative_to(clone.path).as_posix() for path in pointers))
    rows: list[dict[str, object]] = tables.concat(paths, name=table, columns=columns).to_pylist()
    return rows


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
