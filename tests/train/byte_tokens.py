"""Byte-level tokenizers learned on the spot, as those of Qwen and Llama are, with a chat template."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

END, PAD = "<|im_end|>", "<|endoftext|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# What merges are learned from: words that share beginnings with labels, so that tokens straddle what labels share.
TEXT = (
    '{"labels": ["rape_past"]} {"labels": ["selfharm_ongoing", "domesticviolence_past"]} no_crisis past ongoing '
    'childabuse_endangerment sexualharassment suicideideation active passive {"severity": "3"} Übel 暴力 "ab", "abc"] '
    "the poster tells of what is over and what still threatens, and asks others how they lived through it "
)


@lru_cache
def byte_level(merges: int, *, texts: tuple[str, ...] = (TEXT,) * 3) -> Any:
    """Return a tokenizer of single bytes and at most ``merges`` longer tokens, learned from texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    special = [PAD, "<|im_start|>", END]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    size = len(special) + len(alphabet) + merges
    teacher = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    plain.train_from_iterator(texts, teacher)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token=END, pad_token=PAD)
    tokenizer.chat_template = TEMPLATE
    return tokenizer
