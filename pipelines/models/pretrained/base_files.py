"""Find the files of base models, pinned to a revision of the hub, and identify them by digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import is_offline_mode, snapshot_download
from huggingface_hub.errors import GatedRepoError, HFValidationError
from transformers.utils import logging

from pipelines.core.errors import ConfigError
from pipelines.models.pretrained import tiny

# The files of a base model that are read; pickles only if it has no safetensors.
FILES, PICKLES = ("*.json", "*.jinja", "*.model", "*.safetensors", "*.txt"), ("pytorch_model*.bin",)


def on_hub(base: str) -> bool:
    """Return whether a base model is an id on the hub, neither a folder nor a ``tiny:`` name."""
    return not (base.startswith(tiny.PREFIX) or Path(base).is_absolute() or Path(base).is_dir())


def located(base: str, *, revision: str | None) -> str:
    """Return the folder of a base model; one on the hub is downloaded to the cache of Hugging Face.

    Raises:
        BaseUnpinned: the base model is on the hub, and ``revision`` is not given.
        BaseMissing: the base model is neither in the cache nor downloadable.
    """
    if not on_hub(base):
        return base
    if revision is None:
        raise ConfigError("BaseUnpinned", base=base)
    options: dict[str, Any] = {"revision": revision, "ignore_patterns": ["*/*"], "local_files_only": is_offline_mode()}
    try:
        with quiet():
            place: str = snapshot_download(base, allow_patterns=list(FILES), **options)
            if not any(Path(place).glob("*.safetensors")):
                snapshot_download(base, allow_patterns=list(PICKLES), **options)
    except (OSError, HFValidationError) as error:
        raise ConfigError("BaseMissing", base=base, detail=why(error)) from None
    return place


def files_of(place: str | Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a base model that loading it reads, by name; ``place`` is its folder."""
    folder = Path(place)
    patterns = FILES if any(folder.glob("*.safetensors")) else (*FILES, *PICKLES)
    digests = {}
    for path in sorted(path for path in folder.iterdir() if any(map(path.match, patterns))):
        with path.open("rb") as file:
            digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def identified(bases: Sequence[tuple[str, str | None]]) -> list[dict[str, Any]]:
    """Return ``name``, ``revision`` and ``digest`` of each base model.

    The digest is the SHA-256 of the ``sha256sum`` listing of the base model's files; a ``tiny:`` model has none, as it
    follows from code and seed.
    """
    described = []
    for base, revision in bases:
        digests = {} if base.startswith(tiny.PREFIX) else files_of(located(base, revision=revision))
        lines = "".join(f"{value}  {name}\n" for name, value in digests.items())
        digest = hashlib.sha256(lines.encode()).hexdigest() if digests else None
        described.append({"name": base, "revision": revision if on_hub(base) else None, "digest": digest})
    return described


@contextmanager
def quiet() -> Iterator[None]:
    """Turn off the messages and progress bars of ``transformers`` inside the context."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def why(error: BaseException) -> str:
    """Return why a base model could not be loaded, without the library's message: that has paths of this machine."""
    chain, at = [], error
    while at is not None:
        chain.append(at)
        at = at.__cause__ or at.__context__  # type: ignore[assignment]
    if any(isinstance(each, GatedRepoError) for each in chain):
        return "its owner requires its terms to be accepted"
    if is_offline_mode():
        return "HF_HUB_OFFLINE is set and the cache does not have it"
    return "neither the cache nor the hub has it, or the hub does not answer"
