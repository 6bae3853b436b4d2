import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.collect.read.language import LanguageGate, LanguageVerdict
from pipelines.core.config.collect import Language

PARAMS = Language(accept=0.8, reject=0.03, lingua_accept=0.15, lingua_confirm=0.04, min_letters=4)
GATE = LanguageGate(PARAMS)


SHORT = (
    "me today|so tired|why though|big mood|OK THEN|OKTHEN|hello darkness|send help|THE END|bad idea|same old Monday|"
    "a tiny nap|my bed|insert coin|error 404|game over|no thoughts, head empty|I can't even|so it goes|my inbox"
)
FOREIGN = (
    "guten Morgen|keine Ahnung|mi casa|buenos dias|no me digas|hola amigos|je suis fatigue|mon dieu|la fine|che bello|"
    "bom dia|ik ben moe|co to jest|god morgon|dobro jutro|tant pis|was ist los|nog een keer|selamat pagi|gunaydin"
)


@pytest.mark.parametrize("text", SHORT.split("|"))
def test_short_english_captions_are_kept(text):
    assert GATE.judge(text) == LanguageVerdict("en", kept=True)


@pytest.mark.parametrize("text", FOREIGN.split("|"))
def test_short_captions_of_other_languages_are_dropped(text):
    verdict = GATE.judge(text)
    assert not verdict.kept
    assert verdict.language not in ("en", "none")


@pytest.mark.parametrize("text", ["", "?!", "12:40", "2022", "me", "lol", "ну", "🙂🙂🙂🙂🙂"])
def test_fewer_than_four_letters_are_no_text(text):
    assert GATE.judge(text) == LanguageVerdict("none", kept=True)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("мой кот смотрит на меня", "ru"),
        ("ніхто не запитав чому я сьогодні такий втомлений", "uk"),
        ("πάλι δευτέρα και είμαι κουρασμένος", "el"),
        ("今天又是星期一我很累", "zh"),
        ("wenn der Wecker klingelt und du noch müde bist", "de"),
        ("cuando suena el despertador y todavía tienes sueño", "es"),
    ],
)
def test_other_languages_are_named(text, language):
    assert GATE.judge(text) == LanguageVerdict(language, kept=False)


@pytest.mark.parametrize(
    "text", ["finna touch grass brb", "3:42 LTE 83% finna touch grass brb", "all my homies nap", "GOTTA CATCH EM ZZZ"]
)
def test_slang_is_undecided_with_an_english_title_and_dropped_without(text):
    assert not GATE.judge(text).kept
    assert GATE.judge(text, title="This is too real") == LanguageVerdict("und", kept=True)
    assert not GATE.judge(text, title="Nos pasa a todos los lunes").kept


def test_an_english_title_keeps_no_caption_of_another_language():
    foreign = ["cuando por fin te sientas y suena la puerta otra vez", "io che spiego a mia nonna come si usa",
               "keine Ahnung", "selamat pagi", "终于坐下来的时候门铃又响了"]  # fmt: skip
    assert not any(GATE.judge(text, title="This is too real").kept for text in foreign)
    assert not GATE.judge("KAK TYMAHI", title="This is too real", confidence=0.85).kept


def test_a_misread_caption_is_undecided_with_an_english_title():
    misread, read = "ain't no way bro POH OMOO paid 40 bucks for thåt", {"confidence": 0.83, "unread": 0.15}
    assert not GATE.judge(misread, **read).kept
    assert GATE.judge(misread, title="The struggle is real", **read) == LanguageVerdict("und", kept=True)
    assert not GATE.judge("3iaaf航Tudit", title="Mood", confidence=0.33, unread=0.45).kept


def test_unread_text_is_neither_english_nor_no_text():
    assert GATE.judge("", unread=1.0) == LanguageVerdict("und", kept=False)
    assert GATE.judge("made with a phone", confidence=0.3, unread=0.7) == LanguageVerdict("und", kept=False)
    assert GATE.judge("made with a phone", confidence=0.8, unread=0.2).kept


@pytest.mark.parametrize("text", ["KAK TYMAHI", "4E KIHEb", "MIU MO30K O q HOU!", "SABTPA TOYHO HOBE KUTTA"])
def test_gibberish_of_low_confidence_is_dropped(text):
    assert not GATE.judge(text, confidence=0.85).kept


@given(st.text(), st.floats(0, 1), st.floats(0, 1))
def test_only_english_and_no_text_are_kept(text, confidence, unread):
    verdict = GATE.judge(text, confidence=confidence, unread=unread)
    assert verdict.kept == (verdict.language in ("en", "none"))


def test_nothing_is_downloaded(monkeypatch):
    def refuse(*args):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert LanguageGate(PARAMS).judge("the bus was late again").kept
    assert LanguageGate(PARAMS).judge("same old Monday").kept
