"""Fine-tune a causal model on the JSON of the labels (CRADLE 5.2, F), and calibrate its probabilities on dev.

All weights are tuned, or LoRA adapters, on one GPU or several. The recipe is the paper's, as interpreted in SPEC 29: an
optimiser step takes ``batch`` times ``accumulation`` examples over all processes, the schedule is linear, the loss
covers the answers' tokens alone, and the epoch with the least validation loss is kept. On a CPU, the same inputs give
the same losses, even if the run was killed and restarted. Texts stay in memory: only weights, and numbers from which no
text can be reconstructed, are written.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import os
import pickle
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast_object_list
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from pipelines.core.errors import DataError
from pipelines.core.process import hide_messages
from pipelines.datasets.example import TRAIN, VALIDATION, Example, only
from pipelines.llm.prompts import Prompt
from pipelines.models.backbones import had, opened, unfit
from pipelines.models.fitting import adapter, calibrated_predictor, instruct
from pipelines.models.fitting.generate import Generator
from pipelines.models.fitting.loss_and_optimizer import reproducible
from pipelines.models.kind import Job
from pipelines.models.kinds.sft import Sft, launch, packing, recipe
from pipelines.models.kinds.sft.packing import TokenizedSample
from pipelines.models.kinds.sft.trainer import Keeper, RowCollator, Steps, Tuner, best, clear, newest

SftJob = Job[Sft]
log = logging.getLogger(__name__)

Say = Callable[[dict[str, float]], None]

# Ours: posts that are read together; the stage knows the batch of training only.
TOGETHER = 8


def fit(job: SftJob, *, say: Say) -> dict[str, Any]:
    """Fine-tune a causal model; write weights and tokenizer to ``job.out`` in the format of ``from_pretrained``.

    With LoRA, the adapter's weights alone are written (``adapter.py``). All weights are safetensors, in the number
    format of the base model, an adapter's in float32. Several processes divide the model (``launch.py``), and so does a
    single one that offloads it. ``say`` is called after every epoch; twice if a kill comes between the call and the
    checkpoint.

    Returns:
        ``epoch`` (the best one, counted from 1), ``history`` (for each epoch ``epoch``, ``step``, ``train_loss``,
        ``validation_loss`` in nats for a token of the answers, ``learning_rate``), ``steps`` (of the optimiser),
        ``tokens`` (of train in all epochs, including the instruction of every example), ``truncated`` (posts of train
        and validation that lost their middle), ``parameters`` (of the model, including an adapter's) and ``held`` (how
        many of them each process held, by rank).
    """
    for examples, split in ((job.train, TRAIN), (job.validation, VALIDATION)):
        if not only(examples, splits={split}):
            raise DataError("NothingToTune", split=split, task=job.task.key)
    processes = recipe.processes(job.spec, asked=job.processes)
    alone = processes == 1 and job.spec.offload is None
    return tune(job, say=say) if alone else launch.group(job, processes=processes, say=say)


def store_prompt(job: SftJob) -> dict[str, Any]:
    """Put a team's own prompt into the model's folder, where training and prediction read it; return its origin."""
    prompt = instruct.instruction(job.scheme, category=job.task.key, own=job.own)
    instruct.store(prompt, job.out)
    return prompt.origin


def calibrate(job: SftJob) -> dict[str, Any]:
    """Fit a model's calibration and alerts on dev; write them to the folder of the model that :func:`fit` wrote.

    Returns:
        The report of :func:`pipelines.metrics.recall_constraints.learned`: alerts, exact match, losses on dev.
    """
    # the trained model is in a cycle of references, and still on the accelerator
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    sizes: dict[str, Any] = {
        "max_length": job.spec.max_length,
        "max_new_tokens": job.spec.max_new_tokens,
        "batch": TOGETHER,
    }
    generator = Generator(job.out, task=job.task, scheme=job.scheme, folder=job.folder, **sizes)
    posterior = generator.posteriors(job.validation)
    # a single-label task takes the label that is most probable after calibration
    most = posterior.argmax(axis=1) if job.task.kind == "multi" else None
    sets = None if most is None else [generator.sets[chosen] for chosen in most]
    return calibrated_predictor.calibrate(posterior @ generator.member, job=job, sets=sets)


def tune(job: SftJob, *, say: Say) -> dict[str, Any]:
    """Fine-tune (see :func:`fit`) in this process, alone or as one of several; return the same."""
    spec, folder, seed = job.spec, job.folder, job.seed
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with opened(spec.base, revision=spec.revision, seed=seed, folder=folder) as place, reproducible(seed):
        tokenizer = had(AutoTokenizer, place, base=spec.base)
        prompt = instruct.instruction(job.scheme, category=job.task.key, tuned=job.out)
        said = _Reader(job, prompt=prompt, tokenizer=tokenizer)
        rows, judged = ([said(example) for example in examples] for examples in (job.train, job.validation))
        model = recipe.base_of(spec, place=place)
        packed = spec.packing and packing.packable(model)
        if packed:
            model.set_attn_implementation(packing.ATTENTION)
        elif spec.packing:
            log.warning("the attention of %s cannot be packed: its rows are padded", spec.base)
        beginning = packing.shared([*rows, *judged]) if packed else None
        plans = recipe.plans(spec, rows=rows, judged=judged, beginning=beginning, seed=seed)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        steps, judge = (
            Steps(RowCollator(samples, shared=beginning, pad=pad), plan=plan)
            for samples, plan in zip((rows, judged), plans, strict=True)
        )
        # with FSDP, only the first process has read the weights
        mine = "" if launch.rank() else _key(job, model=model, samples=(rows, judged), prompt=prompt)
        key = str(broadcast_object_list([mine])[0])
        keeper = Keeper(key=key, every=job.checkpoint_steps, task=job.task.key, say=say)
        arguments = recipe.arguments(spec, model=model, plan=plans[0], folder=folder, seed=seed)
        tuner = Tuner(
            model, arguments, train=steps, validation=judge, keeper=keeper, processing_class=tokenizer,
            peft_config=recipe.adapter(spec),
        )  # fmt: skip
        history = _trained(tuner, folder=folder, key=key)
        if tuner.is_world_process_zero():
            chosen = folder / f"checkpoint-{int(best(history)['step'])}"
            _write(spec, place=place, chosen=chosen, tokenizer=tokenizer, out=job.out, model=tuner.model)
        tuner.accelerator.wait_for_everyone()
        # the next run in this process may need another precision
        AcceleratorState._reset_state()
    return {
        "epoch": int(best(history)["epoch"]),
        "history": history,
        "steps": int(history[-1]["step"]),
        "tokens": spec.epochs * sum(len(sample.ids) for sample in rows),
        "truncated": said.truncated,
        "parameters": tuner.shards.parameters,
        "held": list(tuner.shards.held),
    }


class _Reader:
    """Makes samples from examples; every sample ends with the whole answer and the end token (trap 3)."""

    def __init__(self, job: SftJob, *, prompt: Prompt, tokenizer: Any) -> None:
        self._spec, self._task, self._room = job.spec, job.task, job.spec.max_new_tokens
        self._prompt, self._tokenizer = prompt, tokenizer
        self.truncated = 0

    def __call__(self, example: Example) -> TokenizedSample:
        if example.labels is None:
            raise DataError("LeakRefused", items=1, found=example.split, allowed=f"{TRAIN} and {VALIDATION}")
        answer = instruct.completion(example.labels, task=self._task)
        ids = [*self._tokenizer(answer, add_special_tokens=False)["input_ids"], self._tokenizer.eos_token_id]
        if ids[-1] is None or self._tokenizer.decode(ids[:-1]).strip() != answer:
            raise unfit(self._spec.base, "its tokenizer does not decode an answer to the same text")
        # the same room as in prediction, so that both cut a post at the same place
        asked, cut = instruct.shortened(
            example.text, prompt=self._prompt, tokenizer=self._tokenizer, max_length=self._spec.max_length,
            room=max(self._room, len(ids)),
        )  # fmt: skip
        self.truncated += cut
        return TokenizedSample((*asked, *ids), len(ids), example.weight)


def _trained(tuner: Tuner, *, folder: Path, key: str) -> list[dict[str, float]]:
    """Train, or resume training, and return the history of all epochs."""
    place = newest(folder, key=key)
    tuner.accelerator.wait_for_everyone()
    if place is None and tuner.is_world_process_zero():
        clear(folder)
    tuner.accelerator.wait_for_everyone()
    tuner.train(resume_from_checkpoint=str(place) if place else None)
    return tuner.history()


def _write(spec: Sft, *, place: str, chosen: Path, tokenizer: Any, out: Path, model: Any) -> None:
    """Write a checkpoint's weights in the base's own number format, or its adapter; ``model`` is the trained one."""
    out.mkdir(parents=True, exist_ok=True)
    if spec.tuning == "lora":
        if launch.is_sharded(chosen):
            _join(model, checkpoint=chosen)
        adapter.write(spec, place=place, checkpoint=chosen, out=out)
    else:
        form = had(AutoConfig, place, base=spec.base).dtype or torch.float32
        parts = launch.is_sharded(chosen)
        written = had(AutoModelForCausalLM, place if parts else str(chosen), base=spec.base, dtype=form)
        if parts:
            launch.read_shards(chosen, into=written.state_dict())
        written.save_pretrained(str(out), max_shard_size=adapter.SHARD)
    tokenizer.save_pretrained(str(out))


def _join(model: Any, *, checkpoint: Path) -> None:
    """Write the adapter of a sharded checkpoint to the files of an undivided one, in the checkpoint's folder.

    The adapter of ``model``, the trained one, may be divided among processes.
    """
    from peft import get_peft_model_state_dict

    parts = get_peft_model_state_dict(model)
    weights = {name: torch.empty(tensor.shape, dtype=torch.float32) for name, tensor in parts.items()}
    launch.read_shards(checkpoint, into=weights)
    save_file(weights, checkpoint / adapter.WEIGHTS, metadata={"format": "pt"})
    config = copy(model.peft_config[model.active_adapter])
    config.inference_mode = True
    config.save_pretrained(str(checkpoint))


def _key(job: SftJob, *, model: Any, samples: Sequence[Sequence[TokenizedSample]], prompt: Prompt) -> str:
    """Return a digest of everything that the result depends on; a run resumes only from checkpoints with its digest."""
    begin = [(name, list(t.shape), t.flatten()[:16].float().tolist()) for name, t in model.named_parameters()]
    facts = {
        "spec": job.spec.model_dump(mode="json"),
        "seed": job.seed,
        "prompt": prompt.digest,
        "samples": [[[s.answer, *s.ids, *([] if s.weight == 1 else [s.weight])] for s in part] for part in samples],
        "begin": begin,
        "processes": [launch.world(), launch.grouped()],
        "versions": [str(torch.__version__), transformers.__version__],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def main() -> None:
    """Run this process's part of a fine-tuning on several GPUs, with the arguments that the parent process passed."""
    handed = Path(os.environ[launch.GIVEN])
    launch.leave_with(handed)
    # the parent's own memory, which no other user can write
    job = pickle.loads(handed.read_bytes())  # noqa: S301
    metrics = tune(job, say=lambda epoch: launch.tell(said=epoch))
    if not launch.rank():
        launch.tell(found=metrics)


if __name__ == "__main__":
    hide_messages()
    main()
