"""Ask models through Anthropic's protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.llm.vendors._chat import ChatVendor


class Anthropic(ChatVendor):
    """Anthropic, or a server of its protocol."""

    address = "https://api.anthropic.com"
    model_page = "/v1/models/{model}"

    def headers(self, key: str) -> dict[str, str]:
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}

    def refusal(self, response: Any, details: Mapping[str, Any]) -> str | None:
        """Return the reason word: its stop reason ``refusal`` is the model's."""
        return super().refusal(response, details) and "model_refusal"

    def model(self, name: str, **options: Any) -> Any:
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        client = AsyncAnthropic(max_retries=0, timeout=self.timeout_seconds, **options)
        return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))
