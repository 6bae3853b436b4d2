"""Measure tokens per second of LoRA fine-tuning: our packed rows against the plain Hugging Face Trainer.

Both use the same network with random weights, the same adapter, conversations and optimiser steps, alternately in one
process. The baseline runs once with one conversation at a time, as in the paper, and once with padded batches. On a GPU
the network is Qwen3-1.7B's; without one it is a toy of the same kind, called ``tiny_cpu``. Tokens are those of whole
conversations: tokens that ours computes once for many conversations are counted once per conversation, as the baseline
computes them. Memory is torch's peak, on a GPU only.
"""

from __future__ import annotations

import contextlib
import gc
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from peft import get_peft_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.models import base_files
from pipelines.models.kinds.sft import Sft, packing, recipe
from pipelines.models.kinds.sft.packing import TokenizedSample
from pipelines.models.kinds.sft.trainer import Keeper, RowCollator, Steps, Tuner

GPU = torch.cuda.is_available()
STEP = 32 if GPU else 8  # conversations per optimiser step
STEPS, WARM, ROUNDS = (12, 4, 3) if GPU else (6, 2, 3)
# SPEC 24: the fine-tuning instruction has about 340 tokens. Posts: ours, with the lengths of the sandbox's.
INSTRUCTION, MEDIAN_LOG, SPREAD_LOG, LONGEST, ANSWER = 340, 5.0, 0.9, 1600, (10, 30)
WORDS = 8000
QWEN3_1_7B = {
    "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}  # fmt: skip
TOY = QWEN3_1_7B | {
    "vocab_size": WORDS, "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
}  # fmt: skip
SPEC = Sft(
    kind="sft", base="random", tuning="lora", rank=8, alpha=32, dropout=0.05, batch=1, accumulation=STEP,
    max_length=2048, learning_rate=2e-5, warmup=0, weight_decay=0, epochs=1, packing=True,
)  # fmt: skip


def model() -> Any:
    torch.manual_seed(1)
    config = transformers.Qwen3Config(**(QWEN3_1_7B if GPU else TOY))
    with torch.device("cuda" if GPU else "cpu"):
        return transformers.Qwen3ForCausalLM(config).to(torch.bfloat16 if GPU else torch.float32)


def conversations() -> list[TokenizedSample]:
    chance = random.Random(1)
    start = [chance.randrange(3, WORDS) for _ in range(INSTRUCTION)]
    made = []
    for _ in range(STEP * STEPS):
        post, answer = min(LONGEST, int(chance.lognormvariate(MEDIAN_LOG, SPREAD_LOG)) + 2), chance.randint(*ANSWER)
        made.append(TokenizedSample((*start, *(chance.randrange(3, WORDS) for _ in range(post + answer))), answer))
    return made


class Watch(transformers.TrainerCallback):
    """Records when the measured steps began and ended."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if GPU:
            torch.cuda.synchronize()
        if state.global_step == WARM:
            self.begin = time.perf_counter()
        if state.global_step == STEPS:
            self.end = time.perf_counter()


def ours(samples: Sequence[TokenizedSample], *, folder: str, watch: Watch) -> None:
    network = model()
    network.set_attn_implementation(packing.ATTENTION)
    beginning = packing.shared(samples)
    plans = recipe.plans(SPEC, rows=samples, judged=samples[:1], beginning=beginning, seed=1)
    steps, judge = (Steps(RowCollator(part, shared=beginning, pad=0), plan=plan)
                    for part, plan in zip((samples, samples[:1]), plans, strict=True))  # fmt: skip
    arguments = recipe.arguments(SPEC, model=network, plan=plans[0], folder=Path(folder), seed=1)
    tuner = Tuner(
        network, arguments, train=steps, validation=judge,
        keeper=Keeper(key="", every=STEPS + 1, task="bench", say=lambda line: None),
        processing_class=base_files.causal_tokenizer(), peft_config=recipe.adapter(SPEC),
    )  # fmt: skip
    tuner.add_callback(watch)
    tuner.train()


def theirs(batch: int) -> Callable[..., None]:
    def run(samples: Sequence[TokenizedSample], *, folder: str, watch: Watch) -> None:
        network = get_peft_model(model(), recipe.adapter(SPEC))
        arguments = transformers.TrainingArguments(
            folder, per_device_train_batch_size=batch, gradient_accumulation_steps=STEP // batch, num_train_epochs=1,
            learning_rate=SPEC.learning_rate, bf16=GPU, use_cpu=not GPU, report_to="none", save_strategy="no",
            disable_tqdm=True, remove_unused_columns=False, dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = transformers.Trainer(
            network, arguments, train_dataset=list(samples), data_collator=lambda rows: packing.padded(rows, pad=0),
            callbacks=[watch],
        )  # fmt: skip
        trainer.train()

    return run


def measured(side: Callable[..., None], samples: Sequence[TokenizedSample]) -> tuple[float, float]:
    """Return the tokens per second after the warm-up, and the peak memory in GB."""
    gc.collect()
    if GPU:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    watch = Watch()
    # both print progress, but make bench reads stdout
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as folder:
        side(samples, folder=folder, watch=watch)
    # each side orders the conversations differently, so use the mean number of tokens
    tokens = sum(len(sample.ids) for sample in samples) * (STEPS - WARM) / STEPS
    return tokens / (watch.end - watch.begin), torch.cuda.max_memory_allocated() / 1e9 if GPU else 0.0


def main() -> None:
    transformers.logging.set_verbosity_error()
    samples = conversations()
    sides = {"ours": ours, "one": theirs(1), "batch": theirs(8)}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            found[name].append(measured(side, samples))
    rates = {name: statistics.median(rate for rate, _ in each) for name, each in found.items()}
    memory = {name: max(peak for _, peak in each) for name, each in found.items()}
    for name, described in [("one", "one by one"), ("batch", "padded batches of 8")]:
        line = {
            "name": f"sft_step_{'qwen3_1.7b' if GPU else 'tiny_cpu'}",
            "ours": round(rates["ours"], 1),
            "baseline": round(rates[name], 1),
            "baseline_name": f"Hugging Face Trainer, LoRA, {described}",
            "ratio": round(rates["ours"] / rates[name], 2),
            "unit": "tokens/s",
            **({"memory_gb": [round(memory["ours"], 1), round(memory[name], 1)]} if GPU else {}),
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
