"""Which dotted words are addresses."""

from __future__ import annotations

import pytest

from pipelines.collect.hosts import is_address


@pytest.mark.parametrize(
    ("host", "alone", "expected"),
    [
        ("example.com", True, True),
        ("EXAMPLE.COM", True, True),
        ("Example.Com", True, False),
        ("example.co.in", True, True),
        ("www.whatever.unheard", True, True),
        ("love.it", True, False),
        ("love.it", False, True),
        ("main.py", False, False),
        ("script.sh", True, False),
        ("character.ai", True, True),
        ("e.g", True, False),
        ("3.de", True, False),
        ("photo.jpg", False, False),
    ],
)
def test_endings_and_what_follows_decide(host: str, alone: bool, expected: bool) -> None:
    assert is_address(host, alone=alone) is expected
