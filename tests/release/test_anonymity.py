"""Every combination that goes out is shared by k authors, and nothing is made coarser than it must."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.release.anonymity import Person, coarsen

PEOPLE = st.lists(
    st.builds(
        Person,
        author=st.sampled_from([f"a{i}" for i in range(12)]),
        month=st.none() | st.sampled_from([f"20{year}-{month:02d}" for year in (21, 22) for month in range(1, 13)]),
        subreddit=st.none() | st.sampled_from(["one", "One", "two", "other", "any"]),
    ),
    max_size=80,
)
COLUMNS = st.sampled_from([("month", "subreddit"), ("month",), ("subreddit",)])


def authors(people: list[Person], *, columns: tuple[str, ...], k: int) -> dict[tuple[str, ...], set[str]]:
    classes = defaultdict(set)
    for person, values in zip(people, coarsen(people, columns=columns, k=k).values, strict=True):
        if values is not None:
            assert tuple(values) == columns
            classes[tuple(values.values())].add(person.author)
    return classes


@settings(max_examples=300, deadline=None)
@given(people=PEOPLE, columns=COLUMNS, k=st.integers(1, 6))
def test_every_class_has_k_authors(people: list[Person], columns: tuple[str, ...], k: int) -> None:
    classes = authors(people, columns=columns, k=k)
    assert all(len(found) >= k for found in classes.values())
    coarse = coarsen(people, columns=columns, k=k)
    assert coarse.suppressed == sum(v is None for v in coarse.values)
    assert sum(coarse.levels.values()) + coarse.suppressed == len(people)
    if classes:
        assert k <= coarse.smallest <= min(map(len, classes.values()))


@settings(max_examples=100, deadline=None)
@given(people=PEOPLE, k=st.integers(1, 6), data=st.data())
def test_the_order_of_rows_changes_nothing(people: list[Person], k: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(people))))
    straight = coarsen(people, columns=("month", "subreddit"), k=k).values
    shuffled = coarsen([people[i] for i in order], columns=("month", "subreddit"), k=k).values
    assert [straight[i] for i in order] == list(shuffled)


@settings(max_examples=100, deadline=None)
@given(people=PEOPLE, k=st.integers(1, 6))
def test_who_stays_out_is_in_no_company_at_all(people: list[Person], k: int) -> None:
    values = coarsen(people, columns=("month", "subreddit"), k=k).values
    alone = {person.author for person, value in zip(people, values, strict=True) if value is None}
    assert len(alone) < k


def test_a_row_is_made_coarser_step_by_step() -> None:
    def group(count: int, month: str, subreddit: str, *, first: int) -> list[Person]:
        return [Person(f"a{first + i}", month, subreddit) for i in range(count)]

    people = [
        *group(3, "2022-01", "One", first=0),
        *group(2, "2022-02", "one", first=10),
        *group(1, "2022-03", "one", first=20),
        *group(2, "2022-05", "one", first=30),
        *group(1, "2022-09", "one", first=40),
        *group(2, "2021-01", "two", first=50),
        *group(1, "2021-02", "three", first=60),
        *group(2, "2020-01", "two", first=70),
        *group(1, "2019-01", "four", first=80),
    ]
    coarse = coarsen(people, columns=("month", "subreddit"), k=3)
    levels = ("month+subreddit", "quarter+subreddit", "year+subreddit", "year+other", "any+other")
    assert coarse.levels == dict.fromkeys(levels, 3)
    found = [None if v is None else tuple(v.values()) for v in coarse.values]
    assert found == [
        *[("2022-01", "one")] * 3,
        *[("2022-Q1", "one")] * 3,
        *[("2022", "one")] * 3,
        *[("2021", "other")] * 3,
        *[("any", "other")] * 3,
    ]


def test_five_posts_of_one_person_are_not_anonymous() -> None:
    people = [Person("a", "2022-01", "one")] * 5
    assert coarsen(people, columns=("month", "subreddit"), k=5).suppressed == 5
    assert coarsen(people, columns=(), k=5).suppressed == 0
