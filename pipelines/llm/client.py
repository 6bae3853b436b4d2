"""Send prompts to a language model, each in one HTTP request or many as one batch; return the raw answers (SPEC 2.2).

This is the only module that prompts language models. pydantic-ai's models implement the three protocols, and encode and
decode their batches as they do single requests. OpenAI's batches use its Responses endpoint, the one that pydantic-ai
supports; prompt, schema and sampling are the same. Nothing here repeats a request, because that would differ from the
paper's protocol; ``sender.py`` does retries, limits, the budget.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self, cast

import httpx2
from pydantic import TypeAdapter
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import BinaryContent, ModelRequest, SystemPromptPart, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.batch import Batch, BatchRequest
from pydantic_ai.output import OutputObjectDefinition

from pipelines.core.config.label import Consent, Provider, RemoteLabeller, VotesParams
from pipelines.core.config.settings import Endpoint
from pipelines.core.errors import ConfigError, CorpusError, LabellerRefused, LabellingError
from pipelines.core.process import now
from pipelines.datasets.post import media_type
from pipelines.llm import provider_response
from pipelines.llm.addresses import ADDRESSES, NO_KEY, Target, admit
from pipelines.llm.capabilities import capabilities
from pipelines.llm.outcome import Passing, Raw, Throttled
from pipelines.llm.retirements import require_served
from pipelines.llm.transport import EXCHANGE, Exchange, opened, parameters

POLL_SECONDS = 2.0  # ours
REQUEST_SECONDS = 10.0  # ours: a server that answers its list of models more slowly is not ready
BATCH = TypeAdapter(Batch)


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
        self._asked = Target(name, provider=labeller.provider, api=provider.api)
        self._http: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        if self._endpoint.url is None and not self._endpoint.key.get_secret_value():
            raise self._asked.refused("no key is set")
        require_served(self.labeller, name=self.name, api=self.provider.api, url=self._endpoint.url, today=now().date())
        admit(self._endpoint, consent=self._consent, provider=self.labeller.provider)
        self._http = opened(self.provider.timeout_seconds)
        try:
            await self._ready(self._http)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        self.model = self._build(self._http)
        return self

    async def _ready(self, http: httpx2.AsyncClient) -> None:
        """Wait until a server of your own is healthy and lists the model, ``ready_seconds`` at most."""
        url, seconds = self._endpoint.url, self.provider.ready_seconds
        if url is None or self.provider.api != "openai" or not seconds:
            return
        end = time.monotonic() + seconds
        while detail := await self._fault(http, url=url.rstrip("/")):
            if (left := end - time.monotonic()) <= 0:
                asked = {"url": url, "model": self.labeller.model, "name": self.name}
                asked |= {"provider": self.labeller.provider, "detail": detail}
                raise LabellingError("ServerNotReady", seconds=seconds, **asked)
            await asyncio.sleep(min(POLL_SECONDS, left))

    async def _fault(self, http: httpx2.AsyncClient, *, url: str) -> str:
        """Return why the server cannot be asked for the model now, or an empty string."""
        headers = {"Authorization": f"Bearer {self._endpoint.key.get_secret_value() or NO_KEY}"}
        try:
            health = await http.get(f"{url.removesuffix('/v1')}/health", headers=headers, timeout=REQUEST_SECONDS)
            if health.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                return f"its health check answers HTTP {health.status_code}"
            listed = await http.get(f"{url}/models", headers=headers, timeout=REQUEST_SECONDS)
            if listed.status_code != HTTPStatus.OK:
                return f"its list of models answers HTTP {listed.status_code}"
            served = {str(model["id"]) for model in listed.json()["data"]}
        except httpx2.HTTPError as error:
            return f"no answer ({type(error).__name__})"
        except (ValueError, KeyError, TypeError, AttributeError):
            return "its list of models has another form than OpenAI's"
        return "" if self.labeller.model in served else f"it serves {', '.join(sorted(served)) or 'no model'}"

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
            schema: JSON schema of the answer.

        Raises:
            Throttled: the provider asks the client to wait.
            Passing: a timeout, no connection, or the provider's own fault.
            LabellerRefused: the key, the model, the account or the request is rejected: 401, 403, 404, no quota.
        """
        messages = [self._message(system, parts)]
        exchange = Exchange(key)
        token = EXCHANGE.set(exchange)
        try:
            async with asyncio.timeout(self.provider.timeout_seconds):
                response = await model_request(
                    self.model,
                    messages,
                    model_settings=self.sampling,  # type: ignore[arg-type]
                    model_request_parameters=self._native(schema),
                )
            return provider_response.read(response, asked=self._asked, effective=exchange.effective)
        except Exception as error:
            effective = exchange.effective
            return provider_response.understand(error, asked=self._asked, exchange=exchange, effective=effective)
        finally:
            EXCHANGE.reset(token)

    async def submit(self, jobs: Sequence[tuple[str, str, Sequence[str | bytes]]], *, schema: dict[str, Any]) -> str:
        """Submit ``jobs`` (key, system message, user message) as one batch, at about half the price; return a handle.

        Store the handle at once; it is JSON without secrets or content: the provider's name of the batch, and the
        parameters that were sent. Keys are 1 to 64 letters, digits, ``_`` or ``-`` (Anthropic's rule) and unique; a
        request in a batch has no header: the key is its ``custom_id`` instead.

        Raises:
            Throttled, Passing, LabellerRefused: the batch was not accepted; none of its requests run.
        """
        if not self.capabilities.batch:
            raise ConfigError("NoBatches", model=self.labeller.model, labeller=self.name)
        model, shared = self._batching(), self._native(schema)
        try:
            encoded = [
                await model.batch_encode(self._batched(key, [self._message(system, parts)], shared))
                for key, system, parts in jobs
            ]
            batch = await model.batch_create(encoded)
        except Exception as error:
            raise self._fault_of_batch(error) from None
        sent = parameters(json.loads(encoded[0].body)) | {"batch": True}
        return json.dumps({"batch": BATCH.dump_python(batch, mode="json"), "effective": sent}, sort_keys=True)

    async def collect(self, job: str) -> Mapping[str, Raw] | None:
        """Return the answers of the batch with the handle ``job`` by request key, or ``None`` while the batch runs.

        A key without an answer (expired, cancelled, the provider's own fault) is left out and may be requested again.

        Raises:
            Throttled, Passing: the status of the batch could not be queried; the batch continues.
            LabellerRefused: the provider rejects the key, does not know the batch, or rejected every item.
        """
        handle, model = json.loads(job), self._batching()
        try:
            batch = await model.batch_status(BATCH.validate_python(handle["batch"]))
            if batch.status != "ended":
                return None
            results = await model.batch_results(batch)
        except Exception as error:
            raise self._fault_of_batch(error) from None
        answers: dict[str, Raw] = {}
        rejected: LabellerRefused | None = None
        for result in results:
            # the text of an answer does not depend on its schema
            request = self._batched(result.custom_id, [], ModelRequestParameters())
            try:
                answers[result.custom_id] = self._decoded(model, result, request, handle["effective"])
            except (Passing, Throttled):
                continue
            except LabellerRefused as error:
                rejected = error
        if rejected is not None and not answers:
            raise rejected
        return answers

    def _batching(self) -> Model[Any]:
        if self.provider.api != "openai":
            return self.model
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        client = cast(OpenAIChatModel, self.model).client
        return OpenAIResponsesModel(self.labeller.model, provider=OpenAIProvider(openai_client=client))

    def _batched(self, key: str, messages: list[Any], shared: ModelRequestParameters) -> BatchRequest:
        settings = cast(Any, self.sampling)
        return BatchRequest(custom_id=key, messages=messages, model_settings=settings, model_request_parameters=shared)

    def _decoded(self, model: Model[Any], result: Any, request: Any, effective: dict[str, Any]) -> Raw:
        try:
            return provider_response.read(model.batch_decode(result, request), asked=self._asked, effective=effective)
        except Exception as error:
            return provider_response.understand(error, asked=self._asked, exchange=None, effective=effective)

    def _fault_of_batch(self, error: Exception) -> Exception:
        """Return the project's error for an error of a batch call; only items of a batch can be refused as content."""
        if isinstance(error, CorpusError) or not isinstance(error, ModelAPIError | TimeoutError):
            return error
        try:
            provider_response.understand(error, asked=self._asked, exchange=None, effective={})
        except CorpusError as meant:
            return meant
        return self._asked.refused("the batch was rejected")

    def _message(self, system: str, parts: Sequence[str | bytes]) -> ModelRequest:
        """Return a system prompt and the parts of a user message (text, images) as one message of pydantic-ai."""
        content: list[Any] = []
        for part in parts:
            if isinstance(part, str):
                content.append(part)
                continue
            kind = media_type(part)
            if kind is None or not self.capabilities.images:
                detail = "the model accepts no images" if kind else "the image is neither JPEG, PNG, WebP nor GIF"
                raise ConfigError("CannotSee", model=self.labeller.model, detail=detail)
            content.append(BinaryContent(part, media_type=kind))
        plain = content[0] if len(content) == 1 and isinstance(content[0], str) else content
        return ModelRequest(parts=[SystemPromptPart(system), UserPromptPart(plain)])

    def _native(self, schema: dict[str, Any]) -> ModelRequestParameters:
        """Return pydantic-ai's request parameters for an answer with this JSON schema."""
        if self.capabilities.schema == "none":
            return ModelRequestParameters()
        wanted = OutputObjectDefinition(json_schema=schema, name="answer", strict=True)
        return ModelRequestParameters(output_mode="native", output_object=wanted)

    def _build(self, http: httpx2.AsyncClient) -> Model[Any]:
        """Return pydantic-ai's model of the protocol, with the SDK's retries disabled."""
        key = self._endpoint.key.get_secret_value() or NO_KEY
        url = self._endpoint.url or ADDRESSES[self.provider.api]
        timeout = self.provider.timeout_seconds
        if self.provider.api == "openai":
            from openai import AsyncOpenAI
            from pydantic_ai.models.openai import OpenAIChatModel
            from pydantic_ai.providers.openai import OpenAIProvider

            openai = AsyncOpenAI(api_key=key, base_url=url, max_retries=0, timeout=timeout, http_client=http)
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
