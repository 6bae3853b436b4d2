"""Rows of many conversations: losses and gradients of single ones, nothing lost or twice, and weights of samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

from pipelines.core.config.settings import Settings
from pipelines.models.kinds.sft import packing
from pipelines.models.kinds.sft.packing import IGNORED, TokenizedSample, packable, padded, plan, row, shared
from pipelines.models.kinds.sft.trainer import RowCollator
from pipelines.store import tables
from tests.train import small_posts as small
from tests.train import small_tuned
from tests.train.small_posts import SmallPosts

SIZES = {
    "vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "initializer_range": 0.5,
}  # fmt: skip
SAMPLES = [
    TokenizedSample((1, 2, 3, 4, 5, 10, 11, 12, 40, 41), 2),
    TokenizedSample((1, 2, 3, 4, 5, 13, 42), 1),
    TokenizedSample((1, 2, 3, 4, 5, 14, 15, 16, 17, 18, 19, 43, 44, 45), 3),
    TokenizedSample((1, 2, 3, 4, 5, 13, 46), 1),
]


def a_model(kind: str = "qwen3") -> Any:
    torch.manual_seed(1)
    if kind == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(head_dim=8, **SIZES)).eval()
    return LlamaForCausalLM(LlamaConfig(**SIZES)).eval()


def losses(model: Any, batch: dict[str, Any]) -> Any:
    """Return the loss of every answer token, in order, by the plainest means."""
    given = {name: each for name, each in batch.items() if name != "labels"}
    logits = model(**given, use_cache=False).logits[:, :-1]
    wanted = batch["labels"][:, 1:]
    found = torch.nn.functional.cross_entropy(logits.transpose(1, 2), wanted, reduction="none", ignore_index=IGNORED)
    return found[wanted != IGNORED]


def learnt(model: Any, *batches: dict[str, Any]) -> list[Any]:
    """Return the losses of batches, and the gradients that they leave at each weight."""
    found = torch.cat([losses(model, batch) for batch in batches])
    found.sum().backward()
    made = [found.detach(), *(p.grad.clone() for p in model.parameters())]
    model.zero_grad()
    return made


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("start", [5, 3, 0])
def test_a_packed_row_has_the_losses_and_gradients_of_single_conversations(kind: str, start: int) -> None:
    model = a_model(kind)
    alone = learnt(model, *(padded([sample], pad=0) for sample in SAMPLES))
    model.set_attn_implementation(packing.ATTENTION)
    torch.testing.assert_close(learnt(model, row(SAMPLES, shared=start)), alone, rtol=1e-4, atol=1e-5)


def kernel(query: Any, keys: Any, values: Any, *ends_and_room: Any, scale: float, window_size: tuple[int, int]) -> Any:
    """Compute on a CPU what torch's kernel computes on a GPU, which has equally many heads of queries and of keys."""
    assert window_size == (-1, 0)
    assert query.shape[1:] == keys.shape[1:] == values.shape[1:]
    queries_end, keys_end, queries_room, keys_room = ends_and_room
    assert queries_end.dtype == keys_end.dtype == torch.int32
    assert queries_end.diff().max() == queries_room
    assert keys_end.diff().max() == keys_room
    parts = []
    for each in range(len(queries_end) - 1):
        begin, end = queries_end[each : each + 2]
        seen = slice(*keys_end[each : each + 2])
        scores = torch.einsum("qhd,khd->hqk", query[begin:end], keys[seen]) * scale
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(scores.shape[2] - scores.shape[1] + 1)
        parts.append(torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), values[seen]))
    return torch.cat(parts)


@pytest.mark.parametrize("start", [5, 3, 0])
def test_one_kernel_computes_the_attention_of_all_samples(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model()
    model.set_attn_implementation(packing.ATTENTION)
    apart = learnt(model, row(SAMPLES, shared=start))
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    monkeypatch.setattr(packing, "_flash_form", lambda query: query.dtype)
    torch.testing.assert_close(learnt(model, row(SAMPLES, shared=start)), apart, rtol=1e-4, atol=1e-5)


def test_a_row_holds_the_beginning_once() -> None:
    batch = row(SAMPLES, shared=5)
    assert batch["input_ids"].shape == (1, 5 + 5 + 2 + 9 + 2)
    assert batch["segments"] == (5, 5, 2, 9, 2)
    assert batch["position_ids"][0].tolist() == [*range(5), *range(5, 10), 5, 6, *range(5, 14), 5, 6]


@given(st.lists(st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.integers(1, 3)), min_size=1))
@settings(max_examples=60, deadline=None)
def test_what_is_shared_is_the_longest_that_all_begin_with(parts: list[tuple[list[int], int]]) -> None:
    made = [TokenizedSample((*prompt, *[7] * answer), answer) for prompt, answer in parts]
    found = shared(made)
    prompts = [s.ids[: -s.answer] for s in made]
    assert len({p[:found] for p in prompts}) == 1
    assert found < min(map(len, prompts))
    if found + 1 < min(map(len, prompts)):
        assert len({p[: found + 1] for p in prompts}) > 1


LENGTHS = [3 + (n * 37) % 50 for n in range(70)]


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("room", [100, 1000, None])
def test_an_epoch_has_every_sample_once_in_rows_that_fit(processes: int, room: int | None) -> None:
    made = plan(LENGTHS, step=16, epochs=2, seed=1, processes=processes, room=room, batch=4)
    assert [len(epoch) for epoch in made.steps] == [5, 5]
    for epoch in made.steps:
        assert Counter(i for step in epoch for rows in step for chosen in rows for i in chosen) == Counter(range(70))
        sizes = [sum(len(chosen) for rows in step for chosen in rows) for step in epoch]
        assert sizes == [16, 16, 16, 16, 6]
        for step in epoch:
            assert [len(rows) for rows in step] == [made.rows] * processes
            filled = [sum(LENGTHS[i] for i in chosen) for rows in step for chosen in rows]
            if room is None:
                assert max(len(chosen) for rows in step for chosen in rows) <= 4
            else:
                assert max(filled) <= room
    assert made.steps[0] != made.steps[1]


def test_rows_are_as_few_as_can_be_and_of_like_length() -> None:
    made = plan(LENGTHS, step=70, epochs=1, seed=1, processes=2, room=400, batch=1)
    filled = [sum(LENGTHS[i] for i in chosen) for rows in made.steps[0][0] for chosen in rows]
    assert len(filled) == 6  # 1,936 tokens need five rows of 400, and two processes an even number
    assert max(filled) - min(filled) < 10


def test_who_shares_a_step_and_how_it_is_packed_does_not_change_what_is_in_it() -> None:
    def steps(**changed: Any) -> list[list[int]]:
        given: dict[str, Any] = {"processes": 1, "room": 200, "batch": 4} | changed
        made = plan(LENGTHS, step=16, epochs=2, seed=1, **given)
        return [sorted(i for rows in step for chosen in rows for i in chosen) for epoch in made.steps for step in epoch]

    assert steps() == steps(processes=3) == steps(room=None) == steps(room=5000)


def test_a_sample_that_is_longer_than_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than a row"):
        plan([10, 300], step=2, epochs=1, seed=1, processes=1, room=200, batch=1)


def test_what_looks_back_through_a_window_is_not_packed() -> None:
    assert packable(a_model())
    assert packable(a_model("llama"))
    assert not packable(MistralForCausalLM(MistralConfig(**SIZES, sliding_window=8)))
    sliding = Qwen3Config(head_dim=8, **SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=1)
    assert not packable(Qwen3ForCausalLM(sliding))


def sure(posts: SmallPosts, *, unequal: bool) -> dict[str, float]:
    """Write posteriors into silver; return them by record."""
    path = posts.snapshot / "silver/cradle/silver.parquet"
    rows = tables.read(path, name="silver").to_pylist()
    given = {row["record_id"]: (0.25, 1.0)[n % 2] if unequal else 0.5 for n, row in enumerate(rows)}
    small.write_table(path, [row | {"posterior": given[row["record_id"]]} for row in rows], name="silver")
    return given


def test_weights_are_the_posteriors_with_mean_one_and_only_if_asked_for(posts: SmallPosts) -> None:
    given = sure(posts, unequal=True)
    train = posts.load("consensus", weighted=True).train
    expected = np.array([given[example.item[0]] for example in train])
    assert [example.weight for example in train] == pytest.approx(list(expected / expected.mean()))
    assert {example.weight for example in posts.load("consensus").train} == {1.0}
    assert {example.weight for example in posts.load("consensus", weighted=True).validation} == {1.0}


def fitted(posts: SmallPosts, settings: Settings, *, model: str, weights: str) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        spec = small_tuned.MODELS[model].model_copy(update={"weights": weights})
        patch.setitem(small_tuned.MODELS, model, spec)
        return small_tuned.tuned(posts, settings, model=model)


@pytest.mark.parametrize("model", ["encoder", pytest.param("sft", marks=pytest.mark.faults)])
def test_unequal_posteriors_change_the_model_and_equal_ones_do_not(
    posts: SmallPosts, settings: Settings, model: str
) -> None:
    losses = {}
    for unequal in (False, True):
        sure(posts, unequal=unequal)
        for weights in ("equal", "posterior"):
            told = fitted(posts, settings, model=model, weights=weights)["fit"]
            losses[unequal, weights] = [epoch["train_loss"] for epoch in told["history"]]
    assert losses[False, "posterior"] == losses[False, "equal"] == losses[True, "equal"]
    assert losses[True, "posterior"] != losses[True, "equal"]


def test_a_sample_of_weight_two_counts_as_two_samples() -> None:
    samples = [TokenizedSample((1, 2, 3, 4), 2, weight=2.0), TokenizedSample((1, 2, 5), 1, weight=0.5)]
    packed = RowCollator(samples, shared=1, pad=0)([0, 1])
    assert packed["weights"].tolist() == [[1, 2, 2, 2, 0.5, 0.5]]
    assert packed["weights"].shape == packed["labels"].shape
    padded = RowCollator(samples, shared=None, pad=0)([0, 1])
    assert padded["weights"].tolist() == [[2] * 4, [0.5] * 4]
    assert torch.equal(padded["labels"] != IGNORED, torch.tensor([[0, 0, 1, 1], [0, 0, 1, 0]]) > 0)
    plain = [replace(sample, weight=1.0) for sample in samples]
    assert "weights" not in RowCollator(plain, shared=1, pad=0)([0, 1])
