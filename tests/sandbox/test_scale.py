"""A dump of any size: the months of one corpus, whose posts resemble one another as in real communities."""

from datetime import date
from pathlib import Path

import numpy as np
import pytest

from bench.scale_posts import DrawnTexts, ScaleMonth, language, months
from crisis_corpus_sandbox.reddit.post_world import COMMUNITIES
from pipelines.collect.month import Window
from pipelines.collect.read.language import LanguageGate
from pipelines.collect.read.shingles import shingles, signature, similarity
from pipelines.collect.read.words import words
from pipelines.collect.sources import Monthly, open_source
from pipelines.collect.submission import Submission
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.curate.dedupe.text_pairs import text_kinds_and_pairs
from tests.sandbox.test_build import FORBIDDEN

PARAMS = load(Path(__file__).parents[2], profile="sandbox")
POSTS = 3000


@pytest.fixture(scope="module")
def texts() -> DrawnTexts:
    return DrawnTexts.drawn(0, count=POSTS, posts=POSTS)


@pytest.fixture(scope="module")
def said(texts) -> list[str]:
    return [f"{title}\n{body}" for title, body in texts.said()]


def test_a_month_is_read_as_any_dump(tmp_path):
    month = months(12_000, seed=1)[7]
    path = month.write(tmp_path)
    before = path.read_bytes()
    assert path.name == "RS_2018-08.zst"
    settings = Settings.from_env().model_copy(update={"dumps": tmp_path})
    found = list(
        open_source("dump", Monthly, params=PARAMS, settings=settings, today=date(2026, 1, 1)).submissions(
            Window.from_key("2018-08"), subreddits=COMMUNITIES
        )
    )
    assert len(found) == len(month.numbers) == 200
    assert all(isinstance(item, Submission) for item in found)
    assert {item.subreddit for item in found} == set(COMMUNITIES)
    month.write(tmp_path)
    assert path.read_bytes() == before


def test_the_months_together_have_every_post_once():
    numbers = [n for month in months(1234, seed=1) for n in month.numbers]
    assert numbers == list(range(1234))
    assert ScaleMonth(59, 1234, 1).key == "2022-12"


def test_a_part_is_drawn_as_it_is_within_the_whole(texts, said):
    part = DrawnTexts.drawn(700, count=50, posts=POSTS)
    assert [f"{title}\n{body}" for title, body in part.said()] == said[700:750]
    counts = [len(words(text)) for text in said[:200]]
    assert counts == np.diff(texts.begins)[:200].tolist()


def test_texts_are_mild_english_of_the_stated_lengths(texts, said):
    sizes = np.diff(texts.begins)
    assert 140 < sizes.mean() < 180
    assert 100 < np.median(sizes) < 130
    gate = LanguageGate(PARAMS.language)
    assert all(gate.judge(text).language == "en" for text in said[:200])
    spoken = language()
    letters = spoken.letters.tobytes().decode()
    vocabulary = {letters[a:b] for a, b in zip(spoken.spans[:-1], spoken.spans[1:], strict=True)}
    assert len(vocabulary) == 20_000
    assert not vocabulary & FORBIDDEN


def test_one_in_ten_repeats_an_earlier_post(texts, said):
    assert 0.01 < 1 - len(set(said)) / POSTS < 0.04  # one in five of these is exact
    signatures = np.array([np.frombuffer(s, "<u4") for s in _signatures(texts)])
    kinds, pairs = text_kinds_and_pairs(
        signatures,
        np.arange(POSTS),
        opened=lambda batches: lambda number: [said[row] for row in batches[number]],
        similarity=0.7,
        shingle_words=PARAMS.texts.shingle_words,
    )
    again = set(pairs.right.tolist()) | {int(k) for k in np.flatnonzero(kinds.first[kinds.kind] != np.arange(POSTS))}
    assert 0.05 * POSTS < len(again) < 0.12 * POSTS


def test_signatures_agree_as_often_as_those_of_collected_texts(texts, said):
    size, made = PARAMS.texts.shingle_words, _signatures(texts)
    runs = [shingles(words(text), size=size) for text in said[:400]]
    real = [signature(words(text), params=PARAMS.texts) for text in said[:400]]
    near = [(a, b) for a in range(400) for b in range(a) if similarity(runs[a], runs[b]) > 0.2]
    assert len(near) > 10
    for a, b in near:
        expected = similarity(runs[a], runs[b])
        assert abs(_agreement(made[a], made[b]) - expected) < 0.2
        assert abs(_agreement(made[a], made[b]) - _agreement(real[a], real[b])) < 0.25


def _signatures(texts: DrawnTexts) -> list[bytes]:
    return texts.signatures(permutations=PARAMS.texts.permutations, shingle_words=PARAMS.texts.shingle_words)


def _agreement(one: bytes, other: bytes) -> float:
    return float(np.mean(np.frombuffer(one, "<u4") == np.frombuffer(other, "<u4")))
