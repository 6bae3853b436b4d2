"""Ask models through Google's protocol of Gemini."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.llm.vendors._chat import ChatVendor


class Google(ChatVendor):
    """Google, or a server of its protocol."""

    address = "https://generativelanguage.googleapis.com"
    model_page = "/v1beta/models/{model}"

    def headers(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key}

    def refusal(self, response: Any, details: Mapping[str, Any]) -> str | None:
        """Return the reason word; an answer without a candidate is a refusal, too."""
        nothing = not response.parts and response.finish_reason is None and "finish_reason" not in details
        return super().refusal(response, details) or ("empty" if nothing else None)

    def model(self, name: str, **options: Any) -> Any:
        from google.genai.types import HttpRetryOptions
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        return GoogleModel(name, provider=GoogleProvider(retry_options=HttpRetryOptions(attempts=1), **options))
