"""Define the vendors whose protocols pydantic-ai implements; their modules load it when a model is asked."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipelines.llm.outcome import Raw
from pipelines.llm.vendor import Client, Job, Vendor

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model


class ChatVendor(Vendor):
    """A vendor that pydantic-ai asks, singly and by batches."""

    @abstractmethod
    def model(self, client: Client) -> Model[Any]:
        """Return pydantic-ai's model of the protocol, with the SDK's retries disabled."""

    def batch_model(self, client: Client) -> Model[Any]:
        """Return the model that encodes and decodes batches."""
        return client.shared  # type: ignore[no-any-return]

    def refusal(self, response: ModelResponse, details: Mapping[str, Any]) -> str | None:
        """Return the reason word of a response that refuses, else ``None``."""
        if "refusal" in details:
            return "model_refusal"
        if response.finish_reason != "content_filter":
            return None
        return "blocked_prompt" if "block_reason" in details else "content_filter"

    async def open(self, client: Client) -> Any:
        """Return pydantic-ai's model."""
        return self.model(client)

    async def ask(
        self, client: Client, system: str, parts: Sequence[str | bytes], *, schema: dict[str, Any], key: str
    ) -> Raw:
        """Send one prompt through pydantic-ai."""
        from pipelines.llm import chat

        return await chat.ask(client, system, parts, schema=schema, key=key, refusal=self.refusal)

    async def submit(self, client: Client, jobs: Sequence[Job], *, schema: dict[str, Any]) -> dict[str, Any]:
        """Submit a batch through pydantic-ai."""
        from pipelines.llm import chat

        return await chat.submit(client, jobs, model=self.batch_model(client), schema=schema)

    async def collect(self, client: Client, handle: dict[str, Any]) -> Mapping[str, Raw] | None:
        """Collect a batch through pydantic-ai."""
        from pipelines.llm import chat

        return await chat.collect(client, handle, model=self.batch_model(client), refusal=self.refusal)
