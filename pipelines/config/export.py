"""Define the section ``export`` of ``params.yaml``: the terms of models that are exported for a hub."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipelines.config.base import Section


class Export(Section):
    """Parameters of exports.

    Args:
        licence: the text of ``LICENSE`` beside an exported model; a release has its own, ``release.licence``.
    """

    licence: Annotated[str, Field(min_length=1)]
