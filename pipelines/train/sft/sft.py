"""Fine-tuning of a causal model on the JSON of the labels (CRADLE 5.1): all weights or LoRA, one GPU or several.

The recipe is the paper's, read as SPEC 29 says: a step of the optimiser takes ``batch`` times ``accumulation`` examples
over all processes, the schedule is linear, the loss is that of the answers' tokens alone, and the epoch with the least
validation loss is kept. On a CPU the same inputs give the same losses, also of a run that was killed and started again.
Texts are in memory only: what is written are weights, and numbers that no text can be read from.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast_object_list
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from pipelines.config.models import Finetune, SftModel
from pipelines.datasets.example import TRAIN, VALIDATION, Example, LeakRefused, only
from pipelines.errors import DataError
from pipelines.llm.prompts import Prompt
from pipelines.models.backbones import BaseUnfit, had, opened
from pipelines.taxonomy import Scheme
from pipelines.taxonomy.task import Task
from pipelines.train.classifiers.steps import reproducible
from pipelines.train.sft import instruct, launch, packing, recipe
from pipelines.train.sft.packing import Sample
from pipelines.train.sft.tuner import Keeper, Rows, Steps, Tuner, best, clear, newest

ADAPTER = "adapter"
SHARD = "5GB"

log = logging.getLogger(__name__)


class NothingToTune(DataError):
    """There are no examples of a split, so nothing can be learnt or judged."""

    message = "There are no examples of {split} to tune {task} on."
    remedy = "Wait for the stages `silver` and `gold`, or name another subset in finetune.subsets."


@dataclass(frozen=True)
class Fitted:
    """What a run ended with; the best epoch's weights lie where it was told.

    Args:
        epoch: the best one, counted from 1.
        history: for each epoch ``epoch``, ``step``, ``train_loss``, ``validation_loss`` (nats for a token of the
            answers), ``learning_rate``.
        steps: of the optimiser, in all epochs.
        tokens: of train, in all epochs, the instruction of every example counted.
        truncated: posts of train and validation that lost their middle.
    """

    epoch: int
    history: tuple[dict[str, float], ...]
    steps: int
    tokens: int
    truncated: int


def fit(
    spec: SftModel,
    *,
    train: Sequence[Example],
    validation: Sequence[Example],
    task: Task,
    scheme: Scheme,
    seed: int,
    settings: Finetune,
    folder: Path,
    out: Path,
    say: Callable[[dict[str, float]], None],
) -> Fitted:
    """Tune the base of ``spec`` and write its weights and tokenizer to ``out``, as ``from_pretrained`` takes them.

    With LoRA the adapter is written to ``out/adapter`` and merged into the weights in ``out``. All is safetensors, in
    the number format of the base. Where several GPUs are visible, a process for each of them does it (``launch.py``).

    Args:
        spec: base and recipe.
        train: examples of train alone.
        validation: examples of validation alone.
        task: what they are labelled with.
        scheme: the task's, for the instruction.
        seed: of the order, of dropout and of a new adapter.
        settings: for ``checkpoint_steps`` and ``max_new_tokens``, the room that an answer is given.
        folder: of this run alone, for checkpoints; must outlive a killed process, and is the caller's to remove.
        out: where the result goes.
        say: told of every epoch, once, or twice when a kill comes between that and the checkpoint.

    Raises:
        LeakRefused: examples of another split.
        NothingToTune: a split without examples.
        BaseMissing: the base cannot be had.
        BaseUnfit: its tokens do not give an answer back.
        NoTemplate: it has no chat template.
        NoRoom: ``max_length`` is too small for the instruction.
        TuningDiverged: the loss became infinite or undefined.
        GroupFailed: a process of several ended early.
    """
    for examples, split in ((train, TRAIN), (validation, VALIDATION)):
        if not only(examples, splits={split}):
            raise NothingToTune(split=split, task=task.key)
    given: dict[str, Any] = {
        "spec": spec, "train": train, "validation": validation, "task": task, "scheme": scheme, "seed": seed,
        "settings": settings, "folder": folder, "out": out,
    }  # fmt: skip
    processes = launch.processes()
    made = tune(**given, say=say) if processes == 1 else launch.group(given, processes=processes, say=say)
    return Fitted(**{**made, "history": tuple(made["history"])})


def tune(
    *,
    spec: SftModel,
    train: Sequence[Example],
    validation: Sequence[Example],
    task: Task,
    scheme: Scheme,
    seed: int,
    settings: Finetune,
    folder: Path,
    out: Path,
    say: Callable[[dict[str, float]], None],
) -> dict[str, Any]:
    """Do in this process, alone or as one of several, what :func:`fit` says, and return what it found."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with opened(spec.base, seed=seed, folder=folder) as place, reproducible(seed):
        tokenizer = had(AutoTokenizer, place, base=spec.base)
        prompt = instruct.instruction(scheme, category=task.key)
        said = _Reader(spec, prompt=prompt, tokenizer=tokenizer, task=task, room=settings.max_new_tokens)
        rows, judged = ([said(example) for example in examples] for examples in (train, validation))
        model = recipe.base_of(spec, place=place)
        packed = spec.packing and packing.packable(model)
        if packed:
            model.set_attn_implementation(packing.ATTENTION)
        elif spec.packing:
            log.warning("%s attends in a way that cannot be packed: its rows are padded", spec.base)
        beginning = packing.shared([*rows, *judged]) if packed else None
        plans = recipe.plans(spec, rows=rows, judged=judged, beginning=beginning, seed=seed)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        steps, judge = (
            Steps(Rows(samples, shared=beginning, pad=pad), plan=plan)
            for samples, plan in zip((rows, judged), plans, strict=True)
        )
        # with FSDP the first process alone has read the weights
        mine = "" if launch.rank() else _key(spec, model=model, samples=(rows, judged), prompt=prompt, seed=seed)
        key = str(broadcast_object_list([mine])[0])
        keeper = Keeper(key=key, every=settings.checkpoint_steps, task=task.key, say=say)
        arguments = recipe.arguments(spec, model=model, plan=plans[0], folder=folder, seed=seed, beginning=beginning)
        tuner = Tuner(
            model, arguments, train=steps, validation=judge, keeper=keeper, processing_class=tokenizer,
            peft_config=recipe.adapter(spec),
        )  # fmt: skip
        history = _trained(tuner, folder=folder, key=key)
        if tuner.is_world_process_zero():
            chosen = folder / f"checkpoint-{int(best(history)['step'])}"
            _write(spec, place=place, chosen=chosen, tokenizer=tokenizer, out=out)
        tuner.accelerator.wait_for_everyone()
        # the next one in this process may want another precision
        AcceleratorState._reset_state()
    return {
        "epoch": int(best(history)["epoch"]),
        "history": history,
        "steps": int(history[-1]["step"]),
        "tokens": spec.epochs * sum(len(sample.ids) for sample in rows),
        "truncated": said.truncated,
    }


class _Reader:
    """Makes samples of examples, every one of which ends in the whole answer and the sign that ends it (trap 3)."""

    def __init__(self, spec: SftModel, *, prompt: Prompt, tokenizer: Any, task: Task, room: int) -> None:
        self._spec, self._prompt, self._tokenizer, self._task = spec, prompt, tokenizer, task
        self._room = room
        self.truncated = 0

    def __call__(self, example: Example) -> Sample:
        if example.labels is None:
            raise LeakRefused(items=1, found=example.split, allowed=f"{TRAIN} and {VALIDATION}")
        answer = instruct.completion(example.labels, task=self._task)
        ids = [*self._tokenizer(answer, add_special_tokens=False)["input_ids"], self._tokenizer.eos_token_id]
        if ids[-1] is None or self._tokenizer.decode(ids[:-1]).strip() != answer:
            raise BaseUnfit(base=self._spec.base, detail="its tokens do not give an answer back")
        # the room of prediction, so that a post is cut alike in both
        asked, cut = instruct.shortened(
            example.text, prompt=self._prompt, tokenizer=self._tokenizer, max_length=self._spec.max_length,
            room=max(self._room, len(ids)),
        )  # fmt: skip
        self.truncated += cut
        return Sample((*asked, *ids), len(ids))


def _trained(tuner: Tuner, *, folder: Path, key: str) -> list[dict[str, float]]:
    """Train, or go on, and return the history of all epochs."""
    place = newest(folder, key=key)
    tuner.accelerator.wait_for_everyone()
    if place is None and tuner.is_world_process_zero():
        clear(folder)
    tuner.accelerator.wait_for_everyone()
    tuner.train(resume_from_checkpoint=str(place) if place else None)
    return tuner.history()


def _write(spec: SftModel, *, place: str, chosen: Path, tokenizer: Any, out: Path) -> None:
    """Write the weights of a checkpoint in the base's own number format, merged where they are an adapter's."""
    shutil.rmtree(out / ADAPTER, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    form = had(AutoConfig, place, base=spec.base).dtype or torch.float32
    if spec.tuning == "lora":
        model = had(AutoModelForCausalLM, place, base=spec.base, dtype=form)
        tuned = PeftModel.from_pretrained(model, str(chosen))
        # where a base was made for the moment, its folder tells nobody anything
        tuned.peft_config["default"].base_model_name_or_path = spec.base
        tuned.save_pretrained(str(out / ADAPTER), save_embedding_layers=False)
        (out / ADAPTER / "README.md").unlink(missing_ok=True)
        model = tuned.merge_and_unload()
    else:
        model = had(AutoModelForCausalLM, str(chosen), base=spec.base, dtype=form)
    model.save_pretrained(str(out), max_shard_size=SHARD)
    tokenizer.save_pretrained(str(out))


def _key(spec: SftModel, *, model: Any, samples: Sequence[Sequence[Sample]], prompt: Prompt, seed: int) -> str:
    """Return a digest of what the outcome depends on, so that a checkpoint of anything else is not gone on from."""
    begin = [(name, list(t.shape), t.flatten()[:16].float().tolist()) for name, t in model.named_parameters()]
    facts = {
        "spec": spec.model_dump(mode="json"),
        "seed": seed,
        "prompt": prompt.digest,
        "samples": [[[s.answer, *s.ids] for s in part] for part in samples],
        "begin": begin,
        "processes": launch.world(),
        "versions": [str(torch.__version__), transformers.__version__],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
