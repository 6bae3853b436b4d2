"""A Qwen3 of a quarter of a million weights: trained on the spot, served as any local model is. Nothing is downloaded.

It learns one easy task, which words stand for which label, so that what it answers can be told right from wrong.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from pipelines.datasets.post import Post
from pipelines.llm.prompting.prompts import Prompt, delimiter
from tests.train.byte_tokens import END, byte_level

SECRET = bytes(32)
SIGNS = {
    ("no_crisis",): ("my garden", "a recipe", "the bus"),
    ("selfharm_past",): ("an old scar", "former wounds", "what I did back then"),
    ("domesticviolence_ongoing",): ("fear at home", "a partner who hits", "shouting each night"),
    ("domesticviolence_ongoing", "selfharm_past"): ("both again", "two burdens", "home and scars"),
}
TALK = ("today", "somehow", "as ever", "I wonder", "well", "this week", "once more", "honestly")
STEPS, BATCH, RATE = 160, 16, 4e-3


def posts(count: int, *, seed: int) -> list[tuple[Post, tuple[str, ...]]]:
    """Return posts with their labels, each set as often as the others."""
    rng = Random(seed)
    made = []
    for number in range(count):
        labels = list(SIGNS)[number % len(SIGNS)]
        before, after = (" ".join(rng.sample(TALK, rng.randint(1, 3))) for _ in range(2))
        post = Post(f"{seed:032x}{number:032x}", rng.choice(TALK), f"{before} {rng.choice(SIGNS[labels])} {after}.")
        made.append((post, labels))
    return made


def train(folder: Path, *, prompt: Prompt, examples: list[tuple[Post, tuple[str, ...]]], seed: int) -> int:
    """Train a model from a fresh configuration, save it under ``folder`` and return how many weights it has."""
    import torch
    from datasets import Dataset
    from transformers import Qwen3Config, Qwen3ForCausalLM, set_seed
    from trl import SFTConfig, SFTTrainer

    torch.set_num_threads(1)  # SPEC 2.4: two threads on a busy machine are slower by far
    set_seed(seed)
    rows = [_row(prompt, post=post, labels=labels) for post, labels in examples]
    texts = (message["content"] for row in rows for side in ("prompt", "completion") for message in row[side])
    tokenizer = byte_level(441, texts=(*texts, "system", "user", "assistant"))
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=96, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=24, max_position_embeddings=512, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).to(torch.float32)
    settings = SFTConfig(
        output_dir=str(folder / "trainer"), max_steps=STEPS, per_device_train_batch_size=BATCH, learning_rate=RATE,
        lr_scheduler_type="cosine", warmup_steps=10, max_length=256, seed=seed, use_cpu=True, bf16=False,
        activation_checkpointing=False, report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True,
        dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = SFTTrainer(model=model, args=settings, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    _check(trainer.train_dataset, count=len(rows), tokenizer=tokenizer)
    trainer.train()
    trainer.save_model(str(folder))
    tokenizer.save_pretrained(str(folder))
    return sum(p.numel() for p in model.parameters())


def _row(prompt: Prompt, *, post: Post, labels: tuple[str, ...]) -> dict[str, Any]:
    system, parts = prompt.render(post, delimiter=delimiter(post, secret=SECRET))
    user = "".join(part for part in parts if isinstance(part, str))
    return {
        "prompt": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        "completion": [{"role": "assistant", "content": json.dumps({"labels": list(labels)})}],
    }


def _check(dataset: Any, *, count: int, tokenizer: Any) -> None:
    """No row was dropped and each completion is whole (SPEC 2.4: a trainer cuts and drops silently)."""
    assert len(dataset) == count
    for row in dataset:
        answer = [token for token in row["labels"] if token != -100]
        assert tokenizer.decode(answer).rstrip().endswith("}" + END)


@contextmanager
def served(home: Path) -> Iterator[str]:
    """Run ``transformers serve`` on a free loopback port and yield the address that clients take."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (home / "hub").mkdir(parents=True)
    environ = os.environ | {
        "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    command = [str(Path(sys.executable).with_name("transformers")), "serve", "--host", "127.0.0.1"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--device", "cpu"],
            env=environ, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(url: str, *, seconds: float) -> None:
    """Return once the server answers.

    Raises:
        TimeoutError: it did not in time.
    """
    health = url.removesuffix("/v1") + "/health"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with urlopen(health, timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.2)
    raise TimeoutError("the model's server did not start")
