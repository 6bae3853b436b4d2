"""A model that its vendor has retired is known by date, and is never asked: another might answer under its name."""

from __future__ import annotations

import asyncio
import re
from datetime import date, datetime, timedelta

import pytest
from anthropic.resources.messages.messages import DEPRECATED_MODELS

from pipelines.core.config.label import RemoteLabeller
from pipelines.core.config.params import load
from pipelines.core.errors import LabellingError
from pipelines.llm.vendor import vendor_of
from tests.label import small_settings
from tests.refusals import refused
from tests.small_corpus import ROOT

SONNET_4, SONNET_4_5 = "claude-sonnet-4-20250514", "claude-sonnet-4-5"
OWN = "http://127.0.0.1:1/anthropic"


ANTHROPIC = small_settings.vendor(api="anthropic")


def served(model: str, today: date, url: str | None = None) -> bool:
    try:
        asked = small_settings.provider(url, name="anthropic", api="anthropic")
        asked.require_served(model, labeller="it", today=today)
    except LabellingError as error:
        assert error.code == "ModelRetired"
        return False
    return True


def test_the_dates_of_claude_are_those_of_the_vendors_library() -> None:
    ours = {model: row.retired for row in ANTHROPIC.facts.retirements for model in row.models}
    theirs = {
        model: datetime.strptime(re.sub(r"(\d)(st|nd|rd|th)", r"\1", text), "%B %d, %Y").date()
        for model, text in DEPRECATED_MODELS.items()
    }
    assert ours == {model: theirs[model] for model in ours}
    assert {model for model in theirs if model.startswith("claude-sonnet-4")} == ours.keys()


@pytest.mark.parametrize(("model", "day"), [(SONNET_4, date(2026, 6, 15)), (SONNET_4_5, date(2026, 11, 30))])
def test_a_model_is_asked_until_the_day_before(model: str, day: date) -> None:
    before = day - timedelta(days=1)
    assert served(model, before) and not served(model, day)
    found = ANTHROPIC.facts.retirement(model)
    assert found is not None
    assert found.told(today=before) == f"will be retired by its vendor on {day}, in 1 day"
    assert found.told(today=day) == f"retired by its vendor on {day}"


def test_another_host_may_serve_it_for_longer() -> None:
    day = date(2027, 1, 1)
    assert served(SONNET_4, day, url=OWN)
    assert not served(SONNET_4, day, url=f"{ANTHROPIC.address}/"), "the vendor's own address, written out"
    assert served("claude-sonnet-4-6", day) and served("qwen3-vl", day)


def test_every_model_of_the_papers_vendors_has_a_notice() -> None:
    params = load(ROOT)
    papers = ("openai", "anthropic", "google")
    vendors = [one for one in params.labellers.values() if isinstance(one, RemoteLabeller) and one.provider in papers]
    known = [vendor_of(one.provider, params=params).facts.retirement(one.model) for one in vendors]
    assert len(vendors) == 6 and all(known)
    assert {found.afterwards for found in known if found and "gemini-2.5-pro" in found.models} == {"routed"}
    assert all(one.model not in found.successor for one, found in zip(vendors, known, strict=True) if found)


def test_the_error_says_when_and_what_to_do() -> None:
    with refused("ModelRetired") as caught:
        asked = small_settings.provider(None, name="anthropic", api="anthropic")
        asked.require_served(SONNET_4, labeller="claude", today=date(2026, 7, 1))
    told = str(caught.value)
    for part in (SONNET_4, "2026-06-15", "CORPUS_ANTHROPIC_URL", "claude-sonnet-4-6", "an entry of its own"):
        assert part in told
    assert caught.value.exit_code == 77


def test_no_connection_is_opened_for_it() -> None:
    client = small_settings.client(None, name="anthropic", model=SONNET_4, api="anthropic")

    async def open_it() -> None:
        async with client:
            raise AssertionError("it was opened")

    with refused("ModelRetired"):
        asyncio.run(open_it())
    assert not hasattr(client, "http")
