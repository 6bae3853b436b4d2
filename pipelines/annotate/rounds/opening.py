"""Plan an annotation round: draw its items, assign them and build its manifest.

Items are drawn by keyed hashes, so that neither the order of rows nor items added later change the result.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.annotate.backend import Item
from pipelines.annotate.forms import protocol as protocols
from pipelines.annotate.forms.manifest import RoundManifest
from pipelines.annotate.forms.protocol import Planned
from pipelines.annotate.response_validation import item_of, marked
from pipelines.annotate.rounds import store
from pipelines.annotate.rounds.adjudicate import AdjudicationCase, review_cases
from pipelines.annotate.rounds.qualification import eligible, hard
from pipelines.core.config.params import Params, load
from pipelines.core.errors import AnnotationError, BadParams
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.guideline import digest, guideline
from pipelines.store import tables
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
    return protocols.round_of(protocols.load(params.round.protocol[corpus]), name, corpus=corpus)


def plan(clone: Workspace, *, corpus: str, planned: Planned, vault: Vault, now: datetime) -> RoundPlan:
    """Draw an annotation round's items from the published split, and return the plan of the round.

    Items of the corpus's other rounds are not drawn again, except in a review (``draw: disagreement``). If fewer items
    are left than the protocol's size, the round contains all of them.
    """
    params, name = load(clone.path), planned.name
    fit = eligible(planned, people=params.round.annotators, corpus=corpus, root=clone.path)
    people = tuple(fit[: planned.annotators])
    if len(people) < planned.annotators:
        raise BadParams(where="round.annotators", detail=f"round {name} needs {planned.annotators} people")
    store.fetch_stages(clone, f"split@{corpus}")
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
        **params.round.model_dump(include={"adjudicator", "backend", "daily_cap"}),
        **planned.model_dump(exclude={"name", "size", "annotators", "scheme"}),
        base=clone.head,
        status="open" if people else "adjudicating",
        opened=now,
    )
    # without annotators, the items go directly to the adjudicator
    asked, overlap = (people, planned.overlap) if people else ((params.round.adjudicator,), 1)
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
    path = clone.path / "snapshot" / corpus / "split" / "splits.parquet"
    splits = tables.read(path, name="splits", columns=["record_id", "image", "split"]).to_pylist()
    fit = {item_of(row) for row in splits if planned.splits is None or row["split"] in planned.splits}
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
