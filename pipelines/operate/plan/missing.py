"""Find what a profile lacks on this machine, each with the command that supplies it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from huggingface_hub import get_token

from pipelines.collect.read.ocr import GOOGLE_VISION
from pipelines.core.config.base_sizes import base_sizes
from pipelines.core.config.label import Consent, RemoteLabeller, on_this_machine
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.llm.addresses import ADDRESSES
from pipelines.llm.retirements import retirement
from pipelines.operate.plan.hardware import TINY, HardwareNeed

CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"


@dataclass(frozen=True)
class Gap:
    """Something that must be there before a row can run, and the command or step that supplies it."""

    what: str
    command: str


def put(key: str, value: str) -> str:
    """Return the command that sets a parameter of the corpus."""
    return f"corpus params set {key} {value} --reason …"


def variable(provider: str) -> str:
    """Return the beginning of the names of a provider's environment variables."""
    return f"CORPUS_{provider.upper().replace('-', '_')}"


def own_server(provider: str, *, params: Params) -> bool:
    """Return whether a provider has no address of its own, because a team serves its models."""
    return params.providers[provider].api == "openai" and provider not in ADDRESSES


def access(provider: str, *, params: Params, settings: Settings, today: date, serve: str = "") -> Iterator[Gap]:
    """Yield what is missing to ask a provider: an address or a key, and a consent.

    ``serve`` is the model to serve, for a provider that is a server of your own.
    """
    endpoint, name = settings.endpoint(provider), variable(provider)
    address, key = endpoint.url is not None, bool(endpoint.key.get_secret_value())
    if params.providers[provider].api == "azure":
        if not (address and key):
            resource = "https://RESOURCE.cognitiveservices.azure.com"
            command = f"export {name}_URL={resource} {name}_KEY=…"
            yield Gap(f"address and key of provider {provider}", command)
    elif own_server(provider, params=params):
        if not address:
            start = f"vllm serve {serve} (docs/howto/served.md), then " if serve else ""
            yield Gap(f"address of provider {provider}", f"{start}export {name}_URL=http://HOST:8000/v1")
            return  # a server on this machine needs no consent
    elif not (address or key):
        yield Gap(f"key of provider {provider}", f"export {name}_KEY=…")
    if not on_this_machine(endpoint.url):
        yield from consent(provider, params=params, today=today)


def consent(provider: str, *, params: Params, today: date) -> Iterator[Gap]:
    """Yield the consent of a provider if it is missing or does not cover today."""
    state = params.consents.get(provider, Consent()).told(provider, today=today)
    if not state.startswith("until"):
        fields = ", ".join(f"{name}: …" for name in Consent.model_fields)
        yield Gap(f"consent for provider {provider}: {state}", put(f"consents.{provider}", f"'{{{fields}}}'"))


def served(name: str, *, params: Params, settings: Settings, today: date) -> tuple[list[Gap], list[str]]:
    """Return what is missing to ask a labeller, and notes: the vendor's notice of a retirement that is still ahead."""
    labeller = params.labellers[name]
    if not isinstance(labeller, RemoteLabeller):
        return [], []
    gaps = list(access(labeller.provider, params=params, settings=settings, today=today, serve=labeller.model))
    url = settings.endpoint(labeller.provider).url
    notice = retirement(labeller.model, api=params.providers[labeller.provider].api, url=url)
    if notice is None:
        return gaps, []
    text = f"{labeller.model} {notice.told(today=today)}"
    if notice.afterwards == "routed":
        text += f", which then answers with {notice.successor}"
    if notice.retired > today:
        return gaps, [text]
    command = (
        f"export {variable(labeller.provider)}_URL=… of a host that still serves it, or enter a successor (the vendor "
        f"names {notice.successor}) as labeller and model of its own: a row of its own"
    )
    return [*gaps, Gap(text, command)], []


def bases(model: str, *, params: Params) -> Iterator[Gap]:
    """Yield what is missing to load a model's base models from the hub: a commit, and access to gated ones."""
    spec = params.models[model]
    for base, revision in getattr(spec, "bases", ()):
        if base.startswith((TINY, "/")):
            continue
        if revision is None:
            field = next(name for name, value in spec if value == base)
            key = f"models.{model}.{'revision' if field == 'base' else f'{field}_revision'}"
            yield Gap(f"commit of {base}", f"{put(key, 'COMMIT')} (`hf models info {base}`)")
        size = base_sizes().get(base)
        if size is not None and size.gated and not (get_token() or os.environ.get("HF_HUB_OFFLINE")):
            yield Gap(f"access to {base}", f"accept its terms at huggingface.co/{base}, then hf auth login")


def gpus(need: HardwareNeed, *, here: Sequence[float]) -> Iterator[Gap]:
    """Yield the GPU memory that this host lacks; ``here`` is the memory of its GPUs in GB."""
    if (need.memory_gb or 0.0) > sum(here):
        has = f"{len(here)} with {sum(here):.0f} GB" if here else "none"
        what = f"{need.memory_gb:.0f} GB of GPU memory ({need.gpus} GPUs of {need.of_gb:.0f} GB); this host: {has}"
        yield Gap(what, "repeat this command on a worker of queue gpu (docs/howto/gpu.md)")


def of_corpus(corpus: str, *, params: Params, today: date) -> Iterator[Gap]:
    """Yield the approvals to read a corpus's sources that are not on record, and what its OCR engine lacks."""
    for name in params.corpora[corpus].sources:
        for field, words in {"access_basis": "access basis", "ethics": "ethics approval"}.items():
            if getattr(params.sources[name], field) is None:
                yield Gap(f"{words} of source {name}", put(f"sources.{name}.{field}", "…"))
    if params.corpora[corpus].content == "images" and params.images.ocr.engine == GOOGLE_VISION:
        if not os.environ.get(CREDENTIALS):
            yield Gap("credentials of Google Vision", f"export {CREDENTIALS}=FILE")
        yield from consent(GOOGLE_VISION, params=params, today=today)
