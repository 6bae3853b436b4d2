"""Ask Azure AI Content Safety.

Sources: its REST reference and its SDK (``azure.ai.contentsafety.models``, version 2024-09-01).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from pipelines.core.config.label import Price
from pipelines.evaluate.moderation.moderator import Contents, Json, Moderator, Request, Verdict, malformed
from pipelines.llm.budget import PRICED_TOKENS, Size
from pipelines.llm.outcome import Outcome

# A text is counted in records of so many characters (its price list).
RECORD_CHARACTERS = 1_000
CATEGORIES = ("Hate", "SelfHarm", "Sexual", "Violence")
LEVELS = {"text": "EightSeverityLevels", "image": "FourSeverityLevels"}
Dollars = Annotated[float, Field(ge=0)]


class Azure(Moderator):
    """Azure AI Content Safety; ``both`` sends text and picture in two requests and takes the greater severities.

    ``flag_from`` is the severity (0 to 7) from which a category counts as flagged; a change asks nothing again.
    Prices are US dollars for 1,000 text records (1,000 characters each) and for 1,000 pictures.
    """

    api_version: str
    flag_from: Annotated[int, Field(ge=1, le=7)]
    usd_per_1000_texts: Dollars
    usd_per_1000_images: Dollars

    api = "azure"
    scale = "0 to 7"
    characters = 10_000  # the most of one request

    @property
    def requests(self) -> Sequence[Request]:
        """``text:analyze`` with eight severities and ``image:analyze`` with four; by default of all categories."""
        prices = {"text": self.usd_per_1000_texts, "image": self.usd_per_1000_images}
        parts: tuple[Literal["text", "image"], ...] = ("text", "image")
        return [
            Request(
                part,
                f"/contentsafety/{part}:analyze?api-version={self.api_version}",
                {"outputType": LEVELS[part]},
                Price(input=prices[part] * PRICED_TOKENS / 1000, output=0),
            )
            for part in parts
            if self.input in (part, "both")
        ]

    def described(self) -> Json:
        return super().described() | {"model": f"contentsafety {self.api_version}", "flag_from": self.flag_from}

    def body(self, contents: Contents) -> Json:
        [part] = contents
        return {"text": part} if isinstance(part, str) else {"image": {"content": base64.b64encode(part).decode()}}

    def size(self, contents: Contents) -> Size:
        """Return the number of text records, or 1 for a picture."""
        [part] = contents
        units = 1 if isinstance(part, bytes) else max(1, math.ceil(len(part) / RECORD_CHARACTERS))
        return Size(read=units, read_at_most=units, written=0, written_at_most=0)

    def verdict(self, answer: Mapping[str, Any]) -> Verdict:
        """Return the flags from ``flag_from`` on; an answer without one of the four categories is partial."""
        severities = {str(entry["category"]): entry["severity"] for entry in answer["categoriesAnalysis"]}
        if any(not isinstance(severities.get(name), int) for name in CATEGORIES):
            return malformed("category_missing")
        flagged = tuple(name for name in CATEGORIES if severities[name] >= self.flag_from)
        score = float(severities["SelfHarm"])
        return Verdict(
            Outcome.VOTE, self_harm="SelfHarm" in flagged, overall=bool(flagged), score=score, categories=flagged
        )
