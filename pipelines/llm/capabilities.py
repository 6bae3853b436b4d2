"""Look up which parameters each model accepts and what it costs, from data with sources.

Clients silently drop or rename unsupported parameters, and providers reject them. This table selects the parameters in
advance, so that the parameters actually sent are known (SPEC 2.2).
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from pipelines.core.config.label import Api, Price
from pipelines.core.errors import ConfigError

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

TABLE = Path(__file__).with_name("capabilities.yaml")
# selects the newest listed price, so that the price does not depend on the hour of a run
NEWEST = datetime(2100, 1, 1, 12, tzinfo=UTC)
# priced as one small request, because a large total would fall into a dearer tier (SPEC 2.2)
SAMPLE_TOKENS = 1000


class PriceUnknown(ConfigError):
    """The price of a model is unknown, so that the budget cannot be enforced."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Capabilities:
    """What one language model accepts (sampling, schema, images ...); ``capabilities.yaml`` explains the fields."""

    temperature: float | None
    top_p: float | None
    stop: bool
    schema: Literal["json_schema", "none"]
    images: bool
    batch: bool
    reasoning: bool
    max_tokens_factor: Annotated[int, Field(ge=1)]
    source: str

    def sampling(self, *, max_output_tokens: int) -> dict[str, float]:
        """Return the sampling settings to send, including ``max_tokens`` with room for hidden reasoning (SPEC 10)."""
        wanted = {"temperature": self.temperature, "top_p": self.top_p}
        settings = {name: value for name, value in wanted.items() if value is not None}
        return settings | {"max_tokens": max_output_tokens * self.max_tokens_factor}


@cache
def _table() -> dict[str, dict[str, dict[str, Any]]]:
    table: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(TABLE.read_text())
    return table


@cache
def capabilities(model: str, *, api: Api) -> Capabilities:
    """Return what a model accepts over the protocol ``api``: the row of its longest matching prefix, or the default.

    A name may have an organisation or a folder before the last slash (``Qwen/Qwen3-VL-8B-Instruct``); case is ignored.
    """
    rows = _table()[api]
    name = model.rstrip("/").rsplit("/", 1)[-1].lower()
    row = rows[max((prefix for prefix in rows if name.startswith(prefix)), key=len)]
    return Capabilities(**rows[""] | row)


def deprecated(model: str, *, api: Api) -> bool:
    """Return whether the price list of genai-prices marks the model as deprecated by its provider."""
    listed = _listed(model, api)
    return listed is not None and bool(listed.model.deprecated)


@cache
def _listed(model: str, api: Api) -> PriceCalculation | None:
    """Return the price of :data:`SAMPLE_TOKENS` input and output tokens, if the model is listed."""
    from genai_prices import Usage, calc_price

    usage = Usage(input_tokens=SAMPLE_TOKENS, output_tokens=SAMPLE_TOKENS)
    try:
        return calc_price(usage, model, provider_id=api, genai_request_timestamp=NEWEST)
    except LookupError:
        return None


def price(model: str, *, api: Api, given: Price | None, name: str = "<name>") -> Price:
    """Return a model's price per million tokens in US dollars: ``given`` if set, else the price in genai-prices.

    A given price takes precedence, because it may come from a contract or from a self-hosted model. Nothing is
    downloaded.

    Raises:
        PriceUnknown: the price is neither given nor listed; the error names the labeller ``name``.
    """
    if given:
        return given
    if (listed := _listed(model, api)) is None:
        raise PriceUnknown(model=model, name=name)
    times = 1_000_000 / SAMPLE_TOKENS
    return Price(input=float(listed.input_price) * times, output=float(listed.output_price) * times)
