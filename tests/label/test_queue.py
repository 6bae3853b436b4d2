"""Who is sent to people: what is left open, what is milder than someone saw, what was refused, what talks to models."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.taxonomy import load
from pipelines.label import silver
from pipelines.label.aggregate import Decision, Panel

CATEGORY = load("cradle").category()
MEMBERS = ("gpt", "claude", "gemini")
NOTHING, PAST = frozenset({"no_crisis"}), frozenset({"rape_past"})
NOW, ACTIVE = frozenset({"selfharm_ongoing"}), frozenset({"suicideideation_active_ongoing"})


def queued(votes: dict[str, frozenset[str]], *, refused: set[str] = frozenset(), injected: bool = False) -> tuple:
    panel = Panel({"r": votes}, members=MEMBERS, items=["r"], category=CATEGORY)
    found = silver.reasons(
        panel.decide("label_set_majority"), panel=panel, refused={"r": refused}, injected={"r"} if injected else set()
    )
    return found.get("r", ())


sets = st.sampled_from([NOTHING, PAST, NOW, ACTIVE])


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(MEMBERS), sets))
def test_no_silver_label_is_milder_than_a_vote_in_silence(votes: dict[str, frozenset[str]]) -> None:
    panel = Panel({"r": votes}, members=MEMBERS, items=["r"], category=CATEGORY)
    decision = panel.decide("label_set_majority")["r"]
    if not queued(votes):
        assert decision != Decision(None, "none", "discarded")
        assert CATEGORY.severity(decision.labels) == max(CATEGORY.severity(labels) for labels in votes.values())
