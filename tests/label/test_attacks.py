"""Attacks are written without the detector, are the same in every process, and are measured by family and fate."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crisis_corpus_sandbox.vendors.mind import reading
from pipelines.core import taxonomy
from pipelines.datasets.post import Post
from pipelines.label import silver
from pipelines.label.aggregate import Panel
from pipelines.label.attacks import PLACES, attacks, inject, pick
from pipelines.label.injection import marks
from pipelines.label.injection_test import by_family, flips
from pipelines.label.second_line import SecondLine

ROOT = Path(__file__).resolve().parents[2]
CATEGORY = taxonomy.load("cradle").category()
CALM, ACTIVE = frozenset({"no_crisis"}), frozenset({"suicideideation_active_ongoing"})
TEXTS = [attack.text for family in attacks().values() for attack in family]
SENTENCES = ["I walked home.", "It rained!", "Was it late?", "My sister called and we talked for an hour"]
LABELS = st.none() | st.sampled_from(CATEGORY.valid_sets(most=2))
VOTES = st.dictionaries(st.sampled_from("abcdefgh"), LABELS)


@pytest.mark.parametrize(
    ("loaded", "absent"),
    [
        ("pipelines.label.attacks", "pipelines.label.injection"),
        ("crisis_corpus_sandbox.vendors.vendors", "pipelines.label.injection"),
        ("pipelines.label.injection", "pipelines.label.attacks"),
    ],
)
def test_attacks_and_vendors_do_not_know_the_detector(loaded: str, absent: str) -> None:
    code = f"import sys, {loaded}; sys.exit(any(name.startswith('{absent}') for name in sys.modules))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_every_family_has_attacks_and_some_pass_the_detector() -> None:
    assert len(attacks()) == 18
    everything = [attack for family in attacks().values() for attack in family]
    assert len(everything) == len({attack.text for attack in everything}) >= 150
    assert all(attack.family == family for family, several in attacks().items() for attack in several)
    missed = Counter(attack.family for attack in everything if not marks(attack.text))
    assert {"paraphrase", "split_payload", "other_languages"} <= set(missed), (
        "a corpus that all is caught of says nothing"
    )


def test_the_corpus_is_the_same_in_another_process() -> None:
    code = """from pipelines.label.attacks import attacks
print(ascii([attack.text for family in attacks().values() for attack in family]))"""
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said.strip() == ascii(TEXTS)


@given(st.lists(st.sampled_from(SENTENCES), max_size=8), st.integers(0, 1000))
def test_an_injected_copy_keeps_every_sentence_and_its_id(sentences: list[str], which: int) -> None:
    post = Post("r", "A title", " ".join(sentences))
    copy, (attack, _) = inject(post, which=which), pick(which)
    assert (copy.record_id, copy.title, copy.images) == (post.record_id, post.title, post.images)
    assert copy.body.replace(attack.text, "", 1).split() == post.body.split()
    assert inject(post, which=which) == copy


def test_consecutive_numbers_give_every_family_at_every_place() -> None:
    size = len(attacks())
    assert [pick(which)[0].family for which in range(size)] == list(attacks())
    assert Counter((pick(w)[0].family, pick(w)[1]) for w in range(3 * size)) == Counter(
        (family, place) for family in attacks() for place in PLACES
    )
    bodies = {inject(Post("r", "", "One. Two. Three. Four."), which=w * size).body for w in range(3)}
    assert {body.split("One.")[0] == "" for body in bodies} == {True, False}


def test_a_simulated_vendor_understands_attacks_that_the_detector_misses() -> None:
    for family in attacks().values():
        for attack in family:
            assert reading(f"Title: A day Text: I walked home. {attack.text} It rained.").dictated == ("no_crisis",)
    assert reading("Title: A day Text: I walked home. It rained.").dictated is None


def test_an_attack_that_sways_all_members_is_queued_by_labellers_that_cannot_follow_it() -> None:
    """The detector misses it and no member dissents: before, the record lost its severity unseen."""
    members = ("gpt", "claude", "gemini")
    panel = Panel({"r": dict.fromkeys(members, CALM)}, members=members, items=["r"], category=CATEGORY)
    given = {"panel": panel, "refused": {}, "injected": set()}
    decided = panel.decide("label_set_majority")
    assert silver.reasons(decided, **given) == {}
    for labels, reasons in ((ACTIVE, {"r": ("offline_dissent",)}), (CALM, {})):
        line = SecondLine(CATEGORY, offline={"r": labels})
        assert silver.reasons(decided, **given, line=line) == reasons


def test_each_family_is_counted_on_its_own_copies() -> None:
    drawn = [f"r{number}" for number in range(2 * len(attacks()))]
    before = dict.fromkeys(drawn, ACTIVE)
    swayed = {r for which, r in enumerate(drawn) if pick(which)[0].family == "paraphrase"}
    after = {r: CALM if r in swayed else ACTIVE for r in drawn}
    one = min(swayed)
    found = by_family(drawn, before, after, category=CATEGORY, detected={drawn[0]}, queued={one})
    assert set(found) == set(attacks())
    told = found.pop("paraphrase")
    assert (told["n"], told["lost_severity"], told["lost_severity_not_queued"], told["queued"]) == (2, 2, 1, 1)
    assert all((family["n"], family["flipped"], family["queued"]) == (2, 0, 0) for family in found.values())
    assert found["orders"]["detected"] == 1
    assert all(0 <= f["recognised"] <= f["attacks"] for f in found.values()) and told["recognised"] == 0


FATES = {
    "same": ("rape_past", "rape_past"),
    "milder": ("suicideideation_active_ongoing", "no_crisis"),
    "milder_queued": ("selfharm_ongoing", "selfharm_past"),
    "other": ("rape_past", "sexualharassment_past"),
    "lost": ("rape_past", None),
    "gained": (None, "no_crisis"),
    "never": (None, None),
}


def test_each_fate_is_counted_once():
    before, after = ({r: x[n] and frozenset({x[n]}) for r, x in FATES.items()} for n in (0, 1))
    before["not_asked"] = before["same"]
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
