"""Describe what a training's numbers depend on besides its inputs: libraries, device, precision and threads."""

from __future__ import annotations

from importlib import metadata, util
from typing import Any

# Those that compute; the versions of all libraries that a stage imports are its parameters (``libraries.yaml``).
LIBRARIES = ("accelerate", "numpy", "peft", "scipy", "tokenizers", "torch", "transformers", "trl")


def described() -> dict[str, Any]:
    """Return this process's ``device``, ``devices`` (count), ``precision``, ``threads`` and ``libraries`` (versions).

    No machine is named.
    The values are equal for runs on equal machines, so that the results of the same inputs stay equal.
    """
    import torch

    gpu = torch.cuda.is_available()
    half = gpu and torch.cuda.is_bf16_supported()
    return {
        "device": "cuda" if gpu else "cpu",
        "devices": torch.cuda.device_count() if gpu else 1,
        "precision": "bfloat16" if half else "float32",
        "threads": torch.get_num_threads(),
        "libraries": {name: metadata.version(name) for name in LIBRARIES if util.find_spec(name)},
    }


def tags() -> dict[str, str]:
    """Return device, precision, threads and library versions (:func:`described`) as tags of an MLflow run."""
    found = described()
    libraries = found.pop("libraries")
    return {name: str(value) for name, value in {**found, **libraries}.items()}
