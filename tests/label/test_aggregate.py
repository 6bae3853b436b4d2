"""The vote equals a manually written reference; order, refusals and names never change it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.taxonomy import load
from pipelines.label import aggregate
from pipelines.label import silver_statistics as statistics
from pipelines.label.aggregate import AGGREGATORS, Decision, Panel, valid
from pipelines.store import tables
from tests.refusals import refused
from tests.small_corpus import vote_row

# crowd-kit asks pandas 3 for what pandas 4 will not have
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:crowdkit")

CATEGORY = load("cradle").category()
MEMBERS = ("gpt", "claude", "gemini")
RECORD = ("0000", 0)
SETS = [
    frozenset({"no_crisis"}),
    frozenset({"rape_past"}),
    frozenset({"selfharm_ongoing"}),
    frozenset({"rape_past", "selfharm_ongoing"}),
    frozenset({"suicideideation_active_ongoing", "selfharm_past"}),
]
OUTCOMES = ("abstained", "refused", "malformed", "failed")

label_sets = st.sampled_from(SETS)
# an answer: a label set, or the outcome that it had instead
answers = st.one_of(label_sets, label_sets, st.sampled_from(OUTCOMES))
vote_sets = st.lists(st.fixed_dictionaries(dict.fromkeys(MEMBERS, answers)), min_size=1, max_size=20)


def table(rows: Sequence[dict[str, object]], *, seed: int | None = None, labelled: bool = False) -> pa.Table:
    """Write vote sets as rows of a votes table; ``labelled`` lies: labels stand in rows that are no votes."""
    made = []
    for i, row in enumerate(rows):
        for member, answer in row.items():
            vote = isinstance(answer, frozenset)
            labels = answer if vote else ["rape_past"] if labelled else []
            scores = [float(name in answer) for name in CATEGORY.names] if vote else None
            outcome = "vote" if vote else answer
            made.append(vote_row(f"{i:04d}", member, labels=labels, outcome=outcome, scores=scores))
    if seed is not None:
        random.Random(seed).shuffle(made)
    return pa.Table.from_pylist(made, schema=tables.SCHEMAS["votes"])


def decide(votes: pa.Table, name: str, *, members: Sequence[str] = MEMBERS, fallback: str | None = None) -> dict:
    ballots, scores = valid(votes, category="labels")
    panel = Panel(
        ballots=ballots,
        members=members,
        items=tables.items_of(votes),
        category=CATEGORY,
        fallback=fallback,
        scores=scores,
        gold={item: SETS[int(item[0]) % len(SETS)] for item in tables.items_of(votes)},
    )
    return {record: decision for (record, _), decision in panel.decide(name).items()}


def by_hand(row: dict[str, object], *, fallback: str | None) -> tuple[frozenset[str] | None, str, str]:
    """Apply the paper's rule the long way round, for three members and nothing else."""
    a, b, c = (row[member] if isinstance(row[member], frozenset) else None for member in MEMBERS)
    if a is not None and a == b and b == c:
        return a, "unanimous", "majority"
    if a is not None and a == b:
        return a, "consensus", "majority"
    if a is not None and a == c:
        return a, "consensus", "majority"
    if b is not None and b == c:
        return b, "consensus", "majority"
    if fallback is not None and isinstance(row[fallback], frozenset):
        return row[fallback], "none", "fallback"
    return None, "none", "discarded"


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(MEMBERS, answers)), st.sampled_from([None, *MEMBERS]))
def test_any_vote_set_as_the_reference_has_it(row: dict[str, object], fallback: str | None) -> None:
    got = decide(table([row]), "label_set_majority", fallback=fallback)
    assert got == {"0000": Decision(*by_hand(row, fallback=fallback))}


@settings(max_examples=60, deadline=None)
@given(rows=vote_sets, name=st.sampled_from([n for n in AGGREGATORS if n != "dawid_skene"]))
def test_agreement_is_on_the_decided_labels(rows: list[dict[str, object]], name: str) -> None:
    for record, decision in decide(table(rows), name, fallback="claude").items():
        backers = sum(
            answer == decision.labels for answer in rows[int(record)].values() if isinstance(answer, frozenset)
        )
        assert decision.agreement == {3: "unanimous", 2: "consensus"}.get(backers, "none")


def test_a_sure_member_that_outvotes_two_gets_no_consensus() -> None:
    """Under the mean logit, one sure member decides against two unsure ones: the label is its own alone."""
    votes = table([{"gpt": SETS[0], "claude": SETS[0], "gemini": SETS[1]}])
    sure = [0.999 if name == "rape_past" else 0.001 for name in CATEGORY.names]
    unsure = [0.45 if name == "rape_past" else 0.55 if name == "no_crisis" else 0.01 for name in CATEGORY.names]
    scores = {RECORD: {"gpt": tuple(unsure), "claude": tuple(unsure), "gemini": tuple(sure)}}
    ballots, _ = valid(votes, category="labels")
    panel = Panel(ballots, members=MEMBERS, items=[RECORD], category=CATEGORY, scores=scores)
    decided = panel.decide("mean_logit")
    assert decided[RECORD] == Decision(SETS[1], "none", "mean_logit")
    paper = statistics.agreement_of_members(decided, panel=panel, split={RECORD: "train"})
    assert paper == {"train": {"unanimous": 0, "consensus": 1, "none": 0, "differs": 1}}


def test_a_posterior_is_a_distribution_over_valid_sets_and_follows_the_votes() -> None:
    rng = random.Random(11)
    rows = [{m: SETS[i % 3] if rng.random() < 0.8 else rng.choice(SETS[:3]) for m in MEMBERS} for i in range(60)]
    votes = table([*rows, {"gpt": SETS[0], "claude": "refused", "gemini": "failed"}])
    (ballots, scores), items = valid(votes, category="labels"), sorted(set(tables.items_of(votes)))
    panel = Panel(ballots, members=MEMBERS, items=items, category=CATEGORY, scores=scores)
    for name in ("label_set_majority", "mean_logit"):
        model = panel.model_of(name)
        assert model.posterior(("0060", 0), labels=SETS[0]) is None, "one vote of three is no quorum"
        for record in (RECORD, ("0001", 0)):
            shares = [model.posterior(record, labels=labels) for labels in CATEGORY.valid_sets(most=4)]
            assert sum(p or 0 for p in shares) == pytest.approx(1)
            scores = dict(zip(CATEGORY.names, model.scores(record) or [], strict=True))
            by_set = {s: model.posterior(record, labels=s) or 0 for s in CATEGORY.valid_sets(most=4)}
            assert scores["rape_past"] == pytest.approx(sum(p for s, p in by_set.items() if "rape_past" in s))
        decided = panel.decide("dawid_skene" if name == "label_set_majority" else name)
        for record, decision in decided.items():
            if decision.labels is not None:
                best = max(model.posterior(record, labels=s) or 0 for s in CATEGORY.valid_sets(most=4))
                assert model.posterior(record, labels=decision.labels) == pytest.approx(best)


@pytest.mark.parametrize("name", [n for n in AGGREGATORS if n != "dawid_skene"])
@settings(max_examples=30, deadline=None)
@given(rows=vote_sets, seed=st.integers(0, 1000), order=st.permutations(MEMBERS))
def test_no_order_of_rows_or_labellers_changes_anything(
    name: str, rows: list[dict[str, object]], seed: int, order: list[str]
) -> None:
    one = decide(table(rows), name, fallback="claude")
    assert decide(table(rows, seed=seed), name, members=order, fallback="claude") == one


@settings(max_examples=40, deadline=None)
@given(rows=vote_sets, data=st.data())
def test_what_is_no_vote_never_gets_through(rows: list[dict[str, object]], data: st.DataObject) -> None:
    votes = table(rows, labelled=True)
    ballots, _ = valid(votes, category="labels")
    let_in = {(record, member) for (record, _), cast in ballots.items() for member in cast}
    voted = {(f"{i:04d}", m) for i, row in enumerate(rows) for m in row if isinstance(row[m], frozenset)}
    assert let_in == voted
    # which outcome it was, and what it carried, changes no decision either
    other = [
        {m: a if isinstance(a, frozenset) else data.draw(st.sampled_from(OUTCOMES)) for m, a in row.items()}
        for row in rows
    ]
    for name in ("label_set_majority", "k_of_n", "weighted", "mean_logit"):
        assert decide(votes, name) == decide(table(other), name)


def test_an_unknown_outcome_is_no_vote_either() -> None:
    votes = table([{"gpt": "Vote"}, {"gpt": "voted"}, {"gpt": ""}], labelled=True)
    assert valid(votes, category="labels") == ({}, {})


def test_votes_of_another_category_stay_out() -> None:
    assert valid(table([{"gpt": SETS[0]}]), category="severity") == ({}, {})


def test_two_votes_of_one_labeller_are_refused_not_chosen_from() -> None:
    twice = pa.concat_tables([table([{"gpt": SETS[0]}]), table([{"gpt": SETS[1]}])])
    with refused("TwoVotes"):
        valid(twice, category="labels")


def test_of_five_members_two_are_no_majority() -> None:
    members = ("a", "b", "c", "d", "e")
    row = dict(zip(members, [SETS[0], SETS[0], SETS[1], SETS[1], SETS[2]], strict=True))
    assert decide(table([row]), "label_set_majority", members=members)["0000"].labels is None
    row["e"] = SETS[1]
    assert decide(table([row]), "label_set_majority", members=members)["0000"] == Decision(
        SETS[1], "consensus", "majority"
    )


def test_k_of_n_votes_label_by_label() -> None:
    rows = [
        {"gpt": SETS[1], "claude": SETS[3], "gemini": SETS[2]},  # each label twice, no set twice
        {"gpt": SETS[0], "claude": SETS[1], "gemini": SETS[2]},  # nothing twice
        {"gpt": SETS[1], "claude": "refused", "gemini": "failed"},
    ]
    got = decide(table(rows), "k_of_n")
    assert got["0000"] == Decision(SETS[3], "none", "k_of_n")
    assert got["0001"].labels is got["0002"].labels is None


def test_k_of_n_obeys_the_rules_of_the_scheme() -> None:
    past, now = frozenset({"rape_past"}), frozenset({"rape_ongoing"})
    ballots = {"r": {"a": past, "b": now, "c": SETS[0]}}
    got = Panel(ballots, members="abc", items=["r"], category=CATEGORY, k=1).apply("k_of_n")
    assert got["r"].labels == now  # ongoing before past, and no_crisis only alone


def test_weights_follow_what_a_member_gets_right() -> None:
    gold = {f"{i}": SETS[i % 3] for i in range(30)}
    wrong = dict.fromkeys(gold, SETS[4])
    ballots = {r: {"good": gold[r], "bad": wrong[r], "half": gold[r] if int(r) % 2 else wrong[r]} for r in gold}
    members = ("good", "bad", "half")
    weights = aggregate.weights_of(Panel(ballots, members=members, items=[], category=CATEGORY, gold=gold))
    assert weights["good"] > weights["half"] > weights["bad"]
    # two that are no better than chance do not outvote one that is right
    got = Panel(
        {"x": {"good": SETS[0], "bad": SETS[1], "bad2": SETS[1]}},
        members=("good", "bad", "bad2"),
        items=["x"],
        category=CATEGORY,
        weights={**weights, "bad2": weights["bad"]},
    ).apply("weighted")
    # the other two agree, but not on this label
    assert got["x"] == Decision(SETS[0], "none", "weighted")


def test_equal_weights_are_a_tie() -> None:
    ballots = {"x": {"a": SETS[0], "b": SETS[1]}}
    weights = {"a": 1.0, "b": 1.0, "c": 9.0}
    panel = Panel(ballots, members=("a", "b", "c"), items=["x"], category=CATEGORY, weights=weights)
    got = panel.apply("weighted")
    assert got["x"] == Decision(None, "none", "discarded")


def test_dawid_skene_learns_reliabilities() -> None:
    rng = random.Random(5)
    truth = {f"{i:03d}": rng.choice(SETS[:3]) for i in range(80)}

    def noisy(labels: frozenset[str], rate: float) -> frozenset[str]:
        return rng.choice(SETS[:3]) if rng.random() < rate else labels

    ballots = {r: {"a": noisy(s, 0.05), "b": noisy(s, 0.5), "c": noisy(s, 0.5)} for r, s in truth.items()}
    panel = Panel(ballots, members=("a", "b", "c"), items=sorted(truth), category=CATEGORY)
    learnt, voted = panel.apply("dawid_skene"), panel.apply("label_set_majority")
    right = [sum(found[r].labels == truth[r] for r in truth) for found in (learnt, voted)]
    assert right[0] > right[1]
    assert all(d.labels is None or d.labels in CATEGORY.valid_sets() for d in learnt.values())


def test_mean_logit_on_equal_probabilities_is_a_tie() -> None:
    same = tuple(0.5 for _ in CATEGORY.names)
    panel = Panel({}, members=("a",), items=["x"], category=CATEGORY, scores={"x": {"a": same}})
    got = panel.apply("mean_logit")
    assert got["x"].labels is None


def test_an_empty_set_is_a_vote_where_a_scheme_has_one() -> None:
    figurative = load("figsim").category("figurative")
    none, one = frozenset[str](), frozenset({figurative.names[0]})
    ballots = {"x": {"a": none, "b": none, "c": one}}
    panel = Panel(ballots, members="abc", items=["x"], category=figurative)
    assert panel.apply("label_set_majority")["x"] == Decision(none, "consensus", "majority")
    assert panel.apply("k_of_n")["x"].labels == none


def test_broken_rules_are_counted_for_gold_members_and_ensemble() -> None:
    past, both = frozenset({"rape_past"}), frozenset({"rape_past", "rape_ongoing"})
    ballots = {"r": {"a": both, "b": past}, "s": {"a": both}}
    panel = Panel(ballots=ballots, members=("a", "b"), items=["r", "s"], category=CATEGORY)
    decisions = {"r": Decision(past, "consensus", "majority"), "s": Decision(None, "none", "discarded")}
    found = statistics.violations(panel, decisions=decisions, gold={"r": past | {"sexualharassment_past"}})
    assert list(found["gold"].values()) == [1]  # a soft rule, which no mode repairs
    assert found["a"] == {"ongoing_before_past": 2}
    assert found["b"] == found["ensemble"] == {}
