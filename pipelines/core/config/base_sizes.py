"""Know the sizes of the base models that ``params.yaml`` names, without loading them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field

from pipelines.core.config.base import Positive, Section

TABLE = Path(__file__).with_name("base_sizes.yaml")


class BaseSize(Section):
    """The size of one base model; ``base_sizes.yaml`` explains the fields."""

    parameters: Positive
    bytes: Annotated[float, Field(gt=0)] = 2
    gated: bool = False
    model: str
    config: str
    sizes: dict[str, Any]


@cache
def base_sizes() -> Mapping[str, BaseSize]:
    """Return the sizes of all known base models by their id on the hub."""
    sizes = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return {name: BaseSize.model_validate(row) for name, row in sizes.items()}
