"""Bases by their Hugging Face id, folder or ``tiny:`` name: weights in float32, words as tokens, pictures as pixels."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, ClassVar

import torch
from huggingface_hub import is_offline_mode
from huggingface_hub.errors import GatedRepoError
from PIL import Image
from transformers import AutoTokenizer
from transformers.utils import logging

from pipelines.errors import ConfigError
from pipelines.models import tiny
from pipelines.models.built import Batch

# What stands for a missing picture: mid-grey, which is about nought after every processor's normalisation.
GREY = Image.new("RGB", (64, 64), (128, 128, 128))
# Pictures kept ready, as bytes: about 300 MB at 224 pixels, more than FigSIM has.
READY = 2048


class BaseMissing(ConfigError):
    """A base is not on this machine and cannot be downloaded, or has no such name."""

    message: ClassVar[str] = "The base '{base}' cannot be had: {detail}."
    remedy: ClassVar[str] = (
        "Check its name under models in params.yaml; accept a gated one's terms and set HF_TOKEN; "
        "without a network, run `hf download {base}` where there is one and copy the cache (HF_HOME)."
    )


class BaseUnfit(ConfigError):
    """A base is had, but is not a model of the kind that it is named for."""

    message: ClassVar[str] = "The base '{base}' does not fit its kind: {detail}."
    remedy: ClassVar[str] = "Name another base, or another kind, under models in params.yaml."


@contextmanager
def opened(base: str, *, seed: int, folder: Path) -> Iterator[str]:
    """Give what ``from_pretrained`` takes: the id as it is, or the folder of a tiny base made for the moment.

    Inside, torch draws its random numbers from ``seed``, and the library says nothing: what its reports of new weights
    tell is checked here (``weights``). Both are put back as they were.

    Raises:
        BaseMissing: there is no tiny base of this name.
    """
    if base.startswith(tiny.PREFIX) and base not in tiny.NAMES:
        raise BaseMissing(base=base, detail=f"tiny bases are {', '.join(tiny.NAMES)}")
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        place = base
        if base.startswith(tiny.PREFIX):
            folder.mkdir(parents=True, exist_ok=True)
            place = stack.enter_context(TemporaryDirectory(dir=folder, prefix=".tiny-"))
            tiny.make(base, folder=Path(place), seed=seed)
        stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.manual_seed(seed)
        yield place


@contextmanager
def _quiet() -> Iterator[None]:
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def had(factory: Any, place: str, *, base: str, **options: Any) -> Any:
    """Return ``factory.from_pretrained(place, …)``; never with code from the hub.

    Raises:
        BaseMissing: it is neither here nor to be downloaded.
        BaseUnfit: the factory has no class for it.
    """
    try:
        return factory.from_pretrained(place, local_files_only=is_offline_mode(), trust_remote_code=False, **options)
    except (OSError, ImportError) as error:
        raise BaseMissing(base=base, detail=_why(error)) from None
    except (ValueError, KeyError) as error:
        raise BaseUnfit(base=base, detail=f"{factory.__name__} cannot load it ({type(error).__name__})") from None


def weights(
    factory: Any,
    place: str,
    *,
    base: str,
    fresh: Callable[[Any, str], bool] = lambda model, name: False,
    **options: Any,
) -> Any:
    """Return the model in float32, whatever its checkpoint holds: in bf16 small updates are lost (SPEC 2.4, trap 2).

    Args:
        fresh: whether a weight of this model and name may be new, as a head is.

    Raises:
        BaseMissing: see ``had``.
        BaseUnfit: see ``had``; or the checkpoint lacks weights that may not be new.
    """
    model, info = had(factory, place, base=base, dtype=torch.float32, output_loading_info=True, **options)
    new = [*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])]
    lacking = sorted(name for name in new if not fresh(model, name))
    if lacking:
        raise BaseUnfit(base=base, detail=f"its checkpoint lacks {len(lacking)} weights, {lacking[0]} among them")
    return model


class Headed(torch.nn.Module):  # type: ignore[misc]
    """The library's own classifier, which fine-tuning of an encoder commonly means, giving its logits alone.

    The head is new, and so is a pooler that the checkpoint was saved without (MentalBERT's); a head for other
    labels, such as ImageNet's, is replaced. Anything else that is missing is an error, never a random layer.
    """

    def __init__(self, factory: Any, place: str, *, base: str, labels: int) -> None:
        super().__init__()
        self.model = weights(factory, place, base=base, fresh=_on_top, num_labels=labels, ignore_mismatched_sizes=True)

    def forward(self, **batch: Any) -> Any:
        """Return logits of shape (examples, labels)."""
        return self.model(**batch).logits

    def gradient_checkpointing_enable(self) -> None:
        """Trade time for memory, where the architecture can."""
        checkpointed(self.model)


def _on_top(model: Any, name: str) -> bool:
    return not name.startswith(f"{model.base_model_prefix}.") or ".pooler." in name


def checkpointed(model: Any) -> None:
    """Turn gradient checkpointing on in a model of the library, if its architecture has it (ResNet has not)."""
    if model.supports_gradient_checkpointing:
        model.activation_checkpointing_enable()


class Words:
    """Texts as tokens: padded to the longest, cut at the end to ``limit`` tokens or what the base can take."""

    def __init__(self, place: str, *, base: str, limit: int) -> None:
        self._tokens = had(AutoTokenizer, place, base=base)
        if self._tokens.pad_token is None:
            self._tokens.pad_token = self._tokens.eos_token
        self._cut = {"truncation": True, "max_length": min(limit, self._tokens.model_max_length)}
        self.pad = self._tokens.pad_token_id
        self._alone = Lock()  # batches are made ahead in threads, and the tokenizer keeps its settings in itself

    def __call__(self, texts: Sequence[str]) -> Batch:
        """Return ``input_ids``, ``attention_mask`` and what else the base takes, int64 (texts, tokens)."""
        with self._alone:
            return dict(self._tokens(list(texts), padding=True, return_tensors="pt", **self._cut))

    def count(self, text: str) -> int:
        """Return the number of tokens of one text, special ones and the cut included."""
        with self._alone:
            return len(self._tokens(text, **self._cut)["input_ids"])


class Pixels:
    """Pictures as pixels, by the base's own processor on PIL: torchvision is not here (SPEC 2.4, trap 8).

    Decoding and resizing are done once a picture; what is kept, in memory only, are bytes, a quarter of floats.
    """

    def __init__(self, place: str, *, base: str) -> None:
        # takes longer to import than a small model of text takes to load
        from transformers import AutoImageProcessor

        self._processor = had(AutoImageProcessor, place, base=base, backend="pil")
        self._sized = lru_cache(maxsize=READY)(self._size)

    def __call__(self, images: Sequence[bytes | None]) -> Batch:
        """Return ``pixel_values``, float32 (pictures, 3, height, width); a missing picture is grey."""
        pixels = torch.stack([self._sized(image) for image in images]).float()
        p = self._processor
        if p.do_rescale:
            pixels = pixels * p.rescale_factor
        if p.do_normalize:
            mean, std = (torch.tensor(list(each)).view(1, -1, 1, 1) for each in (p.image_mean, p.image_std))
            pixels = (pixels - mean) / std
        return {"pixel_values": pixels}

    def forget(self) -> None:
        """Drop the pictures that are kept."""
        self._sized.cache_clear()

    def _size(self, image: bytes | None) -> Any:
        picture = GREY if image is None else Image.open(io.BytesIO(image)).convert("RGB")
        made = self._processor(picture, do_rescale=False, do_normalize=False, return_tensors="pt")
        return made["pixel_values"][0].round().clamp(0, 255).to(torch.uint8)


def _why(error: BaseException) -> str:
    """Return the cause in our words: the library's sentence names files of this machine."""
    chain, at = [], error
    while at is not None:
        chain.append(at)
        at = at.__cause__ or at.__context__  # type: ignore[assignment]
    if any(isinstance(each, GatedRepoError) for each in chain):
        return "its owner asks for terms to be accepted"
    if is_offline_mode():
        return "HF_HUB_OFFLINE is set and the cache does not have it"
    return "neither the cache nor the hub has it, or the hub does not answer"
