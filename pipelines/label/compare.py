"""Compare every aggregator and every member on dev gold, with bootstrap intervals.

The paper chose its fallback on the test set (SPEC 1.6); here everything is chosen on dev, with bootstrap intervals over
clusters of records, so that a lead of two hits is not mistaken for a real one. Weights learnt from dev are applied to
dev out of fold, so that they are not scored on the records that they were fitted to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipelines.label.aggregate import AGGREGATORS, Ballots, Decision, LabelSet, Scores, quorum, weights_of
from pipelines.metrics import bootstrap, label_sets
from pipelines.taxonomy import Category

FOLDS = 5  # ours: each weight is fitted on four fifths of dev


@dataclass(frozen=True)
class Panel:
    """The inputs of all aggregators, so that all of them are called in the same way.

    ``gold`` is dev's, without the prompt's examples; ``groups`` clusters records that are not independent.
    """

    ballots: Ballots
    members: Sequence[str]
    records: Sequence[str]
    category: Category
    fallback: str | None = None
    k: int = 2
    scores: Scores = field(default_factory=dict)
    gold: Mapping[str, LabelSet] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    def decide(self, aggregate: str) -> dict[str, Decision]:
        """Return the decisions of an aggregator of :data:`AGGREGATORS`; ``weighted`` learns its weights from gold."""
        if aggregate != "weighted":
            return self._call(aggregate)
        decisions = self._weigh(sorted(set(self.records) - set(self.gold)), gold=self.gold)
        folds = {record: fold_of(self.groups.get(record, record)) for record in self.gold}
        for fold in range(FOLDS):
            inside = sorted(record for record in set(self.records) & set(folds) if folds[record] == fold)
            outside = {record: labels for record, labels in self.gold.items() if folds[record] != fold}
            decisions |= self._weigh(inside, gold=outside)
        return dict(sorted(decisions.items()))

    def _weigh(self, records: Sequence[str], *, gold: Mapping[str, LabelSet]) -> dict[str, Decision]:
        classes = len(self.category.names)
        weights = weights_of(self.ballots, gold=gold, members=self.members, classes=classes)
        return replace(self, records=records, weights=weights)._call("weighted")

    def _call(self, aggregate: str) -> dict[str, Decision]:
        function, wants = AGGREGATORS[aggregate]
        shared = {"members": self.members, "records": self.records, "fallback": self.fallback}
        decisions: dict[str, Decision] = function(
            self.ballots, **shared, **{name: getattr(self, name) for name in wants}
        )
        return decisions

    @property
    def possible(self) -> list[str]:
        """The aggregators that this panel can use: ``mean_logit`` needs a majority of members with scores."""
        scoring = {member for cast in self.scores.values() for member in cast} & set(self.members)
        return [name for name in AGGREGATORS if name != "mean_logit" or len(scoring) >= quorum(self.members)]

    def votes_of(self, member: str) -> dict[str, LabelSet | None]:
        """Return one member's own valid votes, ``None`` for records without one."""
        return {record: self.ballots.get(record, {}).get(member) for record in self.records}


def fold_of(group: str) -> int:
    """Return the fold of a group, independent of the other groups."""
    return hashlib.blake2b(group.encode(), digest_size=4, key=b"fold").digest()[0] % FOLDS


def table(panel: Panel, *, resamples: int, seed: int) -> dict[str, dict[str, Any]]:
    """Return the scores of every member and aggregator on the panel's gold.

    Returns:
        name -> ``kind`` (member or aggregate), ``n``, ``n_valid``, ``valid`` and ``all`` (see
        :func:`pipelines.metrics.label_sets.score`), ``interval`` (metric over all -> [low, high]) and, for aggregates,
        ``best_member`` with ``lead`` over it on exact match ({value, low, high, probability}). Empty without gold.
    """
    if not panel.gold:
        return {}
    labels = panel.category.names
    answers: dict[str, dict[str, LabelSet | None]] = {member: panel.votes_of(member) for member in panel.members}
    for aggregate in panel.possible:
        answers[aggregate] = {record: decision.labels for record, decision in panel.decide(aggregate).items()}
    draws = {name: _draws(panel, given, resamples=resamples, seed=seed) for name, given in answers.items()}
    best = best_of({member: draws[member] for member in panel.members})
    rows = {}
    for name, given in answers.items():
        member = name in panel.members
        intervals = {key: [found.low, found.high] for key, found in draws[name].intervals().items()}
        rows[name] = {
            "kind": "member" if member else "aggregate",
            **label_sets.score(panel.gold, predicted=given, labels=labels),
            "interval": intervals,
        }
        if not member:
            lead = draws[name].minus(draws[best])["exact"]
            rows[name] |= {"best_member": best, "lead": vars(lead)}
    return rows


def _draws(panel: Panel, predicted: Mapping[str, LabelSet | None], *, resamples: int, seed: int) -> bootstrap.Draws:
    drawn = bootstrap.draw(
        panel.gold,
        predicted=predicted,
        labels=panel.category.names,
        groups=panel.groups,
        resamples=resamples,
        seed=seed,
    )
    if drawn is None:
        raise ValueError("a comparison needs gold")
    return drawn


def best_of(draws: Mapping[str, bootstrap.Draws]) -> str:
    """Return the system with the highest exact match; missing answers count as wrong, ties go by name."""
    return min(draws, key=lambda name: (-draws[name].values["exact"], name))
