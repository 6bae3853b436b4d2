"""Change values in the text of ``params.yaml`` and keep its comments, order and quotes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from pipelines.core.config.base import nested
from pipelines.core.config.params import by_file

Key = tuple[str, ...]
"""The names from a section of ``params.yaml`` down to a value."""


def dotted(key: Key) -> str:
    """Return a parameter's key in dotted form, such as ``sample.memes.size``."""
    return ".".join(key)


def find(values: Mapping[str, Any], name: str) -> Key:
    """Return the parameter key with this dotted name; names may contain dots themselves (``labellers.gpt-5.1``)."""
    key: list[str] = []
    rest: Any = values
    parts = name.split(".")
    while parts:
        taken = 1
        if isinstance(rest, Mapping):
            taken = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in rest), 1)
        part, parts = ".".join(parts[:taken]), parts[taken:]
        key.append(part)
        rest = rest.get(part) if isinstance(rest, Mapping) else None
    return tuple(key)


def leaves(values: Any, key: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Yield every parameter value with its key; an empty mapping or a list counts as one value."""
    if isinstance(values, Mapping) and values:
        for name, below in values.items():
            yield from leaves(below, (*key, name))
    else:
        yield key, values


def put(values: dict[str, Any], key: Key, value: Any) -> None:
    """Set one parameter value in ``values``, and create the mappings on its path if they are missing."""
    for name in key[:-1]:
        if not isinstance(values.get(name), dict):
            values[name] = {}
        values = values[name]
    values[key[-1]] = undated(value)


def undated(value: Any) -> Any:
    """Return a parameter value with its dates converted to text, because DVC's parameters have no dates."""
    return nested(value, lambda inner: inner.isoformat() if isinstance(inner, date) else inner)


def rewrite(texts: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of the parameters' files with their values replaced by ``values`` and their comments kept."""
    return {name: _rewritten(texts.get(name, ""), sections) for name, sections in by_file(values).items()}


def _rewritten(text: str, values: Mapping[str, Any]) -> str:
    # libyaml, with which DVC reads, needs the quotes around a colon within braces
    yaml = YAML()
    yaml.width, yaml.preserve_quotes = 200, True
    document = yaml.load(text) or CommentedMap()
    _assign(document, values)
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _assign(document: Any, values: Mapping[str, Any]) -> None:
    for name in [name for name in document if name not in values]:
        del document[name]
    for name, value in values.items():
        below = document.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping) and value:
            _assign(below, value)
        elif name not in document or below != value or isinstance(value, bool) != isinstance(below, bool):
            document[name] = nested(value, _quoted)


def _quoted(value: Any) -> Any:
    return DoubleQuotedScalarString(value) if isinstance(value, str) and ":" in value else value
