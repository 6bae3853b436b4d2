"""Load base models by Hugging Face id, folder or ``tiny:`` name, and prepare their input tokens and pixels."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import is_offline_mode
from PIL import Image
from torch import nn
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from pipelines.core.errors import ConfigError
from pipelines.models import base_files
from pipelines.models.base_files import located, quiet, why

if TYPE_CHECKING:
    from pipelines.datasets.example import Example

# Replaces a missing picture: mid-grey, which is about 0 after every processor's normalisation.
GREY = Image.new("RGB", (64, 64), (128, 128, 128))
# Number of prepared pictures in the cache, as bytes: about 300 MB at 224 pixels, more than FigSIM has.
READY = 2048
# Architectures of transformers whose recorded training was compared with the plain one (bench/gpu.py).
RECORDABLE = ("bert", "clip", "vit")
# Ours: on a GPU, texts are padded to a multiple of so many tokens, so that a recording serves similar lengths.
ROUNDED = 16


Batch = dict[str, Any]
"""Tensors by name; the first axis is the examples; never their labels."""


@dataclass(frozen=True)
class Built:
    """A torch classifier on the CPU in float32, with the functions that prepare its input.

    Args:
        module: a ``torch.nn.Module`` whose ``forward(**batch)`` returns logits of shape (examples, labels).
        prepare: returns the tensors of the examples, in their order.
        length: returns the approximate cost of an example (number of tokens, or 1 for a picture), so that examples of
            similar cost can share a batch.
        forget: clears the cache of prepared examples.
        inputs: a digest of what ``prepare`` reads beside the examples, if a run must not resume with other such input.
        recordable: whether the module starts the same GPU kernels for all batches of a shape, as
            :class:`pipelines.models.fitting.inference.Recordings` needs.
    """

    module: Any
    prepare: Callable[[Sequence[Example]], Batch]
    length: Callable[[Example], int]
    forget: Callable[[], None] = lambda: None
    inputs: str = ""
    recordable: bool = False


@contextmanager
def opened(base: str, *, seed: int, folder: Path, revision: str | None = None) -> Iterator[str]:
    """Yield the folder to pass to ``from_pretrained``: the base model's, or a temporary one of a ``tiny:`` test model.

    Inside the context, torch is seeded with ``seed``, and the messages of ``transformers`` are off, because
    :func:`weights` checks the new weights that they report. Afterwards, the random state and the messages are restored.
    """
    if base.startswith(base_files.PREFIX) and base not in base_files.NAMES:
        raise ConfigError("BaseMissing", base=base, detail=f"the tiny base models are {', '.join(base_files.NAMES)}")
    with ExitStack() as stack:
        stack.enter_context(quiet())
        if base.startswith(base_files.PREFIX):
            folder.mkdir(parents=True, exist_ok=True)
            place = stack.enter_context(TemporaryDirectory(dir=folder, prefix=".tiny-"))
            base_files.make(base, folder=Path(place), seed=seed)
        else:
            place = located(base, revision=revision)
        stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.manual_seed(seed)
        yield place


def unfit(base: str, detail: str) -> ConfigError:
    """Return the error about a base model that is found, and does not suit the kind of its entry."""
    return ConfigError("BaseUnfit", base=base, detail=detail)


def had(factory: Any, place: str, *, base: str, **options: Any) -> Any:
    """Return ``factory.from_pretrained(place, …)`` without ever running code from the hub."""
    try:
        return factory.from_pretrained(place, local_files_only=is_offline_mode(), trust_remote_code=False, **options)
    except (OSError, ImportError) as error:
        raise ConfigError("BaseMissing", base=base, detail=why(error)) from None
    except (ValueError, KeyError) as error:
        raise unfit(base, f"{factory.__name__} cannot load it ({type(error).__name__})") from None


def weights(
    factory: Any,
    place: str,
    *,
    base: str,
    fresh: Callable[[Any, str], bool] = lambda model, name: False,
    **options: Any,
) -> Any:
    """Load a model in float32 even from a bfloat16 checkpoint, because bfloat16 loses small updates (SPEC 2.4).

    Args:
        fresh: returns whether the weight of this name may be missing from the checkpoint, like a new head.
    """
    model, info = had(factory, place, base=base, dtype=torch.float32, output_loading_info=True, **options)
    check_complete(info, base=base, fresh=partial(fresh, model))
    return model


def check_complete(info: Mapping[str, Any], *, base: str, fresh: Callable[[str], bool] = lambda name: False) -> None:
    """Check in the library's report ``info`` that a checkpoint lacks no weights except those that may be ``fresh``."""
    new = [*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])]
    if lacking := sorted(name for name in new if not fresh(name)):
        raise unfit(base, f"its checkpoint lacks {len(lacking)} weights (such as {lacking[0]})")


class Headed(torch.nn.Module):  # type: ignore[misc]
    """A ``transformers`` classifier to fine-tune; ``forward`` returns only the logits.

    The head is new; a head for other labels, such as ImageNet's, is replaced. A pooler that the checkpoint lacks
    (MentalBERT's) is new, too. Any other missing weight is an error and never initialised at random.
    """

    def __init__(self, factory: Any, place: str, *, base: str, labels: int) -> None:
        super().__init__()
        self.model = weights(factory, place, base=base, fresh=_on_top, num_labels=labels, ignore_mismatched_sizes=True)

    def forward(self, **batch: Any) -> Any:
        return self.model(**batch).logits

    def gradient_checkpointing_enable(self) -> None:
        """Turn on gradient checkpointing if the architecture supports it."""
        checkpointed(self.model)


def _on_top(model: Any, name: str) -> bool:
    return not name.startswith(f"{model.base_model_prefix}.") or ".pooler." in name


def checkpointed(model: Any) -> None:
    """Turn on gradient checkpointing if the model's architecture supports it (ResNet does not)."""
    if model.supports_gradient_checkpointing:
        model.activation_checkpointing_enable()


def recordable(model: Any) -> bool:
    """Return whether a model of transformers starts the same GPU kernels for all batches of a shape."""
    return model.config.model_type in RECORDABLE


class Words:
    """Tokenises texts, padded to the longest and truncated to ``limit`` tokens or the base model's maximum.

    The padded length is a multiple of ``rounded``, up to that maximum.
    """

    def __init__(self, place: str, *, base: str, limit: int, rounded: int | None = None) -> None:
        self._rounded = rounded or (ROUNDED if torch.cuda.is_available() else 1)
        self._tokens = had(AutoTokenizer, place, base=base)
        if self._tokens.pad_token is None:
            self._tokens.pad_token = self._tokens.eos_token
        self._cut = {"truncation": True, "max_length": min(limit, self._tokens.model_max_length)}
        self.pad = self._tokens.pad_token_id
        self._alone = Lock()  # batches are prepared in threads, and the tokenizer stores its settings in itself

    def __call__(self, texts: Sequence[str]) -> Batch:
        """Return ``input_ids``, ``attention_mask`` and further inputs of the base, int64 (texts, tokens)."""
        with self._alone:
            batch = dict(self._tokens(list(texts), padding=True, return_tensors="pt", **self._cut))
        width = batch["input_ids"].shape[1]
        more = min(-width % self._rounded, self._cut["max_length"] - width)
        if more and self._tokens.padding_side == "right":
            fill = {"input_ids": self.pad}
            batch = {name: torch.nn.functional.pad(t, (0, more), value=fill.get(name, 0)) for name, t in batch.items()}
        return batch

    def without_special(self, text: str) -> str:
        """Return the text with a space for each special token that it spells out, such as BART's end of text."""
        for token in self._tokens.all_special_tokens:
            text = text.replace(token, " ")
        return text

    def count(self, text: str) -> int:
        """Count the tokens of one text after truncation, including special tokens."""
        with self._alone:
            return len(self._tokens(text, **self._cut)["input_ids"])


class Pixels:
    """Converts pictures to pixel tensors with the base model's PIL processor, without torchvision (SPEC 2.4).

    Each picture is decoded and resized once. The cache is in memory only; it holds bytes, which take a quarter of the
    space of floats.
    """

    def __init__(self, place: str, *, base: str) -> None:
        # this import takes longer than loading a small text model
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
        """Empty the cache of decoded and resized pictures."""
        self._sized.cache_clear()

    def _size(self, image: bytes | None) -> Any:
        picture = GREY if image is None else Image.open(io.BytesIO(image)).convert("RGB")
        made = self._processor(picture, do_rescale=False, do_normalize=False, return_tensors="pt")
        return made["pixel_values"][0].round().clamp(0, 255).to(torch.uint8)


# Ours: posts whose tokens are cached, in memory only; more than CRADLE's train has.
READY_TEXTS = 8192


class EncoderWords:
    """Tokenises posts with padding; the middle of a long post is removed, because its end describes the present."""

    def __init__(self, place: str, *, base: str, limit: int | None) -> None:
        """Load the tokenizer; it truncates at ``limit`` or the base's maximum."""
        self.tokens = had(AutoTokenizer, place, base=base)
        if not self.tokens.is_fast:
            raise unfit(base, "its tokenizer does not return token positions in the text")
        if self.tokens.pad_token is None:
            self.tokens.pad_token = self.tokens.eos_token
        self.limit = min(limit or self.tokens.model_max_length, self.tokens.model_max_length)
        self.tokens.model_max_length = self.limit
        self._alone = Lock()  # batches are prepared in threads, and the tokenizer stores its settings in itself
        self._known = lru_cache(maxsize=READY_TEXTS)(self._read)

    def __call__(self, texts: Sequence[str]) -> Batch:
        """Return ``input_ids`` and ``attention_mask``, int64 (texts, tokens), padded to the longest text."""
        rows = [self._known(text)[0] for text in texts]
        with self._alone:
            return dict(self.tokens.pad({"input_ids": rows}, padding=True, return_tensors="pt"))

    def forget(self) -> None:
        """Clear the cache of tokens, whose keys are texts."""
        self._known.cache_clear()

    def count(self, text: str) -> int:
        """Count the tokens of one text after the middle of a long text was removed."""
        return len(self._known(text)[0])

    def cuts(self, text: str) -> bool:
        """Return whether a text is so long that its middle is removed."""
        return self._known(text)[1]

    def _read(self, text: str) -> tuple[list[int], bool]:
        """Return a text's tokens, special ones included, and whether its middle was cut."""
        with self._alone:
            encoding = self.tokens(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            places, room = encoding["offset_mapping"], max(1, self.limit - self.tokens.num_special_tokens_to_add())
            cut = len(places) > room
            if cut:
                head = room // 2
                text = f"{text[: places[head][0]].rstrip()} {text[places[head - room][0] :]}"
            return self.tokens(text, truncation=True, max_length=self.limit)["input_ids"], cut


class SavedEncoder(Headed):
    """A fine-tuned classifier, loaded from its saved weights; a missing weight, such as the head's, is an error."""

    def __init__(self, place: str, *, base: str, factory: Any = AutoModelForSequenceClassification) -> None:
        torch.nn.Module.__init__(self)
        self.model = weights(factory, place, base=base, use_safetensors=True)


def built(module: Headed, *, words: EncoderWords) -> Built:
    """Return the :class:`Built` classifier of a torch module and its tokenizer; an example's length is its tokens."""
    return Built(module, lambda examples: words([e.text for e in examples]), lambda example: words.count(example.text))


# Ours: the dropout of BERT's head.
DROPOUT = 0.1


def both(words: Words, pixels: Pixels) -> Callable[[Sequence[Example]], Batch]:
    """Return a function that converts examples to a model's input: the tensors of their texts and of their pictures."""
    return lambda examples: {**words([e.text for e in examples]), **pixels([e.image for e in examples])}


def two_towers(place: str, *, base: str) -> Any:
    """Load a base model that encodes text and picture separately (two towers)."""
    model = weights(AutoModel, place, base=base)
    if not (hasattr(model, "get_text_features") and hasattr(model, "get_image_features")):
        raise unfit(base, "it does not encode text and pictures separately")
    return model


def scaled(features: Any) -> Any:
    """Return the projected features of one encoder, scaled to a mean square of 1."""
    pooled = getattr(features, "pooler_output", features)
    return nn.functional.rms_norm(pooled, pooled.shape[-1:])


def two_layers(wide: int, *, hidden: int, labels: int) -> Any:
    """Create a classification head of two layers, because one cannot model the interaction of text and picture."""
    return nn.Sequential(
        nn.Dropout(DROPOUT), nn.Linear(wide, hidden), nn.GELU(), nn.Dropout(DROPOUT), nn.Linear(hidden, labels)
    )
