"""Send one prompt to a language model in one HTTP request and return the raw answer (SPEC 2.2).

This is the only module that prompts language models. pydantic-ai's models implement the three protocols. Nothing here
repeats a request, because that would differ from the paper's protocol; ``sender.py`` does retries, limits, the budget.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from openai import AsyncOpenAI, NotGiven, Omit
from openai.resources.chat import AsyncChat
from openai.resources.chat.completions import AsyncCompletions
from openai.types.chat import ChatCompletion

from pipelines.core.config.label import Consent, Provider, RemoteLabeller, VotesParams
from pipelines.core.config.settings import Endpoint
from pipelines.core.errors import ConfigError, LabellingError
from pipelines.core.process import now
from pipelines.llm.addresses import ADDRESSES, admit
from pipelines.llm.capabilities import capabilities
from pipelines.llm.outcome import Raw
from pipelines.llm.retirements import require_served

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.messages import ModelRequest
    from pydantic_ai.models import Model, ModelRequestParameters

    from pipelines.llm.provider_response import Target

POLL_SECONDS = 2.0  # ours
REQUEST_SECONDS = 10.0  # ours: a server that answers its list of models more slowly is not ready


async def ready(
    http: httpx2.AsyncClient, *, url: str, key: str, model: str, name: str, provider: str, seconds: float
) -> None:
    """Return when the server at ``url`` is healthy and lists ``model``.

    Args:
        http: the client that will send the requests.
        url: the address of the protocol, such as ``http://127.0.0.1:8000/v1``.
        key: sent as the bearer's token.
        model: the model's name on the server.
        name: the labeller's name in ``params.yaml``, for the error.
        provider: its provider there, for the error.
        seconds: how long to wait at most.
    """
    end = time.monotonic() + seconds
    while detail := await _fault(http, url=url.rstrip("/"), key=key, model=model):
        if (left := end - time.monotonic()) <= 0:
            raise LabellingError(
                "ServerNotReady", url=url, model=model, name=name, provider=provider, seconds=seconds, detail=detail
            )
        await asyncio.sleep(min(POLL_SECONDS, left))


async def _fault(http: httpx2.AsyncClient, *, url: str, key: str, model: str) -> str:
    """Return why the server cannot be asked for the model now, or an empty string."""
    import httpx2

    headers = {"Authorization": f"Bearer {key}"}
    try:
        health = await http.get(f"{url.removesuffix('/v1')}/health", headers=headers, timeout=REQUEST_SECONDS)
        if health.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return f"its health check answers HTTP {health.status_code}"
        listed = await http.get(f"{url}/models", headers=headers, timeout=REQUEST_SECONDS)
        if listed.status_code != HTTPStatus.OK:
            return f"its list of models answers HTTP {listed.status_code}"
        served = _names(listed.json())
    except httpx2.HTTPError as error:
        return f"no answer ({type(error).__name__})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "its list of models has another form than OpenAI's"
    return "" if model in served else f"it serves {', '.join(sorted(served)) or 'no model'}"


def _names(body: Any) -> set[str]:
    return {str(one["id"]) for one in body["data"]}


class Completions(AsyncCompletions):  # type: ignore[misc]
    """OpenAI's chat completions without changes to the parameters.

    The SDK searches every message for dates and files to convert, by every type that it could have, which takes a
    quarter of a request's time. Our messages are plain JSON, so there is nothing to convert.
    """

    async def create(
        self, *, extra_headers: Any = None, extra_body: Any = None, timeout: Any = None, **given: Any
    ) -> ChatCompletion:
        """Send one chat request and return the completion; ``timeout`` is ignored: the client's own limit applies."""
        body = {name: value for name, value in given.items() if not isinstance(value, Omit | NotGiven)}
        return await self._client.post(
            "/chat/completions",
            cast_to=ChatCompletion,
            body=body | (extra_body or {}),
            options={"headers": extra_headers or {}},
        )


class Chat(AsyncChat):  # type: ignore[misc]
    """OpenAI's chat endpoints with the faster :class:`Completions`."""

    @cached_property
    def completions(self) -> Completions:
        """The endpoint of chat completions."""
        return Completions(self._client)


class Plain(AsyncOpenAI):  # type: ignore[misc]
    """OpenAI's client that sends the parameters of chat requests unchanged (see :class:`Completions`)."""

    @cached_property
    def chat(self) -> Chat:
        """The chat endpoints."""
        return Chat(self)


NO_KEY = "none"
MAGIC = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png", b"GIF8": "image/gif", b"RIFF": "image/webp"}


@dataclass
class RequestShape:
    """The data that all requests for one answer schema share; ``effective``: the parameters first sent for it."""

    schema: dict[str, Any]
    settings: dict[str, Any]
    parameters: ModelRequestParameters
    effective: dict[str, Any] = field(default_factory=dict)


class Client:
    """A client for one labeller's model over HTTP; an async context manager for one event loop at a time.

    Args:
        labeller: description of the model, independent of the protocol.
        name: the labeller's name in ``params.yaml``, for errors.
        provider: protocol and time limit (``timeout_seconds`` covers a whole request, including a slow response).
        endpoint: address and key.
        votes: ``max_output_tokens``, the limit on visible tokens.
        consent: the consent on record for the provider; without one, only an endpoint on this machine is used.
    """

    def __init__(
        self,
        labeller: RemoteLabeller,
        *,
        name: str,
        provider: Provider,
        endpoint: Endpoint,
        votes: VotesParams,
        consent: Consent | None = None,
    ) -> None:
        self.labeller, self.name, self.provider, self._endpoint = labeller, name, provider, endpoint
        self._consent = consent or Consent()
        self.capabilities = capabilities(labeller.model, api=provider.api)
        self.sampling: dict[str, Any] = self.capabilities.sampling(max_output_tokens=votes.max_output_tokens)
        self._shapes: dict[int, RequestShape] = {}
        self._http: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        import httpx2

        from pipelines.llm import provider_response, transport

        self._reading, self._wire = provider_response, transport
        self.asked: Target = provider_response.Target(
            labeller=self.name, provider=self.labeller.provider, api=self.provider.api
        )
        if self._endpoint.url is None and not self._endpoint.key.get_secret_value():
            raise self.asked.refused("no key is set")
        require_served(
            self.labeller.model,
            name=self.name,
            provider=self.labeller.provider,
            api=self.provider.api,
            url=self._endpoint.url,
            today=now().date(),
        )
        admit(self._endpoint, consent=self._consent, provider=self.labeller.provider)
        # pool=None: requests never wait for a connection; Google's provider warns about a plain five seconds
        timeout = httpx2.Timeout(self.provider.timeout_seconds, pool=None)
        self._http = httpx2.AsyncClient(transport=transport.Connections(), timeout=timeout)
        try:
            await self._ready(self._http)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        self.model = self._build(self._http)
        return self

    async def _ready(self, http: httpx2.AsyncClient) -> None:
        """Wait for a server of your own; a vendor's address and one without ``ready_seconds`` are asked at once."""
        if self._endpoint.url is not None and self.provider.api == "openai" and self.provider.ready_seconds:
            await ready(
                http,
                url=self._endpoint.url,
                key=self._endpoint.key.get_secret_value() or NO_KEY,
                model=self.labeller.model,
                name=self.name,
                provider=self.labeller.provider,
                seconds=self.provider.ready_seconds,
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def send(self, system: str, parts: Sequence[str | bytes], *, schema: dict[str, Any], key: str) -> Raw:
        """Send one prompt in one HTTP request and return the answer; ``key`` is its ``Idempotency-Key``.

        Args:
            system: the system prompt.
            parts: the user message in order; ``bytes`` are images (JPEG, PNG, WebP or GIF).
            schema: JSON schema of the answer; passing the same object again reuses its preparation.

        Raises:
            Throttled: the provider asks the client to wait.
            Passing: a timeout, no connection, or the provider's own fault.
            LabellerRefused: the key, the model, the account or the request is rejected: 401, 403, 404, no quota.
        """
        from pydantic_ai.direct import model_request

        shape = self.shape(schema)
        messages = [self.message(system, parts)]
        exchange = self._wire.Exchange(key)
        token = self._wire.EXCHANGE.set(exchange)
        try:
            async with asyncio.timeout(self.provider.timeout_seconds):
                response = await model_request(
                    self.model,
                    messages,
                    model_settings=shape.settings,  # type: ignore[arg-type]
                    model_request_parameters=shape.parameters,
                )
            return self._reading.read(response, asked=self.asked, effective=self._effective(shape, exchange))
        except Exception as error:
            effective = self._effective(shape, exchange)
            return self._reading.understand(error, asked=self.asked, exchange=exchange, effective=effective)
        finally:
            self._wire.EXCHANGE.reset(token)

    def message(self, system: str, parts: Sequence[str | bytes]) -> ModelRequest:
        """Return a system prompt and the parts of a user message (text, images) as one message of pydantic-ai."""
        from pydantic_ai.messages import BinaryContent, ModelRequest, SystemPromptPart, UserPromptPart

        content: list[Any] = []
        for part in parts:
            if isinstance(part, str):
                content.append(part)
                continue
            kind = next((kind for magic, kind in MAGIC.items() if part.startswith(magic)), None)
            if kind is None or not self.capabilities.images:
                detail = "the model accepts no images" if kind else "the image is neither JPEG, PNG, WebP nor GIF"
                raise ConfigError("CannotSee", model=self.labeller.model, detail=detail)
            content.append(BinaryContent(part, media_type=kind))
        plain = content[0] if len(content) == 1 and isinstance(content[0], str) else content
        return ModelRequest(parts=[SystemPromptPart(system), UserPromptPart(plain)])

    def shape(self, schema: dict[str, Any]) -> RequestShape:
        """Return the data that all requests for the answer schema ``schema`` share, computed at the first call."""
        found = self._shapes.get(id(schema))
        if found is None:
            found = self._shapes[id(schema)] = self._shape(schema)
        return found

    def native(self, schema: dict[str, Any]) -> ModelRequestParameters:
        """Return pydantic-ai's request parameters for an answer with this JSON schema."""
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.output import OutputObjectDefinition

        if self.capabilities.schema == "none":
            return ModelRequestParameters()
        wanted = OutputObjectDefinition(json_schema=schema, name="answer", strict=True)
        return ModelRequestParameters(output_mode="native", output_object=wanted)

    def _shape(self, schema: dict[str, Any]) -> RequestShape:
        from pydantic_ai.models import ModelRequestParameters

        parameters, settings = self.native(schema), dict(self.sampling)
        if self.provider.api == "openai" and self.capabilities.schema == "json_schema":
            # converted to OpenAI's strict mode once, not per request
            prepared = self.model.prepare_request(None, parameters)[1].output_object
            fitted = prepared.json_schema if prepared is not None else schema
            form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": fitted, "strict": True}}
            settings["extra_body"], parameters = {"response_format": form}, ModelRequestParameters()
        return RequestShape(schema=schema, settings=settings, parameters=parameters)

    def _effective(self, shape: RequestShape, exchange: Any) -> dict[str, Any]:
        if not shape.effective and exchange.request is not None:
            shape.effective = self._wire.effective(exchange.request)
        return shape.effective

    def _build(self, http: httpx2.AsyncClient) -> Model[Any]:
        """Return pydantic-ai's model of the protocol, with the SDK's retries disabled."""
        key = self._endpoint.key.get_secret_value() or NO_KEY
        url = self._endpoint.url or ADDRESSES[self.provider.api]
        timeout = self.provider.timeout_seconds
        if self.provider.api == "openai":
            from pydantic_ai.models.openai import OpenAIChatModel
            from pydantic_ai.providers.openai import OpenAIProvider

            openai = Plain(api_key=key, base_url=url, max_retries=0, timeout=timeout, http_client=http)
            return OpenAIChatModel(self.labeller.model, provider=OpenAIProvider(openai_client=openai))
        if self.provider.api == "anthropic":
            from anthropic import AsyncAnthropic
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            claude = AsyncAnthropic(api_key=key, base_url=url, max_retries=0, timeout=timeout, http_client=http)
            return AnthropicModel(self.labeller.model, provider=AnthropicProvider(anthropic_client=claude))
        from google.genai.types import HttpRetryOptions
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        once = HttpRetryOptions(attempts=1)
        google = GoogleProvider(api_key=key, base_url=url, http_client=http, retry_options=once)
        return GoogleModel(self.labeller.model, provider=google)
