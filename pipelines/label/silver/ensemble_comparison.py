"""Compare every aggregator and every member of an ensemble on dev gold, with bootstrap intervals.

The paper chose its fallback on the test set (SPEC 1.6); here all choices are made on dev. Bootstrap intervals over
clusters of records show whether a difference of a few records is significant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.label.silver.aggregate import Panel
from pipelines.label.silver.ballots import LabelSet
from pipelines.metrics import bootstrap, label_sets


def table(panel: Panel, *, resamples: int, seed: int) -> dict[str, dict[str, Any]]:
    """Score every member of an ensemble and every aggregator of their votes on the records with gold.

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
    """Return the name of the system with the highest exact match (a missing answer is wrong); the first wins ties."""
    return min(draws, key=lambda name: (-draws[name].values["exact"], name))
