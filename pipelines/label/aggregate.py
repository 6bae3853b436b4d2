"""Aggregate an ensemble's votes in a category to a decision per item, whatever the order of rows; a tie stays a tie.

Every aggregator returns a :class:`Decision` per item; ``agreement`` says how many members of the ensemble gave
exactly the label set that was *decided*: all (*unanimous*), a majority (*consensus*), or fewer (*none*). CRADLE (4.3,
Table 5) counts how far members agree on *any* set. Both are the same for the paper's vote; a label model may decide
against the majority, and its label is then no consensus. Only a given fallback breaks a tie (CRADLE 4.3: on test, by a
named member).

An aggregator takes a :class:`Panel`, the inputs of all, and returns the function that chooses an item's labels from
its valid votes. Unlike the paper's vote, fewer valid votes than a majority of all members decide nothing (ours: the
members that remain after refusals must not speak for the whole ensemble). :func:`valid` is the only source of votes:
rows whose outcome is not ``vote`` never pass it, and a missing answer equals nothing, not even another missing one.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.core.errors import DataError
from pipelines.metrics.decoding import worth_of_sets
from pipelines.store.tables import Item

if TYPE_CHECKING:
    from pipelines.core.config.label import Ensemble
    from pipelines.core.taxonomy import Category

LabelSet = frozenset[str]
Agreement = Literal["unanimous", "consensus", "none"]


def valid(
    votes: pa.Table, *, category: str
) -> tuple[dict[Item, dict[str, LabelSet]], dict[Item, dict[str, tuple[float, ...]]]]:
    """Return the label sets of valid votes (outcome ``vote``), and the probabilities of those that have scores.

    Both are by item and labeller; probabilities are ordered as in the category.
    """
    columns = ["record_id", "image", "labeller", "category", "outcome", "labels", "scores"]
    cast: dict[tuple[Item, str], list[Any]] = {}
    for row in votes.select(columns).to_pylist():
        if row["outcome"] == "vote" and row["category"] == category:
            cast.setdefault(((row["record_id"], row["image"]), row["labeller"]), []).append(row)
    ballots: dict[Item, dict[str, LabelSet]] = {}
    scores: dict[Item, dict[str, tuple[float, ...]]] = {}
    for (item, labeller), rows in sorted(cast.items()):
        if len(rows) > 1:
            raise DataError("TwoVotes", labeller=labeller, votes=len(rows), record_id=item[0])
        ballots.setdefault(item, {})[labeller] = frozenset(rows[0]["labels"] or ())
        if rows[0]["scores"]:
            scores.setdefault(item, {})[labeller] = tuple(rows[0]["scores"])
    return ballots, scores


def quorum(members: Sequence[str]) -> int:
    """Return how many votes are a majority of an ensemble's members, including those without a vote: two of three."""
    return len(set(members)) // 2 + 1


def agree(votes: Mapping[str, LabelSet], *, members: Sequence[str]) -> tuple[Agreement, LabelSet | None]:
    """Return how far an ensemble's valid votes on an item agree, and the agreed label set (``None`` without majority).

    Unanimity requires every member's vote.
    """
    for labels in {votes[member] for member in set(members) if member in votes}:
        if (found := backing(labels, votes=votes, members=members)) != "none":
            return found, labels
    return "none", None


def backing(labels: LabelSet, *, votes: Mapping[str, LabelSet], members: Sequence[str]) -> Agreement:
    """Return how far an ensemble agrees on ``labels``: all members gave this set, a majority of them, or fewer."""
    count = sum(votes.get(member) == labels for member in set(members))
    if count < quorum(members):
        return "none"
    return "unanimous" if count == len(set(members)) else "consensus"


Ballots = Mapping[Item, Mapping[str, LabelSet]]
Scores = Mapping[Item, Mapping[str, tuple[float, ...]]]
Choice = Callable[[Item, Mapping[str, LabelSet]], LabelSet | None]
"""Takes an item and the members' votes on it; returns the chosen labels, ``None`` if undecided."""

# ours: closer than this, two sums of weights are a tie
TIE = 1e-9
# the scheme's rules (a) to (e) of SPEC 23; (f) is left out because it depends on a guess about incidents
HARD = frozenset({"base", "improved"})
FOLDS = 5  # ours: each weight is fitted on four fifths of validation


@dataclass(frozen=True)
class Decision:
    """An ensemble's decision on an item: its labels (``None``: undecided), the members' agreement, and the method."""

    labels: LabelSet | None
    agreement: Agreement
    how: str


UNDECIDED = Decision(None, "none", "discarded")


@dataclass(frozen=True)
class Panel:
    """An ensemble's votes on items in a category, with all that the aggregators need to decide the items' labels.

    Args:
        ballots: the valid votes: item -> labeller -> label set.
        fallback: the member whose valid vote decides an item that the aggregator leaves undecided; ``None``: it stays
            undecided.
        k: how many members must give a label (``k_of_n``).
        scores: probabilities, from :func:`valid` (``mean_logit``).
        gold: gold of validation without the prompt's examples; ``weighted`` learns the weights from it.
        groups: clusters of items that are not independent.
        weights: each member's weight (``weighted``).
    """

    ballots: Ballots
    members: Sequence[str]
    items: Sequence[Item]
    category: Category
    fallback: str | None = None
    k: int = 2
    scores: Scores = field(default_factory=dict)
    gold: Mapping[Item, LabelSet] = field(default_factory=dict)
    groups: Mapping[Item, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    _models: dict[bool, LabelModel] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, votes: pa.Table, *, ensemble: Ensemble, category: Category, **given: Any) -> Panel:
        """Create the panel of an ensemble from a table of votes; ``given`` are the other fields."""
        ballots, scores = valid(votes, category=category.key)
        given |= {"members": ensemble.members, "fallback": ensemble.fallback}
        return cls(ballots=ballots, scores=scores, category=category, **given)

    def decide(self, aggregate: str) -> dict[Item, Decision]:
        """Decide all items by an aggregator, a name in :data:`AGGREGATORS`; ``weighted`` learns weights from gold.

        Items with gold are decided by weights fitted on other folds, so that weights are not scored on their own
        training items.
        """
        if aggregate != "weighted":
            return self.apply(aggregate)
        decisions = self._weigh(sorted(set(self.items) - set(self.gold)), gold=self.gold)
        folds = {item: fold_of(self.groups.get(item, str(item))) for item in self.gold}
        for fold in range(FOLDS):
            inside = sorted(item for item in set(self.items) & set(folds) if folds[item] == fold)
            outside = {item: labels for item, labels in self.gold.items() if folds[item] != fold}
            decisions |= self._weigh(inside, gold=outside)
        return dict(sorted(decisions.items()))

    def apply(self, aggregate: str) -> dict[Item, Decision]:
        """Decide each item by an aggregator, or if it decides none, by the fallback member; others stay undecided."""
        choose, names, decisions = AGGREGATORS[aggregate](self), self.names, {}
        for item in sorted(set(self.items)):
            cast = self.ballots.get(item, {})
            votes = {member: cast[member] for member in names if member in cast}
            labels, by = choose(item, votes), "majority" if aggregate == "label_set_majority" else aggregate
            if labels is None:
                labels = votes.get(self.fallback) if self.fallback is not None else None
                by = "discarded" if labels is None else "fallback"
            agreement = "none" if labels is None else backing(labels, votes=votes, members=self.members)
            decisions[item] = Decision(labels, agreement, by)
        return decisions

    def _weigh(self, items: Sequence[Item], *, gold: Mapping[Item, LabelSet]) -> dict[Item, Decision]:
        part = replace(self, items=items, gold=gold)
        return replace(part, weights=weights_of(part)).apply("weighted")

    @property
    def names(self) -> list[str]:
        """The ensemble members' names, sorted, so that decisions do not depend on their order."""
        return sorted(set(self.members))

    @property
    def possible(self) -> list[str]:
        """The aggregators that can decide these votes: ``mean_logit`` needs scores of a majority of the members."""
        scoring = {member for cast in self.scores.values() for member in cast} & set(self.members)
        return [name for name in AGGREGATORS if name != "mean_logit" or len(scoring) >= quorum(self.members)]

    def model_of(self, aggregate: str) -> LabelModel:
        """Return the model of an aggregator's probabilities, fitted on all items with a majority's votes or scores.

        For ``mean_logit`` it is the members' pooled scores, else the model of Dawid and Skene.
        """
        pooled = aggregate == "mean_logit"
        if pooled not in self._models:
            fit, cast = (pool, self.scores) if pooled else (crowd, self.ballots)
            self._models[pooled] = fit(self._quorate(cast), category=self.category)
        return self._models[pooled]

    def _quorate(self, cast: Mapping[Item, Mapping[str, Any]]) -> dict[Item, dict[str, Any]]:
        given = {i: {m: cast[i][m] for m in self.names if m in cast.get(i, {})} for i in sorted(set(self.items))}
        return {item: found for item, found in given.items() if len(found) >= quorum(self.members)}

    def votes_of(self, member: str) -> dict[Item, LabelSet | None]:
        """Return the valid votes of one member, with ``None`` for items without one."""
        return {item: self.ballots.get(item, {}).get(member) for item in self.items}


def fold_of(group: str) -> int:
    """Return the cross-validation fold of a group of items, which does not depend on the other groups."""
    return hashlib.blake2b(group.encode(), digest_size=4, key=b"fold").digest()[0] % FOLDS


def label_set_majority(panel: Panel) -> Choice:
    """Choose the exact label set that a majority of all members gave (the paper's vote; CRADLE 4.3, SPEC 27).

    If one of three members has no vote, the other two can still decide; one alone cannot.
    """
    return lambda _, votes: agree(votes, members=panel.members)[1]


def k_of_n(panel: Panel) -> Choice:
    """Choose each label that at least ``k`` members of the ensemble gave; the empty set is treated as a label, too.

    Chosen labels that the scheme's hard rules do not allow together are repaired by these rules, which define the label
    to remove. If the rules cannot repair them (two labels of a category that allows one), the item is undecided.
    """

    def choose(_: Item, votes: Mapping[str, LabelSet]) -> LabelSet | None:
        backers = Counter(label for labels in votes.values() for label in labels)
        chosen = [label for label, count in sorted(backers.items()) if count >= panel.k]
        if not chosen:
            empty = sum(not labels for labels in votes.values())
            return frozenset() if empty >= panel.k else None
        checked = panel.category.check(chosen, mode="repair", tiers=HARD)
        return None if checked.violations else checked.labels

    return choose


def weights_of(panel: Panel) -> dict[str, float]:
    """Return each ensemble member's weight, computed from its exact-match rate p on gold.

    The weight is log(p (classes - 1) / (1 - p)), or 0 if that is negative. These log-odds are optimal if a wrong answer
    is any of the other classes (the category's number of labels). One hit and one miss are added to p (ours: little
    gold must not make a member infallible). A missing answer is not counted as a miss, because it does not vote.
    """
    weights, others = {}, max(len(panel.category.names) - 1, 1)
    for member in panel.names:
        cast = [(panel.ballots.get(item, {}).get(member), labels) for item, labels in panel.gold.items()]
        hits = [vote == labels for vote, labels in cast if vote is not None]
        p = (sum(hits) + 1) / (len(hits) + 2)
        weights[member] = max(0.0, math.log(p * others / (1 - p)))
    return weights


def weighted(panel: Panel) -> Choice:
    """Choose the label set whose voters have the largest total weight; equal totals leave an item undecided."""

    def choose(_: Item, votes: Mapping[str, LabelSet]) -> LabelSet | None:
        if len(votes) < quorum(panel.members):
            return None
        # fsum rounds once, so the order of labellers does not change the last bit
        sums = {s: math.fsum(panel.weights.get(m, 0.0) for m, v in votes.items() if v == s) for s in votes.values()}
        top = max(sums.values())
        best = [labels for labels, weight in sums.items() if top - weight <= TIE]
        return best[0] if len(best) == 1 else None

    return choose


def by_model(aggregate: str, panel: Panel) -> Choice:
    """Choose the most probable valid label set under a model of the votes or scores; a tie is undecided."""
    found = panel.model_of(aggregate).best()
    return lambda item, _: found.get(item)


# the names of params.Ensemble.aggregate
AGGREGATORS: dict[str, Callable[[Panel], Choice]] = {
    **{function.__name__: function for function in (label_set_majority, k_of_n, weighted)},
    **{name: partial(by_model, name) for name in ("dawid_skene", "mean_logit")},
}


Floats = npt.NDArray[np.float64]

# ours: an abstained label has probability 0, whose logit would outvote everything; scores are clipped here
SUREST = 1e-6


@dataclass(frozen=True)
class LabelModel:
    """The inferred probabilities of every valid label set: ``worth`` (log-probability up to a constant), by item.

    They are stored with the silver labels, so that the uncertainty of a label is not lost with the vote. They assume
    that members err independently and are therefore too sure of sets on which members err together: the stage's metrics
    compare them with gold (``posterior``).
    """

    items: tuple[Item, ...]
    category: Category
    sets: list[LabelSet]
    worth: Floats

    @classmethod
    def of(cls, items: Mapping[Item, object], probabilities: Floats, *, category: Category) -> LabelModel:
        return cls(tuple(items), category, *worth_of_sets(probabilities, category=category))

    def best(self) -> dict[Item, LabelSet]:
        """Return each item's most probable set, without items on which several sets tie."""
        ties = (self.worth == self.worth.max(axis=1, keepdims=True)).sum(axis=1) > 1
        chosen = zip(self.items, self.worth.argmax(axis=1), ties, strict=True)
        return {item: self.sets[best] for item, best, tie in chosen if not tie}

    def posterior(self, item: Item, *, labels: LabelSet) -> float | None:
        """Return the probability of an item's label set; ``None`` if too few members voted or the set is invalid."""
        row, column = self._rows.get(item), self._columns.get(labels)
        return None if row is None or column is None else float(self._shares[row, column])

    def scores(self, item: Item) -> list[float] | None:
        """Return the probability of every label for an item, in the category's order; ``None`` with too few votes."""
        row = self._rows.get(item)
        return None if row is None else [float(p) for p in self._marginals[row]]

    @cached_property
    def _rows(self) -> dict[Item, int]:
        return {item: row for row, item in enumerate(self.items)}

    @cached_property
    def _columns(self) -> dict[LabelSet, int]:
        return {labels: column for column, labels in enumerate(self.sets)}

    @cached_property
    def _shares(self) -> Floats:
        raised = np.exp(self.worth - self.worth.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    @cached_property
    def _marginals(self) -> Floats:
        member = np.array([[name in labels for name in self.category.names] for labels in self.sets], np.float64)
        return np.clip(self._shares @ member, 0.0, 1.0)


def crowd(tasks: Mapping[Item, Mapping[str, LabelSet]], *, category: Category) -> LabelModel:
    """Fit the model of Dawid and Skene (1979) to votes (item -> member -> labels): one binary model per label.

    Labels are modelled separately because three voters on whole sets leave most cells of a confusion matrix over
    hundreds of sets empty, while two error rates per label and member can be estimated. It is fitted on all of the
    items without gold. Rows are sorted because crowd-kit starts from majorities and adds up in row order.
    """
    from crowdkit.aggregation import DawidSkene

    rows = [(row, member, labels) for row, cast in enumerate(tasks.values()) for member, labels in cast.items()]
    probabilities = np.zeros((len(tasks), len(category.names)))
    with warnings.catch_warnings():
        # crowd-kit's use of pandas features to be removed would fill the task's log
        warnings.simplefilter("ignore", DeprecationWarning)
        for column, label in enumerate(category.names):
            given = [int(label in labels) for _, _, labels in rows]
            if any(given):
                long = pa.table({"task": [r for r, _, _ in rows], "worker": [m for _, m, _ in rows], "label": given})
                posterior = DawidSkene(n_iter=100).fit_predict_proba(long.to_pandas())
                probabilities[:, column] = posterior[1].reindex(range(len(tasks))).to_numpy()
    return LabelModel.of(tasks, probabilities, category=category)


def pool(tasks: Mapping[Item, Mapping[str, tuple[float, ...]]], *, category: Category) -> LabelModel:
    """Pool an ensemble's calibrated scores (item -> member -> probabilities) by their mean logit (SPEC 2.3)."""
    means = np.zeros((len(tasks), len(category.names)))
    for row, given in enumerate(tasks.values()):
        p = np.clip(np.array(list(given.values()), dtype=np.float64), SUREST, 1 - SUREST)
        means[row] = np.log(p / (1 - p)).mean(axis=0)
    return LabelModel.of(tasks, 1 / (1 + np.exp(-means)), category=category)
