"""Train models of base size, with random weights, on an accelerator: ours against the plain Trainer, and a kill.

``gpu.py FOLDER`` runs the functions behind the stage ``train``, which is on queue ``gpu``: a text, an image
and a fusion model (BERT-base, ViT-base, CLIP-base; 16 examples a step) and a LoRA on 1.2 billion parameters (32
conversations a step).

``speed``: a model's sides take turns in one process, from the same base, with the same examples and preparation; the
first steps are not counted. ``exact``: the losses and gradients of a packed row against those of its conversations.
``resume``: 200 steps undisturbed, the same again (a classifier's without recorded kernels), and the same in a process
that is killed with SIGKILL in step 110 and started again, which goes on from the checkpoint of step 100. All these are
compared, as a GPU adds in no fixed order.

It prints a line of JSON for every measure at once. Each part is a process of its own, so that one that fails stops no
other; ``gpu.py FOLDER speed lora`` runs one alone, after ``gpu.py FOLDER bases``. Without an accelerator it does
nothing; ``--toy`` tries it with toys.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate.state import AcceleratorState
from peft import get_peft_model
from PIL import Image
from safetensors.torch import load_file
from torch.optim.optimizer import register_optimizer_step_post_hook

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import Example
from pipelines.models import base_files
from pipelines.models.backbones import Built
from pipelines.models.fitting import instruct, loop
from pipelines.models.fitting.loss_and_optimizer import Loop, weigh
from pipelines.models.fitting.recipe import Recipe, TrainingSettings
from pipelines.models.kind import Job, Serving
from pipelines.models.kinds.fusion import Fusion
from pipelines.models.kinds.image import Image as ImageKind
from pipelines.models.kinds.sft import Sft, packing, recipe, sft
from pipelines.models.kinds.text import Text
from pipelines.operate.plan.needs import base_sizes

ROOT = Path(__file__).resolve().parents[1]
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
STEPS, EVERY, DIE = (200, 100, 110) if GPU else (10, 4, 7)
ROUNDS = 2
# Conversations in an optimiser step, of CRADLE's recipes the least, and in a padded batch, the Trainer's default.
STEP, PADDED = (32, 8) if GPU else (8, 8)
PICTURES = 64
# Ours: words of posts, so that most have as many tokens as those of the sandbox.
MEDIAN_LOG, SPREAD_LOG, LONGEST = 4.2, 0.9, 300
KINDS = {"text": Text, "image": ImageKind, "fusion": Fusion}
BASES = {
    "text": "google-bert/bert-base-uncased",
    "image": "google/vit-base-patch16-224-in21k",
    "fusion": "openai/clip-vit-base-patch32",
}
TOYS = {"text": "tiny:bert", "image": "tiny:vit", "fusion": "tiny:clip", "lora": "tiny:qwen3"}
# Llama 3.2 1B's
CAUSAL = {
    "vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}  # fmt: skip


def make_bases(folder: Path) -> None:
    """Write the base models: a toy's tokenizer and processor, and random weights of the full size."""
    for kind, toy in TOYS.items():
        place = folder / kind / "base"
        place.mkdir(parents=True)
        base_files.make(toy, folder=place, seed=1)
        torch.manual_seed(1)
        with torch.device(DEVICE):
            if kind == "lora":
                ids = transformers.AutoTokenizer.from_pretrained(place)
                numbers = {"bos_token_id": None, "eos_token_id": ids.eos_token_id, "pad_token_id": ids.pad_token_id}
                config = transformers.LlamaConfig(**CAUSAL, **numbers)
                model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
                model.generation_config = transformers.GenerationConfig(**numbers)
            else:
                told = base_sizes()[BASES[kind]]
                config = getattr(transformers, told.config)(**told.sizes)
                if kind == "fusion":
                    # CLIP reads a text at its end token
                    config.text_config.eos_token_id = transformers.AutoTokenizer.from_pretrained(place).sep_token_id
                model = getattr(transformers, told.model)(config)
        model.save_pretrained(place)
        if kind in ("image", "fusion"):
            from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

            ViTImageProcessorPil().save_pretrained(place)
        del model


class Counter:
    """Counts the optimiser steps of this process, notes when the measured ones begin and end, and can kill it."""

    def __init__(self, *, die: int = 0) -> None:
        self.begin(STEPS, warm=0)
        self.die = die
        register_optimizer_step_post_hook(self)

    def begin(self, last: int, *, warm: int) -> None:
        self.done, self.last, self.warm = 0, last, warm
        self.at: dict[int, float] = {}

    def __call__(self, *_: Any) -> None:
        self.done += 1
        if self.done == self.die:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.done in (self.warm, self.last):
            if GPU:
                torch.cuda.synchronize()
            self.at[self.done] = time.perf_counter()

    def rate(self) -> float:
        """Return the measured steps per second."""
        return (self.last - self.warm) / (self.at[self.last] - self.at[self.warm])


def chosen(kind: str) -> tuple[Scheme, Task]:
    # C-SSRS's instruction has 335 tokens of a small tokenizer, about as many as CRADLE's of a real one (SPEC 24: 340)
    scheme = load_scheme("cssrs" if kind == "lora" else "figsim")
    return scheme, task_of(scheme, next(iter(scheme.categories)) if kind == "lora" else "severity")


def examples(kind: str, *, split: str, count: int) -> list[Example]:
    """Return examples of random words and, beside captions, pictures of random colours."""
    chance, words = random.Random(split), base_files.frequent(base_files.WORDS)
    labels = chosen(kind)[1].labels
    pictures = []
    for _ in range(PICTURES):
        file = io.BytesIO()
        Image.frombytes("RGB", (32, 32), chance.randbytes(3 * 32 * 32)).resize((400, 300)).save(file, "JPEG")
        pictures.append(file.getvalue())
    made = []
    for n in range(count):
        length = chance.randint(4, 60)
        if kind == "lora":
            length = min(LONGEST, int(chance.lognormvariate(MEDIAN_LOG, SPREAD_LOG)) + 2)
        said = " ".join(chance.choices(words, k=length))
        text, image = (f"Title: {said[:20]} Text: {said}", None) if kind == "lora" else (said, pictures[n % PICTURES])
        label = frozenset({labels[n % len(labels)]})
        made.append(Example((f"{split}{n:06}", 0), split, text, image, label, f"{split}{n}"))
    return made


def base_of(kind: str, *, folder: Path) -> str:
    return str(folder / kind / "base") if GPU else TOYS[kind]


def classifier(kind: str, *, folder: Path, place: Path) -> Built:
    spec = KINDS[kind](kind=kind, base=base_of(kind, folder=folder))
    scheme, task = chosen(kind)
    return spec.build(Serving(task=task, scheme=scheme, folder=place, seed=1))


def job_of(*, folder: Path, place: Path, steps: int = STEPS, every: int = STEPS) -> Job[Sft]:
    spec = Sft(
        kind="sft", base=base_of("lora", folder=folder), tuning="lora", rank=8, alpha=32, dropout=0.05, batch=1,
        accumulation=STEP, max_length=2048, learning_rate=2e-5, warmup=0, weight_decay=0, epochs=1, packing=True,
    )  # fmt: skip
    scheme, task = chosen("lora")
    return Job(
        spec=spec, train=examples("lora", split="train", count=STEP * steps),
        validation=examples("lora", split="validation", count=STEP), task=task, scheme=scheme, seed=1,
        checkpoint_steps=every, folder=place / "checkpoints", out=place / "out",
    )  # fmt: skip


def ours(kind: str, *, folder: Path, place: Path, steps: int = STEPS, every: int = STEPS) -> float:
    """Train as the stage does, with the result in ``place``; return the mean loss of the only epoch."""
    place.mkdir(parents=True, exist_ok=True)
    if kind == "lora":
        job = job_of(folder=folder, place=place, steps=steps, every=every)
        history = sft.fit(job, say=lambda epoch: None)["history"]
    else:
        built, (_, task) = classifier(kind, folder=folder, place=place), chosen(kind)
        settings = TrainingSettings(mode="improved", epochs=1, checkpoint_steps=every)
        train = examples(kind, split="train", count=settings.batch * steps)
        history = loop.fit(
            built, train=train, validation=examples(kind, split="validation", count=4 * settings.batch), task=task,
            settings=settings, seed=1, folder=place, say=lambda epoch: None,
            weights=weigh(train, task=task, max_pos_weight=settings.max_pos_weight),
        ).history  # fmt: skip
    return float(history[-1]["train_loss"])


def weights_of(kind: str, *, place: Path) -> dict[str, Any]:
    return dict(load_file(place / ("out/adapter_model.safetensors" if kind == "lora" else "model.safetensors")))


class WithLoss(torch.nn.Module):
    """A classifier with the Trainer's interface."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, labels: Any, **batch: Any) -> dict[str, Any]:
        logits = self.module(**batch)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def plain(kind: str, *, folder: Path, place: Path, steps: int) -> None:
    """Train a classifier with the Trainer's default settings."""
    built, (_, task), batch = classifier(kind, folder=folder, place=place), chosen(kind), Recipe().batch

    def collate(rows: Sequence[Example]) -> dict[str, Any]:
        labels = torch.tensor([task.labels.index(min(e.labels or ())) for e in rows])
        return {**built.prepare(rows), "labels": labels}

    arguments = transformers.TrainingArguments(
        str(place), per_device_train_batch_size=batch, num_train_epochs=1, report_to="none", save_strategy="no",
        use_cpu=not GPU,
    )  # fmt: skip
    train = examples(kind, split="train", count=batch * steps)
    transformers.Trainer(WithLoss(built.module), arguments, train_dataset=train, data_collator=collate).train()


def plain_lora(*, folder: Path, place: Path, steps: int, batch: int) -> None:
    """Train the same adapter with the Trainer on padded batches, in bfloat16 as ours."""
    job = job_of(folder=folder, place=place)
    with contextlib.ExitStack() as stack:
        where = stack.enter_context(sft.opened(job.spec.base, seed=1, folder=place))
        network = get_peft_model(recipe.base_of(job.spec, place=where), recipe.adapter(job.spec))
    arguments = transformers.TrainingArguments(
        str(place), per_device_train_batch_size=batch, gradient_accumulation_steps=STEP // batch, max_steps=steps,
        learning_rate=job.spec.learning_rate, bf16=GPU, use_cpu=not GPU, report_to="none", save_strategy="no",
        remove_unused_columns=False,
    )  # fmt: skip
    transformers.Trainer(
        network, arguments, train_dataset=list(samples(folder)), data_collator=lambda rows: packing.padded(rows, pad=0)
    ).train()


@cache
def samples(folder: Path) -> tuple[packing.TokenizedSample, ...]:
    """Return the conversations that ours trains on, as tokens."""
    job = job_of(folder=folder, place=folder)
    prompt = instruct.instruction(job.scheme, category=job.task.key)
    return tuple(map(sft._Reader(job, prompt=prompt, tokenizer=base_files.causal_tokenizer()), job.train))


def say(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def speed(kind: str, *, folder: Path) -> None:
    """Measure our training and the Trainer's in turns."""
    each, unit, trainer = Recipe().batch, "samples/s", "Hugging Face Trainer"
    # a side's function, its steps, and how many of them are not counted
    sides: dict[str, tuple[Callable[..., Any], int, int]] = {
        "ours": (partial(ours, kind), STEPS, STEPS // 5),
        f"{trainer}, default settings": (partial(plain, kind), STEPS // 2, STEPS // 10),
    }
    if kind == "lora":
        each, unit = STEP * statistics.mean(len(sample.ids) for sample in samples(folder)), "tokens/s"
        sides = {
            "ours": (partial(ours, kind), STEPS // 5, STEPS // 20 or 1),
            f"{trainer}, LoRA, one by one": (partial(plain_lora, batch=1), 4, 1),
            f"{trainer}, LoRA, padded batches of {PADDED}": (partial(plain_lora, batch=PADDED), 12, 4),
        }
    name, counter = f"gpu_{kind}" + ("" if GPU else "_toy"), Counter()
    rates: dict[str, list[float]] = {side: [] for side in sides}
    peaks: dict[str, float] = {}
    for number in range(ROUNDS):
        for at, (side, (train, steps, warm)) in enumerate(sides.items()):
            gc.collect()
            if GPU:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            counter.begin(steps, warm=warm)
            # the Trainer's precision must not be that of ours
            AcceleratorState._reset_state()
            # both print progress
            with contextlib.redirect_stdout(sys.stderr):
                loss = train(folder=folder, place=folder / kind / f"speed-{number}-{at}", steps=steps)
            rates[side].append(round(each * counter.rate(), 1))
            peaks[side] = round(torch.cuda.max_memory_allocated() / 1e9, 2) if GPU else 0.0
            say(name=name, side=side, round=number, rate=rates[side][-1], unit=unit, peak_gb=peaks[side],
                steps=counter.done, loss=loss)  # fmt: skip
            shutil.rmtree(folder / kind / f"speed-{number}-{at}", ignore_errors=True)
    mine = statistics.median(rates["ours"])
    for side in list(sides)[1:]:
        other = statistics.median(rates[side])
        say(name=name, ours=mine, baseline=other, baseline_name=side, ratio=round(mine / other, 2), unit=unit,
            peak_gb=[peaks["ours"], peaks[side]])  # fmt: skip


def exact(*, folder: Path) -> None:
    """Compare a packed row's losses and gradients with those of its conversations alone, in the base's own format.

    Distances are shares of the conversations' own. ``loop`` computes attention by one kernel for each conversation.
    """
    place, chosen = base_of("lora", folder=folder), samples(folder)[:STEP]
    if not GPU:
        base_files.make(place, folder=folder / "exact", seed=1)
        place = str(folder / "exact")
    model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype="auto").to(DEVICE)
    model.config.use_cache = False
    found = {"alone": learnt(model, [packing.padded([sample], pad=0) for sample in chosen])}
    model.set_attn_implementation(packing.ATTENTION)
    packed, flash = packing.row(chosen, shared=packing.shared(chosen)), packing.FLASH
    found["packed"] = learnt(model, [packed])
    packing.FLASH = ()
    found["loop"] = learnt(model, [packed])
    packing.FLASH = flash
    for name in ("packed", "loop"):
        far = [apart(found[name][n], found["alone"][n]) / apart(found["alone"][n], {}) for n in (0, 1)]
        say(name="gpu_lora_exact", attention=name, losses=far[0], gradients=far[1], tokens=packed["input_ids"].numel())


def learnt(model: Any, batches: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the losses of the answers' tokens, and the gradients."""
    losses = []
    for batch in batches:
        moved = {name: part.to(DEVICE) if torch.is_tensor(part) else part for name, part in batch.items()}
        labels = moved.pop("labels")[0, 1:]
        logits = model(**moved).logits[0, :-1][labels != packing.IGNORED].float()
        each = torch.nn.functional.cross_entropy(logits, labels[labels != packing.IGNORED], reduction="none")
        each.sum().backward()
        losses.append(each.detach().cpu())
    gradients = {name: weight.grad.cpu() for name, weight in model.named_parameters()}
    model.zero_grad()
    return {"": torch.cat(losses)}, gradients


def trained(kind: str, run: str, *, folder: Path, die: int) -> None:
    """Train in this process, or be killed in step ``die``; without recorded kernels in the run ``again``."""
    counter = Counter(die=die)
    if run == "again":
        Loop.recordable = False
    begin = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):
        loss = ours(kind, folder=folder, place=folder / kind / run, every=EVERY)
    say(steps=counter.done, loss=loss, seconds=round(time.perf_counter() - begin, 1),
        peak_gb=round(torch.cuda.max_memory_allocated() / 1e9, 2) if GPU else 0.0)  # fmt: skip


def resume(kind: str, *, folder: Path) -> None:
    """Kill a training, start it again, and compare what it learnt with undisturbed runs.

    Differences of weights are shares of the way that training moved them.
    """
    runs = {run: started(kind, run, folder=folder) for run in ("whole", "again")}
    broken = folder / kind / "broken"
    killed = started(kind, "broken", folder=folder, die=DIE).wait()
    left = sorted(int(path.name.rpartition("-")[2]) for path in broken.rglob("checkpoint-*"))
    runs["broken"] = started(kind, "broken", folder=folder)
    told = {run: json.loads(process.communicate()[0].splitlines()[-1]) for run, process in runs.items()}
    say(name=f"gpu_{kind}_resume", exit=killed, killed_in_step=DIE, checkpoints=left, **told)
    whole, again, found = (weights_of(kind, place=folder / kind / run) for run in ("whole", "again", "broken"))
    start = {} if kind == "lora" else classifier(kind, folder=folder, place=broken).module.state_dict()
    moved = apart(whole, start)
    say(name=f"gpu_{kind}_difference", resumed=apart(found, whole) / moved, undisturbed=apart(again, whole) / moved)


def started(kind: str, run: str, *, folder: Path, die: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, str(folder), "train", kind, run, str(die)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the distance of two models; of LoRA's matrices, only B counts, which begins with zeros."""
    names = [name for name in one if "lora_A" not in name]
    return math.sqrt(sum(float(((one[n] - other.get(n, torch.zeros(()))).double() ** 2).sum()) for n in names))


def main(folder: Path, *rest: str) -> None:
    transformers.logging.set_verbosity_error()
    match rest:
        case ["bases"]:
            make_bases(folder)
        case ["speed", kind]:
            speed(kind, folder=folder)
        case ["exact"]:
            exact(folder=folder)
        case ["resume", kind]:
            resume(kind, folder=folder)
        case ["train", kind, run, die]:
            trained(kind, run, folder=folder, die=int(die))
        case _ if GPU or rest:
            everything(folder)


def everything(folder: Path) -> None:
    def part(*what: str) -> None:
        begin = time.perf_counter()
        status = subprocess.run([sys.executable, __file__, str(folder), *what], check=False).returncode
        say(part=" ".join(what), exit=status, seconds=round(time.perf_counter() - begin, 1))

    if GPU:
        say(device=torch.cuda.get_device_name(), torch=torch.__version__, transformers=transformers.__version__)
        part("bases")
    # a classifier takes seconds, LoRA minutes
    for kind in TOYS:
        part("speed", kind)
    part("exact")
    threads = [threading.Thread(target=part, args=("resume", kind)) for kind in TOYS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path((*sys.argv[1:2], temporary)[0]).resolve(), *sys.argv[2:])
