"""Every way in which examples of one split can be handed over as another part of the training material."""

from __future__ import annotations

import pytest

leaks = pytest.mark.parametrize(
    ("part", "split"), [("train", "validation"), ("train", "test"), ("validation", "train"), ("validation", "test")]
)
