"""Adapt TRL's trainer for fine-tuning: the samples of a step, the loss, and checkpoints that survive a kill.

Everything else comes from ``trl.SFTTrainer``: the optimiser, its schedule, mixed precision, adapters, FSDP, and the
content of a checkpoint. Ours are the rows (``packing.py``), a loss that projects only the answers' positions onto the
vocabulary, an exact validation loss, and the marker of complete checkpoints.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset as Table
from torch.utils.data import DataLoader, Dataset
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from trl import SFTTrainer

from pipelines.models.fitting.inference import Diverged
from pipelines.models.kinds.sft import launch
from pipelines.models.kinds.sft.launch import Shards
from pipelines.models.kinds.sft.packing import IGNORED, PackingPlan, TokenizedSample, padded, row

WHOLE, JUDGED = "whole.json", "eval_loss"


class RowCollator:
    """Converts samples to input rows of the model: packed with a common prefix, or padded.

    Args:
        shared: number of tokens that all samples begin with; ``None`` for padded rows.
    """

    def __init__(self, samples: Sequence[TokenizedSample], *, shared: int | None, pad: int) -> None:
        self.samples, self._shared, self._pad = samples, shared, pad
        self._short = min(samples, key=lambda s: len(s.ids))

    def __call__(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Return the tensors of one row; a row without samples is computed and has no labels to learn."""
        chosen = [self.samples[i] for i in numbers] or [self._short]
        made = padded(chosen, pad=self._pad) if self._shared is None else row(chosen, shared=self._shared)
        if not numbers:
            made["labels"].fill_(IGNORED)
        if any(sample.weight != 1 for sample in chosen):
            made["weights"] = self._weights(chosen, like=made["labels"])
        return made

    def _weights(self, chosen: Sequence[TokenizedSample], *, like: torch.Tensor) -> torch.Tensor:
        """Return the weight of every token, of the shape of the labels."""
        weights = torch.tensor([sample.weight for sample in chosen])
        if self._shared is None:
            return weights[:, None].expand(like.shape)
        tails = torch.tensor([len(sample.ids) - self._shared for sample in chosen])
        return torch.cat([torch.ones(self._shared), weights.repeat_interleave(tails)])[None]


class Steps(Dataset):  # type: ignore[misc]
    """The input rows of this process for one epoch; a row's ``answers`` counts the answer tokens of its whole step."""

    def __init__(self, rows: RowCollator, *, plan: PackingPlan) -> None:
        self.rows, self.plan = rows, plan
        self.epoch, self.process = 0, 0

    def __len__(self) -> int:
        return len(self.plan.steps[0]) * self.plan.rows

    def __getitem__(self, number: int) -> dict[str, Any]:
        processes = self.plan.steps[self.epoch][number // self.plan.rows]
        answers = sum(self.rows.samples[i].answer for rows in processes for chosen in rows for i in chosen)
        return self.rows(processes[self.process][number % self.plan.rows]) | {"answers": answers}


class Tuner(SFTTrainer):  # type: ignore[misc]
    """The trainer (TRL's) on planned input rows; its validation loss is the mean loss per answer token."""

    loss_is_scaled_for_ga = True
    control: Any

    def __init__(self, model: Any, args: Any, *, train: Steps, validation: Steps, keeper: Keeper, **options: Any):
        # the library insists on a table and reads its first row and columns; the data come from our loader
        table = Table.from_dict({"number": [0]})
        super().__init__(model, args, train_dataset=table, data_collator=itemgetter(0), callbacks=[keeper], **options)
        if getattr(model, "is_loaded_in_4bit", False):
            # the library rounds the adapter to bfloat16, which loses small updates (SPEC 2.4, trap 2)
            for weight in self.model.parameters():
                weight.data = weight.data.float() if weight.requires_grad else weight.data
        for shown in (PrinterCallback, ProgressCallback):
            self.remove_callback(shown)
        self.steps, self.validation = train, validation
        for each in (train, validation):
            each.process = self.args.process_index
        keeper.tuner = self
        self.shards = Shards(0, ())

    def create_accelerator_and_postprocess(self) -> None:
        """Create the accelerator, and let it divide the model among the processes of a group, on a CPU as well."""
        super().create_accelerator_and_postprocess()
        self.is_fsdp_enabled = launch.enable_sharding(self.accelerator)

    def get_train_dataloader(self) -> DataLoader:
        """Return the loader of the training rows, in the order planned for the current epoch."""
        return DataLoader(self.steps, batch_size=1, shuffle=False, collate_fn=itemgetter(0))

    def compute_loss(self, model: Any, inputs: dict[str, Any], *rest: Any, **options: Any) -> Any:
        """Return the loss of one input row, as its share of the step's mean loss per answer token."""
        labels, answers, weights = inputs.pop("labels")[:, 1:], inputs.pop("answers"), inputs.pop("weights", None)
        # the vocabulary is big and the answers are short: project only the answers
        places = (labels != IGNORED).any(0).nonzero()[:, 0]
        logits = model(**inputs, logits_to_keep=places, use_cache=False).logits.float()
        wanted = labels[:, places].flatten()
        how = "sum" if weights is None else "none"
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted, ignore_index=IGNORED, reduction=how)
        if weights is not None:
            # a product of matrices would be rounded to bfloat16
            loss = (loss * weights[:, 1:][:, places].flatten()).sum()
        # gradients are averaged over the processes, but each process holds only its share of the sum
        return loss / answers * self.args.world_size

    def evaluate(self, *rest: Any, **options: Any) -> dict[str, float]:
        """Run validation and return ``eval_loss``, the mean loss per answer token; the processes share the work."""
        model = self.model_wrapped
        model.eval()
        total = torch.zeros((), device=self.args.device)
        with torch.no_grad(), self.compute_loss_context_manager():
            for number in range(len(self.validation)):
                total += self.compute_loss(model, self._prepare_inputs(self.validation[number]))
        metrics = {JUDGED: float(self.accelerator.reduce(total, "mean"))}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def history(self) -> list[dict[str, float]]:
        """Return ``epoch``, ``step``, ``train_loss``, ``validation_loss``, ``learning_rate`` by validated epoch."""
        each = len(self.steps.plan.steps[0])
        said = self.state.log_history
        losses = {line["step"]: line for line in said if "loss" in line}
        return [
            {
                "epoch": (last := int(line["step"])) // each,
                "step": last,
                "train_loss": math.fsum(losses[step]["loss"] for step in range(last - each + 1, last + 1)) / each,
                "validation_loss": line[JUDGED],
                "learning_rate": losses[last]["learning_rate"],
            }
            for line in said
            if JUDGED in line
        ]

    def create_model_card(self, *rest: Any, **options: Any) -> None:
        """Do nothing, because checkpoints are internal and need no model card."""


class Keeper(TrainerCallback):  # type: ignore[misc]
    """The callback that decides when to validate and save, marks complete checkpoints, and reports every epoch.

    A checkpoint is written after every epoch's validation, and every ``every`` steps within an epoch; never between an
    epoch's last step and its validation, because a resumed run would skip the validation. Two checkpoints are kept: the
    newest, to resume from, and of the best epoch's only the weights. With the one that is being written, a disk holds
    the optimiser's state twice and the weights three times (``preflight.py``).

    Args:
        key: digest of the run's inputs; only a run with the same key resumes from its checkpoints.
        say: called after every epoch, in the main process alone.
    """

    tuner: Tuner

    def __init__(self, *, key: str, every: int, task: str, say: Callable[[dict[str, float]], None]) -> None:
        self._key, self._every, self._task, self._say = key, every, task, say

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.tuner.shards = Shards.of(self.tuner.model)
        self.tuner.shards.check()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.tuner.steps.epoch = state.global_step // len(self.tuner.steps.plan.steps[0])

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self._every == 0 and state.global_step % len(self.tuner.steps.plan.steps[0]):
            control.should_save = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Request a validation and then a checkpoint at the end of an epoch."""
        control.should_evaluate = control.should_save = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        """Stop the training with an error if its loss diverged."""
        for name in ("loss", JUDGED):
            if name in logs and not math.isfinite(logs[name]):
                raise Diverged(
                    "TuningDiverged", task=self._task, detail=f"{name} of step {state.global_step} is {logs[name]}"
                )

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Pass the epoch's losses to ``say`` after its validation, in the main process."""
        if state.is_world_process_zero:
            self._say(self.tuner.history()[-1])

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Mark the saved checkpoint as complete when all processes are done, and delete all others except the best."""
        self.tuner.accelerator.wait_for_everyone()
        if state.is_world_process_zero:
            folder = Path(args.output_dir)
            mark(folder / f"checkpoint-{state.global_step}", key=self._key)
            history = self.tuner.history()
            kept = {state.global_step, *([best(history)["step"]] if history else [])}
            clear(folder, keep={f"checkpoint-{int(step)}" for step in kept})
            for step in kept - {state.global_step}:
                reduce(folder / f"checkpoint-{int(step)}")
        self.tuner.accelerator.wait_for_everyone()


def best(history: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the entry of a history with the lowest validation loss (CRADLE F); the earlier epoch wins a tie."""
    return min(history, key=lambda line: (line["validation_loss"], line["epoch"]))


def mark(checkpoint: Path, *, key: str) -> None:
    """Write a file into a checkpoint that marks it as complete and holds the run's key, after all files are on disk."""
    for path in checkpoint.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    made = checkpoint / f".{WHOLE}"
    made.write_text(json.dumps({"key": key}))
    made.replace(checkpoint / WHOLE)


def newest(folder: Path, *, key: str) -> Path | None:
    """Return the newest complete checkpoint in ``folder`` with this run's key, or ``None``."""
    for path in sorted(folder.glob("checkpoint-*"), key=lambda p: -int(p.name.rpartition("-")[2])):
        if (path / WHOLE).is_file() and json.loads((path / WHOLE).read_text())["key"] == key:
            return path
    return None


def clear(folder: Path, *, keep: Collection[str] = ()) -> None:
    """Delete all checkpoints in ``folder`` except those named in ``keep``, each one's mark of completeness first."""
    for path in folder.glob("checkpoint-*"):
        if path.name not in keep:
            (path / WHOLE).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)


def reduce(checkpoint: Path) -> None:
    """Delete from a checkpoint what only resuming needs, which is the optimiser's state; its weights remain."""
    # it must not look complete
    (checkpoint / WHOLE).unlink(missing_ok=True)
    shutil.rmtree(checkpoint / launch.OPTIMIZER, ignore_errors=True)
    (checkpoint / launch.PLAIN_OPTIMIZER).unlink(missing_ok=True)
