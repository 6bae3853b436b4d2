"""Write the text of generated posts, and recognise the labels of such a text for the simulated model vendors.

A post is a few sentences that carry its labels among many that carry none. :func:`recognise` reads them back: the
function compares whole sentences word by word, so case, punctuation, scrubbing and words inserted between two sentences
have no effect, and a truncated sentence carries no label.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from random import Random
from string import Formatter

from crisis_corpus_sandbox.reddit.statements import DENIALS, FRAMES, MENTIONS, SLOTS, STATEMENTS, TALK, TITLES

NO_CRISIS = "no_crisis"
# Probabilities, ours: set so that a word-based classifier, fitted on 120 posts, is right on two of three label sets.
MENTIONED, MENTIONED_CALM, DENIED, REPEATED, IN_TITLE = 0.12, 0.3, 0.08, 0.75, 0.45
# A crisis is mentioned again about once in this many words.
WORDS_BETWEEN = 28
# A post of fewer words holds only the sentences that carry its labels.
BRIEF = 25
SENTENCES_IN_A_PARAGRAPH = (2, 3, 3, 4, 5)
ENDS = (".", ".", ".", ".", ".", ".", "!", " …", ".")
_ANCHOR = 3  # number of words by which a sentence is looked up
_WORD = re.compile(r"[^\W_]+")
_APOSTROPHES = str.maketrans("", "", "'\u2019")
_VOWEL = re.compile(r"\b([Aa]) (?=[aeiou])")
# The nouns that an instruction to a model does not need.
RARE = frozenset(w for name in ("thing", "place") for w in SLOTS[name] if " " not in w)


@dataclass(frozen=True, slots=True)
class Narrative:
    """The text of a generated post; ``plain`` contains the sentences without labels, which a copy may change."""

    title: str
    body: str
    plain: tuple[str, ...]


def write(labels: Sequence[str], *, rng: Random, words: int) -> Narrative:
    """Write a post of about ``words`` words that expresses exactly the CRADLE labels ``labels``.

    Each crisis label has one sentence, some two; in some posts the title carries one as well, or instead. Short posts
    hold little else.
    """
    crises = [label for label in labels if label != NO_CRISIS]
    lower = rng.random() < 0.2
    spoken = [_fill(STATEMENTS[label], rng=rng) for label in crises]
    title = _fill(TITLES, rng=rng)
    if spoken and rng.random() < IN_TITLE:
        number = rng.randrange(len(spoken))
        title = spoken[number]
        if words >= BRIEF and rng.random() < 0.5:
            del spoken[number]
    plain: list[str] = []
    if words >= BRIEF:
        again = [label for label in crises for _ in range(words // WORDS_BETWEEN) if rng.random() < REPEATED]
        more = dict.fromkeys(_fill(STATEMENTS[label], rng=rng) for label in again)
        spoken += [sentence for sentence in more if sentence not in spoken]
        plain += _asides(crises, rng=rng)
    count = sum(len(s.split()) for s in (*spoken, *plain))
    while count < words and (words >= BRIEF or not spoken):
        plain.append(_fill(TALK, rng=rng))
        count += len(plain[-1].split())
    shown = {id(s): _sentence(s, rng=rng, lower=lower) for s in (*spoken, *plain)}
    order = [*spoken, *plain]
    rng.shuffle(order)
    body = "\n\n".join(" ".join(shown[id(s)] for s in part) for part in _paragraphs(order, rng=rng))
    heading = title if lower else title[:1].upper() + title[1:]
    return Narrative(heading, body, tuple(shown[id(s)] for s in plain))


def talk(*, rng: Random, words: int) -> str:
    """Return a paragraph of at least ``words`` words that expresses no label."""
    said: list[str] = []
    while sum(len(s.split()) for s in said) < words:
        said.append(_sentence(_fill(TALK, rng=rng), rng=rng, lower=False))
    return " ".join(said)


def recognise(text: str) -> frozenset[str]:
    """Return the CRADLE labels that a text of :func:`write` expresses, or ``no_crisis`` if it expresses none.

    Exact on texts of :func:`write`, even if text around the sentences was scrubbed, lower-cased, cut off or inserted.
    """
    return frozenset(label for label, _ in statements(text)) or frozenset((NO_CRISIS,))


def statements(text: str) -> list[tuple[str, str]]:
    """Return the sentences of a text that express a label, as (label, words) in text order."""
    words, known = bare(text), _known()
    spoken, at = [], 0
    while at <= len(words) - _ANCHOR:
        for sentence, label in known.get(tuple(words[at : at + _ANCHOR]), ()):
            if words[at : at + len(sentence)] == sentence:
                spoken.append((label, " ".join(sentence)))
                at += len(sentence) - 1
                break
        at += 1
    return spoken


def fingerprint(text: str) -> str:
    """Return a digest of the known sentences in a text, which an inserted instruction does not change.

    The digest covers, in order, the sentences that carry labels and the uncommon words of the other sentences.
    """
    rare = [word for word in bare(text) if word in RARE]
    said = [sentence for _, sentence in statements(text)]
    return hashlib.sha256("\n".join([*said, *rare]).encode()).hexdigest()


def bare(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation and apostrophes."""
    return _WORD.findall(text.translate(_APOSTROPHES).casefold())


def every_statement() -> Iterator[tuple[str, str]]:
    """Yield every possible sentence that expresses a CRADLE label, as (label, sentence)."""
    for label, patterns in STATEMENTS.items():
        for pattern in patterns:
            names = list(dict.fromkeys(name for _, name, _, _ in Formatter().parse(pattern) if name))
            for values in product(*(SLOTS[name] for name in names)):
                yield label, pattern.format(**dict(zip(names, values, strict=True)))


@cache
def _known() -> dict[tuple[str, ...], list[tuple[list[str], str]]]:
    """Return all statements by their first words, longest first."""
    known: dict[tuple[str, ...], list[tuple[list[str], str]]] = {}
    for label, sentence in every_statement():
        words = bare(sentence)
        known.setdefault(tuple(words[:_ANCHOR]), []).append((words, label))
    for entries in known.values():
        entries.sort(key=lambda entry: len(entry[0]), reverse=True)
    return known


def _asides(crises: Collection[str], *, rng: Random) -> list[str]:
    """Return sentences that use the words of other crises but carry no label."""
    others = [kind for kind in MENTIONS if not any(label.startswith(kind) for label in crises)]
    said = []
    if rng.random() < (MENTIONED if crises else MENTIONED_CALM):
        said.append(f"{rng.choice(FRAMES)} {rng.choice(MENTIONS[rng.choice(others)])}")
    if rng.random() < DENIED:
        said.append(rng.choice(DENIALS[rng.choice(others)]))
    return said


def _fill(patterns: Sequence[str], *, rng: Random) -> str:
    """Return a sentence of one of the patterns."""
    pattern = rng.choice(patterns)
    names = [name for _, name, _, _ in Formatter().parse(pattern) if name]
    return _VOWEL.sub(r"\1n ", pattern.format(**{name: rng.choice(SLOTS[name]) for name in names}))


def _sentence(text: str, *, rng: Random, lower: bool) -> str:
    end = rng.choice(ENDS)
    return (text.lower() if lower else text[:1].upper() + text[1:]) + end


def _paragraphs(sentences: Sequence[str], *, rng: Random) -> Iterator[Sequence[str]]:
    at = 0
    while at < len(sentences):
        count = rng.choice(SENTENCES_IN_A_PARAGRAPH)
        yield sentences[at : at + count]
        at += count
