"""Requests and answers have the vendors' published forms; what lacks a part is malformed, never "not flagged"."""

import base64
import io
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import openai
import pytest
import requests
from PIL import Image

from pipelines.core.config.label import ModeratorEntry
from pipelines.evaluate.moderation.moderator import MODERATORS, Moderator
from pipelines.llm.budget import usd
from pipelines.llm.outcome import Outcome
from pipelines.llm.vendor import retry_after
from tests.label import small_settings
from tests.label.conftest import VendorHost


def made(kind: str, **fields: Any) -> Moderator:
    entry = {"kind": kind, "provider": kind, "input": "both", **fields}
    return MODERATORS.of(ModeratorEntry.model_validate(entry), {}, where=f"moderators.{kind}")


OPENAI = made("openai", model="omni-moderation-latest")
AZURE_FIELDS = {"api_version": "2024-09-01", "usd_per_1000_texts": 0.38, "usd_per_1000_images": 0.75}
AZURE = made("azure", flag_from=2, **AZURE_FIELDS)
GUARD = made("guard", model="meta-llama/Llama-Guard-4-12B")
WORDS = "thinking of vanishing again"


def picture(side: int = 64, kind: str = "JPEG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (side, side), "white").save(out, kind)
    return out.getvalue()


def post(host: VendorHost, path: str, asked: Moderator, parts: list[str | bytes]) -> requests.Response:
    [request] = asked.requests
    body, headers = request.settings | asked.body(parts), small_settings.vendor(api=asked.api).headers("k")
    return requests.post(host.server.address + path + request.path, json=body, headers=headers, timeout=10)


@pytest.mark.parametrize("parts", [[WORDS], [picture()], [WORDS, picture()]], ids=["text", "image", "both"])
def test_openais_own_client_reads_the_simulated_answer(vendors: VendorHost, parts: list[str | bytes]) -> None:
    client = openai.OpenAI(base_url=vendors.server.address + "/openai/v1", api_key="k", max_retries=0)
    body = OPENAI.body(parts)
    told = client.moderations.create(model=OPENAI.requests[0].settings["model"], input=body["input"])
    [result] = told.results
    assert set(result.category_applied_input_types.self_harm) == {
        "text" if isinstance(part, str) else "image" for part in parts
    }
    verdict = OPENAI.verdict(post(vendors, "/openai/v1", OPENAI, parts).json())
    assert verdict.overall is result.flagged
    assert verdict.self_harm is (result.categories.self_harm or result.categories.self_harm_intent)
    scores = result.category_scores
    assert verdict.score == max(scores.self_harm, scores.self_harm_intent, scores.self_harm_instructions)


def test_azure_analyses_and_charges_for_text_and_picture_apart() -> None:
    text, image = AZURE.requests
    records = AZURE.size(["x" * 2_500]).read
    assert records == 3 and usd(text.price, read=records, written=0) == pytest.approx(3 * 0.38 / 1000)
    assert AZURE.usd(b"x") == usd(image.price, read=1, written=0) == pytest.approx(0.00075)
    assert base64.b64decode(AZURE.body([b"x"])["image"]["content"]) == b"x"
    assert text.settings | AZURE.body([WORDS]) == {"outputType": "EightSeverityLevels", "text": WORDS}


def test_azure_flags_from_its_threshold_on() -> None:
    names = ("Hate", "SelfHarm", "Sexual", "Violence")
    told = {"categoriesAnalysis": [{"category": name, "severity": 3 * (name == "SelfHarm")} for name in names]}
    flags = [made("azure", **AZURE_FIELDS, flag_from=severity).verdict(told).self_harm for severity in (2, 3, 4)]
    assert flags == [True, True, False]


def test_a_guard_gets_one_message_and_a_text_alone_as_a_string(vendors: VendorHost) -> None:
    alone, both = GUARD.body([WORDS])["messages"], GUARD.body([WORDS, picture(kind="PNG")])["messages"]
    assert alone == [{"role": "user", "content": WORDS}]
    [message] = both
    assert [part["type"] for part in message["content"]] == ["text", "image_url"]
    assert message["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    told = post(vendors, "/guard/v1", GUARD, [WORDS, picture()]).json()
    assert GUARD.verdict(told).outcome is Outcome.VOTE
    assert GUARD.used(told, expected=GUARD.size([WORDS]))[1] == 5


def guarded(content: str | None, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop", **more}]}


def test_llama_guards_answers() -> None:
    texts = {"safe": (), "\n\nsafe": (), "unsafe\nS11": ("S11",), "\n\nunsafe\nS1,S11": ("S1", "S11")}
    for content, codes in (texts | {"unsafe\nS1": ("S1",)}).items():
        verdict = GUARD.verdict(guarded(content))
        assert (verdict.outcome, verdict.overall, verdict.self_harm) == (Outcome.VOTE, bool(codes), "S11" in codes)
        assert (verdict.categories, verdict.score) == (codes, None)
    for other in ("", None, "I cannot say.", "unsafe", "It is unsafe.", "un", "S11"):
        assert GUARD.verdict(guarded(other)).outcome is Outcome.MALFORMED
    for refusal in (guarded(None, finish_reason="content_filter"), guarded(None, message={"refusal": "no"})):
        assert GUARD.verdict(refusal).outcome is Outcome.REFUSED


def test_a_list_of_codes_that_is_cut_off_says_nothing_about_self_harm() -> None:
    assert GUARD.verdict(guarded("unsafe\nS1,S2,S3,S4,S5,S6,S", finish_reason="length")).outcome is Outcome.MALFORMED
    assert GUARD.verdict(guarded("unsafe\nS1,S11,S12,S", finish_reason="length")).self_harm is True
    assert GUARD.verdict(guarded("unsafe\nS1,S2", finish_reason="stop")).self_harm is False


def test_another_guard_has_its_own_words() -> None:
    """Qwen3Guard's answer: a safety line and a line of categories by name."""
    other = made(
        "guard", model="Qwen/Qwen3Guard-Gen-8B", input="text", max_output_tokens=128,
        safe="Safety: Safe", unsafe="Safety: (?:Unsafe|Controversial)",
        category="Violent|Suicide & Self-Harm|Sexual Content", self_harm=("Suicide & Self-Harm",),
    )  # fmt: skip
    verdict = other.verdict(guarded("Safety: Unsafe\nCategories: Suicide & Self-Harm"))
    assert verdict.self_harm and verdict.categories == ("Suicide & Self-Harm",)
    assert other.verdict(guarded("Safety: Safe\nCategories: None")).overall is False


@pytest.mark.parametrize("lost", ["SelfHarm", "Hate"])
def test_an_analysis_without_a_category_is_malformed(lost: str) -> None:
    whole = [{"category": name, "severity": 0} for name in ("Hate", "SelfHarm", "Sexual", "Violence")]
    part = [one for one in whole if one["category"] != lost]
    assert AZURE.verdict({"categoriesAnalysis": whole}).overall is False
    assert AZURE.verdict({"categoriesAnalysis": part}).outcome is Outcome.MALFORMED
    empty = [one | ({"severity": None} if one["category"] == lost else {}) for one in whole]
    assert AZURE.verdict({"categoriesAnalysis": empty}).outcome is Outcome.MALFORMED


@pytest.mark.parametrize("answer", [{}, {"results": []}, {"results": [{}]}, {"results": [{"flagged": True}]}])
def test_openais_partial_answers_have_no_verdict(answer: dict[str, Any]) -> None:
    with pytest.raises((KeyError, ValueError)):
        OPENAI.verdict(json.loads(json.dumps(answer)))


def test_a_provider_may_name_seconds_or_a_date() -> None:
    assert retry_after({"retry-after-ms": "250", "retry-after": "1"}) == 0.25
    assert retry_after({"retry-after": "3"}) == 3
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 25 < (retry_after({"retry-after": later}) or 0) <= 30
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({}) is None
