"""Put what a consumer asks about into the columns that a model reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial, singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crisis_corpus.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd


class BadItems(ConfigError):
    """What a model is asked about has none of the forms that it reads."""

    message = "{what} cannot be asked about: {detail}."
    remedy = "Give a list of {forms}, or a frame with the columns {columns}; see `help(crisis_corpus.Model.__call__)`."
    exit_code = 64


def frame_of(items: Iterable[Any] | pd.DataFrame, *, inputs: tuple[str, ...]) -> pd.DataFrame:
    """Return items as a frame with the columns ``inputs``, whose missing cells are empty."""
    import pandas as pd

    looks = "image" in inputs
    forms = "paths of pictures, or bytes" if looks else "texts, or dictionaries"
    refuse = partial(BadItems, forms=forms, columns=", ".join(inputs))
    if isinstance(items, str | bytes | Path | Mapping):
        raise refuse(what=f"A single {type(items).__name__}", detail="it is not a list")
    given = items.to_dict("records") if isinstance(items, pd.DataFrame) else list(items)
    rows = []
    for number, item in enumerate(given):
        try:
            row = _cells(item, inputs)
        except (OSError, TypeError) as error:
            # its message may contain a text
            raise refuse(what=f"Item {number}", detail=f"{type(error).__name__} at {type(item).__name__}") from None
        if unknown := row.keys() - {*inputs}:
            raise refuse(what=f"Item {number}", detail=f"it has {len(unknown)} columns that the model does not read")
        rows.append({name: row.get(name, "" if name == "title" else None) for name in inputs})
    return pd.DataFrame(rows, columns=list(inputs), dtype=object)


@singledispatch
def _cells(item: Any, inputs: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the cells of an item by column."""
    raise TypeError


@_cells.register
def _(item: str, inputs: tuple[str, ...]) -> Mapping[str, Any]:
    if "image" in inputs:
        return _cells(Path(item), inputs)
    return {"body" if "body" in inputs else inputs[-1]: item}


@_cells.register
def _(item: bytes, inputs: tuple[str, ...]) -> Mapping[str, Any]:
    return {"image": item}


@_cells.register
def _(item: Path, inputs: tuple[str, ...]) -> Mapping[str, Any]:
    return {"image": item.read_bytes()}


@_cells.register(Mapping)
def _(item: Mapping[str, Any], inputs: tuple[str, ...]) -> Mapping[str, Any]:
    picture = item.get("image")
    return {**item, **_cells(picture, inputs)} if isinstance(picture, str | Path) else item
