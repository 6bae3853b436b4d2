"""Looks at a gate set: each is counted once, before its result is known, and alpha is spent over them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.config import renamed
from pipelines.config.models import Promote
from pipelines.errors import BadParams
from pipelines.evaluate.model_scores import VOTE, Board, Run, Sampling
from pipelines.promotion import gate, looks
from pipelines.promotion.gate_set import divide, part_of
from pipelines.promotion.looks import GateSet
from pipelines.promotion.promote import NotPromoted, promote, rollback
from pipelines.promotion.superiority import compared
from pipelines.registry.candidate import Context
from pipelines.registry.journal import Journal
from pipelines.taxonomy import load
from pipelines.taxonomy.task import task_of
from tests.registry.small_registry import NAME, TERMS, add, events, opened

WHO = {"who": "tester", "why": "a test"}
GATE = GateSet("memes", "severity", 1, 2, 0)


@pytest.fixture
def context(small: Path) -> Iterator[Context]:
    with opened(small) as context:
        yield context


def terms(**given: Any) -> Promote:
    return TERMS.model_copy(update=given)


def looked(context: Context) -> list[int | None]:
    return [version for event, _, version in events(context) if event == "looked"]


def take(journal: Journal, pair: str, *, alpha: float = 0.1, planned: int = 4, gate_set: GateSet = GATE) -> Any:
    given = {"rival": None, "gate": gate_set, "files": "f" * 64, "who": "tester"}
    return looks.take(NAME, version=1, pair=pair, terms=terms(alpha=alpha, looks=planned), journal=journal, **given)


def verdict_of(journal: Journal, look: Any, *, better: bool) -> None:
    budget = looks.budget(journal.rows(NAME), gate=look.gate, terms=terms(alpha=0.1, looks=4))
    found = budget.told(look) | {"better": better}
    journal.append(NAME, event="refused", metrics={"basis": "b", "figures": {"scores": {"look": found}}}, **WHO)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    url = f"sqlite:///{tmp_path}/journal.sqlite"
    with Journal.open(url, clock=lambda: datetime(2023, 1, 2, tzinfo=UTC), secret=bytes(32)) as journal:
        yield journal


def test_a_look_is_on_record_before_a_model_is_compared_and_a_retry_makes_none(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(context, knows=4)

    def killed(*_: Any, **__: Any) -> None:
        assert looked(context) == [1]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.promotion.comparison.compared", killed)
        with pytest.raises(KeyboardInterrupt):
            gate.run(NAME, 1, context=context)
    for _ in range(2):
        assert gate.run(NAME, 1, context=context).passed
    promote(NAME, 1, **WHO, context=context)
    assert looked(context) == [1]


def test_a_candidate_that_other_checks_refuse_takes_no_look(context: Context) -> None:
    add(context, knows=6, labels=["a"])
    verdict = gate.run(NAME, 1, context=context)
    assert [reason.partition(":")[0] for reason in verdict.reasons] == ["labels"]
    assert looked(context) == [] and "scores" not in verdict.figures


def test_alpha_is_spent_by_candidates_that_are_not_better_and_then_all_are_refused(small: Path) -> None:
    with opened(small, terms=terms(alpha=0.2, looks=2, parts=2)) as context:
        add(context, knows=4)
        promote(NAME, 1, **WHO, context=context)
        for knows in (2, 3, 6):
            add(context, knows=knows)
        first, second, third = (gate.run(NAME, number, context=context) for number in (2, 3, 4))
        # the look at the first champion found it better than the baseline and returned its level
        assert [v.figures["scores"]["look"]["left"] for v in (first, second)] == [1, 0]
        assert third.reasons == (
            "looks: alpha 0.2 is spent at this gate set; raise promote.refresh to use another part of the test",
        )
        assert looked(context) == [1, 2, 3]
    with opened(small, terms=terms(alpha=0.2, looks=2, parts=2, refresh=1)) as context:
        found = gate.run(NAME, 4, context=context)
        assert found.passed and found.figures["scores"]["look"]["gate"]["part"] == 1
    # the first part again: its looks are still spent
    with opened(small, terms=terms(alpha=0.2, looks=2, parts=2, refresh=2)) as context:
        add(context, knows=5)
        assert "alpha 0.2 is spent" in gate.run(NAME, 5, context=context).reasons[0]


def test_a_dry_run_shows_no_comparison_that_is_not_on_record(context: Context) -> None:
    add(context, knows=6)
    before = events(context)
    dry = promote(NAME, 1, **WHO, context=context, dry_run=True).verdict
    assert dry is not None and "scores" not in dry.figures
    assert dry.reasons == ("looks: not compared, because a comparison is a look at the gate set, which is recorded",)
    assert events(context) == before
    assert gate.run(NAME, 1, context=context).passed
    after = promote(NAME, 1, **WHO, context=context, dry_run=True).verdict
    assert after is not None and after.passed


def test_a_rolled_back_comparison_is_not_made_again(context: Context) -> None:
    add(context, knows=4)
    promote(NAME, 1, **WHO, context=context)
    add(context, knows=6)
    promote(NAME, 2, **WHO, context=context)
    rollback(NAME, **WHO, context=context)
    assert gate.run(NAME, 2, context=context).passed
    assert looked(context) == [1, 2]


def test_too_few_draws_for_the_level_of_a_look_are_refused(small: Path) -> None:
    with opened(small, terms=terms(alpha=0.05, looks=5000)) as context:
        add(context, knows=6)
        with pytest.raises(BadParams, match="5000 looks need at least 100000 draws"):
            gate.run(NAME, 1, context=context)
        assert looked(context) == []


def test_only_a_passing_version_is_scored_on_the_rest_of_the_test(small: Path) -> None:
    with opened(small, terms=terms(parts=2)) as context:
        reported_once(context)


def reported_once(context: Context) -> None:
    add(context, knows=4)
    first = gate.run(NAME, 1, context=context)
    test, rest = first.figures["test"], first.figures["scores"]["reported"]
    assert test["gate"] + test["reported"] == 72 and rest["n"] == test["reported"] > 20
    assert rest["macro_f1"]["low"] <= rest["macro_f1"]["candidate"] <= rest["macro_f1"]["high"]
    promote(NAME, 1, **WHO, context=context)
    add(context, knows=2)
    with pytest.raises(NotPromoted):
        promote(NAME, 2, **WHO, context=context)
    assert "reported" not in context.journal.rows(NAME)[-1].metrics["figures"]["scores"]


def test_a_look_that_finds_a_better_candidate_returns_its_level(journal: Journal) -> None:
    first = take(journal, "a")
    assert (first.number, first.level) == (1, 0.025)
    verdict_of(journal, first, better=False)
    verdict_of(journal, take(journal, "b"), better=True)
    take(journal, "c")
    found = looks.budget(journal.rows(NAME), gate=GATE, terms=terms(alpha=0.1, looks=4))
    assert (found.left, found.spent) == (2, pytest.approx(0.05))
    assert take(journal, "a") == first and len(journal.rows(NAME)) == 5
    assert [look.number for look in (take(journal, "d"), take(journal, "e"))] == [4, 5]
    assert take(journal, "f") is None


def test_gate_sets_that_may_share_items_share_their_looks(journal: Journal) -> None:
    for pair, parts, part in (("a", 2, 0), ("b", 2, 1), ("c", 3, 0)):
        take(journal, pair, gate_set=GateSet("memes", "severity", 1, parts, part))
    take(journal, "d", gate_set=GateSet("memes", "severity", 2, 2, 0))

    def left(gate_set: GateSet) -> int:
        return looks.budget(journal.rows(NAME), gate=gate_set, terms=terms(alpha=0.1, looks=4)).left

    assert left(GATE) == 2
    assert left(GateSet("memes", "severity", 1, 3, 0)) == 1
    assert left(GateSet("memes", "severity", 1, 3, 1)) == 2
    assert left(GateSet("memes", "severity", 2, 2, 0)) == 3


def test_looks_at_the_same_time_get_their_own_numbers_and_never_exceed_alpha(tmp_path: Path) -> None:
    found: list[Any] = []

    def one(pair: str) -> None:
        url = f"sqlite:///{tmp_path}/journal.sqlite"
        with Journal.open(url, clock=lambda: datetime(2023, 1, 2, tzinfo=UTC), secret=bytes(32)) as journal:
            found.append(take(journal, pair))

    one("0")
    threads = [threading.Thread(target=one, args=(str(n),)) for n in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(look.number for look in found if look) == [1, 2, 3, 4]
    assert sum(look is None for look in found) == 3


def board(*, items: int, resamples: int, seed: int) -> Board:
    task = task_of(load("figsim"), "severity")
    rng = np.random.default_rng(seed)
    gold = tuple(frozenset({task.labels[k]}) for k in rng.integers(len(task.labels), size=items))
    names = tuple((f"{n:04d}", 0) for n in range(items))
    return Board(task, names, gold, tuple(f"{n // 2}" for n in range(items)), Sampling(resamples, seed=1))


def run(board: Board, *, right: float, rng: np.random.Generator) -> Run:
    labels = board.task.labels
    guessed = rng.integers(len(labels), size=len(board.items))
    known = rng.random(len(board.items)) < right
    rows = zip(board.items, board.gold, guessed, known, strict=True)
    answers = {item: gold if sure else frozenset({labels[k]}) for item, gold, k, sure in rows}
    return Run(0, dict.fromkeys(board.items, VOTE), answers)


def test_a_lucky_seed_decides_nothing_alone() -> None:
    test, rng = board(items=200, resamples=999, seed=3), np.random.default_rng(5)
    champion, lucky, usual = (run(test, right=right, rng=rng) for right in (0.5, 0.75, 0.45))
    alone = compared(test, candidate=[lucky], rival=champion, level=0.05)
    all_seeds = compared(test, candidate=[lucky, usual, usual], rival=champion, level=0.05)
    assert alone.better and alone.p == all_seeds.p
    assert not all_seeds.better and all_seeds.p_seeds > 0.05


def test_equal_candidates_are_promoted_no_more_often_than_alpha_allows() -> None:
    """120 short histories: the expected number of false promotions is 6 at most, and 14 has probability .003."""
    false = 0
    for seed in range(120):
        test, rng = board(items=60, resamples=199, seed=seed), np.random.default_rng(seed)
        champion = run(test, right=0.5, rng=rng)
        candidates = [run(test, right=0.5, rng=rng) for _ in range(5)]
        false += sum(compared(test, candidate=[one], rival=champion, level=0.01).better for one in candidates)
    assert false < 14


def test_terms_of_an_earlier_version_become_a_bound_over_all_looks() -> None:
    values = {"promote": {"min_probability": 0.9, "min_positives": 5, "tolerance": 0.2}}
    assert renamed.params(values) == {"promote": {"alpha": 0.1, "tolerance": 0.2}}
    assert renamed.params({"promote": {"min_probability": 1}})["promote"]["alpha"] > 0


def test_parts_follow_groups_and_do_not_move() -> None:
    test = board(items=400, resamples=10, seed=1)
    given = {"corpus": "memes", "version": 1}
    divided = divide(test, terms=terms(parts=2, refresh=0), **given)
    other = divide(test, terms=terms(parts=2, refresh=3), **given)
    assert set(divided.gate.items).isdisjoint(divided.reported.items)
    assert set(divided.gate.groups).isdisjoint(divided.reported.groups)
    assert divided.gate.items == other.reported.items
    assert 150 < len(divided.gate.items) < 250
    assert divide(test, terms=terms(parts=1), **given).reported.items == ()
    assert part_of("0123", corpus="memes", version=1, parts=4) // 2 == part_of("0123", parts=2, **given)
    again = divided.without(divided.gate.groups[:2])
    assert len(again.gate.items) < len(divided.gate.items) and again.digest != divided.digest
