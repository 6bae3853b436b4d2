import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.collect.read.layout import Box, compose, reading_order
from pipelines.collect.read.words import words


def box(text, left, top, *, width=100, height=20, confidence=0.9, read=True):
    return Box(text, confidence, left, top, left + width, top + height, read)


def texts(boxes):
    return [block.text for block in reading_order(boxes)]


@pytest.mark.parametrize(
    ("boxes", "read"),
    [
        # lines of a block stay together beside another block
        ([("three", 300, 3), ("four", 300, 27), ("one", 0, 0), ("two", 0, 25)], ["one two", "three four"]),
        # panels are read row by row
        ([("d", 400, 295), ("c", 0, 300), ("b", 400, 5), ("a", 0, 0)], ["a", "b", "c", "d"]),
        # words of one line come from the left, whatever their tilt
        ([("right", 108, 4), ("left", 0, 0)], ["left right"]),
        # labels are read from the top
        ([("low", 10, 400), ("high", 500, 30), ("middle", 250, 200)], ["high", "middle", "low"]),
    ],
)
def test_the_reading_order(boxes, read):
    assert [block.text for block in reading_order([box(*place) for place in boxes])] == read


def test_confidence_and_unread_are_weighted_by_length():
    reading = compose(
        [box("read", 0, 0, width=300, confidence=0.8), box("", 0, 100, confidence=0.9, read=False)],
        engine="e",
        split_words_from=8,
        pixels=40_000,
    )
    assert (reading.text, reading.confidence, reading.unread) == ("read", 0.6, 0.25)
    assert reading.area == 300 * 20 / 40_000  # of the line that was read


def test_a_sign_in_another_script_is_not_the_caption():
    sign, caption = box("营业时间", 40, 60, width=60, height=15), box("me today", 0, 0, width=200, height=40)
    assert compose([caption, sign], engine="e", split_words_from=8, pixels=10**6).text == "me today"
    chinese = box("终于坐下来的时候", 0, 0, width=300, height=40)
    assert (
        compose([chinese, box("EXIT 12", 40, 60, width=60)], engine="e", split_words_from=8, pixels=10**6).text
        == chinese.text
    )
    both = [caption, box("我今天", 0, 60, width=160, height=40)]
    assert compose(both, engine="e", split_words_from=8, pixels=10**6).text == "me today 我今天"


def test_nothing_but_punctuation_is_nothing():
    reading = compose([box("...", 0, 0)], engine="e", split_words_from=8, pixels=10**6)
    assert (reading.text, reading.confidence) == ("", 0.0)


boxes = st.lists(
    st.builds(
        box,
        st.text(alphabet="abc", min_size=1, max_size=4),
        st.integers(0, 600),
        st.integers(0, 400),
        width=st.integers(5, 300),
        height=st.integers(5, 60),
    ),
    max_size=12,
)


@given(boxes)
def test_every_box_is_read_exactly_once_and_reading_stays_in_bounds(given_boxes):
    reading = compose(given_boxes, engine="e", split_words_from=8, pixels=10**6)
    assert sorted(" ".join(texts(given_boxes)).split()) == sorted(b.text for b in given_boxes)
    assert 0 <= reading.confidence <= 1
    assert reading.unread == 0
    assert len(words(reading.text)) == len(given_boxes)
