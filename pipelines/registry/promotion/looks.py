"""Record each comparison on a gate set (a look) in the journal, and bound the probability of a false promotion.

A look is one comparison of one candidate with one rival on one gate set. Its row ``looked`` is written after the models
have answered and before their answers are compared; a repeated task finds the row and makes no second look. Each look
may promote a candidate that is not better with probability ``promote.alpha / promote.looks``, its *level*: Bonferroni
over the looks that are planned, which for equal shares has the largest mean power, because power is concave in the
level. A look that finds a better candidate returns its level (online fallback; Tian and Ramdas 2021, "Online control of
the familywise error rate"): if that was an error, the error has already happened. More looks then remain than
Bonferroni has. The bound holds however the tests depend on each other, and also for candidates that are made in view of
earlier verdicts, until the first promotion: of a refused version only the verdicts are shown
(``scores.withheld``), so that after refusals for ``better`` alone, the next candidate is the
one that would have come next in any case. It does not cover a choice by other figures of the gate set, such as those of
versions that passed, or those that a notebook shows of a person's own predictions, which are looks, too. Thresholdout
and the Ladder (Blum and Hardt 2015) bound how wrong the best score is, not how often a candidate is promoted falsely;
``bench/promotion_gate.py`` compares the Ladder.

The identity of a gate set is the corpus, the task, the split's version and the part of the test. Sets that may overlap
(another number of parts) share their looks.

A score that selected a model is too high, because it was the highest. The parts are drawn by a hash of corpus, split
version and group, so that they depend on neither labels nor models; ``promote.refresh`` chooses which of
``promote.parts`` parts is the gate set. Reported are only the parts after it, which were never the gate set: the parts
before it selected the present champion. The last part has nothing after it. A group that the growing corpus renames may
change its part.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from crisis_corpus.journal import Event, JournalRow
from pipelines.core.config.models import Promote
from pipelines.core.errors import BadParams
from pipelines.datasets.items import digest_of
from pipelines.evaluate.model_scores import Board
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
class DividedTest:
    """The identity and the items of the gate set, and the items that are reported: none for the last part."""

    identity: GateSet
    gate: Board
    reported: Board

    def without(self, groups: Collection[str]) -> DividedTest:
        """Return this divided test without the items of some groups of near-duplicates."""
        gone = frozenset(groups)
        gate, reported = (only(board, keep=lambda group: group not in gone) for board in (self.gate, self.reported))
        return replace(self, gate=gate, reported=reported)

    @property
    def digest(self) -> str:
        board = self.gate
        rows = zip(board.items, board.groups, board.gold, strict=True)
        return digest_of(f"{i[0]} {i[1]} {g} {','.join(sorted(s))}" for i, g, s in rows)


def divide(board: Board, *, corpus: str, version: int, terms: Promote, used: Collection[GateSet] = ()) -> DividedTest:
    """Divide a test of the split's ``version``; the items of gate sets that were ``used`` are not reported."""
    identity = GateSet(corpus, board.task.key, version, terms.parts, terms.refresh % terms.parts)
    gone = [each for each in used if (each.corpus, each.task, each.version) == (corpus, board.task.key, version)]

    def part(group: str, *, parts: int = terms.parts) -> int:
        return part_of(group, corpus=corpus, version=version, parts=parts)

    def fresh(group: str) -> bool:
        return part(group) > terms.refresh and all(part(group, parts=each.parts) != each.part for each in gone)

    return DividedTest(identity, only(board, keep=lambda group: part(group) == identity.part), only(board, keep=fresh))


def require_part(corpus: str, *, terms: Promote) -> None:
    """Refuse to look at a part again after the last one."""
    if terms.refresh >= terms.parts:
        detail = f"{terms.refresh} is not below promote.parts ({terms.parts}): every part was used. {_anew(corpus)}"
        raise BadParams(where="promote.refresh", detail=detail)


def remedy(corpus: str, *, terms: Promote) -> str:
    """Return what to do when the looks at a gate set are used up."""
    if terms.refresh + 1 < terms.parts:
        return "raise promote.refresh to use another part of the test"
    return f"it is the last part of the test. {_anew(corpus)}"


def _anew(corpus: str) -> str:
    return f"Give the split a new version (split.{corpus}.version) and set promote.refresh to 0"


def part_of(group: str, *, corpus: str, version: int, parts: int) -> int:
    """Return in which of the ``parts`` parts of a test split a group of near-duplicates is, from 0."""
    drawn = hashlib.sha256(f"{corpus} {version} {group}".encode()).digest()
    return int.from_bytes(drawn[:8]) * parts >> 64


def only(board: Board, *, keep: Callable[[str], bool]) -> Board:
    """Return a board (test items with gold labels) of only the items whose near-duplicate group ``keep`` accepts."""
    rows = [row for row, group in enumerate(board.groups) if keep(group)]
    return replace(
        board,
        items=tuple(board.items[row] for row in rows),
        gold=tuple(board.gold[row] for row in rows),
        groups=tuple(board.groups[row] for row in rows),
    )


@dataclass(frozen=True)
class RecordedLook:
    """One comparison of a candidate with a rival on a gate set (a look), recorded before the result is known.

    Args:
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
        return cls(**{**values, "gate": GateSet(**values["gate"])})


@dataclass(frozen=True)
class Budget:
    """The looks (comparisons of candidates) at one gate set, and the probability of a false promotion that they spent.

    Args:
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
        share = self.alpha / self.planned
        return share if self.alpha - self.spent >= share * (1 - ROUNDING) else 0.0

    @property
    def spent(self) -> float:
        return math.fsum(look.level for look in self.looks if look.pair not in self.better)

    @property
    def left(self) -> int:
        return max(0, math.floor((self.alpha - self.spent) * self.planned / self.alpha * (1 + ROUNDING) + ROUNDING))

    def figures(self, look: RecordedLook) -> dict[str, Any]:
        """Return a look's number and level, and what remains, as figures for the approver and the journal."""
        left = {"alpha": self.alpha, "spent": round(self.spent, 9), "left": self.left, "gate": asdict(self.gate)}
        return asdict(look) | left


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
    version: int | None,
    rival: int | None,
    gate: GateSet,
    pair: str,
    terms: Promote,
    files: str,
    journal: Journal,
    who: str | None,
) -> RecordedLook | None:
    """Record a look (a comparison on the gate set) before its result is known, unless this pair was compared before.

    ``pair`` is the digest of candidate, rival and gate set; predictions that are no registered model's have no
    ``version``. The look, or the earlier one of the pair, is returned; ``None`` if alpha is spent or ``who`` is
    ``None``, and then nothing is recorded.
    """
    while True:
        rows = journal.rows(name)
        state = budget(rows, gate=gate, terms=terms)
        if known := [look for look in state.looks if look.pair == pair]:
            return known[0]
        if who is None or not state.level:
            return None
        look = RecordedLook(gate, pair, len(state.looks) + 1, state.level)
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
