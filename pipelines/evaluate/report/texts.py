"""Fill the sentences of the report (``texts.yaml``)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pipelines.evaluate.report.page import Points


@cache
def _texts() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return content


def text(name: str, **values: Any) -> str:
    """Return a sentence or paragraph."""
    return str(_texts()[name]).format(**values)


def points(name: str, *first: str, noun: str = "items") -> Points:
    """Return a list of sentences, after further ones."""
    return Points((*first, *(sentence.format(noun=noun) for sentence in _texts()[name])))
