"""Simulate histories of the promotion gate: false promotions over many looks, and power at true leads.

Candidate and champion answer the scheme's labels with the same recalls and rates of false alarms, agree on part of the
items, and are compared by the gate's own functions. In each history 50 equally good candidates are looked at one after
another. Better candidates, whose macro-F1 leads by a known amount in expectation, are looked at as the first, the 25th
and the 50th; they do not change the history. On the same draws, the alternatives are judged: each candidate alone at
5 %, Bonferroni over the 50 looks, spending that decreases with the square of the look's number, and the parameter-free
Ladder (Blum and Hardt 2015), which releases an improvement by more than its standard error.

Two further histories have models of the same expected macro-F1 that are not exchangeable: precise candidates against
the constant answer with every label, and candidates that alarm often against a champion that alarms seldom.

``python -m bench.promotion_gate [histories] [items] [resamples]``
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.evaluate.model_scores import VOTE, Board, Run, Sampling, counted
from pipelines.evaluate.paired import left_out
from pipelines.metrics.bootstrap import cluster_sums
from pipelines.registry.promotion.looks import Budget, GateSet, RecordedLook
from pipelines.registry.promotion.scores import SLACK, jackknife, p_value

ALPHA, LOOKS = 0.05, 50
LEADS, PLACES = (0.03, 0.05, 0.10), (1, 25, 50)
SHARED = 0.6  # of the items on which two models give the same answer anyway
PAIRED = 0.05  # of the items have a near-duplicate
RATES = np.geomspace(0.25, 0.02, 15)  # of labels, from frequent to rare
RECALL, FALSE_ALARMS = 0.6, 0.35  # of a label's positives; false alarms per positive
METHODS = ("spent over looks", "Bonferroni", "square spending", "Ladder", "each alone at 5 %")
EXCHANGEABLE = "exchangeable"
# candidates with the macro-F1 of the constant, and with that of the champion (.5 for every label)
EVERY, CAREFUL = "every_label", "careful_champion"
GATE = GateSet("posts", "labels", 1, 2, 0)


def macro_f1(share: float) -> float:
    """Return the expected macro-F1 of a model that knows a share of the items by heart."""
    hits, wrong = RECALL + share * (1 - RECALL), FALSE_ALARMS * (1 - share)
    return 2 * hits / (hits + wrong + 1)


def share_of(lead: float) -> float:
    """Return the share of items that a model must know to lead by an amount in expected macro-F1."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if macro_f1(middle) - macro_f1(0) < lead else (low, middle)
    return low


class World:
    """A test with gold, a champion, and candidates that answer like the champion on part of the items."""

    def __init__(self, task: Task, *, items: int, resamples: int, seed: int, kind: str = EXCHANGEABLE) -> None:
        """Draw gold and champion."""
        self.rng, self.kind = np.random.default_rng(seed), kind
        self.rates = RATES[: len(task.labels)]
        self.truth = self.rng.random((items, len(task.labels))) < self.rates
        twins = self.rng.random(items) < PAIRED
        groups = tuple(f"{row - 1 if row and twins[row] else row:06d}" for row in range(items))
        names = tuple((f"{row:06d}", 0) for row in range(items))
        self.board = Board(task, names, self.sets(task, self.truth), groups, Sampling(resamples, seed=1))
        known = {EXCHANGEABLE: self.answers, CAREFUL: lambda: self.answering(0.35, precision=0.875)}
        self.champion = known.get(kind, lambda: np.ones_like(self.truth))()

    @staticmethod
    def sets(task: Task, rows: np.ndarray) -> tuple[frozenset[str], ...]:
        """Return the rows as label sets; equal rows are one object."""
        codes = rows @ (1 << np.arange(rows.shape[1]))
        known = {
            code: frozenset(label for k, label in enumerate(task.labels) if code >> k & 1)
            for code in set(codes.tolist())
        }
        return tuple(known[code] for code in codes.tolist())

    def answers(self, *, share: float = 0.0) -> np.ndarray:
        """Return the answers of a model that knows a share of the items by heart."""
        drawn = self.rng.random(self.truth.shape)
        given = np.where(self.truth, drawn < RECALL, drawn < FALSE_ALARMS * self.rates / (1 - self.rates))
        known = self.rng.random(len(given)) < share
        return np.where(known[:, None], self.truth, given)

    def answering(self, recall: float, *, precision: float) -> np.ndarray:
        """Return the answers of a model with a recall and a precision, the same for every label."""
        drawn, alarms = self.rng.random(self.truth.shape), recall * (1 / precision - 1)
        return np.where(self.truth, drawn < recall, drawn < alarms * self.rates / (1 - self.rates))

    def candidate(self, *, share: float = 0.0) -> np.ndarray:
        """Return the answers of a candidate; what it knows by heart it does not copy from the champion."""
        if self.kind == EVERY:
            f1 = float(np.mean(2 * self.rates / (1 + self.rates)))
            return self.answering(f1 / (2 - f1), precision=1)
        if self.kind == CAREFUL:
            return self.answering(1, precision=1 / 3)
        own = self.answers()
        same = self.rng.random(len(own)) < SHARED
        mixed = np.where(same[:, None], self.champion, own)
        known = self.rng.random(len(own)) < share
        return np.where(known[:, None], self.truth, mixed)

    def sums(self, answers: np.ndarray) -> np.ndarray:
        """Return the counts by group, as the gate sums them."""
        said = self.sets(self.board.task, answers)
        run = Run(0, dict.fromkeys(self.board.items, VOTE), dict(zip(self.board.items, said, strict=True)))
        rows = counted(self.board, predicted=self.board.predicted(run), valid=False)
        return cluster_sums(rows, groups=self.board.groups)


def verdicts(world: World, *, answers: np.ndarray, champion: np.ndarray, budget: Budget) -> dict[str, bool]:
    """Judge one candidate by every method at the next look."""
    sums, number = world.sums(answers), len(budget.looks) + 1
    # p is at least the jackknife's, so that no level is reached if that is above the largest one
    p = jackknife(world.board, candidate=sums, rival=champion)
    if p <= ALPHA:
        p = p_value(world.board, candidate=sums, rival=champion)
    levels = (budget.level, ALPHA / LOOKS, ALPHA * 6 / (math.pi * number) ** 2)
    spent = [p <= level * (1 + SLACK) for level in levels]
    # the parameter-free Ladder: ahead by more than the standard error of the difference
    apart, without = left_out(world.board, a=sums, b=champion)
    error = without.std() * math.sqrt(len(without) - 1)
    return dict(zip(METHODS, map(bool, (*spent, apart > error, p <= ALPHA)), strict=True))


def history(world: World) -> tuple[dict[str, bool], dict[tuple[float, int], dict[str, bool]]]:
    """Play one history; return which methods promoted falsely, and by lead and place which found a better candidate."""
    champion = world.sums(world.champion)
    budget = Budget(GATE, ALPHA, LOOKS, (), frozenset())
    false, found = dict.fromkeys(METHODS, False), {}
    for number in range(1, LOOKS + 1):
        if number in PLACES and world.kind == EXCHANGEABLE:
            for lead in LEADS:
                answers = world.candidate(share=share_of(lead))
                found[lead, number] = verdicts(world, answers=answers, champion=champion, budget=budget)
        verdict = verdicts(world, answers=world.candidate(), champion=champion, budget=budget)
        false = {method: false[method] or verdict[method] for method in METHODS}
        look = RecordedLook(GATE, f"{number}", number, budget.level)
        better = budget.better | ({look.pair} if verdict[METHODS[0]] else set())
        budget = replace(budget, looks=(*budget.looks, look), better=better)
    return false, found


def main(histories: int, items: int, resamples: int) -> None:
    """Print the shares of false promotions and the power, ours against Bonferroni."""
    task = task_of(load("cradle", root=Path(__file__).resolve().parents[1]), "labels")
    false: dict[str, int] = defaultdict(int)
    others, alone = defaultdict[str, int](int), defaultdict[str, int](int)
    power: dict[tuple[float, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for seed in range(histories):
        wrong, found = history(World(task, items=items, resamples=resamples, seed=seed))
        for kind in (EVERY, CAREFUL):
            apart, _ = history(World(task, items=items, resamples=resamples, seed=seed, kind=kind))
            others[kind] += apart[METHODS[0]]
            alone[kind] += apart[METHODS[-1]]
        for method in METHODS:
            false[method] += wrong[method]
            for key, verdict in found.items():
                power[key][method] += verdict[method]
        if seed + 1 == histories or not (seed + 1) % 50:
            told(false, power, histories=seed + 1)
            print(f"# not exchangeable: {dict(others)}, alone {dict(alone)}", file=sys.stderr, flush=True)
    line("gate_false_promotions", items, false[METHODS[0]], false[METHODS[-1]], histories, METHODS[-1], worse=True)
    for kind in (EVERY, CAREFUL):
        line(f"gate_false_{kind}", items, others[kind], alone[kind], histories, METHODS[-1], worse=True)
    for lead in LEADS:
        ours, other = (sum(power[lead, place][m] for place in PLACES) for m in METHODS[:2])
        line(f"gate_power_{lead:.2f}", items, ours, other, histories * len(PLACES), METHODS[1])


def told(false: dict[str, int], power: dict[tuple[float, int], dict[str, int]], *, histories: int) -> None:
    """Print every method's shares so far to stderr."""
    for method in METHODS:
        places = {f"{lead:.2f}@{place}": power[lead, place][method] / histories for lead in LEADS for place in PLACES}
        shares = f"false {false[method] / histories:.4f}, power {json.dumps(places)}"
        print(f"# {histories} histories, {method}: {shares}", file=sys.stderr, flush=True)


def line(name: str, items: int, mine: int, other: int, of: int, baseline: str, *, worse: bool = False) -> None:
    """Print one comparison."""
    ours, theirs = round(mine / of, 4), round(other / of, 4)
    high, low = (theirs, ours) if worse else (ours, theirs)
    ratio = round(high / low, 2) if low else 0
    record = {"name": f"{name}_{items}", "ours": ours, "baseline": theirs, "ratio": ratio}
    print(json.dumps({**record, "unit": f"share of {of}", "baseline_name": baseline}), flush=True)


if __name__ == "__main__":
    given = [int(value) for value in sys.argv[1:]]
    for size in given[1:2] or (600, 2000):
        main(given[0] if given else 40, size, given[2] if len(given) > 2 else 2000)
