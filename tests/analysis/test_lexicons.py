"""Lexicons in LIWC's and the NRC's format are read; one that cannot be used says why and gives no features."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pipelines.core.config.label import LexiconFile
from pipelines.evaluate.analysis import features
from pipelines.evaluate.analysis.features import text_features

DIC = """%
1\tweather (Weather Terms)
\t02\tcalm
%
rain*\t1
raincoat\t2
still\t1\t2
like\t(02 134)125/464 1
kind of\t2
quiet\t9
"""
NRC = "rain\tjoy\t0\nrain\tsadness\t1\ncalm\tjoy\t1\nice cream\tjoy\t1\n"


def test_a_liwc_dictionary_is_read() -> None:
    lexicon = features.dic(DIC.splitlines())
    assert lexicon.categories == ("weather", "calm")
    assert lexicon.shares(["rain", "rains", "raincoat", "dry"]) == [50.0, 25.0]
    assert lexicon.shares(["still"]) == [100.0, 100.0]
    assert lexicon.skipped == 2, "an entry of two words, and one of an unknown category; a condition alone is left out"
    assert lexicon.shares(["like"]) == [100.0, 0.0]


def test_a_dictionary_of_liwc_22_is_read(tmp_path: Path) -> None:
    rows = ["DicTerm,weather,calm", "rain*,X,", '"kind of",,X', "Still, x ,X", "heavy,0.5,", "blank,,"]
    (tmp_path / "own.dicx").write_text("\n".join(rows), encoding="utf-8-sig")
    given = LexiconFile(path=str(tmp_path / "own.dicx"))
    lexicon = next(o for o in features.open_all({"liwc": given}) if o.name == "liwc").lexicon
    assert lexicon is not None and lexicon.categories == ("weather", "calm")
    assert lexicon.shares(["rainy", "still", "heavy", "kind"]) == [50.0, 25.0]
    assert lexicon.skipped == 3, "of two words, with a weight, in no category"


def test_the_nrc_lexicon_is_read() -> None:
    lexicon = features.nrc(NRC.splitlines())
    assert lexicon.categories == ("joy", "sadness")
    assert lexicon.shares(["rain", "calm", "x", "y"]) == [25.0, 25.0]
    assert lexicon.skipped == 1


def test_our_own_list_has_all_its_words_in_categories() -> None:
    [ours, *_] = features.open_all({})
    assert ours.lexicon is not None
    assert (ours.lexicon.skipped, len(ours.lexicon.categories)) == (0, 22)
    used = set().union(*ours.lexicon.words.values(), *ours.lexicon.stems.values())
    assert used == set(ours.lexicon.categories)


def test_a_lexicon_that_is_not_there_has_a_message(tmp_path: Path) -> None:
    path = tmp_path / "own.dic"
    path.write_text(DIC)
    digest = hashlib.sha256(DIC.encode()).hexdigest()

    def opened(**given: str) -> features.Opened:
        return next(o for o in features.open_all({"liwc": LexiconFile(**given)}) if o.name == "liwc")

    assert opened(path=str(path), sha256=digest).lexicon
    assert opened(path=str(path)).sha256 == digest
    assert "analysis.lexicons.liwc.path" in str(opened().message)
    assert "cannot be read" in str(opened(path=str(tmp_path / "none.dic")).message)
    assert digest in str(opened(path=str(path), sha256="0" * 64).message)
    (tmp_path / "x.pdf").write_text("DicTerm,weather\nrain,X\n")
    assert "not .pdf" in str(opened(path=str(tmp_path / "x.pdf")).message)
    assert all(found.lexicon is None for found in features.open_all({})[1:])


def test_texts_are_counted() -> None:
    blocks = text_features(["Still rain. It rains!\nCalm", "", None, "..."], lexicons=features.open_all({})[:1])
    assert set(blocks) == {"text", "default"}
    assert blocks["text"]["words"].tolist() == [5, 0, 0, 0]
    assert blocks["text"]["words_per_sentence"][0] == pytest.approx(5 / 3)
    assert blocks["text"]["letters_per_word"][0] == pytest.approx((5 + 4 + 2 + 5 + 4) / 5)
    assert str(blocks["default"]["joy"].tolist()) == "[0.0, nan, nan, nan]"
