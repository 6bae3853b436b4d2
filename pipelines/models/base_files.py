"""Find the files of base models, pinned to a revision of the hub, identify them by digest, and create tiny ones.

Tiny base models are ``transformers`` architectures at a thousandth of the usual size, with random weights. With them
the sandbox trains every kind of model on a CPU in seconds and without a network. Their vocabulary is the list of
frequent English words in ``wordninja``, plus single letters for other words. It comes from no corpus, so no test data
can leak into it. Sizes are ours, measured on the sandbox's memes.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from huggingface_hub import is_offline_mode, snapshot_download
from huggingface_hub.errors import GatedRepoError, HFValidationError
from transformers.utils import logging

from crisis_corpus.integrity import sha256
from pipelines.core.errors import ConfigError

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
PIECES = 8192
# Ours: one word in OPENING begins a sentence in running text.
OPENING = 20
# The generation markers delimit an assistant's turn; training on whole conversations needs them.
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}\n"
    "{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


PREFIX = "tiny:"
# Number of frequent words in the vocabulary.
WORDS = 8000
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOKENS = 77  # CLIP's
POST_TOKENS = 512  # of a post: about the length of the sandbox's longest
WIDTH = 64
SIDE = 96  # pixels
PATCH = 16
# of BART's encoder and of its decoder
SIDES = {"layers": 2, "attention_heads": 4, "ffn_dim": 2 * WIDTH}


def make(name: str, *, folder: Path, seed: int) -> None:
    """Write the tiny test model ``name`` to ``folder`` in the format of ``save_pretrained``.

    The same name and seed give the same weights; the caller's random state is unchanged.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _model(name).save_pretrained(folder)
    if name in WITH_TEXT:
        most = POST_TOKENS if name in LONG else TOKENS
        _tokenizer(segments=name == "tiny:bert", most=most).save_pretrained(folder)
    if name in WITH_CHAT:
        causal_tokenizer().save_pretrained(folder)
    if name in WITH_PICTURES:
        _processor().save_pretrained(folder)


@lru_cache(maxsize=1)
def vocabulary() -> dict[str, int]:
    """Return the tiny models' vocabulary (token -> id): special tokens, letters alone and within a word, words."""
    tokens = dict.fromkeys((*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), *frequent(WORDS)))
    return {token: number for number, token in enumerate(tokens)}


def frequent(count: int) -> list[str]:
    spec = importlib.util.find_spec("wordninja")
    place = Path((spec.origin if spec else None) or "").parent / "wordninja" / "wordninja_words.txt.gz"
    with gzip.open(place, "rt", encoding="utf-8") as lines:
        return [line.strip() for _, line in zip(range(count), lines, strict=False)]


def _tokenizer(*, segments: bool, most: int) -> Any:
    from transformers import BertTokenizer

    names = ["input_ids", "token_type_ids", "attention_mask"] if segments else ["input_ids", "attention_mask"]
    return BertTokenizer(vocab=dict(vocabulary()), model_max_length=most, model_input_names=names)


def _processor() -> Any:
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    # Bilinear on PIL averages over the pixels that it drops, so that a thin stroke fades but remains visible.
    return ViTImageProcessorPil(size={"height": SIDE, "width": SIDE}, resample=2)


# name -> what the names of its configuration and of its model in ``transformers`` begin with, and the model's ending.
_CLASSES = {
    "tiny:bert": ("Bert", "Model"),
    "tiny:vit": ("ViT", "Model"),
    "tiny:resnet": ("ResNet", "Model"),
    "tiny:dinov2": ("Dinov2", "Model"),
    "tiny:clip": ("CLIP", "Model"),
    "tiny:blip2": ("Blip2", "ForImageTextRetrieval"),
    "tiny:qwen3": ("Qwen3", "ForCausalLM"),
    "tiny:modernbert": ("ModernBert", "Model"),
    "tiny:bart": ("Bart", "ForConditionalGeneration"),
}
NAMES = tuple(_CLASSES)
WITH_TEXT = ("tiny:bert", "tiny:clip", "tiny:blip2", "tiny:modernbert", "tiny:bart")
# those that read more than a caption
LONG = ("tiny:modernbert", "tiny:bart")
WITH_CHAT = ("tiny:qwen3",)
WITH_PICTURES = ("tiny:vit", "tiny:resnet", "tiny:dinov2", "tiny:clip", "tiny:blip2")


def _model(name: str) -> Any:
    import transformers

    family, ending = _CLASSES[name]
    sizes = _chat_sizes() if name in WITH_CHAT else _sizes()[name]
    made = getattr(transformers, family + ending)(getattr(transformers, f"{family}Config")(**sizes))
    if name in WITH_CHAT:
        special = {key: value for key, value in sizes.items() if key.endswith("_token_id")}
        made.generation_config = transformers.GenerationConfig(**special)
    return made


def _sizes() -> dict[str, dict[str, Any]]:
    """Return the options of the configurations of all models with the words of :func:`vocabulary`, or with pictures."""
    ids = vocabulary()
    layers = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.1}
    words = {"vocab_size": len(ids), "max_position_embeddings": TOKENS, "pad_token_id": ids["[PAD]"]}
    text = {**layers, **words, "intermediate_size": 2 * WIDTH}
    patches = {**layers, "image_size": SIDE, "patch_size": PATCH}
    pictures = {**patches, "intermediate_size": 2 * WIDTH}
    begin, end = {"bos_token_id": ids["[CLS]"]}, {"eos_token_id": ids["[SEP]"]}
    longer = {"max_position_embeddings": POST_TOKENS, **begin, **end}
    return {
        "tiny:bert": text,
        "tiny:vit": pictures,
        "tiny:resnet": {"embedding_size": 16, "hidden_sizes": [16, 32, 64], "depths": [1, 1, 1], "layer_type": "basic"},
        "tiny:dinov2": {**patches, "mlp_ratio": 2},
        "tiny:clip": {"text_config": {**text, **begin, **end}, "vision_config": pictures, "projection_dim": WIDTH},
        # the language model is never built, but its configuration must be present
        "tiny:blip2": {
            "qformer_config": {**text, "encoder_hidden_size": WIDTH, "use_qformer_text_input": True},
            "vision_config": pictures,
            "num_query_tokens": 4,
            "image_text_hidden_size": WIDTH,
        },
        # mean pooling can be learned from a few hundred posts, the attention of a single token cannot
        "tiny:modernbert": {
            **text,
            **longer,
            "cls_token_id": ids["[CLS]"],
            "sep_token_id": ids["[SEP]"],
            "classifier_pooling": "mean",
        },
        "tiny:bart": {
            "vocab_size": len(ids),
            "d_model": WIDTH,
            "init_std": 0.1,
            **longer,
            **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in SIDES.items()},
            **{f"{use}_token_id": ids["[SEP]"] for use in ("decoder_start", "forced_eos")},
            "pad_token_id": ids["[PAD]"],
        },
    }


def _chat_sizes() -> dict[str, Any]:
    ids = causal_tokenizer().convert_tokens_to_ids
    sizes = {"vocab_size": PIECES, "hidden_size": 64, "intermediate_size": 128, "head_dim": 128}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 1, "num_key_value_heads": 1, "initializer_range": 0.1}
    special = {"pad_token_id": ids(PAD), "eos_token_id": ids(END), "bos_token_id": None}
    return {**sizes, **layers, **special, "max_position_embeddings": 4096, "tie_word_embeddings": True}


@lru_cache(maxsize=1)
def causal_tokenizer() -> Any:
    """Return the byte-level tokenizer of the tiny causal model, trained on frequent English words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    teacher = trainers.BpeTrainer(
        vocab_size=PIECES, special_tokens=[PAD, START, END], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    plain.train_from_iterator(_running(frequent(WORDS)), teacher)
    made = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token=END, pad_token=PAD)
    made.chat_template = TEMPLATE
    return made


def _running(words: Sequence[str]) -> Iterator[str]:
    for rank, word in enumerate(words, start=1):
        often = max(1, len(words) // (2 * rank))
        opened = f" {word.capitalize()}\n{word}\n{word.capitalize()}\n" * max(1, often // OPENING)
        yield f" {word}" * often + opened


# The files of a base model that are read; pickles only if it has no safetensors.
FILES, PICKLES = ("*.json", "*.jinja", "*.model", "*.safetensors", "*.txt"), ("pytorch_model*.bin",)


def on_hub(base: str) -> bool:
    """Return whether a base model is an id on the hub, neither a folder nor a ``tiny:`` name."""
    return not (base.startswith(PREFIX) or Path(base).is_absolute() or Path(base).is_dir())


def located(base: str, *, revision: str | None) -> str:
    """Return the folder of a base model; one on the hub is downloaded to the cache of Hugging Face."""
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
        digests[path.name] = sha256(path)
    return digests


def identified(bases: Sequence[tuple[str, str | None]]) -> list[dict[str, Any]]:
    """Return ``name``, ``revision`` and ``digest`` of each base model.

    The digest is the SHA-256 of the ``sha256sum`` listing of the base model's files; a ``tiny:`` model has none, as it
    follows from code and seed.
    """
    described = []
    for base, revision in bases:
        digests = {} if base.startswith(PREFIX) else files_of(located(base, revision=revision))
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
