"""What is estimated before anything is sent: expected cost for people, a bound for the budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core.config.label import Price
from pipelines.llm.budget import CHARACTERS_PER_TOKEN, IMAGE_TOKENS, size, usd

PRICE = Price(input=1.0, output=10.0)


def test_pictures_and_reasoning_cost_more() -> None:
    plain = size("s", ["text"], schema={}, cap=4_096)
    seen = size("s", ["text", b"\xff\xd8\xff", b"\x89PNG"], schema={}, cap=4_096, factor=4)
    assert seen.read - plain.read == seen.read_at_most - plain.read_at_most == 2 * IMAGE_TOKENS
    assert seen.written == 4 * plain.written
    assert seen.written_at_most == plain.written_at_most == 4_096


@given(st.text(max_size=300))
def test_bound_holds_for_any_tokenizer_over_bytes(text: str) -> None:
    found = size("", [text], schema={}, cap=10)
    assert found.read_at_most >= len(text.encode(errors="replace"))
    assert found.read_at_most >= found.read or CHARACTERS_PER_TOKEN < 1
    assert usd(PRICE, read=1_000_000, written=100_000) == pytest.approx(2.0)
