import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
