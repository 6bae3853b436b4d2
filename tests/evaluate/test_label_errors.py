"""Errors by direction, by label, by kind of meme, counted manually on a few memes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from pipelines.evaluate.evaluate import agreed
from pipelines.evaluate.label_errors import Traits, analyse
from pipelines.evaluate.model_scores import Board, Run, Sampling

SCHEME = load("figsim")
SEVERITY, FIGURATIVE = task_of(SCHEME, "severity"), task_of(SCHEME, "figurative")
FEW = Sampling(resamples=200, seed=1)
NONE, WISH, IDEATION, PLANNING, ATTEMPT = SEVERITY.labels
METAPHOR, PUN, IRONY = FIGURATIVE.labels
ITEMS = tuple((f"r{i}", 0) for i in range(10))
#             too high  right  too low   too low   right     refused
TRUE = (NONE, WISH, PLANNING, ATTEMPT, ATTEMPT, PLANNING)
SAID = (WISH, WISH, NONE, PLANNING, ATTEMPT, None)
TRAITS = Traits(
    sets={
        "figurative": dict(
            zip(ITEMS[:5], map(frozenset, [{IRONY}, set(), {METAPHOR, IRONY}, set(), {IRONY}]), strict=True)
        )
    },
    kinds={"context": dict(zip(ITEMS[:6], ["yes", "yes", "yes", "no", "no", "no"], strict=True))},
    values={"figurative": (METAPHOR, PUN, IRONY), "context": ["no", "yes"]},
)


def board(gold: Sequence, task: Any = SEVERITY) -> Board:
    sets = tuple(frozenset({g} if isinstance(g, str) else g) for g in gold)
    return Board(task, ITEMS[: len(gold)], sets, tuple(str(i) for i in range(len(gold))), FEW)


def run_of(said: Sequence, seed: int = 1) -> Run:
    """Return a run of one answer, a label or a set of labels, for each item; ``None`` was refused."""
    answers = {
        item: frozenset({s} if isinstance(s, str) else s) for item, s in zip(ITEMS, said, strict=False) if s is not None
    }
    return Run(seed, {item: "vote" if item in answers else "refused" for item in ITEMS[: len(said)]}, answers)


def of(rate: dict[str, Any]) -> tuple[int, int]:
    return rate["count"], rate["of"]


def test_severity_is_over_or_under_by_its_order_and_by_the_true_label() -> None:
    found = analyse(board(TRUE), runs=[run_of(SAID)], traits=TRAITS)
    assert (found["answers"], found["unanswered"]) == (5, 1)
    assert of(found["wrong"]) == (3, 5)
    over = {label: of(ways["over"]) for label, ways in found["by_label"].items()}
    under = {label: of(ways["under"]) for label, ways in found["by_label"].items()}
    assert over == {NONE: (1, 1), WISH: (0, 1), IDEATION: (0, 0), PLANNING: (0, 1), ATTEMPT: (0, 2)}
    assert under == {NONE: (0, 1), WISH: (0, 1), IDEATION: (0, 0), PLANNING: (1, 1), ATTEMPT: (1, 2)}
    assert found["by_label"][IDEATION]["over"]["rate"] is None


def test_of_a_set_over_is_what_gold_lacks_and_under_what_the_answer_lacks() -> None:
    gold = ({IRONY}, {IRONY, METAPHOR}, set())
    said = ({IRONY, PUN}, {METAPHOR}, {IRONY})
    found = analyse(board(gold, FIGURATIVE), runs=[run_of(said)], traits=Traits())
    assert of(found["wrong"]) == (3, 3)
    assert {label: (of(w["over"]), of(w["under"])) for label, w in found["by_label"].items()} == {
        METAPHOR: ((0, 2), (0, 1)),
        PUN: ((1, 3), (0, 0)),
        IRONY: ((1, 1), (1, 2)),
    }
    assert found["by_labels"] == {}


def test_errors_by_kind_leave_out_what_was_not_answered() -> None:
    found = analyse(board(TRUE), runs=[run_of(SAID)], traits=TRAITS)["by_category"]
    assert {label: of(rate) for label, rate in found["context"].items()} == {"no": (1, 2), "yes": (2, 3)}


def test_runs_add_up() -> None:
    found = analyse(board(TRUE), runs=[run_of(SAID), run_of(TRUE, seed=2)], traits=TRAITS)
    assert of(found["wrong"]) == (3, 11)
    assert of(found["by_label"][PLANNING]["under"]) == (1, 3)


def test_a_meme_without_figurative_gold_is_in_no_rate_of_subtypes() -> None:
    answered = analyse(board(TRUE), runs=[run_of((*SAID[:5], NONE))], traits=TRAITS)
    assert of(answered["wrong"]) == (4, 6)
    assert of(answered["by_labels"]["figurative"]["Any"]["absent"]["of_wrong"]) == (1, 1)


def test_figurative_language_is_identified_if_the_best_model_of_it_names_it() -> None:
    """FigSIM 5.3: underprediction persists where it is identified. Of the three figurative memes one is not."""
    told = dict(zip(ITEMS[:5], map(frozenset, [{IRONY}, set(), {METAPHOR}, {PUN}, {IRONY}]), strict=True))
    found = analyse(board(TRUE), runs=[run_of(SAID)], traits=replace(TRAITS, said={"figurative": told}))
    rates = found["by_labels"]["figurative"]
    shares = {presence: of(rate["of_all"]) for presence, rate in rates["Any"].items()}
    assert shares == {"absent": (1, 2), "present": (1, 3), "identified": (0, 2)}
    assert of(rates[METAPHOR]["identified"]["of_all"]) == of(rates[METAPHOR]["present"]["of_all"]) == (1, 1)
    assert of(rates[IRONY]["identified"]["of_wrong"]) == (0, 1), "the third meme's irony was not named"
    runs = [run_of([{IRONY}, {PUN}, None]), run_of([{IRONY, PUN}, set(), {PUN}], seed=2)]
    assert agreed(runs) == {ITEMS[0]: {IRONY}, ITEMS[1]: set()}, "in every run"
