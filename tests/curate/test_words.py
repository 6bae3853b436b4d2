import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.collect.read.vocabulary import repaired, split_glued
from pipelines.collect.read.words import normalise, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  ...!?  ", []),
        ('Don\'t-worry, "OK"', ["don't", "worry", "ok"]),
        ("DON\u2019T", ["don't"]),
        ("'quoted' dogs' rock'n'roll", ["quoted", "dogs", "rock'n'roll"]),
        ("no,thanks\nyes.no", ["no", "thanks", "yes", "no"]),
        ("\ufb01ne \uff28\uff49", ["fine", "hi"]),
        ("Stra\u00dfe caf\u00e9", ["strasse", "caf\u00e9"]),
        (
            "\u043f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440",
            ["\u043f\u0440\u0438\u0432\u0435\u0442", "\u043c\u0438\u0440"],
        ),
        ("<email> at 5pm", ["email", "at", "5pm"]),
    ],
)
def test_words_are_folded_and_stripped(text, expected):
    assert words(text) == expected


@given(st.text())
def test_words_of_words_are_the_same_words(text):
    once = words(text)
    assert words(" ".join(once)) == once or any(not unicodedata.is_normalized("NFKC", w) for w in once)


@given(st.lists(st.text(alphabet="abc'", min_size=1)))
def test_ascii_and_general_route_agree(pieces):
    text = " ".join(pieces)
    assert words(text + " \u00e9") == [*words(text), "\u00e9"]


@given(st.text())
def test_normalised_text_has_single_spaces_and_stays(text):
    once = normalise(text)
    assert once == normalise(once)
    assert "  " not in once
    assert words(once) == words(text)


@pytest.mark.parametrize(
    ("glued", "split"),
    [
        ("FINALLYHERE", "FINALLY HERE"),
        ("thatfeelingwhen", "that feeling when"),
        ("didn'tsayanything.", "didn't say anything."),
        ("imissyou", "i miss you"),
        ("nobody:absolutelynobody", "nobody:absolutely nobody"),
    ],
)
def test_glued_words_are_split(glued, split):
    assert split_glued(glued, letters=8) == split


def test_words_names_and_other_languages_stay_whole():
    kept = ["responsibilities", "overthinking", "ATALL", "Wochenende", "finalmente", "yolundaymış", "wszystkojest"]
    names = ["@quietkettle", "u/quietkettle", "quiet_kettle", "quietkettle.example", "quietkettle99"]
    assert [split_glued(whole, letters=8) for whole in kept + names] == kept + names


@given(st.text())
def test_splitting_only_adds_spaces(text):
    assert split_glued(text, letters=8).replace(" ", "") == "".join(text.split())


@given(st.text(alphabet="abcdehilnorst' ", max_size=60))
def test_splitting_twice_changes_nothing(text):
    once = split_glued(text, letters=8)
    assert split_glued(once, letters=8) == once


@pytest.mark.parametrize(
    ("read", "meant"),
    [
        ("the laundry hás been there since Tuesday", "the laundry has been there since Tuesday"),
        ("the gooše is already there at the café", "the goose is already there at the café"),
        ("THE GOOSE AFTERI COME HOME", "THE GOOSE AFTER I COME HOME"),
        ("Ihave seen that there is NOWAY out", "I have seen that there is NO WAY out"),
        ("sunny soof course", "sunny so of course"),
        ("WAITING FOR FRIDAY AT4:59", "WAITING FOR FRIDAY AT 4:59"),
        ("send my mp3 to Toby and Andi b4 noon", "send my mp3 to Toby and Andi b4 noon"),
        ("no me digas", "no me digas"),
        ("más que nada me gusta la mañana", "más que nada me gusta la mañana"),
        ("Siobhán is already there", "Siobhán is already there"),
    ],
)
def test_english_is_repaired_and_nothing_else(read, meant):
    assert repaired(read) == meant
