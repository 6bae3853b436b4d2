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
METAPHOR, PUN, IRONY = FIGURATIVE.labels


def example(number: int, *labels: str, split: str = "train") -> Example:
    item = (f"{number:032x}", 0)
    return Example(item, split, "words", None, labels=frozenset(labels), group=f"{item[0]}/0")


def test_a_class_weighs_n_over_k_times_its_items() -> None:
    counts = {"None": 6, "Wish to be dead": 3, "Suicide ideation": 2, "Suicide planning": 1, "Suicide attempts": 8}
    labels = [label for label, count in counts.items() for _ in range(count)]
    found = weigh([example(i, label) for i, label in enumerate(labels)], task=SEVERITY, max_pos_weight=20)
    assert found.values == pytest.approx([20 / (5 * n) for n in (6, 3, 2, 1, 8)])
    assert found.values.dtype == np.float32 and found.empty == ()


def test_attempts_and_deaths_count_as_one_class() -> None:
    apart = [example(i, label) for i, label in enumerate(("None", "Suicide attempts", "Suicide death"))]
    assert weigh(apart, task=SEVERITY, max_pos_weight=20).values[[0, 4]] == pytest.approx([3 / 5, 3 / 10])


def test_a_class_without_items_weighs_nothing_and_is_named() -> None:
    found = weigh([example(0, "None"), example(1, "Suicide planning")], task=SEVERITY, max_pos_weight=20)
    assert found.values.tolist() == pytest.approx([0.4, 0, 0, 0.4, 0])
    assert found.empty == ("Wish to be dead", "Suicide ideation", "Suicide attempt/death")


def test_a_label_weighs_its_negatives_over_its_positives_up_to_the_cap() -> None:
    examples = [example(0, METAPHOR, PUN), *(example(i, PUN) for i in range(1, 10)), *map(example, range(10, 50))]
    assert weigh(examples, task=FIGURATIVE, max_pos_weight=20).values.tolist() == [20, 4, 0]
    assert weigh(examples, task=FIGURATIVE, max_pos_weight=60).values.tolist() == [49, 4, 0]
    assert weigh(examples, task=FIGURATIVE, max_pos_weight=20).empty == (IRONY,)


def test_a_label_that_all_have_is_still_learned() -> None:
    found = weigh([example(i, METAPHOR) for i in range(4)], task=FIGURATIVE, max_pos_weight=20)
    assert found.values.tolist() == [1, 0, 0] and found.empty == (PUN, IRONY)


def test_no_examples_give_no_weights() -> None:
    for task in (SEVERITY, FIGURATIVE):
        found = weigh([], task=task, max_pos_weight=20)
        assert found.empty == task.labels and not found.values.any()


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_planted_leak_is_refused(split: str) -> None:
    fair = [example(i, METAPHOR) for i in range(5)]
    with refused("LeakRefused", match=f"1 examples of {split} were refused: only train may"):
        weigh([*fair, example(5, PUN, split=split)], task=FIGURATIVE, max_pos_weight=20)
