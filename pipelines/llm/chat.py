"""Send prompts through pydantic-ai, each in one HTTP request or many as one batch; return the raw answers (SPEC 2.2).

An answer or error of a provider is an outcome for the record, a reason to wait, or the end of the run. Refusals take
many forms (SPEC 2.2): an answer with ``refusal``, a stop reason, a blocked prompt, no choices at all, a 400 that names
a content policy. All of them are answers, so that they are neither requested again nor counted as votes. Error texts
may quote a post: none is passed on.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_ai import exceptions
from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    BinaryContent,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.batch import Batch, BatchRequest
from pydantic_ai.output import OutputObjectDefinition

from pipelines.core.errors import ConfigError, CorpusError, LabellerRefused
from pipelines.datasets.post import media_type
from pipelines.llm.outcome import TOO_LONG, UNREADABLE, Passing, Raw, Throttled
from pipelines.llm.response_parser import declines
from pipelines.llm.transport import Exchange, exchanging, parameters
from pipelines.llm.vendor import NO_QUOTA, WORD, Client, Job, Reply

BATCH = TypeAdapter(Batch)
# how providers and gateways word a content policy in an error; kept strict, because an unrelated 400 must end the run
POLICY = re.compile(
    r"content[_ -]?(?:policy|filter|management)|usage polic|safety system|moderation_blocked|flagged"
    r"|prohibited_content|invalid_prompt|responsibleai"
)
POLICY_STATUS = frozenset({400, 403, 422, 451})
LONGEST_MESSAGE = 500
COUNTS = (
    ("prompt_tokens", "input_tokens", "promptTokenCount"),
    ("completion_tokens", "output_tokens", "candidatesTokenCount", "thoughtsTokenCount"),
)


class ChatClient(Client):
    """A connection to a provider whose protocol pydantic-ai implements."""

    vendor: Any  # a ChatVendor

    @cached_property
    def own(self) -> Model[Any]:
        at = {"api_key": self.provider.key, "base_url": self.provider.address, "http_client": self.http}
        model: Model[Any] = self.vendor.model(self.model, **at)
        return model

    async def send(self, system: str, parts: Sequence[str | bytes], *, schema: dict[str, Any], key: str) -> Raw:
        messages = [self._message(system, parts)]
        with exchanging(key) as exchange:
            try:
                async with asyncio.timeout(self.vendor.timeout_seconds):
                    response = await model_request(
                        self.own,
                        messages,
                        model_settings=self.sampling,  # type: ignore[arg-type]
                        model_request_parameters=self._native(schema),
                    )
                return self._read(response, effective=exchange.effective)
            except Exception as error:
                return understand(error, client=self, exchange=exchange, effective=exchange.effective)

    async def submit(self, jobs: Sequence[Job], *, schema: dict[str, Any]) -> str:
        if not self.capabilities.batch:
            return await super().submit(jobs, schema=schema)
        model, shared = self.vendor.batch_model(self.own), self._native(schema)
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
        handle, model = json.loads(job), self.vendor.batch_model(self.own)
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

    def _batched(self, key: str, messages: list[Any], shared: ModelRequestParameters) -> BatchRequest:
        settings = cast(Any, self.sampling)
        return BatchRequest(custom_id=key, messages=messages, model_settings=settings, model_request_parameters=shared)

    def _decoded(self, model: Model[Any], result: Any, request: Any, effective: dict[str, Any]) -> Raw:
        try:
            return self._read(model.batch_decode(result, request), effective=effective)
        except Exception as error:
            return understand(error, client=self, exchange=None, effective=effective)

    def _fault_of_batch(self, error: Exception) -> Exception:
        """Return the project's error for an error of a batch call; only items of a batch can be refused as content."""
        if isinstance(error, CorpusError) or not isinstance(error, exceptions.ModelAPIError | TimeoutError):
            return error
        try:
            understand(error, client=self, exchange=None, effective={})
        except CorpusError as meant:
            return meant
        return self.refused("the batch was rejected")

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
                raise ConfigError("CannotSee", model=self.model, detail=detail)
            content.append(BinaryContent(part, media_type=kind))
        plain = content[0] if len(content) == 1 and isinstance(content[0], str) else content
        return ModelRequest(parts=[SystemPromptPart(system), UserPromptPart(plain)])

    def _native(self, schema: dict[str, Any]) -> ModelRequestParameters:
        """Return pydantic-ai's request parameters for an answer with this JSON schema; an empty one is not sent."""
        if not schema or self.capabilities.schema == "none":
            return ModelRequestParameters()
        wanted = OutputObjectDefinition(json_schema=schema, name="answer", strict=True)
        return ModelRequestParameters(output_mode="native", output_object=wanted)

    def _read(self, response: ModelResponse, *, effective: dict[str, Any]) -> Raw:
        """Return a provider's response that arrived in full as the raw answer that is stored."""
        details = response.provider_details or {}
        texts = [part.content for part in response.parts if isinstance(part, TextPart)]
        thought = "\n".join(part.content for part in response.parts if isinstance(part, ThinkingPart))
        if texts and declines(thought):
            texts.insert(0, f"<think>{thought}</think>\n")
        named = response.finish_reason or details.get("finish_reason") or ""
        return Raw(
            text="".join(texts) if texts else None,
            finish=str(named).lower(),
            refused=self.vendor.refusal(response, details),
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            effective=effective,
            truncated=response.finish_reason == "length",
        )


def understand(error: Exception, *, client: Client, exchange: Exchange | None, effective: dict[str, Any]) -> Raw:
    """Return a provider's error as a raw answer if it is one: a refusal, a too long post, or an unknown response.

    Raises:
        Throttled: the provider asks the client to wait.
        Passing: a temporary failure: a timeout, no connection, a fault of the provider. Send the request again.
        LabellerRefused: the key, the model, the account or the request itself is rejected.

    ``exchange`` is the HTTP request with its response, ``None`` for a request in a batch.
    """
    if isinstance(error, TimeoutError | exceptions.ModelTimeoutError):
        raise Passing(reason="timeout") from None
    if isinstance(error, exceptions.ModelConnectionError):
        raise Passing(reason="connection") from None
    if isinstance(error, exceptions.ModelHTTPError):
        return _status(error, client=client, effective=effective)
    if exchange is None:
        # one item of a batch: an error without a status means that it was never run
        if isinstance(error, exceptions.ModelAPIError):
            raise Passing(reason="not_run") from None
        return _without_text(UNREADABLE, effective)
    if exchange.response is None:
        raise error
    body = exchange.body()
    if isinstance(body.get("error"), dict):
        raise Passing(reason="server") from None
    if exchange.response.status_code != 200:
        raise client.refused(f"HTTP {exchange.response.status_code}") from None
    empty = "choices" in body and not body["choices"]
    return _without_text("empty" if empty else UNREADABLE, effective, refused="empty" if empty else None, body=body)


def _status(error: exceptions.ModelHTTPError, *, client: Client, effective: dict[str, Any]) -> Raw:
    words, status = _words(error), error.status_code
    if isinstance(error, exceptions.ModelQuotaExceededError) or NO_QUOTA in words:
        raise client.refused(NO_QUOTA) from None
    if status in POLICY_STATUS and POLICY.search(words):
        return _without_text("content_filter", effective, refused="content_filter")
    if isinstance(error, exceptions.ModelContextWindowExceededError) or status == 413:
        return _without_text(TOO_LONG, effective)
    if isinstance(error, exceptions.ModelOverloadedError) and status >= 500 and error.retry_after is None:
        raise Passing(reason="overloaded") from None
    codes = [code for code in _codes(error) if WORD.fullmatch(code)]
    raise client.fault(Reply(status, codes, error.retry_after)) from None


def _codes(error: exceptions.ModelHTTPError) -> list[str]:
    return [c for c in (error.provider_error_code, error.provider_error_type) if isinstance(c, str)]


def _words(error: exceptions.ModelHTTPError) -> str:
    """Return the machine words and the start of the message of an error, in lower case."""
    found = _codes(error)
    body: object = error.body
    while isinstance(body, dict):
        found += [value[:LONGEST_MESSAGE] for value in body.values() if isinstance(value, str)]
        found += ["flagged"] if "flagged_input" in body else []
        body = body.get("error") or body.get("innererror") or body.get("metadata")
    return " ".join(found).lower()


def _without_text(
    finish: str, effective: dict[str, Any], *, refused: str | None = None, body: dict[str, Any] | None = None
) -> Raw:
    usage = (body or {}).get("usage") or (body or {}).get("usageMetadata")
    counts = usage if isinstance(usage, dict) else {}
    read_, written = (sum(n for name in names if isinstance(n := counts.get(name), int)) for names in COUNTS)
    return Raw(
        text=None, finish=finish, refused=refused, input_tokens=read_, output_tokens=written, effective=effective
    )
