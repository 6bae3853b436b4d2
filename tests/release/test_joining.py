"""Two releases of one corpus: what the joining attack finds, and what keeps both from being published."""

from __future__ import annotations

import json
import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.optimize import linear_sum_assignment

from pipelines.core.config.operate import Release, RemovalSchedule
from pipelines.release import access, anonymity, removal
from pipelines.release.release_store import ReleaseEntry, summary
from tests.refusals import refused
from tests.release.small_release import NOW, TERMS, World, listed, table

STRICT = {"max_joined": 0.01}
WHO: dict[str, Any] = {"who": "A. Person", "why": "replaced", "now": NOW}


def terms(**changes: Any) -> Release:
    return TERMS.model_copy(update=changes)


def fewer(*columns: str) -> Release:
    shape = TERMS.corpora["memes"].model_copy(update={"columns": columns})
    return terms(**STRICT, corpora={**TERMS.corpora, "memes": shape})


def tables(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.glob("*.csv") if p.name != "fetch.csv"}


@pytest.mark.parametrize("corpus", ["memes", "posts"])
def test_the_attack_finds_posts_of_two_equal_releases_and_its_rate_is_stated(world: World, corpus: str) -> None:
    world.approved(corpus, "r1")
    told = world.release(corpus, "r2")
    two, share = Path(told["package"]), told["joined"]["r1"]
    # losing metadata is enough for posts with one column of labels, not for memes with three
    assert (share > 0) == (corpus == "memes")
    # the datasheet, the manifest and the page of approval say so
    sheet, facts = (two / "DATASHEET.md").read_text(), json.loads((two / "manifest.json").read_text())
    assert facts["joined"] == told["joined"]
    for text in (sheet, told["risk"]):
        assert f"joins with release `r1` is {share:.1%}" in text
        assert f"{told['alone']} of {told['records']} posts" in text
    assert "on no others" not in sheet


# of the first release to the second: a category under another name, or another label in a share of the posts
CHANGES = {"renamed": ("sense", 0.0), "half": ("aim", 0.5), "all": ("aim", 1.0)}


def two_releases(change: str, *, metadata: bool) -> tuple[anonymity.Values, anonymity.Values]:
    drawn, (name, share) = random.Random(7), CHANGES[change]
    columns = {"split": 3, "aim": 6, "tone": 6, "tie": 4} | ({"month": 4, "subreddit": 3} if metadata else {})
    ours, theirs = dict[str, Any](), dict[str, Any]()
    for number in range(160):
        row = {column: f"{column}-{drawn.randrange(values)}" for column, values in columns.items()}
        changed = {name if column == "aim" else column: value for column, value in row.items()}
        if drawn.random() < share:
            changed["aim"] = f"aim-{(int(row['aim'][-1]) + drawn.randrange(1, 6)) % 6}"
        for release, values in ((ours, row), (theirs, changed)):
            release[f"{number}"] = {column: frozenset({("0", value)}) for column, value in values.items()}
    return ours, dict(sorted(theirs.items(), key=lambda item: drawn.random()))


def assigned(ours: Any, theirs: Any) -> float:
    """The attack of the second attacker: the assignment with the most equal cells, of columns with equal values."""

    def cells(posts: Any) -> list[set[str]]:
        return [{value for column in post.values() for _, value in column} for post in posts.values()]

    equal = [[len(a & b) for b in cells(theirs)] for a in cells(ours)]
    rows, columns = linear_sum_assignment(equal, maximize=True)
    names, others = list(ours), list(theirs)
    return sum(names[i] == others[j] for i, j in zip(rows, columns, strict=True)) / len(names)


@pytest.mark.parametrize("metadata", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_what_an_assignment_joins_of_changed_releases_is_at_most_what_is_stated(change: str, metadata: bool) -> None:
    ours, theirs = two_releases(change, metadata=metadata)
    share = assigned(ours, theirs)
    assert share > 0.2, "the attack works"
    assert anonymity.joined(ours, theirs, counterparts={i: i for i in ours}, k=5) >= share


def test_posts_of_many_kinds_are_joined_without_an_optimal_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = two_releases("half", metadata=True)
    monkeypatch.setattr(anonymity, "QUICK", 0)
    monkeypatch.setattr(anonymity, "ASSIGNABLE", 0)
    assert anonymity.joined(ours, theirs, counterparts={i: i for i in ours}, k=5) > 0.7


def test_values_under_other_names_are_translated_by_how_often_they_occur() -> None:
    ours, _ = two_releases("half", metadata=True)
    theirs = {
        i: {f"x{column}": frozenset((n, f"x{value}") for n, value in cells) for column, cells in post.items()}
        for i, post in reversed(ours.items())
    }
    assert anonymity.joined(ours, theirs, counterparts={i: i for i in ours}, k=5) > 0.5


def test_a_guess_among_k_equal_posts_is_no_join() -> None:
    ours = {str(i): {"aim": frozenset({("0", str(i // 5))})} for i in range(40)}
    same = {i: i for i in ours}
    assert anonymity.joined(ours, ours, counterparts=same, k=5) == 0
    assert anonymity.joined(ours, ours, counterparts=same, k=6) >= 8 / 40


def test_only_one_of_two_equal_releases_is_live(world: World) -> None:
    # another corpus has other posts
    for corpus, name in (("memes", "m1"), ("posts", "a1")):
        world.release(corpus, name, terms=terms(**STRICT))
        world.approve(name)
    world.release("memes", "m2", terms=terms(**STRICT))
    with refused("ReleaseJoinable", match=r"'m2'.*'m1'.*%"):
        world.approve("m2")
    assert ReleaseEntry.of(world.settings, "m2").state()["status"] == "DRAFT"
    told = access.retire("m1", settings=world.settings, **WHO)
    assert told["status"] == "RETIRED"
    assert access.retire("m1", settings=world.settings, **WHO) == told
    assert world.approve("m2")["status"] == "APPROVED"
    assert {row["release"]: row["status"] for row in summary(world.settings)}["m1"] == "RETIRED"


def test_a_draft_from_before_the_other_was_approved_is_measured_again(world: World) -> None:
    for name in ("m1", "m2"):
        world.release("memes", name, terms=terms(**STRICT))
    world.approve("m1")
    with refused("ReleaseJoinable", match="how many is unknown"):
        world.approve("m2")


def test_a_release_with_coarser_columns_can_be_live_beside_another(world: World) -> None:
    world.approved("memes", "m1")
    told = world.release("memes", "m2", terms=fewer("figurative"))
    assert told["joined"]["m1"] <= 0.01
    assert world.approve("m2")["status"] == "APPROVED"


def test_a_release_whose_package_went_elsewhere_counts_as_joinable(world: World) -> None:
    world.approved("memes", "m1").rename(world.home / "shared")
    told = world.release("memes", "m2", terms=fewer("figurative"))
    assert told["joined"] == {"m1": None}
    with refused("ReleaseJoinable", match="unknown"):
        world.approve("m2")
    assert access.retire("m1", settings=world.settings, **WHO)["status"] == "RETIRED"


def test_more_posts_alone_than_allowed_are_not_approved(world: World) -> None:
    told = world.release("memes", "m1")
    share = told["alone"] / told["records"]
    assert share > 0
    world.release("memes", "m1", terms=terms(max_alone=share - 0.001))
    with refused("TooManyAlone", match=f"{share:.1%}"):
        world.approve("m1")
    world.release("memes", "m1", terms=terms(max_alone=share))
    assert world.approve("m1")["status"] == "APPROVED"


@pytest.mark.parametrize("corpus", ["memes", "posts"])
def test_a_post_that_only_its_metadata_singles_out_loses_them(world: World, corpus: str) -> None:
    told = world.release(corpus, "r1")
    posts = anonymity.values(tables(Path(told["package"])))
    columns = {column for found in posts.values() for column in found}

    def unique(columns: set[str]) -> set[str]:
        combined = {i: tuple(found.get(column) for column in sorted(columns)) for i, found in posts.items()}
        return {i for i, values in combined.items() if list(combined.values()).count(values) == 1}

    alone, by_labels = unique(columns), unique(columns - {"month", "subreddit"})
    assert len(alone) == told["alone"]
    assert told["left_out"]["suppressed"] == 0
    for release_id in alone - by_labels if corpus == "posts" else ():
        assert {value for c in ("month", "subreddit") for _, value in posts[release_id][c]} == {"any", "other"}


def test_a_draft_is_not_retired(world: World) -> None:
    world.release("memes", "m1")
    with refused("NotApproved"):
        access.retire("m1", settings=world.settings, **WHO)


def test_a_retired_release_fetches_nothing_more(world: World) -> None:
    folder = world.approved("posts", "p1")
    access.retire("p1", settings=world.settings, **WHO)
    world.turned_away(folder, status=77, said="RETIRED", key=world.key("p1"), out=world.home / "out")


def test_lists_that_grow_at_the_same_time_do_not_show_whose_id_is_whose(world: World) -> None:
    """The attack by date: a takedown whose id is alone on the lists of two releases joins the two ids."""
    for name in ("m1", "m2"):
        world.approved("memes", name)
    fixed = NOW - timedelta(days=NOW.toordinal() % 14)  # a day of the schedule
    given: dict[str, Any] = {"settings": world.settings, "vault": world.vault}

    def grown(day: int) -> list[int]:
        before = [listed(world.folder(name) / "removal.json") for name in ("m1", "m2")]
        removal.refresh(**given, now=fixed + timedelta(days=day))
        after = [listed(world.folder(name) / "removal.json") for name in ("m1", "m2")]
        return [len(new - old) for old, new in zip(before, after, strict=True)]

    def take(number: int, day: int) -> None:
        record = world.record(f"t3_m{number:03d}")
        world.vault.destroy([record], reason="test", now=fixed + timedelta(days=day))
        # a takedown itself publishes nothing
        removal.refresh(**given, now=None)

    take(1, 1)
    assert [grown(day) for day in (1, 2, 13, 14, 27)] == [[0, 0]] * 5
    take(2, 15)
    take(3, 16)
    # three wait at the next fixed day, and leave together; rows and addresses with them
    assert grown(27) == [0, 0]
    assert grown(28) == [3, 3]
    ids = listed(world.folder("m1") / "removal.json")
    for file in ("annotations.csv", "splits.csv", "fetch.csv"):
        assert not ids & {row["id"] for row in table(world.folder("m1") / "package" / file)}
    # one alone waits for others, but no longer than promised
    take(4, 30)
    assert [grown(day) for day in (42, 55)] == [[0, 0]] * 2
    assert grown(56) == [1, 1]
    assert removal.refresh(**given, now=fixed + timedelta(days=57))["m1"]["waiting"] == 0


def test_a_takedown_does_not_join_the_ids_of_a_retired_release_and_its_successor(world: World) -> None:
    for name in ("m1", "m2"):
        world.approved("memes", name)
    given: dict[str, Any] = {"settings": world.settings, "vault": world.vault}
    access.retire("m1", settings=world.settings, **WHO)
    removal.refresh(**given, now=NOW)
    whole = listed(world.folder("m1") / "removal.json")
    assert whole == ReleaseEntry.of(world.settings, "m1").ids()
    assert not table(world.folder("m1") / "package" / "annotations.csv")
    world.vault.destroy([world.record("t3_m001")], reason="test", now=NOW)
    removal.refresh(**given, now=NOW + timedelta(days=60))
    assert listed(world.folder("m2") / "removal.json") == {world.of("m2", "t3_m001")}
    assert listed(world.folder("m1") / "removal.json") == whole


@given(
    days=st.lists(st.integers(0, 200), max_size=30),
    every=st.integers(1, 40),
    more=st.integers(0, 40),
    at_least=st.integers(1, 10),
)
def test_no_removal_waits_longer_than_promised(days: list[int], every: int, more: int, at_least: int) -> None:
    schedule = {"every_days": every, "at_least": at_least, "at_most_days": 2 * every + more}
    assert RemovalSchedule.model_validate(schedule)
    waiting = {str(i): date(2023, 1, 1) + timedelta(days=day) for i, day in enumerate(days)}
    for number in range(200 + 3 * (every + more) + 1):
        today = date(2023, 1, 1) + timedelta(days=number)
        arrived = {i: day for i, day in waiting.items() if day <= today}
        batch = removal.due(arrived, schedule=schedule, today=today)
        if batch:
            assert today.toordinal() % every == 0, "published on the fixed days only"
            oldest = min(waiting[i] for i in batch)
            assert len(batch) >= at_least or (today - oldest).days > more
        elif today.toordinal() % every == 0:
            assert sum(day < today for day in arrived.values()) < at_least, "enough are published"
        waiting = {i: day for i, day in waiting.items() if i not in batch}
        assert all((today - day).days <= schedule["at_most_days"] for day in waiting.values() if day <= today)
    assert not waiting


def test_a_schedule_on_which_nothing_could_wait_is_refused() -> None:
    with pytest.raises(ValidationError, match="twice"):
        RemovalSchedule.model_validate({"every_days": 14, "at_least": 5, "at_most_days": 27})
