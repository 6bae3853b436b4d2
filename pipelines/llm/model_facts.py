"""Look up what each model accepts, when its vendor retires it and what it costs, from data with sources.

Clients silently drop or rename unsupported parameters, and providers reject them. The facts select the parameters in
advance, so that the parameters actually sent are known (SPEC 2.2). A vendor may answer a request for a retired model
with another model, which would then stand under the old model's name: a retired model is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from pipelines.core.config.base import Section
from pipelines.core.config.label import Price
from pipelines.core.errors import ConfigError

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

# selects the newest listed price, so that the price does not depend on the hour of a run
NEWEST = datetime(2100, 1, 1, 12, tzinfo=UTC)
# priced as one small request, because a large total would fall into a dearer tier (SPEC 2.2)
SAMPLE_TOKENS = 1000


class PriceUnknown(ConfigError):
    """The price of a model is unknown, so that the budget cannot be enforced."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Capabilities:
    """What may be sent to one language model; the defaults are the least that every server accepts.

    Args:
        temperature, top_p: what is sent (CRADLE 4.1: 0 and 1); ``None``: the model rejects or ignores it.
        stop: whether a stop sequence may be sent.
        schema: ``json_schema``: the answer's schema is sent; ``none``: only the prompt asks for JSON.
        images, batch: whether the model accepts images, whether its provider has a batch endpoint.
        reasoning: whether it reasons before it answers, at its provider's default effort.
        max_tokens_factor: multiplies ``votes.max_output_tokens``, because hidden reasoning counts as output (SPEC 10).
        source: the evidence.
    """

    temperature: float | None = 0
    top_p: float | None = None
    stop: bool = False
    schema: Literal["json_schema", "none"] = "none"
    images: bool = False
    batch: bool = False
    reasoning: bool = False
    max_tokens_factor: Annotated[int, Field(ge=1)] = 1
    source: str = ""

    def sampling(self, *, max_output_tokens: int) -> dict[str, float]:
        """Return the sampling settings to send, including ``max_tokens`` with room for hidden reasoning (SPEC 10)."""
        wanted = {"temperature": self.temperature, "top_p": self.top_p}
        settings = {name: value for name, value in wanted.items() if value is not None}
        return settings | {"max_tokens": max_output_tokens * self.max_tokens_factor}


class Retirement(Section):
    """A vendor's notice about a model.

    Args:
        models: all names that mean the same weights.
        retired: the first day on which the vendor's own address does not serve the model any more.
        afterwards: what the vendor does with a request: an error, or an answer of another model (``routed``).
        successor: what the vendor recommends, which is never asked in the model's place.
        source: the notice.
    """

    models: tuple[str, ...]
    retired: date
    afterwards: Literal["error", "routed"]
    successor: str
    source: str

    def told(self, *, today: date) -> str:
        """Return a phrase such as "retired by its vendor on 2026-06-15"; for a later date "will be retired on …"."""
        if self.retired <= today:
            return f"retired by its vendor on {self.retired}"
        left = (self.retired - today).days
        return f"will be retired by its vendor on {self.retired}, in {left} {'day' if left == 1 else 'days'}"


class Facts(Section):
    """What a vendor's YAML file says about models.

    Args:
        capabilities: by the beginning of a model's name; a row inherits from that of the empty name.
        retirements: notices by which models are refused from a day on.
    """

    capabilities: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    retirements: tuple[Retirement, ...] = ()

    def of(self, model: str) -> Capabilities:
        """Return what a model accepts: the row of the longest prefix of its name, over the row of the empty name.

        A name may have an organisation or a folder before the last slash (``Qwen/Qwen3-VL-8B``); case is ignored.
        """
        name = model.rstrip("/").rsplit("/", 1)[-1].lower()
        prefixes = {"", *self.capabilities}
        row = self.capabilities.get(max((p for p in prefixes if name.startswith(p)), key=len), {})
        return Capabilities(**{**self.capabilities.get("", {}), **row})

    def retirement(self, model: str) -> Retirement | None:
        """Return the vendor's notice about a model, if it is known."""
        return next((notice for notice in self.retirements if model in notice.models), None)


@cache
def read(file: Path) -> Facts:
    """Read the file of a vendor's facts; without a file, all models have the defaults."""
    return Facts.model_validate(yaml.safe_load(file.read_text()) if file.is_file() else {})


@cache
def listed(model: str, api: str) -> PriceCalculation | None:
    """Return what genai-prices lists for :data:`SAMPLE_TOKENS` input and output tokens of a vendor's model, if any."""
    from genai_prices import Usage, calc_price

    usage = Usage(input_tokens=SAMPLE_TOKENS, output_tokens=SAMPLE_TOKENS)
    try:
        return calc_price(usage, model, provider_id=api, genai_request_timestamp=NEWEST)
    except LookupError:
        return None


def price(model: str, *, api: str, name: str) -> Price:
    """Return a model's price per million tokens in genai-prices; see :meth:`pipelines.llm.vendor.Vendor.price`."""
    if (found := listed(model, api)) is None:
        raise PriceUnknown(model=model, name=name)
    times = 1_000_000 / SAMPLE_TOKENS
    return Price(input=float(found.input_price) * times, output=float(found.output_price) * times)
