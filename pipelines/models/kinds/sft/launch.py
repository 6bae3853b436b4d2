"""Run fine-tuning in several processes that divide the model: one for each GPU, or any number on a CPU (FSDP 2).

``torch.distributed.run`` starts :mod:`pipelines.models.kinds.sft.sft` once for each process. Arguments are passed in
memory, in an anonymous file that disappears with its processes, because posts are never written to a disk. The
first process reports on standard output, one JSON object per line.

``fully_shard`` gives each process a part of every weight, with the gradients and the optimiser's state of that part.
Each process writes its part of a checkpoint (``torch.distributed.checkpoint``). Accelerate divides a model only on
accelerators; on a CPU it would silently give each process a copy of everything (DDP), whatever it was told.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as distributed
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin, gather_object
from torch.distributed.fsdp import CPUOffloadPolicy

from pipelines.core.errors import BadParams, DataError
from pipelines.models.kinds.sft import Sft

# Environment variable with the path of the arguments' file: the parent's PID and file descriptor.
GIVEN = "CORPUS_SFT_GIVEN"
MODULE = "pipelines.models.kinds.sft.sft"


class GroupFailed(DataError):
    """One of the processes that fine-tune a model together failed."""


def world() -> int:
    """Return the number of processes that fine-tune together with this one, as ``torch.distributed.run`` sets it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Return the index of this process among those that fine-tune together, starting at 0."""
    return int(os.environ.get("RANK", "0"))


def grouped() -> bool:
    """Return whether this process was started by :func:`group`, so that it holds a part of the model."""
    return GIVEN in os.environ


def processes(asked: int | None = None) -> int:
    """Return in how many processes to fine-tune: ``asked``, else one for each GPU, else 1."""
    gpus = torch.cuda.device_count()
    if asked and gpus and asked > gpus:
        raise BadParams(where="CORPUS_FINETUNE_PROCESSES", detail=f"is {asked}, and there are {gpus} GPUs")
    return asked or max(1, gpus)


def command(count: int) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(count)]
    return [sys.executable, *launcher, "-m", MODULE]


def sharding(spec: Sft, *, gpu: bool) -> dict[str, str]:
    """Return the environment variables that make ``accelerate`` divide a model among the processes.

    Weights, gradients and the optimiser's state are divided layer by layer, and only the first process reads the base
    model. On GPUs, products are computed in bfloat16. ``offload: cpu`` keeps a GPU's part in the memory of its host.
    """
    return {
        "ACCELERATE_USE_FSDP": "true",
        "ACCELERATE_MIXED_PRECISION": "bf16" if gpu else "no",
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
        "FSDP_RESHARD_AFTER_FORWARD": "true",
        "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
        "FSDP_OFFLOAD_PARAMS": "true" if spec.offload else "false",
    }


def group(job: Any, *, processes: int, say: Callable[[dict[str, float]], None]) -> dict[str, Any]:
    """Fine-tune in ``processes`` processes, and return the metrics of ``sft.tune``, such as the epochs' losses."""
    file = os.memfd_create("given")
    try:
        with os.fdopen(os.dup(file), "wb") as handed:
            # no process needs more: the vault and other examples stay here
            pickle.dump(replace(job, vault=None, others=()), handed)
        environment = {**os.environ, **sharding(job.spec, gpu=torch.cuda.is_available())}
        environment[GIVEN] = f"/proc/{os.getpid()}/fd/{file}"
        metrics: dict[str, Any] = {}
        with subprocess.Popen(command(processes), env=environment, stdout=subprocess.PIPE, text=True) as child:
            try:
                for line in child.stdout or ():
                    if line.startswith('{"said"'):
                        say(json.loads(line)["said"])
                    elif line.startswith('{"found"'):
                        metrics = json.loads(line)["found"]
            except BaseException:
                child.terminate()
                raise
    finally:
        os.close(file)
    if child.returncode or not metrics:
        raise GroupFailed(processes=processes, status=child.returncode)
    return metrics


def tell(**said: Any) -> None:
    """Send the keyword arguments to the parent process as a line of JSON on standard output."""
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def leave_with(parent: Path) -> None:
    """End this process soon after the parent's file ``parent`` is deleted, so that it does not run beside a retry."""

    def watch() -> None:
        while parent.exists():
            time.sleep(1)
        os._exit(os.EX_TEMPFAIL)

    threading.Thread(target=watch, daemon=True).start()


# Folders of a sharded checkpoint, as accelerate names them; the optimiser's state of an undivided model is a file.
WEIGHTS, OPTIMIZER, PLAIN_OPTIMIZER = "pytorch_model_fsdp_0", "optimizer_0", "optimizer.pt"
# Ours: how much more than its equal part a process may hold. Weights are divided by rows, so parts differ by a row.
UNEVEN = 1.05


@dataclass(frozen=True)
class Shards:
    """How a model is divided: its number of ``parameters``, and how many of them each process holds, by rank."""

    parameters: int
    held: tuple[int, ...]

    @classmethod
    def of(cls, model: Any) -> Shards:
        """Count the parameters of a model and those that each process holds; call it in all processes."""
        parameters = list(model.parameters())
        local = sum(getattr(p, "to_local", lambda p=p: p)().numel() * _packed(p) for p in parameters)
        whole = sum(p.numel() * _packed(p) for p in parameters)
        return cls(whole, tuple(gather_object([local])) if grouped() else (local,))

    def check(self) -> None:
        """Raise an error unless each process holds an equal part, give or take :data:`UNEVEN`."""
        if max(self.held) > UNEVEN * self.parameters / len(self.held):
            held = ", ".join(map(str, self.held))
            raise DataError("NotSharded", parameters=self.parameters, processes=len(self.held), held=held)


def enable_sharding(accelerator: Any) -> bool:
    """Make an accelerator divide models on a CPU as on a GPU, in a process of a group; return whether it divides them.

    Weights that are offloaded to a CPU's memory are pinned only for a GPU.
    """
    if not grouped():
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


def is_sharded(checkpoint: Path) -> bool:
    """Return whether the weights of a checkpoint are in parts, one of each process."""
    return (checkpoint / WEIGHTS).is_dir()


def read_shards(checkpoint: Path, *, into: dict[str, Any]) -> None:
    """Copy the weights of a sharded checkpoint into tensors by name, each in its own number format, one by one."""
    with warnings.catch_warnings():
        # it says that this process reads alone
        warnings.simplefilter("ignore")
        distributed.load({"model": into}, checkpoint_id=checkpoint / WEIGHTS, no_dist=True)


def _packed(parameter: Any) -> int:
    return 2 * int(parameter.element_size()) if type(parameter).__name__ == "Params4bit" else 1
