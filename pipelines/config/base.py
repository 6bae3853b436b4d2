"""The base of all sections of ``params.yaml``, and the types that they share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
# A pseudonym identifies an annotator everywhere; no real name is stored in this project.
Pseudonym = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
Month = Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]


class Section(BaseModel):
    """A frozen section of ``params.yaml``; unknown keys are refused."""

    # built on first use: most commands read settings and never all sections
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
