"""Rows of many conversations: the losses and gradients of single ones, nothing seen across, nothing lost or twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

from pipelines.train.sft import packing
from pipelines.train.sft.packing import IGNORED, TokenizedSample, packable, padded, plan, row, shared

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


def gradients(model: Any) -> dict[str, Any]:
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    return found


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("start", [5, 3, 0])
def test_a_packed_row_has_the_losses_and_gradients_of_single_conversations(kind: str, start: int) -> None:
    model = a_model(kind)
    alone = torch.cat([losses(model, padded([sample], pad=0)) for sample in SAMPLES])
    alone.sum().backward()
    expected = gradients(model)
    model.set_attn_implementation(packing.ATTENTION)
    together = losses(model, row(SAMPLES, shared=start))
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)
    together.sum().backward()
    for name, found in gradients(model).items():
        torch.testing.assert_close(found, expected[name], rtol=1e-4, atol=1e-5)


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
    apart = losses(model, row(SAMPLES, shared=start))
    apart.sum().backward()
    expected = gradients(model)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    monkeypatch.setattr(packing, "_flash_form", lambda query: query.dtype)
    at_once = losses(model, row(SAMPLES, shared=start))
    torch.testing.assert_close(at_once, apart, rtol=1e-5, atol=1e-6)
    at_once.sum().backward()
    for name, found in gradients(model).items():
        torch.testing.assert_close(found, expected[name], rtol=1e-4, atol=1e-5)


def test_no_conversation_sees_another() -> None:
    model = a_model()
    model.set_attn_implementation(packing.ATTENTION)
    before = losses(model, row(SAMPLES, shared=5))
    other = [SAMPLES[0], SAMPLES[1], TokenizedSample((*SAMPLES[2].ids[:5], *range(20, 29)), 3), SAMPLES[3]]
    after = losses(model, row(other, shared=5))
    same = [0, 1, 2, 6]  # the answers of all but the third
    torch.testing.assert_close(after[same], before[same], rtol=1e-6, atol=1e-6)
    assert (after[3:6] - before[3:6]).abs().min() > 1e-3


def test_padding_changes_nothing() -> None:
    model = a_model()
    alone = torch.cat([losses(model, padded([sample], pad=0)) for sample in SAMPLES])
    torch.testing.assert_close(losses(model, padded(SAMPLES, pad=0)), alone, rtol=1e-5, atol=1e-6)


def test_only_answers_are_learnt() -> None:
    for batch in (row(SAMPLES, shared=5), padded(SAMPLES, pad=0)):
        labels = batch["labels"]
        assert (labels[labels != IGNORED] == batch["input_ids"][labels != IGNORED]).all()
        assert labels[labels != IGNORED].tolist() == [40, 41, 42, 43, 44, 45, 46]


def test_a_row_holds_the_beginning_once() -> None:
    batch = row(SAMPLES, shared=5)
    assert batch["input_ids"].shape == (1, 5 + 5 + 2 + 9 + 2)
    assert batch["segments"] == (5, 5, 2, 9, 2)
    assert batch["position_ids"][0].tolist() == [*range(5), *range(5, 10), 5, 6, *range(5, 14), 5, 6]


def test_what_is_shared_ends_before_the_last_token_of_a_prompt() -> None:
    assert shared(SAMPLES) == 5
    assert shared([SAMPLES[1], SAMPLES[3]]) == 5  # all of the prompt is the same: its last token stays
    assert shared([SAMPLES[1]]) == 5
    assert shared([SAMPLES[0], TokenizedSample((9, 9, 9), 1)]) == 0
    assert shared([]) == 0


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
