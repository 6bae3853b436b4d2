"""A champion changes by a decision on record: killed, raced, undone and taken back, alias and journal agree."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crisis_corpus.integrity import place
from crisis_corpus.journal import JournalBroken, standing
from crisis_corpus.versions import CHAMPION
from pipelines.core.config.params import texts_below
from pipelines.core.errors import BadParams, CorpusError, RegistryError
from pipelines.core.process import login
from pipelines.registry import transitions
from pipelines.registry.candidate import Context
from pipelines.registry.journal import SamePerson
from pipelines.registry.promotion import gate
from pipelines.registry.promotion.promote import NotPromoted, abandon, promote, reject, rollback, withdraw
from pipelines.registry.transitions import RECORDED
from pipelines.registry.versions import CHALLENGER
from tests.commands import answered
from tests.refusals import refused
from tests.registry.small_registry import (
    NAME,
    REPO,
    SECRET,
    WHO,
    add,
    altered,
    events,
    opened,
    promoted,
    take_down,
    trained,
)
from tests.small_corpus import begin, code_of


def consistent(context: Context) -> int | None:
    """Return the champion, on which alias, journal and tag agree; nothing is open and the chain holds."""
    now = standing(context.journal, NAME)
    assert now.intention is None
    assert context.registry.alias(NAME, CHAMPION) == now.champion
    if now.champion is not None:
        recorded = context.registry.version(NAME, now.champion).tags[RECORDED]
        assert recorded in {row.digest for row in context.journal.rows(NAME) if row.to_version == now.champion}
    return now.champion


def moved(context: Context) -> list[tuple[str, int | None, int | None]]:
    return [row for row in events(context) if row[0] not in ("registered", "looked", "gated")]


def test_first_worse_better_and_back(context: Context) -> None:
    add(context, knows=4)
    first = promote(NAME, 1, **WHO, context=context)
    assert (first.champion, first.row.event, first.row.who) == (1, "promoted", "tester")
    assert first.row.metrics["figures"]["scores"]["macro_f1"]["probability"] == 1
    add(context, knows=2)
    with pytest.raises(NotPromoted, match="better: its macro-F1"):
        promote(NAME, 2, **WHO, context=context)
    assert consistent(context) == 1
    add(context, knows=6)
    assert promote(NAME, 3, **WHO, context=context).champion == 3
    assert context.registry.alias(NAME, CHALLENGER) is None
    back = rollback(NAME, who="ada", why="the first was steadier", context=context)
    assert (back.champion, back.row.why) == (1, "the first was steadier")
    assert consistent(context) == 1
    assert moved(context) == [
        ("intended", None, 1), ("promoted", None, 1), ("refused", 1, 2),
        ("intended", 1, 3), ("promoted", 1, 3), ("intended", 3, 1), ("rolled_back", 3, 1),
    ]  # fmt: skip
    with refused("NothingToUndo", match="no earlier version was champion"):
        rollback(NAME, **WHO, context=context)


def test_a_dry_run_writes_nothing(context: Context) -> None:
    add(context, knows=6)
    before = events(context)
    found = promote(NAME, 1, **WHO, context=context, dry_run=True)
    # a comparison would be a look, which is recorded
    assert found.verdict is not None and not found.verdict.passed and found.champion is None
    assert [reason.partition(":")[0] for reason in found.verdict.reasons] == ["looks"]
    assert "scores" not in found.verdict.figures
    assert events(context) == before
    assert context.registry.alias(NAME, CHAMPION) is context.registry.alias(NAME, CHALLENGER) is None
    gate.run(NAME, 1, context=context)
    before = events(context)
    found = promote(NAME, 1, **WHO, context=context, dry_run=True)
    assert found.verdict is not None and found.verdict.passed and found.champion is None
    assert events(context) == before and context.registry.alias(NAME, CHAMPION) is None


@pytest.mark.parametrize("said", [{"who": ""}, {"why": " "}])
def test_nothing_happens_without_who_and_why(context: Context, said: dict[str, str]) -> None:
    add(context, knows=6)
    before = events(context)
    calls: list[Callable[..., object]] = [promote, withdraw, reject]
    for call in calls:
        with pytest.raises(BadParams):
            call(NAME, 1, **WHO | said, context=context)
    with pytest.raises(BadParams):
        rollback(NAME, **WHO | said, context=context)
    assert events(context) == before


@pytest.mark.parametrize("step", ["gated", "intended", "moved", "recorded", "settled"])
def test_killed_after_any_step_the_retry_ends_the_same(context: Context, killer: Callable[..., int], step: str) -> None:
    promoted(context, knows=4)
    add(context, knows=6)
    assert killer(context.root, "promote", step, version=2) == -signal.SIGKILL
    # a reader of the alias meanwhile finds one of the two, and the journal shows that a promotion is open
    now, alias = standing(context.journal, NAME), context.registry.alias(NAME, CHAMPION)
    assert alias == now.champion or (now.intention is not None and alias == now.intention.to_version == 2)
    for _ in range(2):
        promote(NAME, 2, **WHO, context=context)
        assert consistent(context) == 2
        assert context.registry.alias(NAME, CHALLENGER) is None
        assert moved(context)[2:] == [("intended", 1, 2), ("promoted", 1, 2)]
        assert [event for event, *_ in events(context)].count("gated") == 2


@pytest.mark.parametrize("step", ["moved", "recorded"])
def test_a_rollback_and_a_withdrawal_are_finished_too(context: Context, killer: Callable[..., int], step: str) -> None:
    for knows in (4, 6):
        promoted(context, knows=knows)
    assert killer(context.root, "rollback", step, leaving=2) == -signal.SIGKILL
    for _ in range(2):
        rollback(NAME, **WHO, context=context, leaving=2)
        assert consistent(context) == 1
    assert killer(context.root, "withdraw", step, version=1) == -signal.SIGKILL
    for _ in range(2):
        withdraw(NAME, 1, **WHO, context=context)
        assert consistent(context) is None
    assert moved(context)[4:] == [
        ("intended", 2, 1), ("rolled_back", 2, 1), ("intended", 1, None), ("withdrawn", 1, None),
    ]  # fmt: skip


def test_of_two_promoters_one_wins_and_one_is_refused(context: Context) -> None:
    add(context, knows=5)
    add(context, knows=6)
    ready = threading.Barrier(2)
    told: dict[int, CorpusError] = {}

    def one(version: int) -> None:
        def say(step: str) -> None:
            if step == "gated":
                ready.wait(30)

        with opened(context.root) as own:
            try:
                promote(NAME, version, who=f"promoter-{version}", why="at once", context=own, say=say)
            except CorpusError as error:
                told[version] = error

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, (1, 2)))
    winner = consistent(context)
    assert set(told) == {1, 2} - {winner}
    (error,) = told.values()
    assert isinstance(error, RegistryError) and error.code == "PromotionAhead" and f"by promoter-{winner}" in str(error)
    assert [row[0] for row in moved(context)] == ["intended", "promoted"]


def test_a_verdict_against_a_former_champion_is_refused(context: Context) -> None:
    for knows in (4, 5, 6):
        add(context, knows=knows)
    promote(NAME, 1, **WHO, context=context)

    def meanwhile(step: str) -> None:
        if step == "gated":
            with opened(context.root) as other:
                promote(NAME, 3, who="ada", why="at the same time", context=other)

    with refused("PromotionAhead", match="came first: promoted, version 3, by ada"):
        promote(NAME, 2, **WHO, context=context, say=meanwhile)
    assert consistent(context) == 3


def test_a_move_that_is_open_stops_others_until_it_is_given_up(context: Context, killer: Callable[..., int]) -> None:
    promoted(context, knows=4)
    add(context, knows=5)
    add(context, knows=6)
    assert killer(context.root, "promote", "moved", version=2) == -signal.SIGKILL
    assert context.registry.alias(NAME, CHAMPION) == 2
    for call in (lambda: promote(NAME, 3, **WHO, context=context), lambda: rollback(NAME, **WHO, context=context),
                 lambda: withdraw(NAME, 1, **WHO, context=context)):  # fmt: skip
        with refused("PromotionAhead", match=r"came first: .* by tester"):
            call()
    for _ in range(2):
        assert abandon(NAME, **WHO, context=context).champion == 1
        assert consistent(context) == 1
    assert promote(NAME, 3, **WHO, context=context).champion == 3
    assert [row[0] for row in moved(context)][-4:] == ["intended", "abandoned", "intended", "promoted"]
    with refused("NothingToUndo"):
        abandon(NAME, **WHO, context=context)


def test_who_was_frozen_and_wakes_up_moves_nothing(context: Context) -> None:
    promoted(context, knows=4)
    add(context, knows=5)
    add(context, knows=6)

    def freeze(step: str) -> None:
        if step == "intended":
            with opened(context.root) as other:
                abandon(NAME, who="ada", why="it hangs", context=other)
                promote(NAME, 3, who="ada", why="the better one", context=other)

    with refused("PromotionAhead", match=r"came first: .* by ada"):
        promote(NAME, 2, **WHO, context=context, say=freeze)
    assert consistent(context) == 3


def test_the_same_promotion_twice_at_once_is_done_once(context: Context) -> None:
    add(context, knows=6)

    def meanwhile(step: str) -> None:
        if step == "moved":
            with opened(context.root) as other:
                assert promote(NAME, 1, who="ada", why="again", context=other).row.who == "tester"

    assert promote(NAME, 1, **WHO, context=context, say=meanwhile).champion == 1
    assert consistent(context) == 1
    assert [row[0] for row in moved(context)] == ["intended", "promoted"]


def test_an_alias_moved_outside_the_registry_is_restored(context: Context) -> None:
    promoted(context, knows=6)
    add(context, knows=2)
    context.registry.point(NAME, CHAMPION, 2)
    assert transitions.settle(NAME, registry=context.registry, journal=context.journal) == 1
    assert consistent(context) == 1


def test_a_withdrawn_version_does_not_come_back(context: Context) -> None:
    for knows in (4, 5, 6):
        promoted(context, knows=knows)
    withdraw(NAME, 2, **WHO, context=context)
    assert consistent(context) == 3
    assert rollback(NAME, **WHO, context=context).champion == 1
    with pytest.raises(NotPromoted, match="withdrawn: version 2 was withdrawn"):
        promote(NAME, 2, **WHO, context=context)
    withdraw(NAME, 1, **WHO, context=context)
    assert consistent(context) is None


def test_a_rollback_looks_at_the_files_and_counts_who_was_taken_down(context: Context) -> None:
    first = add(context, knows=4)
    promote(NAME, 1, **WHO, context=context)
    promoted(context, knows=6)
    take_down(context, trained(context.root)[:2])
    card = place(Path(first.source)) / "card.md"
    whole = card.read_bytes()
    card.write_bytes(whole + b"!")
    with pytest.raises(NotPromoted, match=r"card\.md"):
        rollback(NAME, **WHO, context=context)
    assert consistent(context) == 2
    card.write_bytes(whole)
    assert rollback(NAME, **WHO, context=context).row.metrics["taken_down"] == 2


def test_a_person_may_say_no(context: Context) -> None:
    add(context, knows=6)
    assert gate.run(NAME, 1, context=context).passed
    for _ in range(2):
        reject(NAME, 1, who="ada", why="not before the holidays", context=context)
    assert context.registry.alias(NAME, CHALLENGER) is None
    assert [(row.event, row.who) for row in context.journal.rows(NAME)][-1] == ("refused", "ada")
    assert len(events(context)) == 4
    assert promote(NAME, 1, **WHO, context=context).champion == 1


def test_nothing_is_decided_on_a_broken_journal(context: Context) -> None:
    promoted(context, knows=4)
    add(context, knows=6)
    altered(context.journal, "UPDATE journal SET to_version = 2 WHERE event = 'promoted'")
    for call in (lambda: promote(NAME, 2, **WHO, context=context), lambda: rollback(NAME, **WHO, context=context)):
        with pytest.raises(JournalBroken):
            call()
    assert context.registry.alias(NAME, CHAMPION) == 1


@pytest.fixture
def careful(small: Path) -> Iterator[Context]:
    with opened(small, four_eyes=True) as careful:
        add(careful, knows=5)
        yield careful


@pytest.mark.parametrize(
    ("who", "asked_by"),
    [
        ("airflow:ada", "airflow:ada"),
        # the run was not started by a person
        ("airflow:ada", ""),
        ("ada (os:ada)", "bob (os:ada)"),
        # the same login has run the gate
        ("another name (os:ada)", None),
    ],
)
def test_four_eyes_are_two_persons(careful: Context, who: str, asked_by: str | None) -> None:
    gate.run(NAME, 1, context=careful, who="corpus gate (os:ada)")
    with pytest.raises(SamePerson):
        promote(NAME, 1, who=who, why="a test", asked_by=asked_by, context=careful)
    assert [row.event for row in careful.journal.rows(NAME)] == ["registered", "looked", "gated"]
    assert promote(NAME, 1, who="bob (os:bob)", why="a test", context=careful).champion == 1


def test_four_eyes_need_a_gate_that_somebody_ran(careful: Context) -> None:
    with pytest.raises(SamePerson):
        promote(NAME, 1, who="ada (os:ada)", why="a test", context=careful)
    assert login().startswith("os:")


def test_a_champion_without_an_entry_in_params_is_withdrawn(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_SECRET", SECRET.hex())
    with opened(small) as context:
        promoted(context, knows=4)
    texts = texts_below(REPO)
    entry = next(line for line in texts["params.yaml"].splitlines(keepends=True) if line.startswith(f"  {NAME}:"))
    texts["params.yaml"] = texts["params.yaml"].replace(entry, "").replace(f"{NAME}, ", "")
    begin(context.settings, code=code_of(small / "code", texts))
    monkeypatch.chdir(small / "code")
    person = ("--who", "ada", "--why", "its entry was removed")
    assert answered("withdraw", NAME, "1", *person)["champion"] is None
    assert answered("registry", NAME, "--json")["models"][0]["versions"][0]["is"] == ["withdrawn"]
    with refused("UnknownName"):
        answered("promote", NAME, "1", *person)
