"""The two engines that run here, on the same pictures, with their real models."""

import logging
import socket
import subprocess
import sys
from collections import Counter
from random import Random
from types import SimpleNamespace

import pytest

from bench.second_world import layouts, world
from pipelines.collect.read import confined_child, confined_engine
from pipelines.collect.read.confined_engine import open_engine
from pipelines.collect.read.engine import OcrReading
from pipelines.collect.read.language import CaptionReader, LanguageGate, mirrored
from pipelines.collect.read.words import words
from pipelines.core.config.base import Distribution
from pipelines.core.config.collect import Language, Ocr
from pipelines.core.errors import BadParams, ConfigError, DataError, EngineMissing
from tests import small_distribution
from tests.curate.ocr import drawing

GATE = Language(accept=0.8, reject=0.03, lingua_accept=0.15, lingua_confirm=0.04, min_letters=4)
RUSSIAN = "мой кот смотрит на меня\nпока я ищу ключи"


def ocr(engine):
    return Ocr(engine=engine)


@pytest.fixture(scope="module")
def rapid():
    return open_engine(ocr("rapidocr"))


@pytest.fixture(scope="module")
def tesseract():
    try:
        return open_engine(ocr("tesseract"))
    except EngineMissing as error:
        pytest.skip(str(error))


@pytest.fixture(params=["rapid", "tesseract"])
def engine(request):
    return request.getfixturevalue(request.param)


def test_reads_outlined_capitals(engine):
    reading = engine.read(drawing.capitals("STILL WAITING\nFOR MONDAY"))
    assert words(reading.text) == ["still", "waiting", "for", "monday"]
    assert len(words(reading.text)) == 4
    assert reading.confidence > 0.8
    assert reading.engine == engine.identity


def test_reads_columns_one_after_the_other(engine):
    picture = drawing.paper(("my plans for\nthe weekend", 30), ("a very long\nblue email", 460))
    assert words(engine.read(picture).text) == words("my plans for the weekend a very long blue email")


def test_a_picture_without_text_reads_as_nothing(engine):
    reading = engine.read(drawing.jpeg(drawing.background()))
    assert (reading.text, reading.confidence, reading.unread) == ("", 0.0, 0.0)


def test_damaged_bytes_are_an_error(engine):
    with pytest.raises(DataError):
        engine.read(b"no picture")


@pytest.mark.parametrize(
    "draw", [lambda: drawing.capitals(RUSSIAN.upper(), size=32), lambda: drawing.paper((RUSSIAN, 30))]
)
def test_russian_is_neither_english_nor_no_text(rapid, draw):
    reading = rapid.read(draw())
    verdict = LanguageGate(GATE).judge(reading.text, confidence=reading.confidence, unread=reading.unread)
    assert not verdict.kept
    assert verdict.language not in ("en", "none")


def test_rapidocr_opens_no_connection_and_logs_nothing(monkeypatch, caplog, capfd):
    def refuse(*args):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with caplog.at_level(logging.DEBUG):
        open_engine(ocr("rapidocr")).read(drawing.capitals("QUIET WORDS"))
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_opening_one_engine_imports_no_other():
    code = (
        "import sys; from pipelines.collect.read.confined_engine import open_engine;"
        "from pipelines.core.config.collect import Ocr;"
        "open_engine(Ocr(engine='rapidocr'));"
        "heavy = ('pytesseract', 'google.cloud', 'rapidocr', 'onnxruntime', 'cv2');"
        "sys.exit(any(name.startswith(heavy) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ECHO = """
from pipelines.collect.read.engine import Engine, OcrReading
from pipelines.core.config.base import Section

class EchoEntry(Section):
    word: str = "echo"

class Echo(Engine):
    Parameters = EchoEntry

    def __init__(self, params):
        self.identity, self.word = "echo-1", params.word

    def read(self, data):
        try:
            open("/etc/hostname").close()
        except OSError:
            return OcrReading(self.word, 1.0, self.identity)
        return OcrReading("unconfined", 1.0, self.identity)
"""


def test_an_engine_of_another_distribution_is_confined_too(tmp_path, monkeypatch):
    files, points = {"echo_part.py": ECHO}, "[crisis_corpus.ocr]\necho = echo_part:Echo\n"
    with small_distribution.installed(tmp_path, monkeypatch, files=files, points=points):
        allowed = {"foreign": Distribution(**small_distribution.entry())}
        here = f"import sys; sys.path.append({str(tmp_path)!r});"
        monkeypatch.setattr(confined_child, "START", here + confined_child.START)
        monkeypatch.setattr(confined_engine, "readable", lambda: [*confined_child.readable(), str(tmp_path)])
        engine = open_engine(Ocr(engine="echo", engines={"echo": {"word": "heard"}}), allowed=allowed)
        identity = f"echo-1@{allowed['foreign'].sha256[:16]}"
        assert engine.read(drawing.jpeg(drawing.background())) == OcrReading("heard", 1.0, identity)
        with pytest.raises(BadParams, match=r"images\.ocr\.engines\.echo\.word") as refused:
            open_engine(Ocr(engine="echo", engines={"echo": {"word": 7}}), allowed=allowed)
        assert "7" not in str(refused.value)
    with pytest.raises(ConfigError, match="known: google_vision, rapidocr, tesseract"):
        open_engine(Ocr(engine="echo"))


def test_missing_tesseract_names_the_package(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EngineMissing, match="apt-get install tesseract-ocr"):
        open_engine(ocr("tesseract"))


def test_a_curved_line_is_read(rapid):
    plan = next(plan for plan in world.plans(1, count=91, per_template=5, foreign=0) if plan.number == "en90")
    picture = layouts.arc(plan.template.background(mirrored=False), plan.caption, Random("b"), plan.template)
    said, read = Counter(words(plan.caption)), Counter(words(rapid.read(drawing.jpeg(picture)).text))
    assert (said & read).total() >= 0.8 * said.total()


def test_a_mirrored_picture_is_read_like_the_original(rapid):
    reader = CaptionReader(rapid, LanguageGate(GATE))
    reading, verdict = reader.read(mirrored(drawing.paper(("my plans for\nthe weekend", 30))))
    assert (words(reading.text), verdict.language) == (words("my plans for the weekend"), "en")


def read_with(*readings):
    """Read a picture of which an engine gives these readings, one after the other."""
    answers = iter(readings)
    engine = SimpleNamespace(identity="e", read=lambda _: next(answers))
    return CaptionReader(engine, LanguageGate(GATE)).read(drawing.jpeg(drawing.background()))


@pytest.mark.parametrize(("confidence", "kept"), [(0.64, True), (0.4, False)])
def test_a_sign_that_cannot_be_read_hides_no_mirrored_caption(confidence, kept):
    nothing = OcrReading("", 0.0, "e", unread=1.0)
    caption = OcrReading("guess who is back", confidence, "e", unread=0.35)
    reading, verdict = read_with(nothing, caption)
    assert (reading, verdict.kept) == ((caption, True) if kept else (nothing, False))


def test_what_is_clearly_english_is_read_once():
    caption = OcrReading("guess who is back", 0.97, "e")
    assert read_with(caption)[0] == caption
