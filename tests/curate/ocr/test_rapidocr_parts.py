"""What is added to RapidOCR: spaces that were a second choice, arcs whose hollow the detector fills, lines alone."""

import cv2
import numpy as np
import pytest

from pipelines.collect.read.ocr.rapidocr import RapidOcr, RapidOcrEntry
from pipelines.collect.read.rapidocr_parts import MAYBE_SPACE, SpacedDecode, straightened

BLANK, A, B, SPACE = range(4)


def decoded(*frames: dict[int, float]) -> str:
    answers = np.zeros((1, len(frames), 4), np.float32)
    for place, frame in enumerate(frames):
        for character, share in frame.items():
            answers[0, place, character] = share
    lines, _ = SpacedDecode(character=["A", "B"])(answers)
    return lines[0][0]


@pytest.mark.parametrize(("share", "text"), [(MAYBE_SPACE + 0.01, "A B"), (MAYBE_SPACE - 0.01, "AB")])
def test_a_likely_space_is_read_where_the_recogniser_prefers_nothing(share, text):
    assert decoded({A: 0.9}, {BLANK: 0.7, SPACE: share}, {B: 0.9}) == text


def test_a_letter_is_never_replaced_by_a_space():
    assert decoded({A: 0.6, SPACE: 0.4}, {BLANK: 1.0}, {B: 0.6, SPACE: 0.4}) == "AB"


def arc(*, filled: bool) -> tuple[np.ndarray, np.ndarray]:
    """A white arc on black, and the detector's mask of its middle."""
    picture, mask = np.zeros((160, 480, 3), np.uint8), np.zeros((160, 480), np.uint8)
    for canvas, width in ((picture, 32), (mask, 12)):
        cv2.ellipse(canvas, (240, 240), (220, 200), 0, 225, 315, (255, 255, 255) if width == 32 else 1, width)
    if filled:
        cv2.ellipse(mask, (240, 95), (90, 50), 0, 180, 360, 1, -1)
    return picture, mask


@pytest.mark.parametrize("filled", [False, True])
def test_an_arc_is_straight_in_a_strip_also_if_its_hollow_is_filled(filled):
    picture, mask = arc(filled=filled)
    corners = np.array([[60, 0], [420, 0], [420, 159], [60, 159]])
    strips = straightened(picture, mask, corners)
    white = [float((strip[20:28, 40:-40] > 128).mean()) for strip in strips]
    assert max(white) > 0.95


def test_a_straight_line_is_left_alone():
    picture = np.zeros((160, 480, 3), np.uint8)
    mask = np.zeros((160, 480), np.uint8)
    mask[70:82, 60:420] = 1
    assert straightened(picture, mask, np.array([[50, 60], [430, 60], [430, 92], [50, 92]])) == []


def test_a_line_is_read_the_same_beside_a_longer_one():
    def line(text, width):
        picture = np.full((48, width, 3), 255, np.uint8)
        cv2.putText(picture, text, (8, 34), cv2.FONT_HERSHEY_SIMPLEX, 1, (0, 0, 0), 2)
        return picture

    short, longer = line("my plans", 170), line("a very long line about the weekend", 640)
    engine = RapidOcr(RapidOcrEntry())._engine
    alone, beside = engine.recognize_txt([short]), engine.recognize_txt([short, longer])
    assert (alone.txts[0], alone.scores[0]) == (beside.txts[0], beside.scores[0])
    assert alone.txts[0] == "my plans"
