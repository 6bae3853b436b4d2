"""Define the base class of all sections of ``params.yaml``, and shared types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pipelines.core import formats
from pipelines.core.errors import BadParams

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
# A pseudonym identifies an annotator everywhere; no real name is stored in this project.
Pseudonym = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
MONTH = r"^\d{4}-(0[1-9]|1[0-2])$"
Month = Annotated[str, Field(pattern=MONTH)]


# Of a corpus of a team's own, below params.yaml: one folder each with its scheme.yaml, profile.yaml and mapping.yaml.
CORPORA = "corpora"


class Section(BaseModel):
    """Base class of the immutable sections of ``params.yaml``; unknown keys are rejected."""

    # built on first use: most commands read settings and never all sections
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Entry(Section):
    """A section that names a part; its further keys are the part's, which checks them (:mod:`pipelines.core.parts`)."""

    model_config = ConfigDict(extra="allow")


class Distribution(Section):
    """A distribution whose parts are allowed; ``sha256`` is what its refusal (``OtherDistribution``) shows."""

    version: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


Model = TypeVar("Model")
Fitted = TypeVar("Fitted", bound=Section)


def read_section(
    model: type[Model], path: Path, *, refuse: Callable[[str], Exception], form: str | None = None
) -> Model:
    """Read a YAML file and return it validated as ``model``; ``refuse`` makes the error for an invalid file.

    ``form`` is the format whose version the file states, if it states one (:mod:`pipelines.core.formats`).
    """
    import yaml

    try:
        # libyaml: the same values in an eighth of the time
        values = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
        return TypeAdapter(model).validate_python(
            formats.opened(form, values) if form and isinstance(values, Mapping) else values
        )
    except (OSError, yaml.YAMLError) as error:
        raise refuse(f"cannot be read ({type(error).__name__})") from None
    except ValidationError as error:
        raise refuse(faults(error)) from None


def fitted(model: type[Fitted], values: Section | Mapping[str, Any], *, key: str) -> Fitted:
    """Return an entry of ``params.yaml``, whose key is ``key``, validated by the model of its part."""
    try:
        return model.model_validate(values.model_dump() if isinstance(values, Section) else values)
    except ValidationError as error:
        raise BadParams(where="params.yaml", detail=faults(error, key)) from None


def nested(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value of mappings and lists with ``change`` applied to every value inside that is neither."""
    if isinstance(value, Mapping):
        return {name: nested(below, change) for name, below in value.items()}
    if isinstance(value, list):
        return [nested(below, change) for below in value]
    return change(value)


def faults(error: ValidationError, *below: str) -> str:
    """Describe every fault of a validation error by key (``below``: that of what was validated), without values."""
    return "; ".join(
        f"{'.'.join(map(str, (*below, *e['loc']))) or 'file'}: {_explained(dict(e))}" for e in error.errors()
    )


def _explained(fault: Mapping[str, Any]) -> str:
    """Return pydantic's message, in the words of a person who edits YAML where these say more."""
    if fault["type"] == "string_type" and isinstance(fault["input"], bool | int | float):
        return "is read as a number or as true or false, so put it in quotes"
    if fault.get("ctx", {}).get("pattern") == MONTH:
        return "is not a month, YYYY-MM"
    return str(fault["msg"]).removeprefix("Value error, ")
