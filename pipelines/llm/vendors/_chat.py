"""Define the vendors whose protocols pydantic-ai implements, which is loaded when a model is asked."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from pipelines.llm.vendor import Client, Vendor


class ChatVendor(Vendor):
    """A vendor that pydantic-ai asks."""

    def connect(self, name: str, **options: Any) -> Client:
        from pipelines.llm.chat import ChatClient

        return ChatClient(name, **options)

    @abstractmethod
    def model(self, name: str, **options: Any) -> Any:
        """Return pydantic-ai's model of this name, without retries; ``options`` are those of the vendor's SDK."""

    def batch_model(self, model: Any) -> Any:
        return model

    def refusal(self, response: Any, details: Mapping[str, Any]) -> str | None:
        """Return the reason word of a response of pydantic-ai that refuses, else ``None``."""
        if "refusal" in details:
            return "model_refusal"
        if response.finish_reason != "content_filter":
            return None
        return "blocked_prompt" if "block_reason" in details else "content_filter"
