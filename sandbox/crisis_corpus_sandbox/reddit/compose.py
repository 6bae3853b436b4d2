"""Compose a synthetic meme and its title from labels: express each label in the text, the picture, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from crisis_corpus_sandbox.reddit import caption_grammar
from crisis_corpus_sandbox.reddit.draw import wording
from crisis_corpus_sandbox.reddit.label_quotas import Figsim
from crisis_corpus_sandbox.reddit.markers import CALM, CRISES, PHRASES, PICTOGRAMS, WHEN

# Phrases per caption in addition to its plain sentence, one if that is long; a text-only meme carries all its labels.
MOST_PHRASES = 2
MOST_STICKERS = 6
STYLES = ("capitals",) * 8 + ("bar",) * 4 + ("tweet",) * 3 + ("panels",) * 3 + ("labels",) * 2
TEXT_STYLES = ("tweet", "bar")
EDITABLE = ("capitals", "capitals", "bar", "tweet", "panels")


@dataclass(frozen=True, slots=True)
class Composition:
    """The texts of a meme before drawing: ``plain`` expresses no label, ``phrases`` express the labels.

    If the meme is ``editable``, its plain sentence has at least four words that may be replaced.
    """

    style: str
    plain: str
    phrases: tuple[str, ...]
    stickers: tuple[str, ...]
    title: str
    carriers: dict[str, str]
    editable: bool

    def blocks(self, plain: str | None = None) -> tuple[str, ...]:
        """Return the text blocks to draw on the meme; ``plain`` replaces its neutral sentence if given."""
        sentence = self.plain if plain is None else plain
        marked = " ".join(self.phrases)
        if self.style == "textless":
            return ()
        if self.style == "labels":
            return wording(self.style, tuple(sentence.split("|")) + self.phrases)
        if self.style in TEXT_STYLES:
            return wording(self.style, (f"{sentence} {marked}".strip(),))
        if not marked:
            words = sentence.split(" ")
            half = len(words) // 2
            return wording(self.style, (" ".join(words[:half]), " ".join(words[half:])))
        return wording(self.style, (sentence, marked))


def compose(labels: Figsim, crises: Sequence[str], *, rng: Random, editable: bool = False) -> Composition:
    """Return the texts and stickers of a meme that express every label in ``labels`` (FigSIM) and ``crises`` (CRADLE).

    FigSIM's modality rules: text-only memes carry their labels in the caption, image-only ones in pictograms,
    complementary ones in both or in turn. CRADLE's labels are carried by the title, the picture or both.
    """
    editable = editable and labels.modality != "M3"
    carriers = _carriers(labels, most=1 if editable else MOST_PHRASES, rng=rng)
    for crisis in crises:
        carriers[crisis] = "text" if labels.modality == "M2" else rng.choice(("text", "picture", "both"))
    stickers = [PICTOGRAMS[c] for c in labels.carried() if carriers[c] != "text"]
    for crisis in crises:
        marks = _crisis_stickers(crisis)
        if carriers[crisis] != "text" and len(stickers) + len(marks) > MOST_STICKERS:
            carriers[crisis] = "text"
        elif carriers[crisis] != "text":
            stickers += marks
    phrases = tuple(rng.choice(PHRASES[c]) for c in labels.carried() if carriers[c] != "picture")
    if labels.modality == "M3":
        style = "textless"
    elif editable:
        style = rng.choice(TEXT_STYLES if labels.modality == "M2" else EDITABLE)
    else:
        style = rng.choice(TEXT_STYLES if labels.modality == "M2" or len(phrases) > MOST_PHRASES else STYLES)
    plain = _plain(style, phrases=phrases, editable=editable, rng=rng)
    spoken = [c for c in crises if carriers[c] != "picture"]
    return Composition(style, plain, phrases, tuple(stickers), title(spoken, rng=rng), carriers, editable)


def title(crises: Sequence[str], *, rng: Random) -> str:
    """Return a post title that expresses the CRADLE labels ``crises``, or a neutral sentence without labels."""
    text = ", ".join(_crisis_phrase(c, rng=rng) for c in crises) or caption_grammar.sentence(rng, short=True)
    text = text[:1].upper() + text[1:]
    return text + rng.choice(("", "", "", "", "", "", " 😴", " ☕", " … naïve, I know", " (à la café)", " — “again”"))


def body(crises: Sequence[str], *, rng: Random) -> str:
    """Return a few paragraphs for a text post that express the CRADLE labels ``crises``."""
    crisis_lines = (_crisis_phrase(c, rng=rng) for c in crises)
    lines = [caption_grammar.sentence(rng), *crisis_lines, caption_grammar.sentence(rng)]
    return "\n\n".join(f"{line[:1].upper()}{line[1:]}." for line in lines)


def _carriers(labels: Figsim, *, most: int, rng: Random) -> dict[str, str]:
    carried = labels.carried()
    if labels.modality != "M1":
        return dict.fromkeys(carried, "text" if labels.modality == "M2" else "picture")
    order = list(carried)
    rng.shuffle(order)
    by: dict[str, str] = {}
    for i, code in enumerate(order):
        spoken = sum(c != "picture" for c in by.values())
        by[code] = "picture" if spoken >= most else ("both", "picture", "text")[(i + rng.randrange(2)) % 3]
    if order and all(c == by[order[0]] != "both" for c in by.values()):
        by[order[0]] = "both"
    return {code: by[code] for code in carried}


def _plain(style: str, *, phrases: Sequence[str], editable: bool, rng: Random) -> str:
    if style == "textless":
        return ""
    if style == "labels":
        return "|".join(rng.sample(caption_grammar.LABELS, max(1, 3 - len(phrases))))
    if editable:
        return caption_grammar.sentence_for_edits(rng)
    return caption_grammar.sentence(rng, short=len(phrases) > 1)


def _crisis_stickers(crisis: str) -> list[str]:
    kind, _, when = crisis.rpartition("_")
    return [PICTOGRAMS[crisis]] if crisis == "no_crisis" else [PICTOGRAMS[kind], PICTOGRAMS[when]]


def _crisis_phrase(crisis: str, *, rng: Random) -> str:
    if crisis == "no_crisis":
        return rng.choice(CALM)
    kind, _, when = crisis.rpartition("_")
    return rng.choice(CRISES[kind]).format(when=rng.choice(WHEN[when]))
