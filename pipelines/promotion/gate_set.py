"""Divide the test split: candidates are compared on one part, the gate set; the chosen one is scored on the rest.

A score that selected a model is too high, because it was the highest. The parts are drawn by a hash of corpus, split
version and group, so that they depend on neither labels nor models; ``promote.refresh`` chooses which of
``promote.parts`` parts is the gate set. Reported are only the parts after it, which were never the gate set: the parts
before it selected the present champion. The last part has nothing after it. A group that the growing corpus renames may
change its part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from pipelines.config.models import Promote
from pipelines.datasets.posts import digest_of
from pipelines.errors import BadParams
from pipelines.evaluate.model_scores import Board
from pipelines.promotion.looks import GateSet


@dataclass(frozen=True)
class DividedTest:
    """The identity and the items of the gate set, and the items that are reported: none for the last part."""

    identity: GateSet
    gate: Board
    reported: Board

    def without(self, groups: Collection[str]) -> DividedTest:
        """Return this divided test without the items of some groups of near-duplicates."""
        gone = frozenset(groups)
        return replace(
            self,
            gate=only(self.gate, keep=lambda group: group not in gone),
            reported=only(self.reported, keep=lambda group: group not in gone),
        )

    @property
    def digest(self) -> str:
        """The digest of the gate set's items with their groups and gold labels."""
        board = self.gate
        rows = zip(board.items, board.groups, board.gold, strict=True)
        return digest_of(f"{i[0]} {i[1]} {g} {','.join(sorted(s))}" for i, g, s in rows)


def divide(board: Board, *, corpus: str, version: int, terms: Promote, used: Collection[GateSet] = ()) -> DividedTest:
    """Divide a test.

    Args:
        version: the split's.
        terms: the settings of the gate.
        used: gate sets at which candidates were looked at; their items are not reported.
    """
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
    found = hashlib.sha256(f"{corpus} {version} {group}".encode()).digest()
    return int.from_bytes(found[:8]) * parts >> 64


def only(board: Board, *, keep: Callable[[str], bool]) -> Board:
    """Return a board (test items with gold labels) of only the items whose near-duplicate group ``keep`` accepts."""
    rows = [row for row, group in enumerate(board.groups) if keep(group)]
    return replace(
        board,
        items=tuple(board.items[row] for row in rows),
        gold=tuple(board.gold[row] for row in rows),
        groups=tuple(board.groups[row] for row in rows),
    )
