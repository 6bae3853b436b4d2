"""Validate the entries of ``params.yaml`` that belong to parts (sources, engines, ...) by the parts' own models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipelines.annotate.backends import BACKENDS
from pipelines.collect.read.engine import ENGINES
from pipelines.collect.sources import SOURCES, Listed, source_of
from pipelines.core.config.base import fitted
from pipelines.core.config.params import Params
from pipelines.core.errors import BadParams, ConfigError
from pipelines.core.parts import Parts

# Section -> its entries by the part's name, and the registry of the parts.
SECTIONS: Mapping[str, tuple[Callable[[Params], Mapping[str, Any]], Parts[Any]]] = {
    "sources": (lambda params: params.sources, SOURCES),
    "images.ocr.engines": (lambda params: {params.images.ocr.engine: {}} | params.images.ocr.engines, ENGINES),
    "round.backends": (lambda params: {params.round.backend: {}} | params.round.backends, BACKENDS),
}


def check_parts(params: Params) -> None:
    """Refuse an entry whose part does not exist or does not accept it; the message has keys and no values."""
    for section, (entries, registry) in SECTIONS.items():
        for name, values in entries(params).items():
            try:
                part = registry.get(name, params.distributions)
            except ConfigError as error:
                raise BadParams(where="params.yaml", detail=f"{section}.{name}: {error}") from None
            fitted(part.Parameters, values, key=f"{section}.{name}")
    for name, entry in params.sources.items():
        if issubclass(source_of(name, params), Listed) != bool(entry.listing):
            raise BadParams(where="params.yaml", detail=f"sources.{name}.listing: only a source with listings has it")
