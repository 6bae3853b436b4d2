"""Record each comparison on a gate set (a look) in the journal, and bound the probability of a false promotion.

A look is one comparison of one candidate with one rival on one gate set. Its row ``looked`` is written after the models
have answered and before their answers are compared; a repeated task finds the row and makes no second look. Each look
may promote a candidate that is not better with probability ``promote.alpha / promote.looks``, its *level*: Bonferroni
over the looks that are planned, which for equal shares has the largest mean power, because power is concave in the
level. A look that finds a better candidate returns its level (online fallback; Tian and Ramdas 2021, "Online control of
the familywise error rate"): if that was an error, the error has already happened. More looks then remain than
Bonferroni has. The bound holds however the tests depend on each other, and also for candidates that are made in view of
earlier verdicts, until the first promotion: of a refused version only the verdicts are shown
(:func:`pipelines.promotion.scores.withheld`), so that after refusals for ``better`` alone, the next candidate is the
one that would have come next in any case. It does not cover a choice by other figures of the gate set, such as those of
versions that passed. Thresholdout and the Ladder (Blum and Hardt 2015) bound how wrong the best score is, not how often
a candidate is promoted falsely; ``bench/promotion_gate.py`` compares the Ladder.

The identity of a gate set is the corpus, the task, the split's version and the part of the test. Sets that may overlap
(another number of parts) share their looks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from crisis_corpus.journal import Event, JournalRow
from pipelines.config.models import Promote
from pipelines.registry.journal import Journal, JournalMoved

EVENT: Event = "looked"
ROUNDING = 1e-9  # of a sum of levels


@dataclass(frozen=True)
class GateSet:
    """The identity of a gate set: part ``part`` of ``parts`` of the test of a task, in one version of the split."""

    corpus: str
    task: str
    version: int
    parts: int
    part: int

    def overlaps(self, other: GateSet) -> bool:
        """Return whether this gate set and another one may contain the same items."""
        same = (self.corpus, self.task, self.version) == (other.corpus, other.task, other.version)
        return same and (self.parts != other.parts or self.part == other.part)


@dataclass(frozen=True)
class RecordedLook:
    """One comparison of a candidate with a rival on a gate set (a look), recorded before the result is known.

    Args:
        gate: the gate set.
        pair: the digest of candidate, rival and gate set.
        number: the number of the look among those at this gate set, from 1.
        level: the probability with which the look may promote a candidate that is not better.
    """

    gate: GateSet
    pair: str
    number: int
    level: float

    @classmethod
    def of(cls, values: dict[str, Any]) -> RecordedLook:
        """Return the look that the metrics of a journal row describe."""
        return cls(**{**values, "gate": GateSet(**values["gate"])})


@dataclass(frozen=True)
class Budget:
    """The looks (comparisons of candidates) at one gate set, and the probability of a false promotion that they spent.

    Args:
        gate: the gate set.
        alpha: ``promote.alpha``, the probability of a false promotion that all looks together may spend.
        planned: ``promote.looks``, the number of looks over which ``alpha`` is divided.
        looks: the looks so far, oldest first.
        better: the digests (``pair``) of the looks that found a better candidate, and returned their level.
    """

    gate: GateSet
    alpha: float
    planned: int
    looks: tuple[RecordedLook, ...]
    better: frozenset[str]

    @property
    def level(self) -> float:
        """The probability of a false promotion that the next look may spend (its level); 0 if ``alpha`` is spent."""
        one = self.alpha / self.planned
        return one if self.alpha - self.spent >= one * (1 - ROUNDING) else 0.0

    @property
    def spent(self) -> float:
        """The sum of the levels that were not returned."""
        return math.fsum(look.level for look in self.looks if look.pair not in self.better)

    @property
    def left(self) -> int:
        """How many more looks at this gate set are possible."""
        return max(0, math.floor((self.alpha - self.spent) * self.planned / self.alpha * (1 + ROUNDING) + ROUNDING))

    def told(self, look: RecordedLook) -> dict[str, Any]:
        """Return a look's number and level, and what remains, as figures for the approver and the journal."""
        return {
            "number": look.number,
            "pair": look.pair,
            "level": look.level,
            "alpha": self.alpha,
            "spent": round(self.spent, 9),
            "left": self.left,
            "gate": asdict(self.gate),
        }


def budget(rows: Iterable[JournalRow], *, gate: GateSet, terms: Promote) -> Budget:
    """Return the looks at a gate set that a model's journal rows record, and what remains of their budget."""
    looks, better = list[RecordedLook](), set[str]()
    for row in rows:
        if row.event == EVENT:
            look = RecordedLook.of(dict(row.metrics["look"]))
            looks += [look] if look.gate.overlaps(gate) else []
        else:
            result = row.metrics.get("figures", {}).get("scores", {}).get("look", {})
            # a pair of another gate set does no harm: its digest is another
            better |= {result["pair"]} if result.get("better") and "pair" in result else set()
    return Budget(gate, terms.alpha, terms.looks, tuple(looks), frozenset(better))


def gate_sets(rows: Iterable[JournalRow]) -> set[GateSet]:
    """Return the gate sets of all looks in a model's journal rows."""
    return {RecordedLook.of(dict(row.metrics["look"])).gate for row in rows if row.event == EVENT}


def take(
    name: str,
    *,
    version: int,
    rival: int | None,
    gate: GateSet,
    pair: str,
    terms: Promote,
    files: str,
    journal: Journal,
    who: str | None,
) -> RecordedLook | None:
    """Record a look (a comparison on the gate set) before its result is known, unless this pair was compared before.

    ``pair`` is the digest of candidate, rival and gate set.

    Returns:
        The look, or the earlier one of the pair; ``None`` if alpha is spent or ``who`` is ``None``, and then nothing is
        recorded.
    """
    while True:
        rows = journal.rows(name)
        found = budget(rows, gate=gate, terms=terms)
        if known := _known(found.looks, pair=pair):
            return known
        if who is None or not found.level:
            return None
        look = RecordedLook(gate, pair, len(found.looks) + 1, found.level)
        try:
            journal.append(
                name,
                event=EVENT,
                who=who,
                why=f"look {look.number} at the gate set",
                from_version=rival,
                to_version=version,
                metrics={"look": asdict(look)},
                files=files,
                after=rows[-1].number if rows else 0,
            )
        except JournalMoved:
            # another candidate may have taken this number
            continue
        return look


def _known(looks: Sequence[RecordedLook], *, pair: str) -> RecordedLook | None:
    return next((look for look in looks if look.pair == pair), None)
