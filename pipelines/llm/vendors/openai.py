"""Ask models through OpenAI's protocol, which vLLM, Ollama and others serve, too.

Batches use the Responses endpoint, the one that pydantic-ai supports; prompt, schema and sampling are the same.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import Field

from pipelines.core.errors import LabellingError
from pipelines.llm.vendor import Client
from pipelines.llm.vendors._chat import ChatVendor

POLL_SECONDS = 2.0  # ours
REQUEST_SECONDS = 10.0  # ours: a server that answers its list of models more slowly is not ready


class OpenAI(ChatVendor):
    """OpenAI, or a server of its protocol.

    ``ready_seconds``: how long a step waits for a server of your own (``CORPUS_<PROVIDER>_URL``) to be healthy and to
    serve the model.
    """

    ready_seconds: Annotated[float, Field(ge=0)] = 0

    address = "https://api.openai.com/v1"
    model_page = "/models"
    batch_stops = False

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    async def ready(self, client: Client) -> None:
        """Wait until a server of your own is healthy and lists the model."""
        url, end = client.provider.endpoint.url, time.monotonic() + self.ready_seconds
        while client.model and url and self.ready_seconds and (detail := await self._fault(client)):
            if (left := end - time.monotonic()) <= 0:
                asked = {"url": url, "model": client.model, "name": client.name, "provider": client.provider.name}
                raise LabellingError("ServerNotReady", seconds=self.ready_seconds, detail=detail, **asked)
            await asyncio.sleep(min(POLL_SECONDS, left))

    async def _fault(self, client: Client) -> str:
        """Return why the server cannot be asked for the model now, or an empty string."""
        import httpx2

        asked: dict[str, Any] = {"headers": self.headers(client.provider.key), "timeout": REQUEST_SECONDS}
        try:
            health = await client.http.get(f"{client.url.removesuffix('/v1')}/health", **asked)
            if health.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                return f"its health check answers HTTP {health.status_code}"
            listed = await client.http.get(f"{client.url}/models", **asked)
            if listed.status_code != HTTPStatus.OK:
                return f"its list of models answers HTTP {listed.status_code}"
            served = {str(model["id"]) for model in listed.json()["data"]}
        except httpx2.HTTPError as error:
            return f"no answer ({type(error).__name__})"
        except (ValueError, KeyError, TypeError, AttributeError):
            return "its list of models has another form than OpenAI's"
        return "" if client.model in served else f"it serves {', '.join(sorted(served)) or 'no model'}"

    def model(self, name: str, **options: Any) -> Any:
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        client = AsyncOpenAI(max_retries=0, timeout=self.timeout_seconds, **options)
        return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))

    def batch_model(self, model: Any) -> Any:
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIResponsesModel(model.model_name, provider=OpenAIProvider(openai_client=model.client))
