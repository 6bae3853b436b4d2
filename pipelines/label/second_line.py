"""Compare an ensemble's decisions with what no instruction in a text sways, and with answers to another prompt.

An instruction may sway all members of an ensemble, and the patterns may miss it. A decision of *nothing* is therefore
compared with validation: a linear classifier of sentence embeddings says how much the sentence of an item that is least
like those of nothing resembles what others say (multiple-instance learning, as labels belong to items; Andrews et al.
2003), so that words added to a text hide nothing. The labels of offline labellers outside of the ensemble are compared
with every decision. So are those of labellers of ``order: reversed``: models that are asked about a sample once more,
with the labels in the opposite order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.collect.read.embedding import MiniLM, centred, decided
from pipelines.core.config.label import Ensemble, OfflineLabeller, RemoteLabeller
from pipelines.core.config.params import Params
from pipelines.core.errors import BadParams
from pipelines.core.taxonomy import Category
from pipelines.datasets.post import Post
from pipelines.label.aggregate import LabelSet, Panel
from pipelines.label.offline import FOLDS, Values, deal, linear
from pipelines.store import tables
from pipelines.store.tables import Item

C = 10.0  # ours: as of the offline labellers on unit vectors
ROUNDS = 2  # ours: more change nothing that counts

Sentences = npt.NDArray[np.float32]
Head = Callable[[Any], Values]


@cache
def _embedder() -> Callable[[str], Sentences]:
    return cache(MiniLM().sentences)


@dataclass(frozen=True)
class Watch:
    """A classifier of the items of a category that are not *nothing*, fitted on the gold of validation.

    Args:
        heads: one for each fold, which excludes an item, its author and its near-duplicates, then one of all gold.
        held_out: the fold of each record with gold.
        bound: the value above which a decision of nothing is to be reviewed.
        figures: items with gold (``gold``), those of nothing (``nothing``), of these the ``reviewed``, and of the
            others the ``missed``, all by heads that had not seen them.
    """

    heads: Sequence[Head]
    held_out: Mapping[str, int]
    bound: float
    figures: Mapping[str, int]

    @classmethod
    def of(
        cls,
        gold: Mapping[Item, LabelSet],
        *,
        ensemble: Ensemble,
        category: Category,
        posts: Mapping[Item, Post],
        groups: Mapping[Item, str],
        params: Params,
    ) -> Watch | None:
        """Fit on the gold of validation; return ``None`` if no member of the ensemble follows instructions.

        At most the share ``silver.review`` of all items are nothing and above the bound, which is higher if that misses
        none of the others. With one group only on either side there is nothing to learn: ``None``.
        """
        items = sorted(item for item in gold if item in posts)
        found = [not category.nothing(gold[item]) for item in items]
        named, share, seed = [groups[item] for item in items], params.silver.review, params.silver.seed
        swayed = share and any(isinstance(params.labellers[name], RemoteLabeller) for name in ensemble.members)
        sides = [{group for group, own in zip(named, found, strict=True) if own is side} for side in (True, False)]
        if not swayed or min(map(len, sides)) < 2:
            return None
        something, bags = np.array(found, dtype=np.bool_), [_embedder()(posts[item].text) for item in items]
        fold = deal(named, targets=something[:, None], most=FOLDS, seed=seed)
        heads = [_fit(bags, something=something, inside=fold != index, seed=seed) for index in range(fold.max() + 1)]
        values = np.array([heads[index](bag).max() for index, bag in zip(fold, bags, strict=True)])
        calm = np.sort(values[~something])
        within = calm[: max(0, len(calm) - int(share * len(items)))]
        bound = float(max([*within, *calm[calm < values[something].min()]], default=-np.inf))
        counts = {"gold": len(items), "nothing": len(calm), "reviewed": int((calm > bound).sum())}
        return cls(
            heads=[*heads, _fit(bags, something=something, inside=fold >= 0, seed=seed)],
            held_out={record_id: int(index) for (record_id, _), index in zip(items, fold, strict=True)},
            bound=bound,
            figures=counts | {"missed": int((values[something] <= bound).sum())},
        )

    def doubts(self, post: Post) -> bool:
        """Return whether a post, or a copy with its record id, has a sentence that is too unlike those of nothing."""
        head = self.heads[self.held_out.get(post.record_id, -1)]
        return bool(head(_embedder()(post.text)).max() > self.bound)


def _fit(
    bags: Sequence[Sentences], *, something: npt.NDArray[np.bool_], inside: npt.NDArray[np.bool_], seed: int
) -> partial[Values]:
    """Fit on all sentences, then on those of nothing and, of each other item, the one that is least like them."""
    chosen = np.flatnonzero(inside)
    rows = np.concatenate([bags[item] for item in chosen]).astype(np.float64)
    centre, owner = rows.mean(axis=0), np.repeat(chosen, [len(bags[item]) for item in chosen])
    unit, wanted = centred(rows, centre=centre), something[owner]
    known: npt.NDArray[np.bool_] = np.ones(len(rows), dtype=np.bool_)
    for _ in range(ROUNDS):
        weights, intercept = linear(unit[known], wanted=wanted[known], c=C, seed=seed % 2**32)
        values = unit @ weights + intercept
        known = ~wanted
        for item in chosen[something[chosen]]:
            own = np.flatnonzero(owner == item)
            known[own[values[own].argmax()]] = True
    weights, intercept = linear(unit[known], wanted=wanted[known], c=C, seed=seed % 2**32)
    return partial(decided, centre=centre, weights=weights, intercepts=np.array(intercept))


@dataclass(frozen=True)
class Outside:
    """The labellers of a corpus that are not in an ensemble and whose votes are compared with its decisions."""

    offline: tuple[str, ...]
    reordered: tuple[str, ...]

    @classmethod
    def of(cls, described: Ensemble, *, corpus: str, params: Params) -> Outside:
        asked = {name: params.labellers[name] for name in params.votes.labellers.get(corpus, ())}
        others = {name: one for name, one in sorted(asked.items()) if name not in described.members}
        return cls(
            tuple(name for name, one in others.items() if isinstance(one, OfflineLabeller)),
            tuple(n for n, one in others.items() if isinstance(one, RemoteLabeller) and one.order == "reversed"),
        )

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.offline, *self.reordered)


def read(folder: Path, *, names: Collection[str]) -> pa.Table:
    """Return the votes of labellers; one without votes is an error, so that no rerun drops what its votes queued."""
    files = {name: folder / "votes" / name / "votes.parquet" for name in sorted(set(names))}
    if missing := [name for name, file in files.items() if not file.exists()]:
        raise BadParams(where="votes.labellers", detail=f"there are no votes of {', '.join(missing)}")
    return tables.concat(list(files.values()), name="votes")


@dataclass(frozen=True)
class SecondLine:
    """What is held against an ensemble's decisions in a category.

    Args:
        offline: the labels that the offline labellers give together, by their mean logit.
        reordered: the votes of labellers of ``order: reversed``.
        posts: the items as the watch reads them.
        watch: ``None`` if no member of the ensemble follows instructions, or gold is too small.
    """

    category: Category
    offline: Mapping[Item, LabelSet] = field(default_factory=dict)
    reordered: Mapping[Item, Collection[LabelSet]] = field(default_factory=dict)
    posts: Mapping[Item, Post] = field(default_factory=dict)
    watch: Watch | None = None

    @classmethod
    def of(cls, votes: pa.Table, *, outside: Outside, category: Category, **given: Any) -> SecondLine:
        """Create the line from the votes of labellers outside of the ensemble; ``given`` are the other fields."""
        ensemble = Ensemble(members=outside.offline or outside.reordered or ("",), aggregate="mean_logit")
        panel = Panel.of(votes, ensemble=ensemble, category=category, items=sorted(set(tables.items_of(votes))))
        offline = panel.decide("mean_logit") if outside.offline and "mean_logit" in panel.possible else {}
        return cls(
            category,
            {item: decision.labels for item, decision in offline.items() if decision.labels is not None},
            {item: [cast[n] for n in outside.reordered if n in cast] for item, cast in panel.ballots.items()},
            **given,
        )

    def reasons(self, item: Item, labels: LabelSet | None) -> dict[str, bool]:
        """Return which of the second line's reasons (:data:`tables.REASONS`) hold against a decision.

        ``offline_dissent``: the offline labellers see a more severe case, or something where the decision is nothing;
        ``order_dissent``: so does a model that is asked in another order. ``unlike_nothing``: the decision is nothing,
        and the item is unlike others that are nothing.
        """
        category, watch = self.category, self.watch
        severity, nothing = category.severity(labels or ()), labels is not None and category.nothing(labels)

        def more(found: LabelSet) -> bool:
            return category.severity(found) > severity or (nothing and not category.nothing(found))

        return {
            "offline_dissent": item in self.offline and more(self.offline[item]),
            "order_dissent": any(more(found) for found in self.reordered.get(item, ())),
            "unlike_nothing": nothing and watch is not None and item in self.posts and watch.doubts(self.posts[item]),
        }
