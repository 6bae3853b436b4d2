"""Define the sections of ``params.yaml`` for the audit of moderation systems: ``moderators`` and ``moderation``."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from pipelines.config.base import Positive, Section
from pipelines.config.label import Price

Input = Literal["text", "image", "both"]
FREE = Price(input=0, output=0)
Dollars = Annotated[float, Field(ge=0)]


def _compiled(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return pattern


Pattern = Annotated[str, AfterValidator(_compiled)]


class OpenAIModerator(Section):
    """A model behind OpenAI's endpoint ``moderations``; ``both`` sends text and picture in one request."""

    kind: Literal["openai"]
    provider: str
    model: str
    input: Input
    price: Price = FREE


class AzureModerator(Section):
    """Azure AI Content Safety; ``both`` sends text and picture in two requests and takes the greater severities.

    ``flag_from`` is the severity (0 to 7) from which a category counts as flagged; a change asks nothing again.
    Prices are US dollars for 1,000 text records (1,000 characters each) and for 1,000 pictures.
    """

    kind: Literal["azure"]
    provider: str
    input: Input
    api_version: str
    flag_from: Annotated[int, Field(ge=1, le=7)]
    usd_per_1000_texts: Dollars
    usd_per_1000_images: Dollars


class GuardModerator(Section):
    """A guard model behind a server of OpenAI's protocol, whose chat template has the policy (Llama Guard, others).

    The answer is flagged if it matches ``unsafe`` and not flagged if it matches ``safe``; all else is malformed.
    ``category`` finds the codes in an answer, and ``self_harm`` are those of self-harm. The defaults are those of Llama
    Guard 3 and 4: ``safe``, or ``unsafe`` and a line of codes, of which S11 is suicide and self-harm.
    """

    kind: Literal["guard"]
    provider: str
    model: str
    input: Input
    price: Price = FREE
    max_output_tokens: Positive = 20
    safe: Pattern = r"(?i)\A\s*safe\b"
    unsafe: Pattern = r"(?i)\A\s*unsafe\b"
    category: Pattern = r"\bS\d{1,2}\b"
    self_harm: tuple[str, ...] = ("S11",)


Moderator = Annotated[OpenAIModerator | AzureModerator | GuardModerator, Field(discriminator="kind")]
# The protocol that the provider of each kind speaks.
API = {"openai": "openai", "azure": "azure", "guard": "openai"}


class Moderation(Section):
    """Parameters of the stage ``moderation``.

    Args:
        systems: corpus -> names of the section ``moderators`` that are asked about its items with gold.
        items: the greatest number of items of a corpus, drawn with ``seed``; ``None`` asks about all.
        resamples: of the bootstrap and of the randomisation tests.
        seed: of the draw and of the resamples.
    """

    systems: dict[str, tuple[str, ...]]
    items: Positive | None
    resamples: Positive
    seed: int

    def of(self, corpus: str) -> tuple[str, ...]:
        """Return the names of the systems that are asked about a corpus."""
        return self.systems.get(corpus, ())
