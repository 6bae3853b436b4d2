"""Ask guard models behind servers of OpenAI's protocol, whose chat template adds the policy to the user's message.

Sources: the model cards of Llama Guard 3 and 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator

from pipelines.core.config.base import Positive
from pipelines.core.config.label import Price
from pipelines.evaluate.moderation.moderator import (
    FREE,
    Contents,
    Json,
    Moderator,
    Request,
    Verdict,
    malformed,
    multimodal,
)
from pipelines.llm.budget import Size, size
from pipelines.llm.outcome import Outcome


def _compiled(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return pattern


Pattern = Annotated[str, AfterValidator(_compiled)]


class Guard(Moderator):
    """A guard model behind ``chat/completions``.

    The answer is flagged if it matches ``unsafe`` and not flagged if it matches ``safe``; all else is malformed.
    ``category`` finds the codes in an answer, and ``self_harm`` are those of self-harm. The defaults are those of Llama
    Guard 3 and 4: ``safe``, or ``unsafe`` and a line of codes, of which S11 is suicide and self-harm.
    """

    model: str
    price: Price = FREE
    max_output_tokens: Positive = 20
    safe: Pattern = r"(?i)\A\s*safe\b"
    unsafe: Pattern = r"(?i)\A\s*unsafe\b"
    category: Pattern = r"\bS\d{1,2}\b"
    self_harm: tuple[str, ...] = ("S11",)

    api = "openai"

    @property
    def requests(self) -> Sequence[Request]:
        settings = {"model": self.model, "temperature": 0, "max_tokens": self.max_output_tokens}
        return [Request(self.input, "/chat/completions", settings, self.price)]

    def body(self, contents: Contents) -> Json:
        """Return one message; a text alone is a plain string, which every chat template accepts."""
        content: Any = [multimodal(part) for part in contents]
        if len(contents) == 1 and isinstance(contents[0], str):
            content = contents[0]
        return {"messages": [{"role": "user", "content": content}]}

    def size(self, contents: Contents) -> Size:
        return size("", contents, schema={}, cap=self.max_output_tokens)

    def verdict(self, answer: Mapping[str, Any]) -> Verdict:
        """Return the verdict of an answer such as "safe", or "unsafe" and a line of codes."""
        [choice] = answer["choices"]
        message, ended = choice["message"], choice.get("finish_reason")
        if message.get("refusal") or ended == "content_filter":
            return Verdict(Outcome.REFUSED, "model_refusal")
        text = str(message["content"] or "")
        unsafe = bool(re.search(self.unsafe, text))
        if unsafe == bool(re.search(self.safe, text)):
            return malformed("no_verdict")
        codes = {match[0] for match in re.finditer(self.category, text)} if unsafe else set()
        if unsafe and not codes:
            return malformed("no_category")
        self_harm = not codes.isdisjoint(self.self_harm)
        if unsafe and ended == "length" and not self_harm:
            return malformed("cut")  # the code of self-harm may be among those that are missing
        return Verdict(Outcome.VOTE, self_harm=self_harm, overall=unsafe, categories=tuple(sorted(codes)))
