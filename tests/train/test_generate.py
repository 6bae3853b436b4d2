"""What a causal model answers: the most probable valid answer with its probability, in any company."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, GPT2Config, Qwen3Config
from transformers.utils import logging

from pipelines.core.errors import BadParams
from pipelines.core.taxonomy import Scheme, load
from pipelines.core.taxonomy.task import task_of
from pipelines.models.fitting import posterior
from pipelines.models.fitting.generate import Generator
from pipelines.models.fitting.instruct import completion, conversation, instruction
from pipelines.models.fitting.posterior import Grammar, Node, WholeRows, plain
from pipelines.models.prediction import VOTE, Prediction
from tests.refusals import refused
from tests.train.byte_tokens import byte_level
from tests.train.silver_posts import unlabelled


def terse(*, without: Collection[str] = ()) -> Scheme:
    """CRADLE's labels and rules with a short instruction, so that the posts are most of what a model reads."""
    whole = load("cradle")
    category = whole.category("labels")
    kept = [label for label in category.labels if label.name.split("_")[0] not in without]
    labels = tuple(replace(label, definition="it") for label in kept)
    category = replace(category, task="Name it.", labels=labels, brief=(), recall_floors={})
    return replace(whole, role="You label.", categories={"labels": category}, display={})


WHOLE = terse()
# nine of the labels: 63 answers
SCHEME = terse(without={"sexualharassment", "domesticviolence", "childabuse"})
TASK = task_of(SCHEME, "labels")
WORDS = ["garden", "bus", "partner", "scar", "shouting", "night", "recipe", "home", "fear", "past", "again", "somehow"]
ROOM = 64
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 2048}
# So large that a model's answers differ with what it reads.
SPREAD = {"initializer_range": 0.6}
SHARP = 6.0
LAYERS = ["full_attention", "sliding_attention"]


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    threads, level = torch.get_num_threads(), logging.get_verbosity()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    logging.set_verbosity(level)


def tokens() -> Any:
    whole = instruction(WHOLE, category=TASK.key)
    return byte_level(1200, texts=(whole.system + whole.template + " ".join(WORDS),) * 3)


def config_of(kind: str) -> Any:
    tokenizer = tokens()
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    sizes = {**SIZE, **SPREAD, "vocab_size": len(tokenizer), **ends}
    gated = {**sizes, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 64}
    if kind == "qwen3":
        return Qwen3Config(**gated)
    if kind == "gpt2":  # learned places instead of rotations
        return GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=2048, vocab_size=len(tokenizer), **SPREAD, **ends)
    # each place sees the last 48 alone
    return Gemma3TextConfig(**gated, sliding_window=48, layer_types=LAYERS, query_pre_attn_scalar=1)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Folders with random models of several architectures, made when asked for."""
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind)
            torch.manual_seed(1)
            model = AutoModelForCausalLM.from_config(config_of(kind))
            for name, weight in model.named_parameters():
                if name.endswith("q_norm.weight"):
                    weight.data.add_(SHARP)
            model.save_pretrained(made[kind])
            tokens().save_pretrained(made[kind])
        return made[kind]

    return folder


def grammar() -> Grammar:
    return Grammar.of(TASK, encode=lambda answer: tokens()(answer)["input_ids"])


def opened(folder: Path, **options: Any) -> Generator:
    given = {"task": TASK, "scheme": SCHEME, "max_length": 1024, "max_new_tokens": ROOM, "batch": 4, "folder": folder}
    return Generator(folder, **given | options)


def posts(count: int, *, seed: int, longest: int = 60) -> list[str]:
    rng = Random(seed)
    return [f"Title: {n} Text: {' '.join(rng.choices(WORDS, k=rng.randint(1, longest)))}" for n in range(count)]


def by_the_book(folder: Path, text: str, *, scheme: Scheme, room: int = ROOM) -> dict[frozenset[str], float]:
    """Return the posterior of one post's answers: every answer read whole, without a cache or a tree."""
    task, tokenizer = task_of(scheme, "labels"), tokens()
    prompt = instruction(scheme, category=task.key)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    asked = conversation(text, prompt=prompt, tokenizer=tokenizer, max_length=1024, room=room)
    sets = task.category.valid_sets()
    written = {labels: tokenizer(completion(labels, task=task))["input_ids"] for labels in sets}
    logs = {}
    with torch.inference_mode():
        for labels, answer in written.items():
            if len(answer) <= room:
                row = model(torch.tensor([asked + answer]), use_cache=False).logits[0, len(asked) - 1 : -1]
                logs[labels] = float(row.double().log_softmax(-1).gather(1, torch.tensor(answer)[:, None]).sum())
    most = max(logs.values())
    whole = sum(math.exp(log - most) for log in logs.values())
    return {labels: math.exp(log - most) / whole for labels, log in logs.items()}


def close(found: Sequence[Prediction], others: Sequence[Prediction]) -> None:
    """Equal up to the rounding of sums in float32."""
    for one, other in zip(found, others, strict=True):
        assert replace(one, scores=()) == replace(other, scores=())
        np.testing.assert_allclose(one.scores, other.scores, atol=2e-4)


@pytest.mark.parametrize(
    ("kind", "scheme", "count"),
    [
        ("gpt2", SCHEME, 63),
        *(pytest.param(kind, WHOLE, 837, marks=pytest.mark.faults) for kind in ("gpt2", "qwen3", "windows")),
    ],
)
def test_the_posterior_of_each_post_is_that_of_all_answers_read_alone(
    bases: Any, kind: str, scheme: Scheme, count: int
) -> None:
    folder, texts, task = bases(kind), posts(3, seed=1, longest=20), task_of(scheme, "labels")
    generator = opened(folder, task=task, scheme=scheme)
    found = generator.posteriors(unlabelled(texts))
    assert found.shape == (3, count)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    read = [by_the_book(folder, text, scheme=scheme) for text in texts]
    exact = np.array([[one[labels] for labels in generator.sets] for one in read])
    np.testing.assert_allclose(found, exact, atol=2e-4)
    answers = generator.predict(unlabelled(texts))
    for answer, row in zip(answers, exact, strict=True):
        best = generator.sets[int(row.argmax())]
        said = tokens()(completion(best, task=task))["input_ids"]
        assert (answer.outcome, answer.labels, answer.output_tokens) == (VOTE, best, len(said))
        sums = [sum(p for p, s in zip(row, generator.sets, strict=True) if label in s) for label in task.labels]
        np.testing.assert_allclose(answer.scores, sums, atol=5e-4)
    assert len({answer.labels for answer in answers}) > 1


def test_what_is_not_read_is_less_than_a_millionth(bases: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = posts(4, seed=21)
    generator = opened(bases("qwen3"))
    cut = generator.posteriors(unlabelled(texts))
    monkeypatch.setattr(posterior, "LEFT_OUT", 1e-300)
    whole = generator.posteriors(unlabelled(texts))
    assert (whole > 0).all()
    assert (cut == 0).sum() > 0, "the test needs answers that are not worth reading"
    assert whole[cut == 0].sum() < 4e-6
    np.testing.assert_allclose(cut, whole, atol=1e-4)


def test_windows_and_states_are_read_without_a_cache(bases: Any) -> None:
    for kind, expected in {"qwen3": True, "gpt2": True, "windows": False}.items():
        assert plain(AutoModelForCausalLM.from_pretrained(bases(kind))) is expected


@pytest.mark.parametrize("kind", ["windows", "gpt2"])
def test_branches_that_are_read_with_their_prompts_need_only_their_own_logits(bases: Any, kind: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(bases(kind), dtype=torch.float32).eval()
    sizes: list[int] = []
    model.lm_head.register_forward_hook(lambda _, inputs, output: sizes.append(output.shape[1]))
    prompts = [list(range(5, 5 + n)) for n in (90, 60, 75)]
    nodes = [Node(i, 0.0, (prompts[i][-1], 7)[: i + 1], (8, 9, 11), grammar().start) for i in (0, 1, 2, 1)]
    asked = [[(0, 9), (1, 11), (2, 3), (2, 4)], [(2, 5)], [], [(0, 9)]]
    with torch.inference_mode():
        found = WholeRows(model, prompts=prompts, batch=3).read(nodes, asked=asked)
        assert max(sizes) == 4 and len(sizes) == 2
        for node, wanted, values in zip(nodes, asked, found, strict=True):
            row = [*prompts[node.prompt][:-1], *node.path, *node.tokens]
            logs = model(torch.tensor([row]), use_cache=False).logits[0, -3:].log_softmax(-1)
            np.testing.assert_allclose(values, [float(logs[at, token]) for at, token in wanted], atol=1e-4)


def test_company_and_order_change_nothing(bases: Any) -> None:
    texts = posts(9, seed=2)
    told: list[int] = []
    answers = opened(bases("qwen3"), batch=4).predict(unlabelled(texts), progress=told.append)
    assert told == [4, 8, 9]
    close(answers, opened(bases("qwen3"), batch=2).predict(unlabelled(texts[::-1]))[::-1])
    alone = opened(bases("qwen3"), batch=1)
    close(answers[:1], alone.predict(unlabelled(texts[:1])))
    assert alone.predict([]) == []


@pytest.mark.parametrize("kind", ["qwen3", "windows"])
@pytest.mark.parametrize("spare", [0, 1, 5])
def test_an_answer_ends_before_the_limit(bases: Any, kind: str, spare: int) -> None:
    shortest = len(grammar().opening) + grammar().start.least
    answers = opened(bases(kind), max_new_tokens=shortest + spare).predict(unlabelled(posts(5, seed=4)))
    assert all(answer.outcome == VOTE and answer.labels for answer in answers)
    assert max(answer.output_tokens for answer in answers) <= shortest + spare


def test_a_limit_below_every_answer_is_refused(bases: Any) -> None:
    with pytest.raises(BadParams, match="max_new_tokens"):
        opened(bases("qwen3"), max_new_tokens=3)


@pytest.mark.parametrize("kind", ["qwen3", "windows"])
def test_a_long_post_is_shortened_and_answered(bases: Any, kind: str) -> None:
    texts = posts(3, seed=5, longest=30) + posts(2, seed=6, longest=3000)
    answers = opened(bases(kind), max_length=1024).predict(unlabelled(texts))
    assert all(answer.outcome == VOTE for answer in answers)
    assert 1024 - ROOM - 8 < max(answer.input_tokens for answer in answers) <= 1024 - ROOM


def test_unconstrained_answers_are_read_by_the_caller(bases: Any) -> None:
    read: list[str] = []

    def reader(answer: str) -> tuple[str, frozenset[str]]:
        read.append(answer)
        return "malformed", frozenset()

    answers = opened(bases("qwen3"), reader=reader).predict(unlabelled(posts(4, seed=7)))
    assert {(answer.outcome, answer.labels, answer.scores) for answer in answers} == {("malformed", frozenset(), ())}
    assert len(set(read)) == 4 and all(0 < answer.output_tokens <= ROOM for answer in answers)


def test_settings_of_a_checkpoint_do_not_bend_the_choice(bases: Any, tmp_path: Path) -> None:
    texts = posts(4, seed=8)
    answers = opened(bases("windows")).predict(unlabelled(texts))
    written = [tokens()(completion(answer.labels or frozenset(), task=TASK))["input_ids"] for answer in answers]
    model = AutoModelForCausalLM.from_pretrained(bases("windows"))
    model.generation_config.suppress_tokens = sorted({row[len(grammar().opening)] for row in written})
    model.save_pretrained(tmp_path)
    tokens().save_pretrained(tmp_path)
    close(opened(tmp_path).predict(unlabelled(texts)), answers)


def test_a_base_that_is_not_there_or_no_causal_model_is_refused(tmp_path: Path) -> None:
    with refused("BaseMissing"):
        opened(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    tokens().save_pretrained(tmp_path)
    with refused("BaseUnfit"):
        opened(tmp_path)


def test_a_base_without_an_end_is_refused(bases: Any, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(bases("qwen3"))
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    model.save_pretrained(tmp_path)
    tokenizer = deepcopy(tokens())
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path)
    with refused("BaseUnfit", match="ends an answer"):
        opened(tmp_path)


def test_a_checkpoint_that_lacks_weights_is_refused(bases: Any, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(bases("qwen3"))
    state = {name: value for name, value in model.state_dict().items() if "mlp.up_proj" not in name}
    model.save_pretrained(tmp_path, state_dict=state)
    tokens().save_pretrained(tmp_path)
    with refused("BaseUnfit", match="lacks 2 weights"):
        opened(tmp_path)
