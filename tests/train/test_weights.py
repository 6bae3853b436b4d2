"""Rare labels weigh more, by the formulas of SPEC 8, made of train and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from pipelines.datasets.example import Example
from pipelines.train.classifiers.loss_and_optimizer import weigh
from tests.refusals import refused

SEVERITY, FIGURATIVE = (task_of(load("figsim"), key) for key in ("severity", "figurative"))
METAPHOR, PUN, _ = FIGURATIVE.labels
GIVEN = ("None", "Wish to be dead", "Suicide ideation", "Suicide planning", "Suicide attempts", "Suicide death")


def example(number: int, *labels: str, split: str = "train") -> Example:
    item = (f"{number:032x}", 0)
    return Example(item, split, "words", None, labels=frozenset(labels), group=f"{item[0]}/0")


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        # n over K times a class's items
        ((6, 3, 2, 1, 8, 0), [20 / (5 * n) for n in (6, 3, 2, 1, 8)]),
        # attempts and deaths are one class; a class without items weighs nothing
        ((1, 0, 0, 0, 1, 1), [3 / 5, 0, 0, 0, 3 / 10]),
        ((0, 0, 0, 0, 0, 0), [0] * 5),
    ],
)
def test_a_class_weighs_n_over_k_times_its_items(counts: tuple[int, ...], expected: list[float]) -> None:
    labels = [label for label, count in zip(GIVEN, counts, strict=True) for _ in range(count)]
    found = weigh([example(i, label) for i, label in enumerate(labels)], task=SEVERITY, max_pos_weight=20)
    assert found.values == pytest.approx(expected) and found.values.dtype == np.float32
    assert found.empty == tuple(label for label, n in zip(SEVERITY.labels, expected, strict=True) if not n)


@pytest.mark.parametrize(
    ("sets", "cap", "expected"),
    [
        # negatives over positives, up to the cap
        ([(METAPHOR, PUN), *[(PUN,)] * 9, *[()] * 40], 20, [20, 4, 0]),
        ([(METAPHOR, PUN), *[(PUN,)] * 9, *[()] * 40], 60, [49, 4, 0]),
        # a label that all have is still learned
        ([(METAPHOR,)] * 4, 20, [1, 0, 0]),
        ([], 20, [0, 0, 0]),
    ],
)
def test_a_label_weighs_its_negatives_over_its_positives(
    sets: list[tuple[str, ...]], cap: int, expected: list[float]
) -> None:
    found = weigh([example(i, *labels) for i, labels in enumerate(sets)], task=FIGURATIVE, max_pos_weight=cap)
    assert found.values.tolist() == expected
    assert found.empty == tuple(label for label, n in zip(FIGURATIVE.labels, expected, strict=True) if not n)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_planted_leak_is_refused(split: str) -> None:
    fair = [example(i, METAPHOR) for i in range(5)]
    with refused("LeakRefused", match=f"1 examples of {split} were refused: only train may"):
        weigh([*fair, example(5, PUN, split=split)], task=FIGURATIVE, max_pos_weight=20)
