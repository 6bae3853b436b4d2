"""Write and load the checkpoints from which a killed training run resumes.

A checkpoint is a folder ``checkpoint-<step>`` with the weights (safetensors), the best weights so far (a hard link if
they are unchanged), the optimiser and random states (``torch.load(weights_only=True)``), and the position as JSON. It
is written under a temporary name, synced and renamed, so it is complete or absent; a run with other inputs ignores it.
Only its own user can read it, because weights may memorise texts.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import tempfile
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_model

MODEL, BEST, STATE, POSITION = "model.safetensors", "best.safetensors", "state.pt", "position.json"
HALF = ".half-"
UNREADABLE = (OSError, EOFError, ValueError, KeyError, RuntimeError, UnpicklingError, SafetensorError)

log = logging.getLogger(__name__)


def random_states() -> dict[str, Any]:
    """Return the random states of torch, Python and NumPy as types that ``weights_only`` can load."""
    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        "python": random.getstate(),
        "numpy": [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
    }


def set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    random.setstate(states["python"])
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))


def save(
    folder: Path,
    *,
    key: str,
    step: int,
    position: dict[str, Any],
    module: Any,
    optimizer: Any,
    randoms: list[dict[str, Any]],
    best: bool,
) -> Path:
    """Write a training run's checkpoint after ``step`` steps, delete its earlier ones, and return the new path.

    Args:
        key: digest of the run's inputs; only a run with the same key resumes from here.
        position: where the run is, such as its epoch, as plain JSON; :func:`load` returns it.
        randoms: one :func:`random_states` for each process.
        best: whether these weights are the best so far; if not, the last checkpoint's best weights are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before = _checkpoints(folder)
    made = Path(tempfile.mkdtemp(prefix=HALF, dir=folder))
    save_model(module, str(made / MODEL))
    _sort_metadata(made / MODEL)
    if best:
        _link(made / MODEL, made / BEST)
    elif before and (before[-1] / BEST).exists():
        _link(before[-1] / BEST, made / BEST)
    torch.save({"optimizer": optimizer.state_dict(), "randoms": randoms}, made / STATE)
    (made / POSITION).write_text(json.dumps({"key": key, "position": position}))
    for path in [*made.iterdir(), made]:
        _sync(path)
    done = made.rename(folder / f"checkpoint-{step:09d}")
    _sync(folder)
    for old in before:
        # a later checkpoint belongs to a process that took over; this process is about to be killed
        if old.name < done.name:
            shutil.rmtree(old, ignore_errors=True)
    return done


def _sort_metadata(path: Path) -> None:
    """Sort a header's metadata: safetensors names tied tensors there in an order that differs between processes."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        if metadata := header.get("__metadata__"):
            header["__metadata__"] = dict(sorted(metadata.items()))
            file.seek(8)
            file.write(json.dumps(header, separators=(",", ":")).encode().ljust(size))


def load(folder: Path, *, key: str, module: Any, optimizer: Any, process: int = 0) -> dict[str, Any] | None:
    """Restore module, optimiser and random states from the newest checkpoint with ``key``; return its position.

    The position is the JSON that :func:`save` stored: where the run was.

    Returns ``None`` and changes nothing if there is no such checkpoint or it cannot be read.
    """
    for path in reversed(_checkpoints(folder)):
        try:
            stored = json.loads((path / POSITION).read_text())
            if stored["key"] != key:
                continue
            position: dict[str, Any] = stored["position"]
            state = torch.load(path / STATE, map_location="cpu", weights_only=True)
            randoms = state["randoms"][process]
            load_file(path / MODEL)
        except (*UNREADABLE, IndexError) as error:
            log.warning("%s cannot be read (%s); the run does not go on from it", path.name, type(error).__name__)
            continue
        load_model(module, str(path / MODEL))
        optimizer.load_state_dict(state["optimizer"])
        set_random_states(randoms)
        return position
    return None


def load_best(folder: Path, *, module: Any) -> None:
    """Load a training run's best weights so far, as stored in its newest checkpoint in ``folder``, into the module."""
    load_model(module, str(_checkpoints(folder)[-1] / BEST))


def finish(folder: Path) -> Path:
    """Write a run's best weights to ``model.safetensors`` in ``folder``, delete its checkpoints, return the path."""
    kept, made = folder / MODEL, folder / f"{HALF}{MODEL}"
    made.unlink(missing_ok=True)
    _link(_checkpoints(folder)[-1] / BEST, made)
    made.replace(kept)
    clear(folder)
    return kept


def clear(folder: Path) -> None:
    """Delete all checkpoints in ``folder`` and the incomplete files of killed processes."""
    for path in _checkpoints(folder):
        # a partly removed checkpoint must not look complete
        path.rename(folder / f"{HALF}{path.name}")
    for path in folder.glob(f"{HALF}*"):
        shutil.rmtree(path, ignore_errors=True)


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("checkpoint-*"))


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
