"""Measure training samples per second: our loop against the plain Hugging Face Trainer with its default settings.

Both use the same network with random weights, the same examples, preparation and batch, alternately in one process. On
a GPU they are BERT-base on captions of 4 to 60 words and ViT-base on pictures of 224 pixels. Without one they are toys
of the same kinds, called ``tiny_cpu``: our optimisations do not apply there, and the ratio shows only that the loop
adds no overhead.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import Example
from pipelines.models.backbones import Batch, Built
from pipelines.models.fitting.loss_and_optimizer import Loop, weigh
from pipelines.models.fitting.recipe import TrainingSettings

GPU = torch.cuda.is_available()
BATCH = 16
STEPS, WARM, ROUNDS = (120, 20, 5) if GPU else (30, 5, 3)
PIXELS = 224 if GPU else 32
VOCABULARY = 30_522 if GPU else 500
PICTURES = 64


class Logits(torch.nn.Module):
    """A classifier of transformers with the loop's interface."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, **batch: Any) -> Any:
        return self.model(**batch).logits


def text_model(labels: int) -> Any:
    size = (
        {} if GPU else {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    )
    config = transformers.BertConfig(vocab_size=VOCABULARY, num_labels=labels, **size)
    return transformers.BertForSequenceClassification(config)


def image_model(labels: int) -> Any:
    size = (
        {} if GPU else {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    )
    config = transformers.ViTConfig(image_size=PIXELS, patch_size=16, num_labels=labels, **size)
    return transformers.ViTForImageClassification(config)


def tokens(example: Example) -> list[int]:
    return [crc32(word.encode()) % VOCABULARY for word in example.text.split()]


def texts(examples: Sequence[Example]) -> Batch:
    rows = [torch.tensor(tokens(example)) for example in examples]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": mask}


def pictures(examples: Sequence[Example]) -> Batch:
    rows = [torch.frombuffer(bytearray(e.image or b""), dtype=torch.uint8) for e in examples]
    return {"pixel_values": torch.stack(rows).view(-1, 3, PIXELS, PIXELS).float() / 127.5 - 1}


def examples_of(task: Task) -> list[Example]:
    chance = random.Random(1)
    images = [chance.randbytes(3 * PIXELS * PIXELS) for _ in range(PICTURES)]
    return [
        Example(
            (f"{n:06}", 0),
            "train",
            " ".join(f"word{chance.randrange(9_000)}" for _ in range(chance.randint(4, 60))),
            images[n % PICTURES],
            frozenset({task.labels[n % len(task.labels)]}),
            str(n),
        )
        for n in range(BATCH * STEPS)
    ]


def clock() -> float:
    if GPU:
        torch.cuda.synchronize()
    return time.perf_counter()


def ours(model: Any, *, prepare: Callable[[Sequence[Example]], Batch], examples: list[Example], task: Task) -> float:
    """Return the samples per second of an epoch of our loop."""
    settings = TrainingSettings(mode="improved", batch=BATCH, epochs=1, checkpoint_steps=200)
    built = Built(Logits(model), prepare, (lambda e: e.text.count(" ")) if prepare is texts else (lambda e: 1))
    weights = weigh(examples, task=task, max_pos_weight=settings.max_pos_weight)
    loop = Loop(built, examples=examples, task=task, settings=settings, seed=1, weights=weights)
    begin = 0.0
    for done in loop.epoch(0):
        if done == WARM:
            begin = clock()
    return BATCH * (STEPS - WARM) / (clock() - begin)


class Watch(transformers.TrainerCallback):
    """Records when the measured steps began and ended; the Trainer's final saving is not counted."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == WARM:
            self.begin = clock()
        if state.global_step == STEPS:
            self.end = clock()


def theirs(model: Any, *, prepare: Callable[[Sequence[Example]], Batch], examples: list[Example], task: Task) -> float:
    """Return the samples per second of an epoch of the Trainer."""

    def collate(rows: list[Example]) -> Batch:
        return {**prepare(rows), "labels": torch.tensor([task.labels.index(min(e.labels or ())) for e in rows])}

    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, per_device_train_batch_size=BATCH, num_train_epochs=1, report_to="none"
        )
        trainer = transformers.Trainer(
            model, arguments, train_dataset=examples, data_collator=collate, callbacks=[watch]
        )
        trainer.train()
    return BATCH * (STEPS - WARM) / (watch.end - watch.begin)


def main() -> None:
    task = task_of(load_scheme("figsim"), "severity")
    examples = examples_of(task)
    suffix = "" if GPU else "_tiny_cpu"
    for name, model, prepare in [("bert", text_model, texts), ("vit", image_model, pictures)]:
        rates: dict[Any, list[float]] = {ours: [], theirs: []}
        for _ in range(ROUNDS):
            for side, found in rates.items():
                torch.manual_seed(1)
                # both print progress, but make bench reads stdout
                with contextlib.redirect_stdout(sys.stderr):
                    made = model(len(task.labels))
                    found.append(side(made, prepare=prepare, examples=examples, task=task))
        mine, other = (statistics.median(rates[side]) for side in (ours, theirs))
        line = {
            "name": f"train_step_{name}{'_base' if GPU else ''}{suffix}",
            "ours": round(mine, 1),
            "baseline": round(other, 1),
            "baseline_name": "Hugging Face Trainer, default settings",
            "ratio": round(mine / other, 2),
            "unit": "samples/s",
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
