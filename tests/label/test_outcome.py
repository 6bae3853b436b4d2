"""A refusal is never a vote, and what is mended is small and named."""

from __future__ import annotations

import json
import string
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.core.taxonomy import load
from pipelines.llm.outcome import Answer, Outcome, Raw
from pipelines.llm.prompts import build
from pipelines.llm.response_parser import interpret, parse

CRADLE = load("cradle")
FIGSIM = load("figsim")
PROMPT = build(CRADLE, keys=["labels"], system="commercial")
THREE = build(FIGSIM, keys=["figurative", "severity", "related"], system="commercial")


def raw(text: str | None, **changes: Any) -> Raw:
    fields = {"finish": "stop", "refused": None, "input_tokens": 5, "output_tokens": 3, "effective": {"model": "m"}}
    return Raw(text=text, **(fields | changes))


def one(text: str | None, *, mode: Any = "improved", **changes: Any) -> Answer:
    (found,) = interpret(
        raw(text, **changes), record_id="r", labeller="l", prompt=PROMPT, scheme=CRADLE, mode=mode, cost=0.5
    )
    return found


def test_a_clean_vote() -> None:
    found = one('{"labels": ["selfharm_past", "rape_ongoing"]}')
    vote = Answer("r", "l", "labels", PROMPT.digest, Outcome.VOTE, labels=("rape_ongoing", "selfharm_past"))
    assert found == replace(vote, input_tokens=5, output_tokens=3, cost=0.5)


@pytest.mark.parametrize(
    ("text", "labels", "repairs"),
    [
        ('```json\n{"labels": ["rape_past"]}\n```', ("rape_past",), "fence"),
        ('```\n{"labels": ["rape_past"]}', ("rape_past",), "fence"),
        ('{"labels": ["rape_past"]', ("rape_past",), "brace"),
        ('```json\n{"labels": ["rape_past"]\n```', ("rape_past",), "fence+brace"),
        ('<think>\n\n</think>\n\n{"labels": ["rape_past"]}', ("rape_past",), "thinking"),
        ('{"labels": []}', ("no_crisis",), "empty"),
        ('{"labels": ["childabuse_past"]}', ("childabuse_endangerment_past",), "alias"),
        ('{"labels": ["rape_past", "rape_past"]}', ("rape_past",), "duplicate"),
        ('{"labels": ["rape_past", "no_crisis"]}', ("rape_past",), "exclusive"),
        ('{"labels": ["rape_past", "rape_ongoing"]}', ("rape_ongoing",), "ongoing_before_past"),
    ],
)
def test_small_repairs_are_votes_that_say_so(text: str, labels: tuple[str, ...], repairs: str) -> None:
    found = one(text)
    assert (found.outcome, found.labels, found.reason, found.repaired) == (Outcome.VOTE, labels, repairs, True)


def test_paper_mode_leaves_the_later_rules_alone() -> None:
    found = one('{"labels": ["rape_past", "rape_ongoing"]}', mode="paper")
    assert (found.labels, found.repaired) == (("rape_ongoing", "rape_past"), False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("no_crisis", "not_json"),
        ('{"labels": ["rape_past"', "not_json"),
        ('The post says it. {"labels": ["rape_past"]}', "not_json"),
        ('{"labels": ["rape_past"]} I am not sure.', "not_json"),
        ('{"labels": ["rape_past"]}\n{"labels": []}', "not_json"),
        ('["rape_past"]', "wrong_shape"),
        ("null", "wrong_shape"),
        ('{"labels": "rape_past"}', "wrong_shape"),
        ('{"labels": [1]}', "wrong_shape"),
        ('{"labels": null}', "wrong_shape"),
        ('{"labels": ["rape_past"], "why": "x"}', "wrong_shape"),
        ('{"labels": ["rape_past"], "labels": []}', "wrong_shape"),
        ("{}", "wrong_shape"),
        ('{"labels": ["sadness"]}', "unknown_label"),
        ('{"labels": ["rape_past", "sadness"]}', "unknown_label"),
        ("[" * 100_000, "not_json"),
    ],
)
def test_everything_else_is_malformed(text: str, reason: str) -> None:
    found = one(text)
    assert (found.outcome, found.reason, found.labels, found.repaired) == (Outcome.MALFORMED, reason, (), False)


BESIDE = "I'm sorry, I can't judge this. {\"labels\": []}"


@pytest.mark.parametrize("text", ["I'm sorry, but I cannot help.", "I can\u2019t label this.", "Sorry - no.", BESIDE])
def test_prose_that_declines_is_a_refusal(text: str) -> None:
    found = one(text)
    assert (found.outcome, found.reason, found.labels) == (Outcome.REFUSED, "model_refusal", ())


THOUGHTS = """I must refuse.|I have to decline.|I decline.|This violates the content policy, so no answer.|I refuse.
My guidelines do not allow me to look at this.|I am not permitted to process such content.|I'm declining.
It is against my policy to read this.|I would rather not.|That is not something I can assist with.
No: I\u2019d rather not|We cannot comply.|This is a harmful request.
It would be inappropriate for me to label this.""".replace("\n", "|").split("|")


@pytest.mark.parametrize("thought", THOUGHTS)
def test_a_refusal_in_the_reasoning_before_an_empty_list_is_no_vote(thought: str) -> None:
    found = one(f"<think>The user sends a post. {thought}</think>" + '{"labels": []}')
    assert (found.outcome, found.labels) == (Outcome.REFUSED, ())
    # labels are an answer all the same
    assert one(f"<think>{thought}</think>" + '{"labels": ["rape_past"]}').outcome is Outcome.VOTE


@pytest.mark.parametrize(
    "thought", ["I can't label this as a crisis.", "I cannot tell from it.", "She refuses to eat.", "A policy debate."]
)
def test_reasoning_about_the_post_declines_nothing(thought: str) -> None:
    assert one(f"<think>{thought}</think>" + '{"labels": []}').outcome is Outcome.VOTE


@pytest.mark.parametrize("reason", ["content_filter", "model_refusal", "blocked_prompt", "empty"])
@pytest.mark.parametrize("text", [None, '{"labels": ["no_crisis"]}'])
def test_what_the_provider_refused_stays_refused(text: str | None, reason: str) -> None:
    found = one(text, refused=reason)
    assert (found.outcome, found.reason, found.labels) == (Outcome.REFUSED, reason, ())


def test_no_text_has_a_reason() -> None:
    assert one(None, finish="unreadable").reason == "unreadable"
    assert one(None, finish="too_long").reason == "too_long"
    assert one(None).reason == "empty"
    assert one(None, finish="length", truncated=True).reason == "truncated"
    assert one('{"labels": ["rape', finish="length", truncated=True).reason == "truncated"
    assert one('{"labels": ["rape_past"]}', finish="length", truncated=True).outcome is Outcome.VOTE


def three(text: str) -> list[Answer]:
    return interpret(raw(text), record_id="r", labeller="l", prompt=THREE, scheme=FIGSIM, mode="improved", cost=0.5)


def test_one_independent_row_per_category() -> None:
    severity = FIGSIM.category("severity").names[1]
    found = three(json.dumps({"figurative": ["Metaphor"], "severity": severity}))
    assert [a.category for a in found] == ["figurative", "severity", "related"]
    assert [a.outcome for a in found] == [Outcome.VOTE, Outcome.VOTE, Outcome.MALFORMED]
    assert found[1].labels == (severity,)
    # one request, one price
    assert sum(a.cost for a in found) == 0.5
    assert sum(a.input_tokens for a in found) == 5


def test_one_of_a_kind_is_a_string() -> None:
    for value in (["Suicide ideation"], None, 3):
        assert three(json.dumps({"figurative": [], "severity": value, "related": []}))[1].outcome is Outcome.MALFORMED


TEXTS = st.text(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.text(string.ascii_letters + "_", max_size=12) | st.sampled_from(["no_crisis"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["labels", "x"]), inner),
    max_leaves=6,
).map(json.dumps)


@given(text=TEXTS, refused=st.none() | st.just("content_filter"), truncated=st.booleans())
def test_only_votes_have_labels_and_only_allowed_ones(text: str, refused: str | None, truncated: bool) -> None:
    found = one(text, refused=refused, truncated=truncated)
    assert (found.outcome is Outcome.VOTE) == bool(found.labels)
    assert set(found.labels) <= set(CRADLE.category().names)
    assert found.labels == tuple(sorted(found.labels))
    if refused:
        assert found.outcome is Outcome.REFUSED
    assert text not in found.reason or len(text) < 3 or text in ("empty",)


@example(text="\ud83d", effective={})
@given(text=st.none() | st.text(), effective=st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3)))
def test_raw_survives_its_bytes(text: str | None, effective: dict[str, Any]) -> None:
    kept = raw(text, effective=effective)
    assert Raw.from_json(kept.to_json()) == kept
    assert Raw.from_json(kept.to_json()).to_json() == kept.to_json()


@given(st.text(max_size=80))
def test_parse_gives_an_object_or_a_reason(text: str) -> None:
    value, repairs, reason = parse(text)
    assert (value is None) == bool(reason)
    assert value is not None or repairs == ()


@pytest.mark.parametrize(
    ("thought", "answer", "outcome"),
    [
        ("I'm sorry, this is not for me.", '{"labels": []}', Outcome.REFUSED),
        ("The post is hard. I can\u2019t help with this request.", '{"labels": []}', Outcome.REFUSED),
        ("We must decline to judge it.", '{"labels": ["no_crisis"]}', Outcome.REFUSED),
        ("I am unable to classify such content.", '```json\n{"labels": []}\n```', Outcome.REFUSED),
        ("I won't engage, but the form is needed.", '{"labels": []}', Outcome.REFUSED),
        ("I can't tell more from this alone.", '{"labels": []}', Outcome.VOTE),
        ("I cannot label this post as a crisis.", '{"labels": []}', Outcome.VOTE),
        ("The writer says: they can't help it.", '{"labels": []}', Outcome.VOTE),
        ("I should not continue? It is research, so I do.", '{"labels": ["rape_past"]}', Outcome.VOTE),
        ("I can't answer that.", "I'm sorry, no.", Outcome.REFUSED),
    ],
)
@pytest.mark.parametrize("tag", ["think", "thinking"])
def test_a_refusal_in_the_reasoning_is_no_vote_for_nothing(
    tag: str, thought: str, answer: str, outcome: Outcome
) -> None:
    found = one(f"<{tag}>\n{thought}\n</{tag}>\n{answer}")
    assert found.outcome is outcome and (outcome is Outcome.VOTE or not found.labels)
