"""Ask OpenAI's endpoint ``moderations``; source: its SDK (``openai.types.moderation*``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
from pipelines.llm.outcome import Outcome

SELF_HARM = ("self-harm", "self-harm/intent", "self-harm/instructions")


class OpenAI(Moderator):
    """A model behind OpenAI's endpoint ``moderations``; ``both`` sends text and picture in one request."""

    model: str
    price: Price = FREE

    api = "openai"
    scale = "0 to 1"

    @property
    def requests(self) -> Sequence[Request]:
        """One multi-modal request, which may have one picture."""
        return [Request(self.input, "/moderations", {"model": self.model}, self.price)]

    def body(self, contents: Contents) -> Json:
        return {"input": [multimodal(part) for part in contents]}

    def verdict(self, answer: Mapping[str, Any]) -> Verdict:
        """Return the flags of the only result; the score is the greatest of the three categories of self-harm."""
        [result] = answer["results"]
        categories, scores = result["categories"], result["category_scores"]
        if any(not isinstance(categories[name], bool) for name in SELF_HARM):
            return malformed("no_self_harm")
        if not isinstance(flagged := result["flagged"], bool):
            raise TypeError
        of_self_harm = [float(scores[name]) for name in SELF_HARM]
        if not all(0 <= score <= 1 for score in of_self_harm):
            raise ValueError
        return Verdict(
            Outcome.VOTE,
            self_harm=any(categories[name] for name in SELF_HARM),
            overall=flagged,
            score=max(of_self_harm),
            categories=tuple(sorted(name for name, on in categories.items() if on is True)),
        )
