"""Estimate the expected cost of model requests (for people) and their maximum cost (for the budget).

Tokens are estimated by rules of thumb: tokenizers differ by provider, some are not public, and tiktoken downloads its
tables on first use. The upper bound needs no tokenizer: a token is at least one byte.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.core.config.label import Price

# Ours: English prose has about four characters per token in every provider's tokenizer, JSON and names have fewer.
CHARACTERS_PER_TOKEN = 3.5
# Ours: roles, separators and the schema's own framing, which providers count as input.
FRAME_TOKENS = 200
# Ours: above what each of the three providers counts for its largest picture.
IMAGE_TOKENS = 5_000
# Ours: one to four labels as JSON.
ANSWER_TOKENS = 40
PRICED_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Size:
    """The estimated tokens of one model request: expected and maximum input, expected and maximum output."""

    read: int
    read_at_most: int
    written: int
    written_at_most: int

    @property
    def at_most(self) -> int:
        """The most tokens of the request that count against a limit per minute: expected input, maximum output."""
        return self.read + self.written_at_most


def tokens(characters: int) -> int:
    """Estimate the number of tokens in a text of ``characters`` characters."""
    return math.ceil(characters / CHARACTERS_PER_TOKEN)


def size(
    system: str, parts: Sequence[str | bytes], *, schema: Mapping[str, Any], cap: int, factor: float = 1.0
) -> Size:
    """Estimate the tokens of one rendered request.

    Args:
        system: the system message.
        parts: the user message, pictures as bytes.
        schema: JSON schema of the answer, which counts as input.
        cap: maximum tokens of the answer, including reasoning.
        factor: multiple of the visible answer that a reasoning model is expected to write.
    """
    texts = [system, json.dumps(schema), *(part for part in parts if isinstance(part, str))]
    images = (len(parts) + 2 - len(texts)) * IMAGE_TOKENS
    return Size(
        read=tokens(sum(map(len, texts))) + images,
        read_at_most=sum(len(text.encode(errors="replace")) for text in texts) + FRAME_TOKENS + images,
        written=min(cap, math.ceil(ANSWER_TOKENS * factor)),
        written_at_most=cap,
    )


def usd(price: Price, *, read: int, written: int) -> float:
    """Return the cost in US dollars of a request with ``read`` input and ``written`` output tokens."""
    return (read * price.input + written * price.output) / PRICED_TOKENS
