"""What a causal model answers: the most probable valid answer, in any company, and never a malformed one."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, GPT2Config, Qwen3Config
from transformers.utils import logging

from pipelines.errors import BadParams
from pipelines.models.backbones import BaseMissing, BaseUnfit
from pipelines.sandbox.reddit import label_quotas, narratives
from pipelines.taxonomy import Scheme, load
from pipelines.taxonomy.task import task_of
from pipelines.train.prediction import MALFORMED, VOTE, Prediction
from pipelines.train.sft.generate import Generator, leaps
from pipelines.train.sft.grammar import Grammar
from pipelines.train.sft.instruct import completion, conversation, instruction
from tests.train.byte_tokens import byte_level


def terse() -> Scheme:
    """CRADLE's labels and rules with a short instruction, so that the posts are most of what a model reads."""
    whole = load("cradle")
    category = whole.category("labels")
    labels = tuple(replace(label, definition="it") for label in category.labels)
    category = replace(category, task="Name it.", labels=labels, brief=())
    return replace(whole, role="You label.", categories={"labels": category})


SCHEME = terse()
TASK = task_of(SCHEME, "labels")
PROMPT = instruction(SCHEME, category=TASK.key)
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
    return byte_level(1200, text=PROMPT.system + PROMPT.template + " ".join(WORDS))


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
    settings = {"max_length": 1024, "max_new_tokens": ROOM, "batch": 4, "folder": folder} | options
    return Generator.open(folder, task=TASK, scheme=SCHEME, **settings)


def posts(count: int, *, seed: int, longest: int = 60) -> list[str]:
    rng = Random(seed)
    return [f"Title: {n} Text: {' '.join(rng.choices(WORDS, k=rng.randint(1, longest)))}" for n in range(count)]


def alone(folder: Path, text: str) -> Prediction:
    """Answer by the book: one post, no cache, no padding, every token of the answer chosen for itself."""
    tokenizer = tokens()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    answers = grammar()
    prompt = conversation(text, prompt=PROMPT, tokenizer=tokenizer, max_length=1024, room=ROOM)
    written: list[int] = []
    with torch.inference_mode():
        while allowed := answers.next(written, room=ROOM):
            scores = model(torch.tensor([prompt + written]), use_cache=False).logits[0, -1]
            written.append(max(allowed, key=lambda token: float(scores[token])))
    return Prediction(VOTE, answers.labels(written), input_tokens=len(prompt), output_tokens=len(written))


@pytest.mark.parametrize("kind", ["qwen3", "gpt2", "windows"])
def test_answers_are_those_of_each_post_alone(bases: Any, kind: str) -> None:
    folder = bases(kind)
    texts = posts(7, seed=1)
    answers = opened(folder).predict(texts)
    assert answers == [alone(folder, text) for text in texts]
    assert len({answer.labels for answer in answers}) > 1
    assert len({answer.output_tokens for answer in answers}) > 1


def test_windows_and_states_are_left_to_the_library(bases: Any) -> None:
    for kind, expected in {"qwen3": True, "gpt2": True, "windows": False}.items():
        assert leaps(AutoModelForCausalLM.from_pretrained(bases(kind))) is expected


def test_company_and_order_change_nothing(bases: Any) -> None:
    texts = posts(9, seed=2)
    answers = opened(bases("qwen3"), batch=4).predict(texts)
    turned = opened(bases("qwen3"), batch=2).predict(texts[::-1])
    assert answers == turned[::-1]
    assert opened(bases("qwen3"), batch=1).predict(texts[:1]) == answers[:1]


def test_equal_posts_have_equal_answers_and_none_has_none(bases: Any) -> None:
    generator = opened(bases("qwen3"))
    [text] = posts(1, seed=3)
    answers = generator.predict([text] * 5)
    assert answers == generator.predict([text]) * 5
    assert generator.predict([]) == []


@pytest.mark.parametrize("kind", ["qwen3", "windows"])
@pytest.mark.parametrize("spare", [0, 1, 5])
def test_an_answer_ends_before_the_limit(bases: Any, kind: str, spare: int) -> None:
    shortest = len(grammar().opening) + grammar().start.least
    answers = opened(bases(kind), max_new_tokens=shortest + spare).predict(posts(5, seed=4))
    assert all(answer.outcome == VOTE and answer.labels for answer in answers)
    assert max(answer.output_tokens for answer in answers) <= shortest + spare


def test_a_limit_below_every_answer_is_refused(bases: Any) -> None:
    with pytest.raises(BadParams, match="max_new_tokens"):
        opened(bases("qwen3"), max_new_tokens=3)


@pytest.mark.parametrize("kind", ["qwen3", "windows"])
def test_a_long_post_is_shortened_and_answered(bases: Any, kind: str) -> None:
    texts = posts(3, seed=5, longest=30) + posts(2, seed=6, longest=3000)
    answers = opened(bases(kind), max_length=1024).predict(texts)
    assert all(answer.outcome == VOTE for answer in answers)
    assert 1024 - ROOM - 8 < max(answer.input_tokens for answer in answers) <= 1024 - ROOM


def test_unconstrained_answers_are_read_and_malformed_ones_are_counted(bases: Any) -> None:
    answers = opened(bases("qwen3"), constrained=False).predict(posts(4, seed=7))
    assert [(answer.outcome, answer.labels) for answer in answers] == [(MALFORMED, frozenset())] * 4
    assert all(0 < answer.output_tokens <= ROOM for answer in answers)


def test_a_model_that_has_learned_the_form_is_not_changed_by_the_grammar(bases: Any, tmp_path: Path) -> None:
    sets = [frozenset({"no_crisis"}), frozenset({"rape_past"}), frozenset({"selfharm_ongoing", "rape_past"})]
    texts = ["Title: a Text: garden", "Title: b Text: night", "Title: c Text: home scar"]
    learn(bases("qwen3"), texts=texts, sets=sets, out=tmp_path)
    free, bound = (opened(tmp_path, constrained=flag).predict(texts) for flag in (False, True))
    assert [answer.labels for answer in free] == sets
    assert [answer.labels for answer in bound] == sets
    assert [answer.output_tokens for answer in free] == [answer.output_tokens for answer in bound]


def learn(folder: Path, *, texts: Sequence[str], sets: Sequence[frozenset[str]], out: Path) -> None:
    """Teach a model a few answers by heart, its end included."""
    tokenizer = tokens()
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rows = []
    for text, given in zip(texts, sets, strict=True):
        prompt = conversation(text, prompt=PROMPT, tokenizer=tokenizer, max_length=1024, room=ROOM)
        answer = [*tokenizer(completion(given, task=TASK))["input_ids"], tokenizer.eos_token_id]
        rows.append((prompt, answer))
    for _ in range(60):
        for prompt, answer in rows:
            said = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
            torch.nn.functional.cross_entropy(said, torch.tensor(answer)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def test_settings_of_a_checkpoint_do_not_bend_the_choice(bases: Any, tmp_path: Path) -> None:
    texts = posts(4, seed=8)
    answers = opened(bases("windows")).predict(texts)
    written = [tokens()(completion(answer.labels or frozenset(), task=TASK))["input_ids"] for answer in answers]
    model = AutoModelForCausalLM.from_pretrained(bases("windows"))
    model.generation_config.suppress_tokens = sorted({row[len(grammar().opening)] for row in written})
    model.save_pretrained(tmp_path)
    tokens().save_pretrained(tmp_path)
    assert opened(tmp_path).predict(texts) == answers


def test_a_tiny_base_answers_posts_of_the_sandbox_alike_every_time(tmp_path: Path) -> None:
    rng = Random(1)
    told = [narratives.write(chosen, rng=rng, words=40) for chosen in label_quotas.cradle(12, rng=rng)]
    texts = [f"Title: {each.title} Text: {each.body}" for each in told]
    settings = {"task": TASK, "scheme": SCHEME, "max_length": 1024, "max_new_tokens": 128, "batch": 5, "seed": 1}
    first, again = (Generator.open("tiny:qwen3", folder=tmp_path, **settings).predict(texts) for _ in range(2))
    assert all(answer.outcome == VOTE for answer in first)
    assert first == again
    assert not list(tmp_path.iterdir())


def test_progress_counts_what_is_done(bases: Any) -> None:
    told: list[int] = []
    opened(bases("qwen3"), batch=2).predict(posts(5, seed=9), progress=told.append)
    assert told == [2, 4, 5]


def test_a_base_that_is_not_there_or_no_causal_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BaseMissing):
        opened(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    tokens().save_pretrained(tmp_path)
    with pytest.raises(BaseUnfit):
        opened(tmp_path)


def test_a_base_without_an_end_is_refused(bases: Any, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(bases("qwen3"))
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    model.save_pretrained(tmp_path)
    tokenizer = deepcopy(tokens())
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(BaseUnfit, match="ends an answer"):
        opened(tmp_path)


def test_a_checkpoint_that_lacks_weights_is_refused(bases: Any, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(bases("qwen3"))
    state = {name: value for name, value in model.state_dict().items() if "mlp.up_proj" not in name}
    model.save_pretrained(tmp_path, state_dict=state)
    tokens().save_pretrained(tmp_path)
    with pytest.raises(BaseUnfit, match="lacks 2 weights"):
        opened(tmp_path)
