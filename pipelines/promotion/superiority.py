"""Test whether a candidate is better than a rival, at the level of one look (:mod:`pipelines.promotion.looks`).

The one-sided randomisation test of macro-F1 (Noreen 1989, Yeh 2000) exchanges the answers of both models on whole
groups. Its p-value is exact if the two are exchangeable, at any level, where the tail of a bootstrap with few positives
is not. With several runs of the candidate (seeds), both the registered one and their mean must be better.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.evaluate.model_scores import Board, Run, counted
from pipelines.evaluate.paired import TIE, exchanged
from pipelines.metrics.bootstrap import cluster_sums
from pipelines.metrics.label_sets import Floats

Draws = npt.NDArray[np.int64]

SLACK = 1e-9  # of a level times the number of draws


@dataclass(frozen=True)
class Superiority:
    """The result of the test.

    Args:
        p: the p-value of the registered run; the draws of earlier looks are left out.
        p_seeds: the p-value of the mean over all runs; ``p`` with one run.
        level: the level that neither may exceed.
        crossed: the draws on which this look would find the candidate better.
    """

    p: float
    p_seeds: float
    level: float
    crossed: tuple[int, ...]

    @property
    def better(self) -> bool:
        """Whether the candidate is better."""
        return max(self.p, self.p_seeds) <= self.level * (1 + SLACK)


def compared(
    board: Board, *, candidate: Sequence[Run], rival: Run, level: float, used: Collection[int] = (), bound: bool = True
) -> Superiority:
    """Compare a candidate's runs, of which the first is the registered one, with a rival.

    Args:
        board: the gate set, with at least one item.
        candidate: its runs.
        rival: the answers of the champion or of a baseline.
        level: of this look.
        used: the draws of earlier looks.
        bound: whether this look's draws are to be known, so that later looks can leave them out.
    """
    theirs = _sums(board, rival)
    ours = [_sums(board, run) for run in candidate]
    alive = left(board.sampling.resamples, used=used)
    apart, drawn = exchanged(board, a=ours[0], b=theirs)
    p, crossed = ranked(apart, drawn=drawn, alive=alive, level=level if bound else 0)
    if len(ours) == 1:
        return Superiority(p, p, level, crossed)
    apart, drawn = exchanged(board, a=np.mean(ours, axis=0), b=theirs)
    p_seeds, _ = ranked(apart, drawn=drawn, alive=np.arange(len(drawn)), level=0)
    return Superiority(p, p_seeds, level, crossed)


def left(resamples: int, *, used: Collection[int]) -> Draws:
    """Return the draws that no earlier look has used."""
    return np.setdiff1d(np.arange(resamples), np.fromiter(used, np.int64, len(used)))


def ranked(apart: float, *, drawn: Floats, alive: Draws, level: float) -> tuple[float, tuple[int, ...]]:
    """Return the p-value among the draws that are left, and those of them that would be found better.

    The observed assignment is one of all ``len(drawn) + 1``, so that the sets of all looks together hold at most a
    share ``alpha`` of them.
    """
    everything = np.sort(np.append(drawn[alive], apart))
    whole = len(drawn) + 1
    rank = len(everything) - np.searchsorted(everything, drawn[alive] - TIE)
    own = len(everything) - int(np.searchsorted(everything, apart - TIE))
    within = rank <= math.floor(level * whole * (1 + SLACK))
    return own / whole, tuple(int(draw) for draw in alive[within])


def _sums(board: Board, run: Run) -> Floats:
    return cluster_sums(counted(board, predicted=board.predicted(run), valid=False), groups=board.groups)
