"""What a synthetic post says is read back exactly, whatever happens to the words around its sentences."""

import re
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from crisis_corpus_sandbox.reddit import label_quotas, narratives, statements
from crisis_corpus_sandbox.reddit.narratives import fingerprint, recognise, write
from crisis_corpus_sandbox.reddit.post_world import BOILERPLATE, INJECTIONS
from pipelines.collect.scrub import KINDS, MODELLED, scrub
from tests.sandbox.test_build import FORBIDDEN

SETS = sorted({frozenset(row) for row in label_quotas.cradle(2000, rng=Random(1))}, key=sorted)
RULES = [kind for kind in KINDS if kind not in MODELLED]


def shown(narrative):
    return f"{narrative.title}\n{narrative.body}"


def drawn(seed, number, words):
    return write(sorted(SETS[number % len(SETS)]), rng=Random(seed), words=words)


posts = st.tuples(st.integers(0, 10**6), st.integers(0, len(SETS) - 1), st.sampled_from([5, 12, 24, 25, 60, 200, 700]))


@settings(deadline=None, max_examples=200)
@given(drawn_by=posts)
def test_a_post_carries_exactly_its_labels(drawn_by):
    text, truth = shown(drawn(*drawn_by)), SETS[drawn_by[1]]
    assert recognise(text) == truth
    assert recognise(f"Title: {text} Text:") == truth


@settings(deadline=None, max_examples=100)
@given(drawn_by=posts, which=st.integers(0, len(INJECTIONS) - 1), at=st.integers(0, 20))
def test_scrubbing_case_blanks_and_injections_change_nothing(drawn_by, which, at):
    narrative, truth = drawn(*drawn_by), SETS[drawn_by[1]]
    said = narrative.body.split("\n\n")
    said.insert(at % (len(said) + 1), INJECTIONS[which])
    body = "\n\n".join([*said, "Write to a.b@example.org, +1 202-555-0142. Ask u/Some_One.", BOILERPLATE])
    text = f"{narrative.title}\n{body}"
    scrubbed, _ = scrub(text, kinds=RULES)
    for changed in (text, scrubbed, text.lower(), text.upper(), " ".join(text.split()), text.replace(" ", " \n ")):
        assert recognise(changed) == truth
    assert fingerprint(f"{narrative.title}\n" + "\n\n".join(said)) == fingerprint(shown(narrative))


@settings(deadline=None, max_examples=100)
@given(drawn_by=posts, start=st.integers(0, 4000), gone=st.integers(20, 4000))
def test_a_cut_takes_labels_away_and_never_adds_one(drawn_by, start, gone):
    text = shown(drawn(*drawn_by))
    cut = f"{text[:start]} … {text[start + gone :]}"
    assert recognise(cut) <= SETS[drawn_by[1]] | {"no_crisis"}
    whole = [sentence for _, sentence in narratives.statements(text)]
    left = " ".join(narratives.bare(text[:start])), " ".join(narratives.bare(text[start + gone :]))
    kept = {s for s in whole if any(f" {s} " in f" {part} " for part in left)}
    assert kept <= {s for _, s in narratives.statements(cut)}


def test_every_sentence_with_a_label_is_known_as_that_label_alone():
    every = list(narratives.every_statement())
    assert {label for label, _ in every} == set(label_quotas.CRADLE) - {"no_crisis"}
    assert [s for label, s in every if recognise(s) != {label}] == []
    assert min(len(s.split()) for _, s in every) >= 5
    assert len({tuple(narratives.bare(s)) for _, s in every}) == len(every)


def test_other_people_denials_and_small_talk_carry_nothing():
    said = [f"{frame} {m}" for frame in statements.FRAMES for ms in statements.MENTIONS.values() for m in ms]
    said += [d for ds in statements.DENIALS.values() for d in ds]
    said += [*statements.TALK, *statements.TITLES, *INJECTIONS, BOILERPLATE, "", "a b"]
    assert [text for text in said if recognise(text) != {"no_crisis"}] == []


def test_every_label_has_several_wordings_and_both_times_share_words():
    assert min(map(len, statements.STATEMENTS.values())) >= 5
    for kind in statements.MENTIONS:
        said = [" ".join(statements.STATEMENTS[f"{kind}_{when}"]) for when in ("ongoing", "past")]
        ongoing, past = (set(re.findall(r"[a-z]{4,}", text)) for text in said)
        assert len(ongoing & past) >= 3


def test_no_forbidden_word_in_any_sentence():
    said = [s for _, s in narratives.every_statement()] + [*statements.TALK, *statements.TITLES, *statements.FRAMES]
    said += [m for ms in (*statements.MENTIONS.values(), *statements.DENIALS.values()) for m in ms]
    said += [w for words in statements.VOCABULARY.values() for w in words]
    assert not set(re.findall(r"[a-z]+", " ".join(said).lower())) & FORBIDDEN
