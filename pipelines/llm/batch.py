"""Submit many model requests as one batch, at about half the price, and collect the answers later by its handle.

pydantic-ai encodes and decodes the batches of the three providers as it does single requests. OpenAI's batches use its
Responses endpoint, the one that pydantic-ai supports; prompt, schema and sampling are the same. A single request in a
batch has no header: the key is its ``custom_id`` instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pipelines.core.errors import ConfigError, CorpusError, LabellerRefused
from pipelines.llm.outcome import Passing, Raw, Throttled

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from pipelines.llm.client import Client


async def submit(
    client: Client, jobs: Sequence[tuple[str, str, Sequence[str | bytes]]], *, schema: dict[str, Any]
) -> str:
    """Submit ``jobs`` (key, system message, user message) as one batch; return a handle, to be stored at once.

    Keys are 1 to 64 letters, digits, ``_`` or ``-`` (Anthropic's rule) and unique. The handle is JSON without secrets
    or content: the provider's name of the batch, and the parameters that were sent.

    Raises:
        Throttled, Passing, LabellerRefused: the batch was not accepted; none of its requests run.
    """
    from pydantic import TypeAdapter
    from pydantic_ai.models.batch import Batch, BatchRequest

    from pipelines.llm.transport import parameters

    if not client.capabilities.batch:
        raise ConfigError("NoBatches", model=client.labeller.model, labeller=client.name)
    model, shared = _model(client), client.native(schema)
    try:
        encoded = [
            await model.batch_encode(
                BatchRequest(
                    custom_id=key,
                    messages=[client.message(system, parts)],
                    model_settings=cast(Any, dict(client.sampling)),
                    model_request_parameters=shared,
                )
            )
            for key, system, parts in jobs
        ]
        batch = await model.batch_create(encoded)
    except Exception as error:
        raise _fault(client, error) from None
    sent = parameters(json.loads(encoded[0].body)) | {"batch": True}
    handle = {"batch": TypeAdapter(Batch).dump_python(batch, mode="json"), "effective": sent}
    return json.dumps(handle, sort_keys=True)


async def collect(client: Client, job: str) -> Mapping[str, Raw] | None:
    """Return the answers of the batch with the handle ``job`` by request key, or ``None`` while the batch is running.

    A key without an answer (expired, cancelled, the provider's own fault) is left out and may be requested again.

    Raises:
        Throttled, Passing: the status of the batch could not be queried; the batch continues.
        LabellerRefused: the provider rejects the key, does not know the batch, or rejected every item.
    """
    from pydantic import TypeAdapter
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.batch import Batch, BatchRequest

    handle = json.loads(job)
    model, effective = _model(client), handle["effective"]
    try:
        batch = await model.batch_status(TypeAdapter(Batch).validate_python(handle["batch"]))
        if batch.status != "ended":
            return None
        results = await model.batch_results(batch)
    except Exception as error:
        raise _fault(client, error) from None
    answers: dict[str, Raw] = {}
    rejected: LabellerRefused | None = None
    for result in results:
        request = BatchRequest(
            custom_id=result.custom_id,
            messages=[],
            model_settings=cast(Any, dict(client.sampling)),
            # the text of an answer does not depend on its schema
            model_request_parameters=ModelRequestParameters(),
        )
        try:
            answers[result.custom_id] = _one(client, model, result, request, effective)
        except (Passing, Throttled):
            continue
        except LabellerRefused as error:
            rejected = error
    if rejected is not None and not answers:
        raise rejected
    return answers


def _one(client: Client, model: Model[Any], result: Any, request: Any, effective: dict[str, Any]) -> Raw:
    from pipelines.llm import provider_response

    try:
        return provider_response.read(model.batch_decode(result, request), asked=client.asked, effective=effective)
    except Exception as error:
        return provider_response.understand(error, asked=client.asked, exchange=None, effective=effective)


def _fault(client: Client, error: Exception) -> Exception:
    """Return the project's error for an error of a batch call; only the items of a batch can be refused as content."""
    from pydantic_ai.exceptions import ModelAPIError

    from pipelines.llm import provider_response

    if isinstance(error, CorpusError) or not isinstance(error, ModelAPIError | TimeoutError):
        return error
    try:
        provider_response.understand(error, asked=client.asked, exchange=None, effective={})
    except CorpusError as meant:
        return meant
    return client.asked.refused("the batch was rejected")


def _model(client: Client) -> Model[Any]:
    if client.provider.api != "openai":
        return client.model
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    chat = cast(OpenAIChatModel, client.model)
    return OpenAIResponsesModel(client.labeller.model, provider=OpenAIProvider(openai_client=chat.client))
