"""Create a tiny causal base: a real Qwen3 with random weights, and a byte-level tokenizer with frequent words.

The tokenizer is of Qwen's kind (byte-level pairs, ChatML), so that any text survives encoding and decoding unchanged.
Its pairs are learned from the word list of the other tiny bases, weighted by Zipf's law, and from no corpus.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
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


def model(words: Sequence[str]) -> Any:
    """Return the model; its sizes are ours, measured on the sandbox's posts."""
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    ids = tokenizer(words).convert_tokens_to_ids
    special = {"pad_token_id": ids(PAD), "eos_token_id": ids(END), "bos_token_id": None}
    config = Qwen3Config(
        vocab_size=PIECES, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=1,
        num_key_value_heads=1, head_dim=128, max_position_embeddings=4096, tie_word_embeddings=True,
        initializer_range=0.1, **special,
    )  # fmt: skip
    made = Qwen3ForCausalLM(config)
    made.generation_config = GenerationConfig(**special)
    return made


def tokenizer(words: Sequence[str]) -> Any:
    """Return the tokenizer; ``words`` are ordered by frequency, the most frequent first."""
    return _tokenizer(tuple(words))


@lru_cache(maxsize=1)
def _tokenizer(words: tuple[str, ...]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    teacher = trainers.BpeTrainer(
        vocab_size=PIECES, special_tokens=[PAD, START, END], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    plain.train_from_iterator(_running(words), teacher)
    made = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token=END, pad_token=PAD)
    made.chat_template = TEMPLATE
    return made


def _running(words: Sequence[str]) -> Iterator[str]:
    """Yield each word as often as Zipf's law predicts: within a sentence, capitalised, and after a line break."""
    for rank, word in enumerate(words, start=1):
        often = max(1, len(words) // (2 * rank))
        opened = f" {word.capitalize()}\n{word}\n{word.capitalize()}\n" * max(1, often // OPENING)
        yield f" {word}" * often + opened
