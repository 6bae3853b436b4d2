"""A tuning that takes seconds: posts whose label shows in a word, C-SSRS's short instruction, and a way to die.

As a script it is tries of runs, one after another: ``small_tuning.py <folder> <pass to be killed in, or 0> ...``; it
prints how each ended. The libraries are imported once; each try is a process of its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import Example
from pipelines.models.fitting import instruct
from pipelines.models.kind import Job
from pipelines.models.kinds.sft import Sft
from pipelines.models.kinds.sft.sft import fit

SCHEME = load_scheme("cssrs")
TASK: Task = task_of(SCHEME, next(iter(SCHEME.categories)))
TALK = ("today", "somehow", "as", "ever", "well", "this", "week", "once", "more", "again", "here", "there")
SIGNS = dict(zip(TASK.labels, ("river", "stone", "garden", "window", "music"), strict=True))
SPEC = Sft(
    kind="sft", base="tiny:qwen3", tuning="full", rank=4, alpha=8, dropout=0.1, batch=8, accumulation=1,
    max_length=768, learning_rate=0.004, warmup=0.1, weight_decay=0.01, epochs=2, packing=True,
    max_new_tokens=32,
)  # fmt: skip


# what a job has beside its recipe, which has a batch of its own
JOB = {field.name for field in fields(Job)} - {"batch"}


def posts(count: int, *, split: str) -> list[Example]:
    """Return posts of four to nine words, one of which gives the label away; the first label as often as all others."""
    chance = Random(split)
    made = []
    for n in range(count):
        label = TASK.labels[0 if n % 2 else 1 + n // 2 % (len(TASK.labels) - 1)]
        words = [SIGNS[label], *chance.choices(TALK, k=chance.randint(3, 8))]
        chance.shuffle(words)
        text = f"Title: {chance.choice(TALK)} Text: {' '.join(words)}"
        made.append(Example((f"{split}{n:04}", 0), split, text, None, frozenset({label}), f"{split}{n}"))
    return made


def job(folder: Path, **changes: Any) -> Job[Sft]:
    """Return a job; it and its recipe are changed by name."""
    given = {"train": posts(20, split="train"), "validation": posts(9, split="validation"), "seed": 1}
    given |= {"task": replace(TASK, category=replace(TASK.category, recall_floors={})), "checkpoint_steps": 2}
    given |= {name: changes.pop(name) for name in list(changes) if name in JOB}
    spec = SPEC.model_copy(update=changes)
    return Job(spec=spec, scheme=SCHEME, folder=folder / "checkpoints", out=folder / "out", **given)


def a_run(folder: Path, *, say: Any = lambda line: None, **changes: Any) -> Any:
    return SimpleNamespace(**fit(job(folder, **changes), say=say))


def answers(base: Path | str, examples: Sequence[Example]) -> list[frozenset[str] | None]:
    """Return the answer of a model in a folder to each post, one by one and unconstrained."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(base), AutoTokenizer.from_pretrained(base)
    prompt = instruct.instruction(SCHEME, category=TASK.key)
    found = []
    for example in examples:
        asked = instruct.conversation(example.text, prompt=prompt, tokenizer=tokenizer, max_length=768, room=32)
        ids = torch.tensor([asked])
        said = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, do_sample=False)
        found.append(instruct.read(tokenizer.decode(said[0, len(asked) :], skip_special_tokens=True), task=TASK))
    return found


def attempt(folder: Path, *, die_at: int) -> None:
    """Run with an adapter and its dropout, or be killed by the kernel in pass ``die_at``; save the result."""
    from pipelines.models.kinds.sft.trainer import Tuner

    passes, real = 0, Tuner.compute_loss

    def counted(self: Any, *given: Any, **options: Any) -> Any:
        nonlocal passes
        passes += 1
        if passes == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, *given, **options)

    Tuner.compute_loss = counted
    said: list[dict[str, float]] = []
    fitted = a_run(folder, say=said.append, epochs=3, tuning="lora", learning_rate=0.02)
    (folder / "made.json").write_text(json.dumps({"history": fitted.history, "epoch": fitted.epoch, "said": said}))


if __name__ == "__main__":
    for folder, moment in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        pid = os.fork()
        if not pid:
            Path(folder).mkdir(exist_ok=True)
            attempt(Path(folder), die_at=int(moment))
            os._exit(0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
