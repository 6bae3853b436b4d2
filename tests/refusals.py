"""Expect an error by its code."""

from __future__ import annotations

import re

import pytest

from pipelines.core.errors import CorpusError


def refused(code: str, *, match: str | re.Pattern[str] | None = None) -> pytest.RaisesExc[CorpusError]:
    """Return the context in which exactly an error of this code is raised."""
    return pytest.raises(CorpusError, match=match, check=lambda error: error.code == code)
