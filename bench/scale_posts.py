"""Write dumps of five years of the crisis communities' posts, of any size, one file for each month (bench/scale.py).

A month is written frame by frame, so that memory does not grow with the number of posts. A post has 160 words on
average (a log-normal distribution), drawn by Zipf's law from single words and phrases: the words of the sandbox's
sentences, and compounds of two of them. They do not form sentences, but are recognised as English. One post in ten
repeats an earlier one: most of these are edited, some are exact, and some belong to bursts of one text. Each post
depends on its number alone, so that a month is drawn without the months before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from crisis_corpus_sandbox.reddit import captions, seeded, statements
from crisis_corpus_sandbox.reddit.generated_posts import FIRST_ID, base36
from crisis_corpus_sandbox.reddit.listing import CONSTANT, DECLARED, HOUR, Item, frame, write_frames
from crisis_corpus_sandbox.reddit.post_world import COMMUNITIES
from pipelines.collect.month import Window
from pipelines.collect.read.vocabulary import ranks
from pipelines.curate.kernels import compiled

VOCABULARY, PHRASES = 20_000, 5_000
COMPOUNDED = range(3, 7)  # letters
# Compounds are rarer than Zipf's law by this factor: with more of them, most posts would need the second detector of
# languages, which real posts rarely need.
COMPOUNDS = 0.1
# Words and phrases are looked up in this many places, each of which one of them holds in proportion to its frequency.
PLACES = 1 << 20
TITLE = 8  # words
SHORTEST, LONGEST = 5, 2000
# Shares of the posts that repeat an earlier one, and of these that are exact.
REPEATED, EXACT = 0.1, 0.2
# Bursts, and the share of all posts that each has; only its first posts are edited: near-duplicates of one another are
# all listed as pairs.
BURSTS, BURST, EDITED_BURST = 3, 0.002, 300
MEDIAN_LOG, SPREAD_LOG = 4.75, 0.8
Ints = npt.NDArray[np.int64]


class WordUnits(NamedTuple):
    """Words, units (single words and phrases), and the places of the units."""

    letters: npt.NDArray[np.uint8]
    """The letters of all words, one after the other."""
    spans: Ints
    """Where the letters of each word begin, and the end."""
    words: Ints
    """The numbers of the words of all units."""
    begins: Ints
    """Where the words of each unit begin, and the end."""
    places: npt.NDArray[np.int32]
    """The unit of each of ``PLACES`` places."""


@cache
def language() -> WordUnits:
    """Return the vocabulary and phrases, the same in every process."""
    rng = np.random.default_rng(1)
    known, simple = _vocabulary(rng)
    word, phrase = 1 / np.arange(1, len(known) + 1), 1 / np.arange(10, PHRASES + 10)
    word[simple:] *= COMPOUNDS
    drawn = np.searchsorted(np.cumsum(word / word.sum())[:-1], rng.random((PHRASES, 7)))
    units = [np.arange(len(known)), *(row[: rng.integers(3, 7)] for row in drawn)]
    sizes = np.concatenate([np.ones(len(known), np.int64), [len(unit) for unit in units[1:]]])
    shares = np.cumsum(np.concatenate([0.85 * word / word.sum(), 0.15 * phrase / phrase.sum()]))
    places = np.searchsorted(shares[:-1], (np.arange(PLACES) + 0.5) / PLACES, side="right")
    return WordUnits(
        letters=np.frombuffer("".join(known).encode(), np.uint8),
        spans=np.concatenate([[0], np.cumsum([len(w) for w in known])]),
        words=np.concatenate(units),
        begins=np.concatenate([[0], np.cumsum(sizes)]),
        places=places.astype(np.int32),
    )


def _vocabulary(rng: np.random.Generator) -> tuple[list[str], int]:
    """Return the words in the order of their frequency in English, then the compounds; and the number of the former."""
    grammar = (captions.WHO, captions.DOES, captions.THINGS, captions.WHICH)
    phrases = chain(statements.TALK, *statements.VOCABULARY.values(), *grammar, captions.DOING, captions.WHEN)
    spoken = set(re.findall("[a-z]+", " ".join(re.sub("{.*?}", " ", phrase) for phrase in phrases)))
    known = sorted(spoken & ranks().keys(), key=ranks().__getitem__)
    parts = [word for word in known if len(word) in COMPOUNDED]
    vocabulary = dict.fromkeys(known)
    while len(vocabulary) < VOCABULARY:
        vocabulary["".join(parts[i] for i in rng.integers(len(parts), size=2))] = None
    return list(vocabulary), len(known)


@dataclass(frozen=True)
class DrawnTexts:
    """The texts of consecutive posts."""

    words: Ints
    """The numbers of the words of all posts, one after the other."""
    begins: Ints
    """Where the words of each post begin, and the end."""

    @classmethod
    def drawn(cls, first: int, *, count: int, posts: int) -> DrawnTexts:
        """Draw ``count`` posts, from number ``first`` on, of a corpus of ``posts`` posts."""
        bursts = max(1, posts // BURSTS), int(BURST * posts)
        flat, begins = np.empty(count * LONGEST + 2 * LONGEST, np.int32), np.zeros(count + 1, np.int64)
        _draw(language(), first, bursts, flat, begins)
        return cls(flat[: begins[-1]].astype(np.int64), begins)

    def said(self) -> list[tuple[str, str]]:
        """Return the title and the body of each post: plain words between spaces."""
        spoken = language()
        sizes = np.diff(spoken.spans)[self.words] + 1
        ends = np.concatenate([[0], np.cumsum(sizes)])
        data = np.full(ends[-1], ord(" "), np.uint8)
        _spell(spoken, self.words, ends, data)
        text = data.tobytes().decode("ascii")
        title = np.minimum(self.begins[:-1] + TITLE, self.begins[1:])
        cuts = [ends[places].tolist() for places in (self.begins[:-1], title, self.begins[1:])]
        return [(text[a : b - 1], text[b : max(b, c - 1)]) for a, b, c in zip(*cuts, strict=True)]

    def signatures(self, *, permutations: int, shingle_words: int) -> list[bytes]:
        """Return MinHash signatures of the posts, which agree as often as those of ``extract.shingles`` would.

        They hash the words' numbers in place of the words, forty times as fast; never mix them with real ones.
        """
        rng = np.random.default_rng(1)
        factors, terms = rng.integers(0, 2**32, (2, permutations), np.uint32)
        signatures = np.empty((len(self.begins) - 1, permutations), np.uint32)
        _sign(self.words, self.begins, shingle_words, (factors | np.uint32(1), terms), signatures)
        return [row.tobytes() for row in signatures.astype("<u4")]


@compiled
def _random(seed: Any, number: int) -> Any:
    z = seed + np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def _below(seed: Any, number: int, end: int) -> int:
    return int(_random(seed, number) >> np.uint64(11)) % end


@compiled
def _share(seed: Any, number: int) -> float:
    return int(_random(seed, number) >> np.uint64(11)) / 2.0**53


@compiled
def _draw(spoken: WordUnits, first: int, bursts: tuple[int, int], flat: Any, begins: Any) -> None:
    """Write the words of consecutive posts to ``flat``; ``bursts``: how far their beginnings are apart, their size."""
    for i in range(len(begins) - 1):
        number = first + i
        seed = _random(np.uint64(7), number + 1)
        burst = number % bursts[0]
        origin, edited = number, False
        if burst < bursts[1]:
            origin, edited = number - burst, 0 < burst < EDITED_BURST
        elif number > 0 and _share(seed, 1) < REPEATED:
            origin, edited = _below(seed, 2, number), True
        end = _say(spoken, origin, flat, begins[i])
        if edited and _share(seed, 3) >= EXACT:
            end = _edit(spoken, seed, flat, begins[i], end)
        begins[i + 1] = end


@compiled
def _say(spoken: WordUnits, number: int, flat: Any, begin: int) -> int:
    """Write an original text; return its end."""
    seed = _random(np.uint64(3), number + 1)
    normal = np.sqrt(-2 * np.log(1 - _share(seed, 1))) * np.cos(2 * np.pi * _share(seed, 2))
    end = begin + min(LONGEST, max(SHORTEST, int(np.exp(MEDIAN_LOG + SPREAD_LOG * normal))))
    made, k = begin, 3
    while made < end:
        unit = spoken.places[_below(seed, k, PLACES)]
        for w in range(spoken.begins[unit], spoken.begins[unit + 1]):
            if made < end:
                flat[made] = spoken.words[w]
                made += 1
        k += 1
    return end


@compiled
def _edit(spoken: WordUnits, seed: Any, flat: Any, begin: int, end: int) -> int:
    """Replace up to one in twenty words by up to two others, in place; return the new end."""
    changes, k = 1 + _below(seed, 4, 1 + (end - begin) // 20), 5
    for _ in range(changes):
        at = begin + _below(seed, k, end - begin)
        gone = min(_below(seed, k + 1, 3), end - at)
        unit = _below(seed, k + 2, len(spoken.begins) - 1)
        new = min(_below(seed, k + 3, 3), spoken.begins[unit + 1] - spoken.begins[unit])
        if end - begin - gone + new < 1:
            break
        kept = flat[at + gone : end].copy()
        flat[at : at + new] = spoken.words[spoken.begins[unit] : spoken.begins[unit] + new]
        flat[at + new : at + new + len(kept)] = kept
        end += new - gone
        k += 4
    return end


@compiled
def _spell(spoken: WordUnits, words: Any, ends: Any, data: Any) -> None:
    """Write the letters of words, each before a space."""
    for i in range(len(words)):
        at = ends[i]
        for k in range(spoken.spans[words[i]], spoken.spans[words[i] + 1]):
            data[at] = spoken.letters[k]
            at += 1


@compiled
def _sign(words: Any, begins: Any, size: int, permutations: tuple[Any, Any], signatures: Any) -> None:
    factors, terms = permutations
    for i in range(len(signatures)):
        signatures[i, :] = np.uint32(0xFFFFFFFF)
        last = max(begins[i], begins[i + 1] - size)
        for at in range(begins[i], last + 1):
            key = np.uint64(size)
            for k in range(at, min(at + size, begins[i + 1])):
                key = _random(key, words[k] + 1)
            short = np.uint32(key >> np.uint64(32))
            for p in range(len(factors)):
                signatures[i, p] = min(signatures[i, p], np.uint32(factors[p] * short + terms[p]))


# The months of the posts corpus until the sandbox's last one.
FIRST_YEAR, MONTHS = 2018, 60
# Rows per frame: about 15 MB of JSON.
CHUNK = 5_000


@dataclass(frozen=True)
class ScaleMonth:
    """One month of a corpus of ``posts`` posts: its position from 0, and the numbers of its posts."""

    position: int
    posts: int
    seed: int

    @property
    def key(self) -> str:
        """Return the month's partition key."""
        return f"{FIRST_YEAR + self.position // 12}-{1 + self.position % 12:02d}"

    @property
    def numbers(self) -> range:
        """Return the numbers of the month's posts, in the order of their times; each month has as many as others."""
        return range(self.posts * self.position // MONTHS, self.posts * (self.position + 1) // MONTHS)

    def write(self, folder: Path) -> Path:
        """Write the month's dump, ``RS_<month>.zst``, with its ``.sha256``, and return its path."""
        path = folder / f"RS_{self.key}.zst"
        write_frames(path, frames=self.frames())
        return path

    def frames(self) -> Iterator[bytes]:
        """Yield the dump's zstd frames."""
        window, numbers = Window.from_key(self.key), self.numbers
        begin, seconds = int(window.start.timestamp()), int((window.end - window.start).total_seconds())
        for first in numbers[::CHUNK]:
            chunk = range(first, min(first + CHUNK, numbers.stop))
            texts = DrawnTexts.drawn(first, count=len(chunk), posts=self.posts)
            times = begin + (np.array(chunk) - numbers.start) * seconds // len(numbers)
            rng = seeded(self.seed, "scale", first)
            rows = zip(chunk, texts.said(), times.tolist(), strict=True)
            lines = [orjson.dumps(_row(n, said=said, created=at, posts=self.posts, rng=rng)) for n, said, at in rows]
            yield frame(b"\n".join(lines) + b"\n", declared=DECLARED, level=1)


def months(posts: int, *, seed: int) -> list[ScaleMonth]:
    """Return the months of a corpus of ``posts`` posts; months of a corpus of fewer than 60 may have none."""
    return [ScaleMonth(position, posts, seed) for position in range(MONTHS)]


def community(number: int) -> str:
    """Return the community of a post."""
    return COMMUNITIES[number % len(COMMUNITIES)]


def author(number: int, *, posts: int) -> str:
    """Return the author of a post; an author writes two posts on average."""
    return f"user_{number * 7919 % max(1, posts // 2)}"


def _row(number: int, *, said: tuple[str, str], created: int, posts: int, rng: Random) -> Item:
    subreddit, name, chance = community(number), base36(FIRST_ID + number), rng.randrange(1000)
    return CONSTANT | {
        "author": author(number, posts=posts),
        "author_fullname": f"t2_{rng.randrange(16**7):x}",
        "created": created,
        "created_utc": created,
        "domain": f"self.{subreddit}",
        "id": name,
        "is_gallery": False,
        "is_self": True,
        "is_video": False,
        "name": f"t3_{name}",
        "num_comments": chance % 40,
        "over_18": chance < 30,
        "permalink": f"/r/{subreddit}/comments/{name}/",
        "retrieved_on": created + HOUR + chance,
        "score": chance,
        "selftext": said[1],
        "spoiler": False,
        "subreddit": subreddit,
        "subreddit_id": f"t5_{chance:x}",
        "subreddit_name_prefixed": f"r/{subreddit}",
        "subreddit_subscribers": chance * 100,
        "thumbnail": "self",
        "title": said[0],
        "ups": chance,
        "url": f"https://www.reddit.com/r/{subreddit}/comments/{name}/",
    }
