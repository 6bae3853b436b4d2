"""Labels come in the papers' proportions, obey the papers' rules, and something in the post carries each of them."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crisis_corpus_sandbox.reddit import label_quotas
from crisis_corpus_sandbox.reddit.captions import PHRASES, PICTOGRAMS, compose
from pipelines.core.taxonomy import load, tiers_of

CATEGORY = load("cradle").category()


@pytest.mark.parametrize("count", [100, 459, 1049])
def test_figsim_marginals_are_the_papers(count):
    drawn = label_quotas.figsim(count, rng=Random(5))
    for totals, column in (
        (label_quotas.FIGURATIVE, [c for m in drawn for c in m.figurative]),
        (label_quotas.SEVERITY, [m.severity for m in drawn]),
        (label_quotas.RELATED, [c for m in drawn for c in m.related]),
        (label_quotas.MODALITY, [m.modality for m in drawn]),
        (label_quotas.CONTEXT, [m.context for m in drawn]),
    ):
        found = Counter(column)
        for code, total in totals.items():
            assert abs(found[code] - total * count / label_quotas.MEMES) <= 1
    assert abs(sum(not m.figurative for m in drawn) - label_quotas.FIGURATIVE_NONE * count / label_quotas.MEMES) <= 1
    assert abs(sum(not m.related for m in drawn) - label_quotas.RELATED_NONE * count / label_quotas.MEMES) <= 1


@pytest.mark.parametrize("count", [200, 600, 4181])
def test_cradle_marginals_are_the_papers_and_all_fifteen_occur(count):
    found = Counter(name for row in label_quotas.cradle(count, rng=Random(5)) for name in row)
    assert set(found) == set(label_quotas.CRADLE)
    for name, total in label_quotas.CRADLE.items():
        assert abs(found[name] - total * count / label_quotas.CRADLE_POSTS) <= 2


@settings(deadline=None, max_examples=30)
@given(count=st.integers(1, 400), seed=st.integers(0, 10**6))
def test_cradle_sets_obey_the_hard_rules(count, seed):
    drawn = label_quotas.cradle(count, rng=Random(seed))
    assert len(drawn) == count
    for row in drawn:
        assert 1 <= len(row) <= 4
        assert not CATEGORY.check(row, mode="strict", tiers=tiers_of("improved")).violations


@settings(deadline=None, max_examples=60)
@given(number=st.integers(0, 399), seed=st.integers(0, 10**6), editable=st.booleans())
def test_every_label_is_carried_by_what_its_carrier_says(number, seed, editable):
    rng = Random(seed)
    figsim = label_quotas.figsim(400, rng=Random(1))[number]
    crises = label_quotas.cradle(400, rng=Random(2))[number]
    made = compose(figsim, crises, rng=rng, editable=editable)
    text = " ".join(made.blocks()).lower()
    for code in figsim.carried():
        carrier = made.carriers[code]
        assert (PICTOGRAMS[code] in made.stickers) == (carrier != "text")
        assert any(phrase in text for phrase in PHRASES[code]) == (carrier != "picture")
    modes = {made.carriers[c] for c in figsim.carried()}
    if figsim.modality == "M2":
        assert modes <= {"text"}
    if figsim.modality == "M3":
        assert modes <= {"picture"}
        assert text == ""
    assert set(made.carriers) == {*figsim.carried(), *crises}


def test_the_counted_labels_are_those_of_the_schemes():
    assert set(label_quotas.CRADLE) == set(CATEGORY.names)
    figsim = {x.code for c in load("figsim").categories.values() for x in c.labels}
    for name in ("FIGURATIVE", "SEVERITY", "RELATED", "MODALITY", "CONTEXT"):
        assert set(getattr(label_quotas, name)) <= figsim
