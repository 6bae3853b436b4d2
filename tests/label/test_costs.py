"""What is estimated before anything is sent: expected cost for people, a bound for the budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core.config.label import Price
from pipelines.core.taxonomy import load
from pipelines.datasets.post import Post
from pipelines.llm.costs import CHARACTERS_PER_TOKEN, IMAGE_TOKENS, estimate, size, usd
from pipelines.llm.prompting.prompts import build

PROMPT = build(load("cradle"), keys=["labels"], system="commercial")
PRICE = Price(input=1.0, output=10.0)


def posts(count: int, *, body: str = "a quiet evening", images: tuple[bytes, ...] = ()) -> list[Post]:
    return [Post(f"{n:032x}", title="A title", body=body, images=images) for n in range(count)]


def test_sums() -> None:
    one = estimate(posts(1), prompt=PROMPT, price=PRICE, cached=0, cap=1024)
    ten = estimate(posts(10), prompt=PROMPT, price=PRICE, cached=5, cap=1024)
    assert (ten["records"], ten["cached"], ten["to_ask"]) == (15, 5, 10)
    assert ten["input_tokens"] == 10 * one["input_tokens"]
    assert ten["output_tokens"] == 10 * 1024
    assert ten["usd_at_most"] == pytest.approx(10 * one["usd_at_most"], rel=1e-4)
    assert ten["usd_expected"] < ten["usd_at_most"]


def test_nothing_to_ask_costs_nothing() -> None:
    none = estimate([], prompt=PROMPT, price=PRICE, cached=7, cap=1024)
    assert (none["records"], none["to_ask"], none["usd_expected"], none["usd_at_most"]) == (7, 0, 0.0, 0.0)


def test_batches_are_expected_at_half_the_price_and_held_at_the_whole() -> None:
    plain, batch = (
        estimate(posts(4), prompt=PROMPT, price=PRICE, cached=0, cap=1024, batch=batch) for batch in (False, True)
    )
    assert batch["usd_expected"] == pytest.approx(plain["usd_expected"] / 2, rel=1e-3)
    assert batch["usd_at_most"] == plain["usd_at_most"]


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
