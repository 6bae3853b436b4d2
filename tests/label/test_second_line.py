"""What no instruction sways queues the posts that all members of an ensemble were made to call nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crisis_corpus_sandbox.reddit import narratives, seeded
from pipelines.core import taxonomy
from pipelines.core.config.params import Params, load
from pipelines.core.taxonomy import load as scheme
from pipelines.datasets.post import Post
from pipelines.label import silver
from pipelines.label.aggregate import Panel
from pipelines.label.attacks import inject
from pipelines.label.second_line import SecondLine, Watch
from tests.label.offline_posts import pairs, written

ROOT = Path(__file__).resolve().parents[2]
CATEGORY = taxonomy.load("cradle").category()
CALM = frozenset({"no_crisis"})
DEV, OTHERS = 120, 60
POSTS = written(DEV + OTHERS, seed=11, words=40)
GOLD = {(post.record_id, 0): labels for post, labels in POSTS[:DEV]}
MEMBERS = ("gpt", "claude", "gemini")


@pytest.fixture(scope="module")
def params() -> Params:
    return load(ROOT)


def watch(params: Params, **changed: Any) -> Watch | None:
    given: dict[str, Any] = {
        "ensemble": params.ensembles["cradle"],
        "category": CATEGORY,
        "posts": {(post.record_id, 0): post for post, _ in POSTS},
        "groups": dict(zip(GOLD, pairs(DEV), strict=True)),
        "params": params,
    }
    return Watch.of(GOLD, **{**given, **changed})


@pytest.fixture(scope="module")
def fitted(params: Params) -> Watch:
    found = watch(params)
    assert found is not None
    return found


def queued(posts: dict[Any, Post], *, line: SecondLine | None) -> set[Any]:
    """Return the items that are queued if every member calls every item nothing, and the patterns find nothing."""
    panel = Panel(
        {i: dict.fromkeys(MEMBERS, CALM) for i in posts}, members=MEMBERS, items=list(posts), category=CATEGORY
    )
    decided = panel.decide("label_set_majority")
    return {*silver.reasons(decided, panel=panel, refused={}, injected=(), line=line)}


def test_what_all_members_were_made_to_call_nothing_is_queued(fitted: Watch) -> None:
    copies = {(p.record_id, 0): inject(p, which=n) for n, (p, _) in enumerate(POSTS[DEV:])}
    crises = {item for (post, labels), item in zip(POSTS[DEV:], copies, strict=True) if labels != CALM}
    assert not queued(copies, line=None), "members, patterns and dissent see nothing"
    found = queued(copies, line=SecondLine(CATEGORY, posts=copies, watch=fitted))
    assert len(crises - found) <= 0.04 * len(crises)
    clean = {(p.record_id, 0): p for p, _ in POSTS[DEV:]}
    reviewed = queued(clean, line=SecondLine(CATEGORY, posts=clean, watch=fitted)) - crises
    assert len(reviewed) <= 0.15 * len(clean)


def test_the_figures_are_of_items_that_no_head_had_seen(fitted: Watch, params: Params) -> None:
    figures = fitted.figures
    assert (figures["gold"], figures["nothing"]) == (DEV, sum(labels == CALM for labels in GOLD.values()))
    assert figures["reviewed"] <= params.silver.review * DEV
    seen = sum(fitted.doubts(post) for post, labels in POSTS[:DEV] if labels == CALM)
    assert seen == figures["reviewed"]
    strangers = [replace(post, record_id=f"x{post.record_id}") for post, labels in POSTS[:DEV] if labels == CALM]
    assert sum(map(fitted.doubts, strangers)) <= seen


def test_words_added_to_a_text_hide_nothing(fitted: Watch) -> None:
    doubted = [post for post, _ in POSTS[DEV:] if fitted.doubts(post)][:5]
    talk = narratives.talk(rng=seeded(5, "talk"), words=600)
    for post in doubted:
        for body in (f"{talk}\n{post.body}\n{talk}", f"{post.body}\n{talk}"):
            assert fitted.doubts(replace(post, body=body))


def test_it_costs_nothing_where_nothing_can_be_swayed_or_learnt(params: Params, monkeypatch: Any) -> None:
    monkeypatch.setattr("pipelines.label.second_line._embedder", lambda: pytest.fail("no text is embedded"))
    off = params.model_copy(update={"silver": params.silver.model_copy(update={"review": 0})})
    assert watch(off) is None
    assert watch(params, ensemble=params.ensembles["offline"]) is None
    assert watch(params, groups=dict.fromkeys(GOLD, "one author")) is None
    assert watch(params, posts={}) is None


def test_an_answer_in_another_order_that_sees_more_is_queued() -> None:
    item, past = ("r", 0), frozenset({"rape_past"})
    for other, expected in ((past, {item}), (CALM, set())):
        line = SecondLine(CATEGORY, reordered={item: [other]})
        assert queued({item: Post("r", "", "text")}, line=line) == expected


@pytest.mark.parametrize(
    ("name", "key", "nothing", "something"),
    [
        ("cradle", "labels", {"no_crisis"}, {"rape_past"}),
        ("cradle_round_1", "labels", {"no_crisis"}, {"rape"}),
        ("figsim", "figurative", set(), {"Metaphor"}),
        ("figsim", "severity", {"None"}, {"Wish to be dead"}),
        ("cssrs", "severity", {"Supportive"}, {"Attempt"}),
    ],
)
def test_a_scheme_says_what_is_nothing(name: str, key: str, nothing: set[str], something: set[str]) -> None:
    category = scheme(name, root=ROOT).category(key)
    assert category.nothing(nothing) and not category.nothing(something)
    assert not any(scheme("communities", root=ROOT).category().nothing({label}) for label in ("depression", "Anxiety"))


def test_a_turned_scheme_asks_for_the_same_labels() -> None:
    figsim = scheme("figsim", root=ROOT)
    turned = figsim.turned()
    assert [*turned.categories] == [*figsim.categories][::-1]
    for key, category in figsim.categories.items():
        assert turned.category(key).names == category.names[::-1] and turned.category(key).key == key
