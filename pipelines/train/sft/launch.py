"""Run fine-tuning on several GPUs: one process for each, with sharded computation and weights (FSDP).

``accelerate launch`` runs :mod:`pipelines.train.sft.worker` once for each GPU. Arguments are passed in memory, in an
anonymous file that disappears with its processes, because posts are never written to a disk. The first process reports
on standard output, one JSON object per line.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from pipelines.errors import DataError

# Environment variable with the path of the arguments' file: the parent's PID and file descriptor.
GIVEN = "CORPUS_SFT_GIVEN"
MODULE = "pipelines.train.sft.worker"


class GroupFailed(DataError):
    """One of the processes that fine-tune a model together failed."""

    message = "One of {processes} fine-tuning processes ended with status {status}."
    remedy = "Remove the cause of its error in the log above, then retry the task, which resumes from a checkpoint."
    exit_code = 75


def world() -> int:
    """Return the number of processes that fine-tune together with this one, as ``accelerate launch`` sets it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Return the index of this process among those that fine-tune together, starting at 0."""
    return int(os.environ.get("RANK", "0"))


def processes() -> int:
    """Return how many processes a fine-tuning run should start: one for each GPU, or 1 inside a started process."""
    return max(1, torch.cuda.device_count()) if world() == 1 else 1


def command(count: int, *, gpu: bool) -> list[str]:
    """Return the command line that starts the fine-tuning worker in ``count`` processes.

    On GPUs, weights, gradients and the optimiser's state are sharded (FSDP 2, layer by layer), the state in a
    checkpoint is complete, and products are computed in bfloat16. On a CPU, where accelerate starts one process for
    any requested number, torch.distributed.run is used and each process has a full copy (DDP over gloo).

    Args:
        count: number of processes, one for each GPU.
        gpu: whether there are GPUs.
    """
    if not gpu:
        line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(count)]
        return [*line, "-m", MODULE]
    line = [sys.executable, "-m", "accelerate.commands.launch", "--num_machines", "1", "--num_processes", str(count)]
    line += ["--multi_gpu", "--main_process_port", "0", "--dynamo_backend", "no", "--mixed_precision", "bf16"]
    line += ["--use_fsdp", "--fsdp_version", "2", "--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"]
    line += ["--fsdp_state_dict_type", "FULL_STATE_DICT", "--fsdp_reshard_after_forward", "true"]
    return [*line, "--fsdp_cpu_ram_efficient_loading", "true", "-m", MODULE]


def group(job: Any, *, processes: int, say: Callable[[dict[str, float]], None], gpu: bool = True) -> dict[str, Any]:
    """Fine-tune in ``processes`` processes, and return the metrics of ``sft.tune``, such as the epochs' losses.

    Args:
        job: the ``sft.SftJob``.
        processes: number of processes.
        say: called after every epoch.
        gpu: whether each process has a GPU.

    Raises:
        GroupFailed: a process ended early.
    """
    file = os.memfd_create("given")
    try:
        with os.fdopen(os.dup(file), "wb") as handed:
            pickle.dump(job, handed)
        environment = {**os.environ, GIVEN: f"/proc/{os.getpid()}/fd/{file}"}
        found = _followed(command(processes, gpu=gpu), environment=environment, say=say, processes=processes)
    finally:
        os.close(file)
    return found


def _followed(
    line: Sequence[str], *, environment: dict[str, str], say: Callable[[dict[str, float]], None], processes: int
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True) as child:
        try:
            for said in child.stdout or ():
                if said.startswith('{"said"'):
                    say(json.loads(said)["said"])
                elif said.startswith('{"found"'):
                    found = json.loads(said)["found"]
        except BaseException:
            child.terminate()
            raise
    if child.returncode or not found:
        raise GroupFailed(processes=processes, status=child.returncode)
    return found


def tell(**said: Any) -> None:
    """Send the keyword arguments to the parent process as a line of JSON on standard output."""
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def leave_with(parent: Path) -> None:
    """End this process soon after the parent's file ``parent`` is deleted, so that it does not run beside a retry."""

    def watch() -> None:
        while parent.exists():
            time.sleep(1)
        os._exit(GroupFailed.exit_code)

    threading.Thread(target=watch, daemon=True).start()
