"""Divide the frozen test by group: on the gate set candidates are compared, on the rest the chosen one is reported.

A score that selected a model is too high, because it was the highest. The parts are drawn by a hash of corpus, split
version and group, so that they depend on neither labels nor models; ``promote.refresh`` chooses which of
``promote.parts`` parts is the gate set. A group that the growing corpus renames may change its part.
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
    """A test in two: the identity and the items of the gate set, and the reported rest, empty if there is one part."""

    identity: GateSet
    gate: Board
    reported: Board

    def without(self, groups: Collection[str]) -> DividedTest:
        """Return the same parts without some groups."""
        gone = frozenset(groups)
        return replace(
            self,
            gate=only(self.gate, keep=lambda group: group not in gone),
            reported=only(self.reported, keep=lambda group: group not in gone),
        )

    @property
    def digest(self) -> str:
        """The digest of the gate set's items, groups and gold."""
        board = self.gate
        rows = zip(board.items, board.groups, board.gold, strict=True)
        return digest_of(f"{i[0]} {i[1]} {g} {','.join(sorted(s))}" for i, g, s in rows)


def divide(board: Board, *, corpus: str, version: int, terms: Promote) -> DividedTest:
    """Divide a test; ``version`` is the split's."""
    part = terms.refresh % terms.parts
    identity = GateSet(corpus, board.task.key, version, terms.parts, part)

    def inside(group: str) -> bool:
        return part_of(group, corpus=corpus, version=version, parts=terms.parts) == part

    return DividedTest(identity, only(board, keep=inside), only(board, keep=lambda group: not inside(group)))


def part_of(group: str, *, corpus: str, version: int, parts: int) -> int:
    """Return the part of a group, from 0."""
    found = hashlib.sha256(f"{corpus} {version} {group}".encode()).digest()
    return int.from_bytes(found[:8]) * parts >> 64


def only(board: Board, *, keep: Callable[[str], bool]) -> Board:
    """Return the items of the groups to keep."""
    rows = [row for row, group in enumerate(board.groups) if keep(group)]
    return replace(
        board,
        items=tuple(board.items[row] for row in rows),
        gold=tuple(board.gold[row] for row in rows),
        groups=tuple(board.groups[row] for row in rows),
    )
