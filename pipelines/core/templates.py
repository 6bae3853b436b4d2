"""Fill the text templates (``*.jinja``) that stand beside the modules that use them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: Path, **values: Any) -> str:
    """Return the text of a template, such as ``card.md.jinja``; a value that is missing is an error."""
    return _environment(template.parent).get_template(template.name).render(**values)


@cache
def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(  # noqa: S701 - Markdown and plain text, no HTML
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # Python's own number formats: {{ value | f(".1%") }}
    environment.filters["f"] = format
    return environment
