"""Test whether a candidate has a higher macro-F1 than its rival, at the level of a look (``looks.py``).

The p-value is the larger of two one-sided ones. The randomisation test of macro-F1 (Noreen 1989, Yeh 2000) exchanges
the answers of both models on whole groups; it is exact, at any level and size, if the two are exchangeable, but too
small for models of equal macro-F1 that reach it by other means, such as a constant answer. The jackknife over groups
divides the difference in macro-F1 by its standard error (Student's t); that holds for any two models, but only in large
samples: ``bench/promotion_gate.py`` measures both. The smaller of the difference and of its value after correction for
bias is tested, because F1 of few positives is biased, and differently at different recalls.

The candidate must be better than every rival, and with several runs (seeds) of it, both the registered one and their
mean must be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.evaluate.model_scores import Board, Run, counted
from pipelines.evaluate.paired import TIE, exchanged, left_out
from pipelines.metrics.bootstrap import cluster_sums
from pipelines.metrics.label_sets import Floats

SLACK = 1e-9  # of a p-value, which is a ratio of integers


@dataclass(frozen=True)
class Superiority:
    """The result of the test whether a candidate is better than its rival.

    Args:
        p: the p-value of the registered run.
        p_seeds: the p-value of the mean over all runs (seeds); equal to ``p`` with one run.
    """

    p: float
    p_seeds: float
    level: float

    @property
    def better(self) -> bool:
        """Whether both p-values show, at ``level``, that the candidate is better."""
        return max(self.p, self.p_seeds) <= self.level * (1 + SLACK)


def compared(board: Board, *, candidate: Sequence[Run], rivals: Sequence[Run], level: float) -> Superiority:
    """Compare a candidate's runs, of which the first is the registered one, with every rival; the largest p counts."""
    ours, theirs = [_sums(board, run) for run in candidate], [_sums(board, run) for run in rivals]
    p = max(p_value(board, candidate=ours[0], rival=each) for each in theirs)
    mean = np.mean(ours, axis=0)
    p_seeds = max(p_value(board, candidate=mean, rival=each) for each in theirs) if len(ours) > 1 else p
    return Superiority(p, p_seeds, level)


def p_value(board: Board, *, candidate: Floats, rival: Floats) -> float:
    """Return the one-sided p-value of counts by group, the larger one of both tests."""
    apart, drawn = exchanged(board, a=candidate, b=rival)
    # the observed assignment is one of the exchanges
    exchange = (1 + int((drawn >= apart - TIE).sum())) / (1 + len(drawn))
    return max(exchange, jackknife(board, candidate=candidate, rival=rival))


def jackknife(board: Board, *, candidate: Floats, rival: Floats) -> float:
    """Return the one-sided p-value of the difference in macro-F1 in units of its standard error over groups.

    It is 0 or 1 if no group that is left out changes the difference, and 1 with a single group.
    """
    from scipy.stats import t

    apart, without = left_out(board, a=candidate, b=rival)
    groups, mean = len(without), float(without.mean())
    error = math.sqrt((groups - 1) / groups * float(((without - mean) ** 2).sum()))
    ahead = min(apart, groups * apart - (groups - 1) * mean)
    if groups < 2 or error <= TIE:
        return float(groups < 2 or ahead <= TIE)
    return float(t.sf(ahead / error, groups - 1))


def _sums(board: Board, run: Run) -> Floats:
    return cluster_sums(counted(board, predicted=board.predicted(run), valid=False), groups=board.groups)
