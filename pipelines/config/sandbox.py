"""The section ``sandbox`` of ``params.yaml``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipelines.config.base import Positive, Section


class Sandbox(Section):
    seed: int
    months: tuple[str, ...]
    submissions: Positive
    posts: Annotated[int, Field(ge=0)] = 0
    port: int
