"""Know by date which models their vendors have retired, and refuse to ask for one before anything is sent.

A vendor may answer a request for a retired model with another model, which would then stand under the old model's name.
The dates are data (``retirements.yaml``), and hold for a vendor's own address: a host of your own or of another company
may serve the same weights for longer.
"""

from __future__ import annotations

from datetime import date
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import yaml
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipelines.core.config.label import Api, RemoteLabeller
from pipelines.core.errors import LabellingError
from pipelines.llm.addresses import ADDRESSES

TABLE = Path(__file__).with_name("retirements.yaml")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Retirement:
    """A vendor's notice about a model; ``retirements.yaml`` explains the fields."""

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


@cache
def _table() -> dict[str, list[Retirement]]:
    found = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return {api: [Retirement(**row) for row in rows] for api, rows in found.items()}


def retirement(model: str, *, api: Api, url: str | None = None) -> Retirement | None:
    """Return the vendor's notice about a model that is asked at ``url`` (``None``: the vendor's own), if known."""
    if url is not None and urlsplit(url).hostname != urlsplit(ADDRESSES.get(api, "")).hostname:
        return None
    return next((row for row in _table().get(api, ()) if model in row.models), None)


def require_served(labeller: RemoteLabeller, *, name: str, api: Api, url: str | None, today: date) -> None:
    """Check that a labeller's model is served today by the vendor whose own address would be asked.

    Args:
        labeller: the model and its provider.
        name: the labeller's name in ``params.yaml``.
        api: the protocol of the provider.
        url: the address that is asked; ``None``: the vendor's own.
        today: the day of the request, which for a retried task is not the day of its run.
    """
    found = retirement(labeller.model, api=api, url=url)
    if found is not None and found.retired <= today:
        raise LabellingError(
            "ModelRetired",
            model=labeller.model,
            name=name,
            retired=found.retired.isoformat(),
            source=found.source,
            successor=found.successor,
            variable=labeller.provider.upper().replace("-", "_"),
        )
