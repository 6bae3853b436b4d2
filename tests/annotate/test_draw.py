"""A draw that later items do not disturb, fair assignments, and no more in a day than the cap allows."""

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.annotate.backends import Item
from pipelines.annotate.rounds.opening import assign, draw
from pipelines.core.errors import BadParams
from pipelines.store.tables import item_of

ITEMS = st.sets(st.tuples(st.sampled_from([f"{n:032x}" for n in range(12)]), st.integers(0, 3)))
NAMES = ["ada", "ben", "cem", "dia"]


def items(count: int) -> list[Item]:
    return [(f"{n:032x}", n % 2) for n in range(count)]


@given(candidates=ITEMS, taken=ITEMS, size=st.integers(0, 60), seed=st.integers(0, 3))
@settings(max_examples=60)
def test_a_round_takes_what_is_free_and_no_more(candidates: set[Item], taken: set[Item], size: int, seed: int) -> None:
    drawn = draw(candidates, taken=taken, size=size, seed=seed)
    assert set(drawn) <= candidates - taken
    assert len(drawn) == len(set(drawn)) == min(size, len(candidates - taken))
    assert draw(candidates, taken=taken, size=size // 2, seed=seed) == drawn[: size // 2], "a smaller round begins it"
    assert draw(sorted(candidates, reverse=True), taken=sorted(taken), size=size, seed=seed) == drawn


@given(candidates=ITEMS, more=ITEMS, seed=st.integers(0, 3))
@settings(max_examples=60)
def test_new_candidates_leave_the_order_of_the_others(candidates: set[Item], more: set[Item], seed: int) -> None:
    before = draw(candidates, taken=(), size=len(candidates), seed=seed)
    after = draw(candidates | more, taken=(), size=100, seed=seed)
    assert [item for item in after if item in candidates] == before


def by_item(given_out: list[dict[str, Any]]) -> dict[Item, set[str]]:
    found: dict[Item, set[str]] = defaultdict(set)
    for one in given_out:
        found[item_of(one)].add(one["annotator"])
    return found


@given(
    count=st.integers(0, 40),
    people=st.integers(1, 4),
    overlap=st.integers(1, 4),
    batch_size=st.integers(1, 15),
    seed=st.integers(0, 3),
)
@settings(max_examples=80)
def test_each_item_goes_to_as_many_as_asked_and_the_work_is_shared(
    count: int, people: int, overlap: int, batch_size: int, seed: int
) -> None:
    overlap = min(overlap, people)
    out = assign(items(count), annotators=NAMES[:people], overlap=overlap, batch_size=batch_size, seed=seed)
    assert len(out) == count * overlap
    found = by_item(out)
    assert all(len(found[item]) == overlap for item in items(count))
    loads = Counter(dict.fromkeys(NAMES[:people], 0))
    loads.update(one["annotator"] for one in out)
    assert max(loads.values()) - min(loads.values()) <= 1
    for name in NAMES[:people]:
        mine = [one for one in out if one["annotator"] == name]
        assert [one["position"] for one in mine] == list(range(len(mine)))
        assert all(one["batch"] <= other["batch"] for one, other in pairwise(mine))


def test_a_batch_is_the_same_for_all_and_its_order_is_not() -> None:
    out = assign(items(40), annotators=NAMES[:2], overlap=2, batch_size=20, seed=1)
    assert all(one["batch"] == items(40).index(item_of(one)) // 20 for one in out)
    ada, ben = ([item_of(one) for one in out if one["annotator"] == name and one["batch"] == 0] for name in NAMES[:2])
    assert sorted(ada) == sorted(ben)
    assert ada != ben
    assert ada != items(20)


def test_everybody_meets_everybody_and_the_seed_decides() -> None:
    found = by_item(assign(items(60), annotators=NAMES, overlap=2, batch_size=60, seed=1))
    assert len({frozenset(pair) for pair in found.values()}) == 6
    one, again, other = (assign(items(20), annotators=NAMES, overlap=1, batch_size=20, seed=s) for s in (1, 1, 2))
    assert one == again != other
    assert set(draw(items(100), taken=(), size=50, seed=1)) != set(draw(items(100), taken=(), size=50, seed=2))
    assert assign(items(5), annotators=(), overlap=0, batch_size=5, seed=1) == [], "a review is of no annotator"


@pytest.mark.parametrize(("names", "overlap"), [(["ada"], 2), (["ada", "ada"], 2), (["ada", "ada"], 1), ([], 1)])
def test_too_few_people_are_refused(names: list[str], overlap: int) -> None:
    with pytest.raises(BadParams, match=r"round\.annotators"):
        assign(items(3), annotators=names, overlap=overlap, batch_size=3, seed=1)
