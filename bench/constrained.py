"""Measure the seconds to label 500 posts of the sandbox with grammar-constrained JSON, against unconstrained decoding.

Both use the same tiny causal model, tuned by ours until it produces the JSON without constraints, on the same posts in
the same batches, alternately in one process. The unconstrained baseline is transformers' greedy ``generate``. If
xgrammar is installed (it is not a requirement of this project), its logits processor for the answer's JSON schema is
measured too.
"""

from __future__ import annotations

import importlib
import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from crisis_corpus_sandbox.reddit.post_world import PostWorld
from pipelines.core.config.params import Params, load
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.task import task_of
from pipelines.datasets.example import TRAIN, VALIDATION, Example
from pipelines.datasets.post import Post
from pipelines.models import kind
from pipelines.models.fitting.generate import Generator
from pipelines.models.fitting.instruct import conversation, instruction, read
from pipelines.models.kind import Job
from pipelines.models.kinds.sft.sft import fit

ROOT = Path(__file__).resolve().parents[1]
POSTS, TAUGHT, JUDGED = 500, 160, 20
ROUNDS = 3
BATCH, MAX_LENGTH, MAX_NEW_TOKENS = 16, 2048, 128
# Train until the model misspells at most one label in ten.
RECIPE = {"max_length": MAX_LENGTH, "epochs": 16, "learning_rate": 0.005}
# An unconstrained model that has not learned the JSON form would not stop, and make our time look better.
LEAST_VALID = 0.8
SCHEME = load_scheme("cradle")
TASK = task_of(SCHEME, "labels")


def examples(params: Params) -> list[Example]:
    """Return the sandbox's kept posts: those for training, for validation and to label."""
    world = PostWorld(params.sandbox.model_copy(update={"posts": 1000})).build()
    kept = [post for post in world if post.expected == "kept"][: TAUGHT + JUDGED + POSTS]
    splits = [TRAIN] * TAUGHT + [VALIDATION] * JUDGED + ["test"] * POSTS
    return [
        Example((f"{n:032}", 0), split, Post("", post.title, post.body).text, None, frozenset(post.cradle), str(n))
        for n, (post, split) in enumerate(zip(kept, splits, strict=True))
    ]


def tuned(params: Params, *, posts: list[Example], folder: Path) -> Path:
    """Fine-tune a tiny model on the form of an answer and return its path."""
    spec = kind.spec(params, "tiny-causal").model_copy(update=RECIPE)
    split = {name: [example for example in posts if example.split == name] for name in (TRAIN, VALIDATION)}
    data = {"train": split[TRAIN], "validation": split[VALIDATION], "task": TASK, "scheme": SCHEME, "seed": 1}
    out = folder / "out"
    fit(Job(spec=spec, folder=folder / "run", out=out, **data), say=lambda epoch: None)
    return out


def strictly(answer: str) -> tuple[str, frozenset[str]]:
    labels = read(answer, task=TASK)
    return ("malformed", frozenset()) if labels is None else ("vote", labels)


def opened(base: Path, *, constrained: bool) -> Generator:
    return Generator(
        base, task=TASK, scheme=SCHEME, max_length=MAX_LENGTH, max_new_tokens=MAX_NEW_TOKENS, batch=BATCH,
        folder=base, reader=None if constrained else strictly,
    )  # fmt: skip


def with_xgrammar(base: Path) -> Callable[[list[str]], float] | None:
    """Return a function that labels texts under xgrammar and returns the valid share, or None without xgrammar."""
    try:
        xgrammar = importlib.import_module("xgrammar")
        processor = importlib.import_module("xgrammar.contrib.hf").LogitsProcessor
    except ImportError:
        sys.stderr.write("bench: xgrammar is not installed and is left out\n")
        return None
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(base).eval(), AutoTokenizer.from_pretrained(base)
    prompt = instruction(SCHEME, category=TASK.key)
    known = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=model.config.vocab_size)
    form = xgrammar.GrammarCompiler(known).compile_json_schema(json.dumps(prompt.schema), any_whitespace=False)

    def label(texts: list[str]) -> float:
        asked = [
            conversation(t, prompt=prompt, tokenizer=tokenizer, max_length=MAX_LENGTH, room=MAX_NEW_TOKENS)
            for t in texts
        ]
        asked.sort(key=len, reverse=True)
        answered = 0
        for begin in range(0, len(asked), BATCH):
            rows = tokenizer.pad(
                {"input_ids": asked[begin : begin + BATCH]}, padding_side="left", return_tensors="pt"
            ).to(model.device)
            made = model.generate(
                **rows, do_sample=False, max_new_tokens=MAX_NEW_TOKENS, logits_processor=[processor(form)]
            )
            answers = tokenizer.batch_decode(made[:, rows["input_ids"].shape[1] :], skip_special_tokens=True)
            answered += sum(read(answer, task=TASK) is not None for answer in answers)
        return answered / len(asked)

    return label


def valid(generator: Generator) -> Callable[[list[str]], float]:
    def share(texts: list[str]) -> float:
        asked = [Example((f"{n:032}", 0), "test", text, None, None, "") for n, text in enumerate(texts)]
        return statistics.mean(answer.outcome == "vote" for answer in generator.predict(asked))

    return share


def main() -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    params = load(ROOT, profile="sandbox")
    posts = examples(params)
    texts = [example.text for example in posts if example.split == "test"]
    with tempfile.TemporaryDirectory() as folder:
        base = tuned(params, posts=posts, folder=Path(folder))
        sides: dict[str, Any] = {
            "ours": valid(opened(base, constrained=True)),
            "transformers' greedy generate, unconstrained": valid(opened(base, constrained=False)),
            "transformers' greedy generate with xgrammar": with_xgrammar(base),
        }
        sides = {name: label for name, label in sides.items() if label}
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        shares: dict[str, float] = {}
        with torch.inference_mode():
            for label in sides.values():
                label(texts[:BATCH])
            for name, label in list(sides.items()) * ROUNDS:
                begin = time.perf_counter()
                shares[name] = label(texts)
                seconds[name].append(time.perf_counter() - begin)
    report(seconds, shares=shares)


def report(seconds: dict[str, list[float]], *, shares: dict[str, float]) -> None:
    """Print a line for each baseline.

    Raises:
        SystemExit: an answer of ours is malformed, or the unconstrained model has not learned to end its answers.
    """
    mine, *others = ((name, statistics.median(found)) for name, found in seconds.items())
    for name, share in shares.items():
        sys.stderr.write(f"bench: {name}: {share:.1%} valid\n")
    if shares[mine[0]] < 1 or min(shares[name] for name, _ in others[:1]) < LEAST_VALID:
        sys.exit("bench: answers are malformed, so the times are not comparable")
    for name, other in others:
        line = {
            "name": f"constrained_decoding_{POSTS}_posts",
            "ours": round(mine[1], 2),
            "baseline": round(other, 2),
            "baseline_name": name,
            "ratio": round(other / mine[1], 2),
            "unit": "s",
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
