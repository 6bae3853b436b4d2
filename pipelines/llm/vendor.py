"""Ask vendors of models: a protocol with its requests and outcomes, a provider that speaks it, a connection.

A vendor is one class in a module of ``pipelines.llm.vendors`` or of another distribution. Its fields are the parameters
of a provider, an entry of section ``providers`` that names the vendor by ``api``. A YAML file of the module's name has
what is known about its models (:mod:`pipelines.llm.model_facts`). Nothing here repeats a request, because that would
differ from the paper's protocol; ``sender.py`` does retries, limits, the budget.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import Field

from pipelines.core.config.base import Positive, Section
from pipelines.core.config.collect import Sources, require
from pipelines.core.config.label import Consent, Price, RemoteLabeller, on_this_machine
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Endpoint, Settings, provider_variable
from pipelines.core.errors import ConfigError, LabellerRefused, LabellingError
from pipelines.core.parts import Parts
from pipelines.core.process import now
from pipelines.llm import model_facts
from pipelines.llm.model_facts import Capabilities, Retirement
from pipelines.llm.outcome import Passing, Raw, Throttled

if TYPE_CHECKING:
    import httpx2

# sent where no key is set: the SDKs require one
NO_KEY = "none"
# Statuses other than 5xx after which a request may be sent again.
AGAIN = frozenset({408, 409, 425})
NO_QUOTA = "insufficient_quota"
WORD = re.compile(r"(?=[_.-]{0,39}[a-z0-9])[a-z0-9_.-]{1,40}")
Job = tuple[str, str, Sequence[str | bytes]]
"""The key, the system message and the user message of a request in a batch."""


class Vendor(Section, ABC):
    """The protocol of a provider, and the limits of the account there.

    Class variables: ``address`` is the vendor's own, fixed so that no environment variable of an SDK can send posts
    elsewhere, or ``None`` where each account has one, of the form ``resource``; ``model_page`` the path below it that
    says at no cost whether it serves a model; ``labels`` whether its models label, or only moderate; ``batch_share``
    the price of a request in a batch as a share; ``batch_stops`` whether batches take stop sequences.
    """

    api: str
    concurrency: Positive
    requests_per_minute: Positive | None
    tokens_per_minute: Positive | None
    timeout_seconds: Annotated[float, Field(gt=0)]
    max_retries: Annotated[int, Field(ge=0)]
    max_retry_after_seconds: Annotated[float, Field(ge=0)]
    batch_poll_seconds: Annotated[float, Field(gt=0)]

    address: ClassVar[str | None] = None
    resource: ClassVar[str] = ""
    model_page: ClassVar[str] = ""
    labels: ClassVar[bool] = True
    # the batch endpoints of OpenAI, Anthropic and Google answer at half the price (their price lists, and SPEC 2.2)
    batch_share: ClassVar[float] = 0.5
    batch_stops: ClassVar[bool] = True

    @abstractmethod
    def headers(self, key: str) -> dict[str, str]:
        """Return the headers with the key and the protocol's version."""

    def connect(self, name: str, *, provider: Provider, model: str, sampling: Mapping[str, Any]) -> Client:
        """Return a connection that is not yet open; see :class:`Client`."""
        return Client(name, provider=provider, model=model, sampling=sampling)

    async def ready(self, client: Client) -> None:
        """Wait until the model can be asked."""

    async def ask(
        self, client: Client, system: str, parts: Sequence[str | bytes], *, schema: dict[str, Any], key: str
    ) -> Raw:
        """Send one prompt in one HTTP request and return the answer; see :meth:`Client.send`."""
        raise client.refused("its vendor labels nothing")

    @property
    def facts(self) -> model_facts.Facts:
        """What is known about the vendor's models."""
        return model_facts.read(Path(inspect.getfile(type(self))).with_suffix(".yaml"))

    def capabilities(self, model: str) -> Capabilities:
        """Return what a model accepts."""
        return self.facts.of(model)

    def price(self, labeller: RemoteLabeller, *, name: str) -> Price:
        """Return the price per million tokens of a labeller's model, in US dollars: its own, else the listed one.

        Its own takes precedence, because it may come from a contract or from a self-hosted model. Nothing is
        downloaded.

        Raises:
            PriceUnknown: the price is neither given nor listed; the error names the labeller ``name``.
        """
        return labeller.price or model_facts.price(labeller.model, api=self.api, name=name)

    def deprecated(self, model: str) -> bool:
        """Return whether the price list of genai-prices marks the model as deprecated by its vendor."""
        listed = model_facts.listed(model, self.api)
        return listed is not None and bool(listed.model.deprecated)


VENDORS: Parts[Vendor] = Parts("pipelines.llm.vendors", Vendor, key="api")


def vendor_of(provider: str, *, params: Params) -> Vendor:
    """Return the vendor of a provider of ``params.yaml``, with the provider's parameters."""
    return VENDORS.of(params.providers[provider], params.distributions, where=f"providers.{provider}")


@dataclass(frozen=True)
class Provider:
    """Who receives items: an entry of section ``providers`` with its vendor, address, key and consent on record."""

    name: str
    vendor: Vendor
    endpoint: Endpoint
    consent: Consent
    sources: Sources = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, *, params: Params, settings: Settings, sources: Sources | None = None) -> Self:
        """Return the provider ``name``; ``sources``: of the items that it is sent."""
        consent = params.consents.get(name, Consent())
        return cls(name, vendor_of(name, params=params), settings.endpoint(name), consent, sources or {})

    @property
    def own_server(self) -> bool:
        """Whether a team serves the models, so that the provider has no address but ``CORPUS_<PROVIDER>_URL``."""
        return self.vendor.address is not None and self.name != self.vendor.api

    @property
    def address(self) -> str | None:
        """The address that is asked: the one that is set, else the vendor's own for the provider of its name."""
        return self.endpoint.url or (None if self.own_server else self.vendor.address)

    @property
    def key(self) -> str:
        return self.endpoint.key.get_secret_value() or NO_KEY

    @property
    def variable(self) -> str:
        """The beginning of the names of its environment variables."""
        return provider_variable(self.name)

    @property
    def here(self) -> bool:
        """Whether nothing that is sent leaves this machine."""
        return on_this_machine(self.address)

    def retirement(self, model: str) -> Retirement | None:
        """Return the vendor's notice about a model that is asked at the vendor's own address, if there is one.

        A host of your own or of another company may serve the same weights for longer.
        """
        own, asked = (urlsplit(url or "").hostname for url in (self.vendor.address, self.address))
        return self.vendor.facts.retirement(model) if own == asked else None

    def require_served(self, model: str, *, labeller: str, today: date) -> None:
        """Check that a model is not retired on the day of the request, which is not the day of a retried task's run."""
        notice = self.retirement(model)
        if notice is not None and notice.retired <= today:
            told = {"retired": notice.retired.isoformat(), "source": notice.source, "successor": notice.successor}
            raise LabellingError("ModelRetired", model=model, name=labeller, variable=self.variable, **told)


@dataclass(frozen=True)
class Reply:
    """The response to one request.

    Args:
        words: machine words of an error, the most precise first, in lower case.
        wait: the seconds that the provider asks to wait.
        effective: the parameters that were sent.
    """

    status: int
    words: Sequence[str]
    wait: float | None
    body: dict[str, Any] | None = None
    effective: dict[str, Any] = field(default_factory=dict)


def _words(error: object) -> list[str]:
    """Return the machine words of an error; a word with other characters may be content."""
    words: list[str] = []
    while isinstance(error, dict):
        words[:0] = [w.lower() for w in (error.get("code"), error.get("type")) if isinstance(w, str)]
        error = error.get("innererror")
    return [word for word in words if WORD.fullmatch(word)]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a provider asks to wait, from its headers (a number, or a date), or ``None``."""
    value = headers.get("retry-after", "")
    with suppress(ValueError):
        milliseconds = headers.get("retry-after-ms")
        return max(0.0, float(value) if milliseconds is None else float(milliseconds) / 1000)
    with suppress(ValueError, TypeError):
        return max(0.0, (parsedate_to_datetime(value) - now()).total_seconds())
    return None


class Client:
    """A connection to a provider; an async context manager for one event loop at a time.

    Args:
        name: the labeller's or the moderation system's name in ``params.yaml``, for errors.
        provider: who is asked; without a consent, only an address on this machine.
        sampling: the settings of its requests.
    """

    http: httpx2.AsyncClient

    def __init__(self, name: str, *, provider: Provider, model: str = "", sampling: Mapping[str, Any]) -> None:
        self.name, self.provider, self.vendor = name, provider, provider.vendor
        self.model, self.sampling = model, sampling
        self.capabilities = self.vendor.capabilities(model)

    @property
    def url(self) -> str:
        """The address, without a slash at its end."""
        return (self.provider.address or "").rstrip("/")

    def refused(self, detail: str) -> LabellerRefused:
        """Return the error that ends the run: the provider rejects its requests, because of ``detail``."""
        return LabellerRefused(labeller=self.name, detail=detail, variable=self.provider.variable)

    async def __aenter__(self) -> Self:
        from pipelines.llm import transport

        if not self.provider.endpoint.key.get_secret_value() and not self.provider.endpoint.url:
            raise self.refused("no key is set")
        if not self.url:
            raise self.refused("no address is set")
        today = now().date()
        self.provider.require_served(self.model, labeller=self.name, today=today)
        if not self.provider.here:
            # the day on which items are sent, which for a retried task is not the day of its run
            require("ask_providers", self.provider.sources, today=today)
            self.provider.consent.check(self.provider.name, today=today)
        self._transport, self.http = transport, transport.opened(self.vendor.timeout_seconds)
        try:
            await self.vendor.ready(self)
        except BaseException:
            await self.http.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.aclose()

    async def send(self, system: str, parts: Sequence[str | bytes], *, schema: dict[str, Any], key: str) -> Raw:
        """Send one prompt in one HTTP request and return the answer; ``key`` is its ``Idempotency-Key``.

        Args:
            parts: the user message in order; ``bytes`` are images (JPEG, PNG, WebP or GIF).
            schema: JSON schema of the answer; empty: none is sent.

        Raises:
            Throttled: the provider asks the client to wait.
            Passing: a timeout, no connection, or the provider's own fault.
            LabellerRefused: the key, the model, the account or the request is rejected: 401, 403, 404, no quota.
        """
        return await self.vendor.ask(self, system, parts, schema=schema, key=key)

    async def submit(self, jobs: Sequence[Job], *, schema: dict[str, Any]) -> str:
        """Submit ``jobs`` as one batch, at about half the price; return a handle.

        Store the handle at once; it is JSON without secrets or content: the provider's name of the batch, and the
        parameters that were sent. Keys are 1 to 64 letters, digits, ``_`` or ``-`` (Anthropic's rule) and unique; a
        request in a batch has no header: the key is its ``custom_id`` instead.

        Raises:
            Throttled, Passing, LabellerRefused: the batch was not accepted; none of its requests run.
        """
        raise ConfigError("NoBatches", model=self.model, labeller=self.name, api=self.vendor.api)

    async def collect(self, job: str) -> Mapping[str, Raw] | None:
        """Return the answers of the batch with the handle ``job`` by request key, or ``None`` while the batch runs.

        A key without an answer (expired, cancelled, the provider's own fault) is left out and may be requested again.

        Raises:
            Throttled, Passing: the status of the batch could not be queried; the batch continues.
            LabellerRefused: the provider rejects the key, does not know the batch, or rejected every item.
        """
        raise ConfigError("NoBatches", model=self.model, labeller=self.name, api=self.vendor.api)

    async def post(self, path: str, body: dict[str, Any], *, key: str) -> Reply:
        """Post a JSON object below the provider's address, and return what it answers with any status.

        Raises:
            Passing: a timeout or no connection.
        """
        with self._transport.exchanging(key) as exchange:
            return replace(await self._reply("POST", path, json=body), effective=exchange.effective)

    async def get(self, path: str) -> Reply:
        """Get what is below the provider's address, such as the state of a batch; see :meth:`post`."""
        return await self._reply("GET", path)

    async def _reply(self, method: str, path: str, **sent: Any) -> Reply:
        import httpx2

        sent["headers"] = self.vendor.headers(self.provider.key)
        try:
            async with asyncio.timeout(self.vendor.timeout_seconds):
                answer = await self.http.request(method, self.url + path, **sent)
        except (TimeoutError, httpx2.TransportError) as error:
            late = isinstance(error, TimeoutError | httpx2.TimeoutException)
            raise Passing(reason="timeout" if late else "connection") from None
        found: Any = None
        with suppress(ValueError, RecursionError):
            found = json.loads(answer.content)
        found = found if isinstance(found, dict) else None
        return Reply(answer.status_code, _words((found or {}).get("error")), retry_after(answer.headers), found)

    def fault(self, reply: Reply) -> LabellingError:
        """Return the error of a reply whose status is not 200: wait, send again, or end the run."""
        if NO_QUOTA in reply.words:
            return self.refused(NO_QUOTA)
        if reply.status == 429 or (reply.status >= 500 and reply.wait is not None):
            return Throttled(retry_after=reply.wait)
        if reply.status >= 500 or reply.status in AGAIN:
            return Passing(reason="server")
        return self.refused(" ".join([f"HTTP {reply.status}", *reply.words[:1]]))
