"""Create tiny base models for tests: ``transformers`` architectures at a thousandth of the usual size, random weights.

With them the sandbox trains every kind of model on a CPU in seconds and without a network. Their vocabulary is the list
of frequent English words in ``wordninja``, plus single letters for other words. It comes from no corpus, so no test
data can leak into it. Sizes are ours, measured on the sandbox's memes.
"""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

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

    made = _MAKERS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made().save_pretrained(folder)
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
    """Return the ``count`` most frequent English words, the most frequent first."""
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


def _text_sizes() -> dict[str, Any]:
    ids = vocabulary()
    return {
        "vocab_size": len(ids),
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 2 * WIDTH,
        "max_position_embeddings": TOKENS,
        "initializer_range": 0.1,
        "pad_token_id": ids["[PAD]"],
    }


def _picture_sizes() -> dict[str, Any]:
    return {
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": SIDE,
        "patch_size": PATCH,
        "initializer_range": 0.1,
    }


def _bert() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**_text_sizes()))


def _vit() -> Any:
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig(intermediate_size=2 * WIDTH, **_picture_sizes()))


def _resnet() -> Any:
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 64], depths=[1, 1, 1], layer_type="basic"))


def _dinov2() -> Any:
    from transformers import Dinov2Config, Dinov2Model

    return Dinov2Model(Dinov2Config(mlp_ratio=2, **_picture_sizes()))


def _clip() -> Any:
    from transformers import CLIPConfig, CLIPModel

    ids = vocabulary()
    text = {**_text_sizes(), "bos_token_id": ids["[CLS]"], "eos_token_id": ids["[SEP]"]}
    pictures = {**_picture_sizes(), "intermediate_size": 2 * WIDTH}
    return CLIPModel(CLIPConfig(text_config=text, vision_config=pictures, projection_dim=WIDTH))


def _blip2() -> Any:
    from transformers import Blip2Config, Blip2ForImageTextRetrieval

    former = {**_text_sizes(), "encoder_hidden_size": WIDTH, "use_qformer_text_input": True}
    pictures = {**_picture_sizes(), "intermediate_size": 2 * WIDTH}
    # The language model is never built, but its configuration must be present.
    config = Blip2Config(
        qformer_config=former, vision_config=pictures, num_query_tokens=4, image_text_hidden_size=WIDTH
    )
    return Blip2ForImageTextRetrieval(config)


def _modernbert() -> Any:
    from transformers import ModernBertConfig, ModernBertModel

    ids = vocabulary()
    special = {"pad": "[PAD]", "bos": "[CLS]", "cls": "[CLS]", "sep": "[SEP]", "eos": "[SEP]"}
    sizes = {**_text_sizes(), "max_position_embeddings": POST_TOKENS}
    # mean pooling can be learned from a few hundred posts, the attention of a single token cannot
    numbers = {f"{name}_token_id": ids[token] for name, token in special.items()}
    return ModernBertModel(ModernBertConfig(**{**sizes, **numbers}, classifier_pooling="mean"))


def _bart() -> Any:
    from transformers import BartConfig, BartForConditionalGeneration

    ids = vocabulary()
    sides = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in SIDES.items()}
    special = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "decoder_start": "[SEP]", "forced_eos": "[SEP]"}
    numbers = {f"{name}_token_id": ids[token] for name, token in special.items()}
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=len(ids), d_model=WIDTH, max_position_embeddings=POST_TOKENS, init_std=0.1, **sides, **numbers
        )
    )


def _qwen3() -> Any:
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    ids = causal_tokenizer().convert_tokens_to_ids
    special = {"pad_token_id": ids(PAD), "eos_token_id": ids(END), "bos_token_id": None}
    config = Qwen3Config(
        vocab_size=PIECES, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=1,
        num_key_value_heads=1, head_dim=128, max_position_embeddings=4096, tie_word_embeddings=True,
        initializer_range=0.1, **special,
    )  # fmt: skip
    made = Qwen3ForCausalLM(config)
    made.generation_config = GenerationConfig(**special)
    return made


_MAKERS = {
    "tiny:bert": _bert,
    "tiny:vit": _vit,
    "tiny:resnet": _resnet,
    "tiny:dinov2": _dinov2,
    "tiny:clip": _clip,
    "tiny:blip2": _blip2,
    "tiny:qwen3": _qwen3,
    "tiny:modernbert": _modernbert,
    "tiny:bart": _bart,
}
NAMES = tuple(_MAKERS)
WITH_TEXT = ("tiny:bert", "tiny:clip", "tiny:blip2", "tiny:modernbert", "tiny:bart")
# those that read more than a caption
LONG = ("tiny:modernbert", "tiny:bart")
WITH_CHAT = ("tiny:qwen3",)
WITH_PICTURES = ("tiny:vit", "tiny:resnet", "tiny:dinov2", "tiny:clip", "tiny:blip2")


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
