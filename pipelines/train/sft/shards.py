"""Divide a model among the processes that fine-tune it (FSDP 2), prove that it is divided, and read its checkpoints.

``fully_shard`` gives each process a part of every weight, with the gradients and the optimiser's state of that part.
Each process writes its part of a checkpoint (``torch.distributed.checkpoint``). Accelerate divides a model only on
accelerators; on a CPU it would silently give each process a copy of everything (DDP), whatever it was told.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as distributed
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin, gather_object
from torch.distributed.fsdp import CPUOffloadPolicy

from pipelines.errors import DataError
from pipelines.train.sft import launch

# Folders of a sharded checkpoint, as accelerate names them; the optimiser's state of an undivided model is a file.
WEIGHTS, OPTIMIZER, PLAIN_OPTIMIZER = "pytorch_model_fsdp_0", "optimizer_0", "optimizer.pt"
# Ours: how much more than its equal part a process may hold. Weights are divided by rows, so parts differ by a row.
UNEVEN = 1.05


class NotSharded(DataError):
    """A process holds more of the model than its part, so each GPU would need the memory of a larger part."""

    message = "The model is not divided: of {parameters} parameters, the {processes} processes hold {held}."
    remedy = (
        "Check that the versions of accelerate, torch and transformers are those of requirements.lock; if they are, "
        "report the model's architecture: its layers cannot be divided."
    )


@dataclass(frozen=True)
class Shards:
    """How a model is divided: its number of ``parameters``, and how many of them each process holds, by rank."""

    parameters: int
    held: tuple[int, ...]

    @classmethod
    def of(cls, model: Any) -> Shards:
        """Count the parameters of a model and those that each process holds; call it in all processes."""
        parameters = list(model.parameters())
        local = sum(_local(p).numel() * _packed(p) for p in parameters)
        whole = sum(p.numel() * _packed(p) for p in parameters)
        return cls(whole, tuple(gather_object([local])) if launch.grouped() else (local,))

    def check(self) -> None:
        """Raise an error unless each process holds an equal part, give or take :data:`UNEVEN`."""
        if max(self.held) > UNEVEN * self.parameters / len(self.held):
            raise NotSharded(parameters=self.parameters, processes=len(self.held), held=_listed(self.held))


def enable(accelerator: Any) -> bool:
    """Make an accelerator divide models on a CPU as on a GPU, in a process of a group; return whether it divides them.

    Weights that are offloaded to a CPU's memory are pinned only for a GPU.
    """
    if not launch.grouped():
        return False
    state = accelerator.state
    if state.distributed_type == DistributedType.MULTI_CPU:
        state.fsdp_plugin = FullyShardedDataParallelPlugin()
        state.distributed_type = DistributedType.FSDP
    if policy := state.fsdp_plugin.mixed_precision_policy:
        # sums over processes in bfloat16 would lose small gradients
        state.fsdp_plugin.mixed_precision_policy = replace(policy, reduce_dtype=torch.float32)
    if isinstance(state.fsdp_plugin.cpu_offload, CPUOffloadPolicy):
        state.fsdp_plugin.cpu_offload = CPUOffloadPolicy(pin_memory=accelerator.device.type == "cuda")
    return True


def stored(checkpoint: Path) -> bool:
    """Return whether the weights of a checkpoint are in parts, one of each process."""
    return (checkpoint / WEIGHTS).is_dir()


def read(checkpoint: Path, *, into: dict[str, Any]) -> None:
    """Copy the weights of a sharded checkpoint into tensors by name, each in its own number format, one by one."""
    with warnings.catch_warnings():
        # it says that this process reads alone
        warnings.simplefilter("ignore")
        distributed.load({"model": into}, checkpoint_id=checkpoint / WEIGHTS, no_dist=True)


def _local(parameter: Any) -> Any:
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def _packed(parameter: Any) -> int:
    """Return how many weights an element of a parameter has: more than one only in a quantized one."""
    if type(parameter).__name__ != "Params4bit":
        return 1
    return 2 * int(parameter.element_size())


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
