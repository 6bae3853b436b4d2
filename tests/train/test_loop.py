"""Class weights, fitting and asking a model: what is learned, kept and refused, and rows stay with their examples."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pipelines.core.config.params import load
from pipelines.datasets.example import Example
from pipelines.models import kind
from pipelines.models.backbones import Batch
from pipelines.models.fitting.inference import Diverged, ahead, predict
from pipelines.models.fitting.loop import fit
from pipelines.models.fitting.loss_and_optimizer import (
    MEGA,
    Loop,
    Weights,
    optimizer,
    shuffled,
    spare_memory,
    weigh,
)
from pipelines.models.fitting.recipe import Recipe
from pipelines.models.kinds.m3h import M3h
from tests.refusals import refused
from tests.train.silver_posts import leaks
from tests.train.small_run import SETTINGS, Bag, a_model, a_run, a_task, captions, plain, prepare

ROOT = Path(__file__).resolve().parents[2]
MULTI, SINGLE = a_task("figurative"), a_task("severity")


@pytest.mark.parametrize("task", [MULTI, SINGLE], ids=["multi", "single"])
def test_a_model_learns_what_the_words_say(tmp_path: Path, task: Any) -> None:
    fitted = a_run(tmp_path, task=task)
    best = max(line["validation_macro_f1"] for line in fitted.history)
    assert best > 0.8
    first = next(line["epoch"] for line in fitted.history if line["validation_macro_f1"] == best)
    assert fitted.epoch == first
    assert [line["epoch"] for line in fitted.history] == list(range(1, SETTINGS.epochs + 1))
    assert fitted.thresholds.shape == (len(task.labels),)


@pytest.mark.parametrize("mode", ["paper", "improved"])
def test_the_same_seed_gives_the_same_bytes_and_another_one_others(tmp_path: Path, mode: str) -> None:
    one, same, other = (
        a_run(tmp_path / name, task=MULTI, seed=seed, mode=mode).state.read_bytes()
        for name, seed in [("one", 1), ("same", 1), ("other", 2)]
    )
    assert one == same
    assert one != other


def test_a_fit_leaves_the_random_numbers_of_its_caller_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    a_run(tmp_path, task=MULTI, epochs=1)
    assert torch.equal(torch.rand(1), expected)
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_model_and_the_file_have_the_weights_of_the_best_epoch(tmp_path: Path) -> None:
    built, task = a_model(SINGLE), SINGLE
    seen: dict[float, dict[str, Any]] = {}

    def look(line: dict[str, float]) -> None:
        seen[line["epoch"]] = {name: t.clone() for name, t in built.module.state_dict().items()}

    fitted = a_run(tmp_path, task=task, built=built, say=look)
    assert fitted.epoch < SETTINGS.epochs, "the test needs a best epoch before the last"
    for found in (built.module.state_dict(), load_file(fitted.state)):
        assert all(torch.equal(found[name], tensor) for name, tensor in seen[fitted.epoch].items())


def test_the_paper_judges_epochs_by_tuned_thresholds_and_improved_by_the_middle(tmp_path: Path) -> None:
    """A rare label, learned for one epoch, stays far below .5: only tuned thresholds give it a score."""
    rare = Weights(np.full(3, 0.02, np.float32), ())
    scores = {}
    for mode in ("paper", "improved"):
        fitted = fit(
            a_model(MULTI), train=captions(75, split="train", task=MULTI),
            validation=captions(30, split="validation", task=MULTI), task=MULTI,
            settings=SETTINGS.model_copy(update={"mode": mode}), seed=1, folder=tmp_path / mode,
            weights=rare, say=lambda line: None,
        )  # fmt: skip
        scores[mode] = fitted.history[-1]["validation_macro_f1"]
        assert (fitted.thresholds < 0.5).all()
    assert scores["improved"] < 0.2
    assert scores["paper"] > 0.4


@leaks
def test_examples_of_another_split_are_refused_before_anything_is_made(tmp_path: Path, part: str, split: str) -> None:
    given = captions(40, split=part, task=MULTI)
    given[7] = replace(given[7], split=split)
    with refused("LeakRefused"):
        a_run(tmp_path, task=MULTI, **{part: given})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("task", [MULTI, SINGLE], ids=["multi", "single"])
def test_predictions_are_in_the_order_of_the_examples(task: Any) -> None:
    built = a_model(task)
    examples = captions(70, split="test", task=task)
    scores = predict(built, examples=examples, task=task, batch=SETTINGS.batch)
    mixed = random.Random(1).sample(range(70), 70)
    again = predict(built, examples=[examples[i] for i in mixed], task=task, batch=SETTINGS.batch)
    assert scores.shape == (70, len(task.labels))
    assert len(np.unique(scores.round(5), axis=0)) > 20, "the test needs examples that differ"
    np.testing.assert_allclose(again, scores[mixed], atol=1e-6)
    for row, example in zip(scores, examples, strict=True):
        alone = predict(built, examples=[example], task=task, batch=SETTINGS.batch)
        np.testing.assert_allclose(alone[0], row, atol=1e-6)
    if task.kind == "single":
        np.testing.assert_allclose(scores.sum(axis=1), 1, atol=1e-5)
    assert predict(built, examples=[], task=task, batch=SETTINGS.batch).shape == (0, len(task.labels))


def test_a_model_that_loses_rows_is_refused() -> None:
    def forgetful(examples: Sequence[Example]) -> Batch:
        return {"counts": prepare(examples)["counts"][1:]}

    built = replace(a_model(MULTI), prepare=forgetful)
    with refused("BadScores"):
        predict(built, examples=captions(1, split="test", task=MULTI), task=MULTI, batch=SETTINGS.batch)


def test_a_loss_that_is_no_number_ends_the_run(tmp_path: Path) -> None:
    built = a_model(MULTI)
    with torch.no_grad():
        built.module.head.bias[0] = float("inf")
    with pytest.raises(Diverged, match="learning_rate"):
        a_run(tmp_path, task=MULTI, built=built)


def a_loop(**changes: Any) -> Loop:
    examples = captions(70, split="train", task=MULTI)
    settings = SETTINGS.model_copy(update=changes)
    return Loop(
        a_model(MULTI), examples=examples, task=MULTI, settings=settings, seed=1,
        weights=weigh(examples, task=MULTI, max_pos_weight=20),
    )  # fmt: skip


def test_the_learning_rate_is_that_of_transformers() -> None:
    from transformers import get_linear_schedule_with_warmup

    loop = a_loop(epochs=3)
    theirs = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=SETTINGS.learning_rate)
    schedule = get_linear_schedule_with_warmup(theirs, num_warmup_steps=3, num_training_steps=loop.total)
    assert loop.total == 27
    for step in range(loop.total):
        loop.step = step
        assert loop.rate() == pytest.approx(theirs.param_groups[0]["lr"])
        theirs.step()
        schedule.step()


def test_m3h_is_trained_as_its_authors_did_or_as_all_other_models() -> None:
    spec = kind.spec(load(ROOT), "m3h")
    assert isinstance(spec, M3h)
    job = SimpleNamespace(mode="improved", checkpoint_steps=200)
    settings = spec.settings(job)
    assert (settings.epochs, settings.batch, settings.learning_rate, settings.clip) == (10, 32, 5e-5, None)
    assert (settings.reweighted, settings.weight_decay, settings.mode) == (False, 0, "improved")
    examples = captions(40, split="train", task=SINGLE)
    weights = weigh(examples, task=SINGLE, max_pos_weight=20)
    flat = weigh(examples, task=SINGLE, max_pos_weight=20, reweighted=False)
    assert flat.values.tolist() == [1.0] * len(SINGLE.labels) != weights.values.tolist()
    loop = Loop(a_model(SINGLE), examples=examples, task=SINGLE, settings=settings, seed=1, weights=flat)
    assert loop.total == 20
    rates = []
    for _ in loop.epoch(0):
        rates.append(loop.rate())
    assert rates == [5e-5, 5e-5], "the rate is constant"
    others = M3h(**spec.model_dump(exclude=set(Recipe.model_fields))).settings(job)
    assert (others.schedule, others.clip, others.epochs, others.reweighted) == ("linear", 1.0, 20, True)


def test_gradients_are_clipped_unless_the_recipe_does_not(tmp_path: Path) -> None:
    clipped, free = (a_run(tmp_path / str(clip), task=SINGLE, epochs=1, clip=clip) for clip in (1e-6, None))
    assert clipped.history[0]["train_loss"] != free.history[0]["train_loss"]


def test_biases_and_norms_do_not_decay() -> None:
    module = Bag(3)
    decayed, kept = optimizer(module, settings=SETTINGS, device=torch.device("cpu")).param_groups
    assert {id(p) for p in decayed["params"]} == {id(module.read.weight), id(module.head.weight)}
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.01, 0.0)
    assert len(kept["params"]) == 4


@pytest.mark.parametrize(("memory", "expected"), [(None, 0), (10**9, 0), (10**5, 1)])
def test_memory_is_spared_where_it_is_short(memory: int | None, expected: int) -> None:
    module, asked = Bag(3), []
    module.gradient_checkpointing_enable = lambda: asked.append(1)
    spare_memory(module, memory=memory)
    assert len(asked) == expected
    spare_memory(Bag(3), memory=memory)


def test_frozen_weights_stay_unchanged(tmp_path: Path) -> None:
    built = a_model(MULTI)
    built.module.read.requires_grad_(False)
    before = built.module.read.weight.clone()
    a_run(tmp_path, task=MULTI, built=built, epochs=1)
    assert torch.equal(built.module.read.weight, before)


def test_an_epoch_has_every_example_once_in_batches_of_like_lengths() -> None:
    chance = random.Random(1)
    lengths = [chance.randint(1, 60) for _ in range(1000)]
    batches = shuffled(lengths, batch=16, seed=1, epoch=0)
    assert Counter(i for rows in batches for i in rows) == Counter(range(1000))
    assert {len(rows) for rows in batches} <= {16, 1000 % 16}
    padded = sum(len(rows) * max(lengths[i] for i in rows) for rows in batches)
    assert padded < 1.1 * sum(lengths)
    assert shuffled(lengths, batch=16, seed=1, epoch=0) == batches
    for seed, epoch in [(2, 0), (1, 1)]:
        other = shuffled(lengths, batch=16, seed=seed, epoch=epoch)
        assert {frozenset(rows) for rows in other}.isdisjoint(frozenset(rows) for rows in batches)


@pytest.mark.parametrize("count", [17, 16 * MEGA + 1, 1])
def test_no_batch_is_a_single_example_where_there_are_more(count: int) -> None:
    batches = shuffled([1] * count, batch=16, seed=1, epoch=0)
    assert sum(map(len, batches)) == count
    assert count == 1 or min(map(len, batches)) > 1


@pytest.mark.parametrize("workers", [0, 3])
def test_what_is_made_ahead_comes_in_order(workers: int) -> None:
    assert list(ahead(lambda n: n * n, range(50), workers=workers)) == [n * n for n in range(50)]


# What `accelerate launch` makes of one command, from one import.
SEVERAL = """
import os, sys
from pathlib import Path
from small_run import a_task, plain, a_run
import torch
torch.set_num_threads(1)
rank = 0 if os.fork() else 1
os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
task, said = a_task("severity"), []
a_run(Path(sys.argv[1]), task=task, built=plain(task), say=said.append, epochs=2, checkpoint_steps=4)
Path(sys.argv[1], f"said-{len(said)}").touch()
if rank == 0:
    os.wait()
"""


@pytest.mark.faults
def test_two_processes_fit_what_one_does(tmp_path: Path) -> None:
    """Each batch is shared, not repeated: without dropout and batch normalisation the weights are those of one."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "train")])
    env = {**os.environ, "PYTHONPATH": path, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    subprocess.run([sys.executable, "-c", SEVERAL, str(tmp_path / "two")], env=env, check=True, timeout=120)
    assert sorted(p.name for p in (tmp_path / "two").iterdir()) == ["model.safetensors", "said-0", "said-2"]
    one, two = a_run(tmp_path / "one", task=SINGLE, built=plain(SINGLE), epochs=2), tmp_path / "two"
    found = load_file(two / "model.safetensors")
    for name, tensor in load_file(one.state).items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-4)


METAPHOR, PUN, _ = MULTI.labels
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
    found = weigh([example(i, label) for i, label in enumerate(labels)], task=SINGLE, max_pos_weight=20)
    assert found.values == pytest.approx(expected) and found.values.dtype == np.float32
    assert found.empty == tuple(label for label, n in zip(SINGLE.labels, expected, strict=True) if not n)


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
    found = weigh([example(i, *labels) for i, labels in enumerate(sets)], task=MULTI, max_pos_weight=cap)
    assert found.values.tolist() == expected
    assert found.empty == tuple(label for label, n in zip(MULTI.labels, expected, strict=True) if not n)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_planted_leak_is_refused(split: str) -> None:
    fair = [example(i, METAPHOR) for i in range(5)]
    with refused("LeakRefused", match=f"1 examples of {split} were refused: only train may"):
        weigh([*fair, example(5, PUN, split=split)], task=MULTI, max_pos_weight=20)
