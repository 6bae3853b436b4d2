"""When a picture is read a second time, mirrored."""

import io

import pytest
from PIL import Image

from pipelines.collect.read.language import CaptionReader, LanguageGate
from pipelines.collect.read.ocr import OcrReading
from pipelines.core.config.collect import Language

GATE = LanguageGate(Language(accept=0.8, reject=0.03, lingua_accept=0.15, lingua_confirm=0.04, min_letters=4))
NOTHING = OcrReading("", 0.0, "e", unread=1.0)


class Readings:
    """An engine that gives prepared answers."""

    identity = "e"

    def __init__(self, *answers):
        self.answers = list(answers)

    def read(self, data):
        return self.answers.pop(0)


@pytest.fixture(scope="module")
def jpeg():
    out = io.BytesIO()
    Image.new("RGB", (16, 16)).save(out, "JPEG")
    return out.getvalue()


@pytest.mark.parametrize(("confidence", "kept"), [(0.64, True), (0.4, False)])
def test_a_sign_that_cannot_be_read_hides_no_mirrored_caption(jpeg, confidence, kept):
    caption = OcrReading("guess who is back", confidence, "e", unread=0.35)
    reading, verdict = CaptionReader(Readings(NOTHING, caption), GATE).read(jpeg)
    assert (reading, verdict.kept) == ((caption, True) if kept else (NOTHING, False))


def test_what_is_clearly_english_is_read_once(jpeg):
    caption = OcrReading("guess who is back", 0.97, "e")
    assert CaptionReader(Readings(caption), GATE).read(jpeg)[0] == caption
