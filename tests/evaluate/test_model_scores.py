"""Figures that scikit-learn agrees with, intervals that cover, and answers that are missing at a price."""

import random
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, mean_absolute_error

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.evaluate import model_scores
from pipelines.evaluate.evaluate import baselines
from pipelines.evaluate.model_scores import Board, Run, Sampling

SCHEME = load("figsim")
FIGURATIVE, SEVERITY = task_of(SCHEME, "figurative"), task_of(SCHEME, "severity")
FEW = Sampling(resamples=400, seed=3)


def drawn(task: Task, rng: random.Random) -> frozenset[str]:
    if task.kind == "single":
        return frozenset({rng.choice(task.labels)})
    return frozenset(label for label in task.labels if rng.random() < 0.4)


def board_of(task: Task, *, n: int = 80, seed: int = 1, group: int = 1, sampling: Sampling = FEW) -> Board:
    rng = random.Random(seed)
    items = tuple((f"r{i:03d}", 0) for i in range(n))
    return Board(
        task, items, tuple(drawn(task, rng) for _ in items), tuple(f"g{i // group}" for i in range(n)), sampling
    )


def run_of(board: Board, *, seed: int, accuracy: float = 0.6, missing: int = 0) -> Run:
    rng = random.Random(seed)
    answers = {
        item: gold if rng.random() < accuracy else drawn(board.task, rng)
        for item, gold in zip(board.items, board.gold, strict=True)
    }
    lost = rng.sample(board.items, missing)
    outcomes = dict.fromkeys(board.items, "vote") | dict.fromkeys(lost, "refused")
    return Run(seed, outcomes, {item: labels for item, labels in answers.items() if item not in lost})


def scored(board: Board, runs: list[Run]) -> dict[str, Any]:
    return model_scores.scores(model_scores.score(board, runs=runs, valid=False), board=board)


def matrix(task: Task, sets: list) -> np.ndarray:
    return np.array([[label in (labels or ()) for label in task.labels] for labels in sets], dtype=int)


def test_the_ordinal_knows_how_far_off_an_answer_is() -> None:
    board = board_of(SEVERITY)
    answers = board.predicted(run_of(board, seed=5))
    found = model_scores.plain(board, predicted=answers, valid=True)["figures"]
    gold, said = (matrix(SEVERITY, sets).argmax(axis=1) for sets in (list(board.gold), answers))
    assert found["kappa"] == pytest.approx(cohen_kappa_score(gold, said, weights="quadratic"), abs=1e-6)
    assert found["mae"] == pytest.approx(mean_absolute_error(gold, said), abs=1e-6)


def test_kappa_is_undefined_where_chance_alone_agrees() -> None:
    board = Board(SEVERITY, (("a", 0),), (frozenset({"None"}),), ("g",), FEW)
    found = model_scores.plain(board, predicted=[frozenset({"None"})], valid=True)["figures"]
    assert found["kappa"] is None
    assert found["mae"] == 0


def test_what_is_refused_is_left_out_or_wrong() -> None:
    board = board_of(SEVERITY)
    run = run_of(board, seed=4, accuracy=1.0, missing=20)
    valid, whole = (model_scores.score(board, runs=[run], valid=valid) for valid in (True, False))
    assert valid.cell("exact")["mean"] == valid.cell("macro_f1")["mean"] == 1
    assert whole.cell("exact")["mean"] == 0.75
    assert whole.cell("mae")["mean"] > 0 and valid.cell("mae")["mean"] == 0
    assert whole.cell("kappa")["mean"] < 1
    assert board.outcomes(run) == {"vote": 60, "refused": 20}


def test_a_run_without_any_answer_has_no_figure() -> None:
    board = board_of(SEVERITY, n=10)
    runs = [run_of(board, seed=1), run_of(board, seed=2, missing=10)]
    cell = model_scores.score(board, runs=runs, valid=True).cell("macro_f1")
    assert cell["n"] == 1 and cell["std"] is None
    assert model_scores.plain(board, predicted=[None] * 10, valid=True)["figures"]["exact"] is None


def test_a_label_without_records_has_no_interval() -> None:
    gold = tuple(frozenset({"None" if i % 2 else "Wish to be dead"}) for i in range(20))
    items = tuple((f"r{i}", 0) for i in range(20))
    board = Board(SEVERITY, items, gold, tuple(map(str, range(20))), FEW)
    found = scored(board, [run_of(board, seed=1)])
    assert found["labels"]["Suicide planning"]["f1"]["low"] is None
    assert found["labels"]["None"]["f1"]["low"] is not None


def test_baselines_know_train_alone() -> None:
    board = board_of(SEVERITY)
    train = [frozenset({"Suicide planning"})] * 3 + [frozenset({"None"})] * 2
    found = baselines(board, train=train)["majority"]
    assert found["labels"]["Suicide planning"]["recall"] == 1
    assert found["figures"]["exact"] == pytest.approx(board.support["Suicide planning"] / 80)
    several = baselines(board_of(FIGURATIVE), train=[frozenset({"Metaphor"})])
    assert several["every_label"]["figures"]["macro_f1"] > several["majority"]["figures"]["macro_f1"] > 0


def test_the_order_of_items_changes_no_figure() -> None:
    board = board_of(FIGURATIVE, group=2)
    run = run_of(board, seed=1)
    order = list(range(80))
    random.Random(9).shuffle(order)
    columns = (tuple(column[i] for i in order) for column in (board.items, board.gold, board.groups))
    other = Board(FIGURATIVE, *columns, FEW)
    assert scored(board, [run]) == scored(other, [run])


def test_the_confusion_adds_up_over_runs() -> None:
    board = board_of(SEVERITY)
    runs = [run_of(board, seed=1, missing=3), run_of(board, seed=2)]
    found = np.array(model_scores.confusion(board, runs=runs))
    assert found.sum() == 157
    expected = sum(
        run.answers.get(item) == frozenset({"None"})
        for run in runs
        for item, gold in zip(board.items, board.gold, strict=True)
        if gold == frozenset({"Wish to be dead"})
    )
    assert found[1, 0] == expected
