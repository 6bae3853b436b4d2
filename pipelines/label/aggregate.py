"""Aggregate votes into one decision per record, independent of the order of labellers and rows; a tie stays a tie.

:func:`valid` is the only source of votes: rows whose outcome is not ``vote`` never pass it, and a missing answer equals
nothing, not even another missing one. Every aggregator returns a :class:`Decision` per record; ``agreement`` says how
far the members' label *sets* agree (CRADLE 4.3, Table 5), however the labels were decided, so that *unanimous* and
*consensus* always mean the same; it is ``none`` if nothing was decided. Only a given fallback breaks a tie (CRADLE 4.3:
on test, by a named member).

Arguments that the aggregators share: ``ballots`` from :func:`valid`; ``members``, the labellers that count (others are
ignored); ``records``, each of which gets a decision; ``fallback``, the member that decides the rest, or ``None``.
Unlike the paper's vote, fewer valid votes than a majority of all members decide nothing (ours: the members that remain
after refusals must not speak for the whole ensemble).
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from pipelines.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pipelines.taxonomy import Category

    Floats = npt.NDArray[np.float64]

LabelSet = frozenset[str]
Ballots = Mapping[str, Mapping[str, LabelSet]]
Scores = Mapping[str, Mapping[str, tuple[float, ...]]]
Agreement = Literal["unanimous", "consensus", "none"]

# ours: an abstained label has probability 0, whose logit would outvote everything; scores are clipped here
SUREST = 1e-6
# ours: closer than this, two sums of weights are a tie
TIE = 1e-9
# the scheme's rules (a) to (e) of SPEC 23; (f) is left out because it depends on a guess about incidents
HARD = frozenset({"base", "improved"})


class TwoVotes(DataError):
    """One labeller has two votes on one record, so the result would depend on their order."""

    message = "Labeller '{labeller}' has {votes} votes on record {record_id}."
    remedy = "Run the labeller's stage votes again: a votes table has one row per record, labeller and category."


@dataclass(frozen=True)
class Decision:
    """The labels of a record (``None``: undecided), how far its voters agree, and what decided."""

    labels: LabelSet | None
    agreement: Agreement
    how: str


def valid(votes: pa.Table, *, category: str) -> dict[str, dict[str, LabelSet]]:
    """Return record -> labeller -> label set of the rows whose outcome is ``vote``.

    Raises:
        TwoVotes: a labeller has two such rows for one record.
    """
    ballots: dict[str, dict[str, LabelSet]] = {}
    for row in _valid_rows(votes, category=category):
        ballots.setdefault(row["record_id"], {})[row["labeller"]] = frozenset(row["labels"] or ())
    return ballots


def valid_scores(votes: pa.Table, *, category: str) -> dict[str, dict[str, tuple[float, ...]]]:
    """Return record -> labeller -> probabilities, in the order of the category's names, for valid votes with scores."""
    scores: dict[str, dict[str, tuple[float, ...]]] = {}
    for row in _valid_rows(votes, category=category):
        if row["scores"]:
            scores.setdefault(row["record_id"], {})[row["labeller"]] = tuple(row["scores"])
    return scores


def _valid_rows(votes: pa.Table, *, category: str) -> list[dict[str, Any]]:
    votes = votes.select(["record_id", "labeller", "category", "outcome", "labels", "scores"])
    rows: list[dict[str, Any]] = [
        row for row in votes.to_pylist() if row["outcome"] == "vote" and row["category"] == category
    ]
    for (record, labeller), times in sorted(Counter((row["record_id"], row["labeller"]) for row in rows).items()):
        if times > 1:
            raise TwoVotes(labeller=labeller, votes=times, record_id=record)
    return rows


def quorum(members: Sequence[str]) -> int:
    """Return the number of votes that is a majority of all members, including absent ones: two of three."""
    return len(set(members)) // 2 + 1


def agree(votes: Mapping[str, LabelSet], *, members: Sequence[str]) -> tuple[Agreement, LabelSet | None]:
    """Return how far one record's valid votes agree, and on which set; unanimous needs every member's vote."""
    backers = Counter(votes[member] for member in set(members) if member in votes)
    for labels, count in backers.items():
        if count >= quorum(members):
            return ("unanimous" if count == len(set(members)) else "consensus"), labels
    return "none", None


def _decide(
    ballots: Ballots,
    *,
    members: Sequence[str],
    records: Sequence[str],
    fallback: str | None,
    how: str,
    choose: Callable[[str, dict[str, LabelSet]], LabelSet | None],
) -> dict[str, Decision]:
    """Decide every record by ``choose`` (record, members' votes), else by the fallback, else leave it undecided."""
    names, decisions = sorted(set(members)), {}
    for record in sorted(set(records)):
        cast = ballots.get(record, {})
        votes = {member: cast[member] for member in names if member in cast}
        labels, by = choose(record, votes), how
        if labels is None:
            labels = votes.get(fallback) if fallback is not None else None
            by = "discarded" if labels is None else "fallback"
        agreement = "none" if labels is None else agree(votes, members=members)[0]
        decisions[record] = Decision(labels, agreement, by)
    return decisions


def label_set_majority(
    ballots: Ballots, *, members: Sequence[str], records: Sequence[str], fallback: str | None
) -> dict[str, Decision]:
    """Decide by the paper's vote (CRADLE 4.3, SPEC 27): the exact set that a majority of all members gave.

    If one of three members has no vote, the other two may still agree; one alone may not. The valid vote of
    ``fallback`` decides the rest; without one the labels are ``None``.
    """
    return _decide(
        ballots,
        members=members,
        records=records,
        fallback=fallback,
        how="majority",
        choose=lambda _, votes: agree(votes, members=members)[1],
    )


def k_of_n(
    ballots: Ballots,
    *,
    members: Sequence[str],
    records: Sequence[str],
    fallback: str | None,
    category: Category,
    k: int,
) -> dict[str, Decision]:
    """Decide each label separately: give those of at least ``k`` members; an empty set counts as a label, too.

    A union of labels that the scheme's hard rules do not allow together is repaired by those rules, which say which
    label yields. If they cannot (two labels of a category that allows one), nothing is decided.
    """

    def choose(_: str, votes: dict[str, LabelSet]) -> LabelSet | None:
        backers = Counter(label for labels in votes.values() for label in labels)
        chosen = [label for label, count in sorted(backers.items()) if count >= k]
        if not chosen:
            empty = sum(not labels for labels in votes.values())
            return frozenset() if empty >= k else None
        checked = category.check(chosen, mode="repair", tiers=HARD)
        return None if checked.violations else checked.labels

    return _decide(ballots, members=members, records=records, fallback=fallback, how="k_of_n", choose=choose)


def weights_of(
    ballots: Ballots, *, gold: Mapping[str, LabelSet], members: Sequence[str], classes: int
) -> dict[str, float]:
    """Return each member's weight from its exact match p on ``gold``: log(p (classes - 1) / (1 - p)), at least 0.

    These log-odds are optimal if a wrong answer is any of the other ``classes`` (the category's number of labels). One
    hit and one miss are added to p (ours: little gold must not make a member infallible). A missing answer is not
    counted as a miss, because it does not vote.
    """
    weights = {}
    for member in sorted(set(members)):
        hits = [ballots[r][member] == labels for r, labels in gold.items() if member in ballots.get(r, {})]
        p = (sum(hits) + 1) / (len(hits) + 2)
        weights[member] = max(0.0, math.log(p * max(classes - 1, 1) / (1 - p)))
    return weights


def weighted(
    ballots: Ballots,
    *,
    members: Sequence[str],
    records: Sequence[str],
    fallback: str | None,
    weights: Mapping[str, float],
) -> dict[str, Decision]:
    """Decide by the label set whose backers have the greatest total weight; equal weights are a tie."""

    def choose(_: str, votes: dict[str, LabelSet]) -> LabelSet | None:
        if len(votes) < quorum(members):
            return None
        # fsum rounds once, so the order of labellers does not change the last bit
        sums = {s: math.fsum(weights.get(m, 0.0) for m, v in votes.items() if v == s) for s in set(votes.values())}
        top = max(sums.values())
        best = [labels for labels, weight in sums.items() if top - weight <= TIE]
        return best[0] if len(best) == 1 else None

    return _decide(ballots, members=members, records=records, fallback=fallback, how="weighted", choose=choose)


def dawid_skene(
    ballots: Ballots, *, members: Sequence[str], records: Sequence[str], fallback: str | None, category: Category
) -> dict[str, Decision]:
    """Decide by Dawid and Skene (1979) in crowd-kit: one binary model per label, decoded to the most probable set.

    Labels are modelled separately because three voters on whole sets leave most cells of a confusion matrix over
    hundreds of sets empty, while two error rates per label and member can be estimated. It is fitted on all of
    ``records`` without gold. Rows are sorted because crowd-kit starts from majorities and adds up in row order.
    """
    import numpy as np
    from crowdkit.aggregation import DawidSkene

    voters = {r: [m for m in sorted(set(members)) if m in ballots.get(r, {})] for r in sorted(set(records))}
    tasks = [record for record, names in voters.items() if len(names) >= quorum(members)]
    rows = [(record, member) for record in tasks for member in voters[record]]
    probabilities = np.zeros((len(tasks), len(category.names)))
    with warnings.catch_warnings():
        # crowd-kit's use of pandas features to be removed would fill the task's log
        warnings.simplefilter("ignore", DeprecationWarning)
        for column, label in enumerate(category.names):
            given = [int(label in ballots[record][member]) for record, member in rows]
            if any(given):
                long = pa.table({"task": [r for r, _ in rows], "worker": [m for _, m in rows], "label": given})
                posterior = DawidSkene(n_iter=100).fit_predict_proba(long.to_pandas())
                probabilities[:, column] = posterior[1].reindex(tasks).to_numpy()
    found = dict(zip(tasks, _most_probable(probabilities, category=category), strict=True))
    return _decide(
        ballots,
        members=members,
        records=records,
        fallback=fallback,
        how="dawid_skene",
        choose=lambda record, _: found.get(record),
    )


def mean_logit(
    ballots: Ballots,
    *,
    members: Sequence[str],
    records: Sequence[str],
    fallback: str | None,
    category: Category,
    scores: Scores,
) -> dict[str, Decision]:
    """Decide by the most probable valid set under the mean logit of the members' calibrated scores (SPEC 2.3)."""
    import numpy as np

    cast = {r: [scores[r][m] for m in sorted(set(members)) if m in scores.get(r, {})] for r in sorted(set(records))}
    tasks = [record for record, given in cast.items() if len(given) >= quorum(members)]
    means = np.zeros((len(tasks), len(category.names)))
    for row, record in enumerate(tasks):
        p = np.clip(np.array(cast[record], dtype=np.float64), SUREST, 1 - SUREST)
        means[row] = np.log(p / (1 - p)).mean(axis=0)
    found = dict(zip(tasks, _most_probable(1 / (1 + np.exp(-means)), category=category), strict=True))
    return _decide(
        ballots,
        members=members,
        records=records,
        fallback=fallback,
        how="mean_logit",
        choose=lambda record, _: found.get(record),
    )


def _most_probable(probabilities: Floats, *, category: Category) -> list[LabelSet | None]:
    """Return the most probable valid set of each row of (records, labels); ``None`` for a tie."""
    from pipelines.metrics.decoding import worth_of_sets

    sets, worth = worth_of_sets(probabilities, category=category)
    ties = (worth == worth.max(axis=1, keepdims=True)).sum(axis=1) > 1
    return [None if tie else sets[best] for best, tie in zip(worth.argmax(axis=1), ties, strict=True)]


# the names of params.Ensemble.aggregate, and the arguments that each needs beyond the shared ones
AGGREGATORS: dict[str, tuple[Callable[..., dict[str, Decision]], tuple[str, ...]]] = {
    "label_set_majority": (label_set_majority, ()),
    "k_of_n": (k_of_n, ("category", "k")),
    "weighted": (weighted, ("weights",)),
    "dawid_skene": (dawid_skene, ("category",)),
    "mean_logit": (mean_logit, ("category", "scores")),
}
