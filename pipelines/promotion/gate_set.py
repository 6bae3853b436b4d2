"""Divide the test split: candidates are compared on one part, the gate set; the chosen one is scored on the rest.

A score that selected a model is too high, because it was the highest; the score on the rest is not. The parts are drawn
by a hash of corpus, split version and group, so that they depend on neither labels nor models; ``promote.refresh``
chooses which of ``promote.parts`` parts is the gate set. A group that the growing corpus renames may change its part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from pipelines.config.models import Promote
from pipelines.datasets.split_posts import digest_of
from pipelines.evaluate.model_scores import Board
from pipelines.promotion.looks import GateSet


@dataclass(frozen=True)
class DividedTest:
    """A test split in two: the gate set (identity and items) and the rest, on which only the chosen model is scored."""

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


def divide(board: Board, *, corpus: str, version: int, terms: Promote) -> DividedTest:
    """Divide the items of a test split into the gate set and the rest; ``version`` is the version of the split."""
    part = terms.refresh % terms.parts
    identity = GateSet(corpus, board.task.key, version, terms.parts, part)

    def inside(group: str) -> bool:
        return part_of(group, corpus=corpus, version=version, parts=terms.parts) == part

    return DividedTest(identity, only(board, keep=inside), only(board, keep=lambda group: not inside(group)))


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
