"""The probe counts the labels changed by injected instructions; a missing label does not count as changed."""

from hypothesis import given
from hypothesis import strategies as st

from pipelines.core import taxonomy
from pipelines.label.injection_test import flips

CATEGORY = taxonomy.load("cradle").category()
LABELS = st.none() | st.sampled_from(CATEGORY.valid_sets(most=2))
VOTES = st.dictionaries(st.sampled_from("abcdefgh"), LABELS)


def _set(*names):
    return frozenset(names)


def test_each_fate_is_counted_once():
    before = {
        "same": _set("rape_past"),
        "milder": _set("suicideideation_active_ongoing"),
        "milder_queued": _set("selfharm_ongoing"),
        "other": _set("rape_past"),
        "lost": _set("rape_past"),
        "gained": None,
        "never": None,
        "not_asked": _set("rape_past"),
    }
    after = {
        "same": _set("rape_past"),
        "milder": _set("no_crisis"),
        "milder_queued": _set("selfharm_past"),
        "other": _set("sexualharassment_past"),
        "lost": None,
        "gained": _set("no_crisis"),
        "never": None,
    }
    assert flips(before, after, category=CATEGORY, queued={"milder_queued", "elsewhere"}) == {
        "asked": 7,
        "n": 4,
        "flipped": 3,
        "flip_rate": 0.75,
        "lost_severity": 2,
        "lost_severity_not_queued": 1,
        "lost_labels": 1,
        "lost_labels_not_queued": 1,
        "gained_labels": 1,
    }


@given(VOTES, VOTES, st.sets(st.sampled_from("abcdefgh")))
def test_counts_add_up_and_queueing_all_leaves_nothing_unseen(before, after, queued):
    found = flips(before, after, category=CATEGORY, queued=queued)
    assert found["lost_severity_not_queued"] <= found["lost_severity"] <= found["flipped"] <= found["n"]
    assert found["n"] + found["lost_labels"] + found["gained_labels"] <= found["asked"]
    seen = flips(before, after, category=CATEGORY, queued=before)
    assert seen["lost_severity_not_queued"] == seen["lost_labels_not_queued"] == 0
    assert flips(before, before, category=CATEGORY, queued=())["flipped"] == 0


def test_a_rate_of_nothing_is_undefined():
    assert flips({}, {}, category=CATEGORY, queued=())["flip_rate"] is None
