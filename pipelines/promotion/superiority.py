"""Test whether a candidate has a higher macro-F1 than its rival, at a level from :mod:`pipelines.promotion.looks`.

The one-sided randomisation test of macro-F1 (Noreen 1989, Yeh 2000) exchanges the answers of both models on whole
groups. Its p-value is exact if the two are exchangeable, at any level, where the tail of a bootstrap with few positives
is not. With several runs of the candidate (seeds), both the registered one and their mean must be better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.evaluate.model_scores import Board, Run, counted
from pipelines.evaluate.paired import TIE, exchanged
from pipelines.metrics.bootstrap import cluster_sums
from pipelines.metrics.label_sets import Floats

SLACK = 1e-9  # of a p-value, which is a ratio of integers


@dataclass(frozen=True)
class Superiority:
    """The result of the test whether a candidate is better than its rival.

    Args:
        p: the p-value of the registered run.
        p_seeds: the p-value of the mean over all runs (seeds); equal to ``p`` with one run.
        level: the significance level that neither may exceed.
    """

    p: float
    p_seeds: float
    level: float

    @property
    def better(self) -> bool:
        """Whether both p-values show, at ``level``, that the candidate is better."""
        return max(self.p, self.p_seeds) <= self.level * (1 + SLACK)


def compared(board: Board, *, candidate: Sequence[Run], rival: Run, level: float) -> Superiority:
    """Test whether a candidate's runs, of which the first is the registered one, are better than a rival.

    Args:
        board: the gate set, with at least one item.
        candidate: its runs.
        rival: the answers of the champion or of a baseline.
        level: the significance level of this comparison.
    """
    ours, theirs = [_sums(board, run) for run in candidate], _sums(board, rival)
    p = p_value(board, candidate=ours[0], rival=theirs)
    p_seeds = p_value(board, candidate=np.mean(ours, axis=0), rival=theirs) if len(ours) > 1 else p
    return Superiority(p, p_seeds, level)


def p_value(board: Board, *, candidate: Floats, rival: Floats) -> float:
    """Return the one-sided p-value for a higher macro-F1 of the candidate, from counts by group of near-duplicates.

    The observed assignment of answers is one of the exchanges.
    """
    apart, drawn = exchanged(board, a=candidate, b=rival)
    return (1 + int((drawn >= apart - TIE).sum())) / (1 + len(drawn))


def _sums(board: Board, run: Run) -> Floats:
    return cluster_sums(counted(board, predicted=board.predicted(run), valid=False), groups=board.groups)
