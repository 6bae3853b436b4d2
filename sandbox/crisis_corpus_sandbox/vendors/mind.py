"""Generate a simulated vendor's answer to a post: recognise its labels, then err as models do.

Every draw is seeded by the vendor, the labels found and the post's own words without instructions to a model. So a
copy of a post is misjudged in the same way, a repeated request gets the same answer, and the answer to an injected copy
differs from that to its original only if the vendor obeys. All rates are ours: they make every outcome occur in a demo.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from random import Random
from typing import Any

from crisis_corpus_sandbox.reddit import seeded
from crisis_corpus_sandbox.reddit.captions import PHRASES
from crisis_corpus_sandbox.reddit.label_quotas import CRADLE, NAMES
from crisis_corpus_sandbox.reddit.narratives import fingerprint, recognise
from crisis_corpus_sandbox.reddit.post_world import INJECTIONS
from pipelines.datasets.features import HEADS
from pipelines.label.attacks import attacks
from pipelines.llm.prompts import clean

CALM = "no_crisis"
# The delimiter that a prompt puts around a post: a word that the post's author cannot know.
DELIMITER = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{16}(?![0-9A-Za-z])")
KEYS = re.compile(rf'"(labels|figurative|severity|related|modality|context|{"|".join(HEADS)})"')
# Spellings used in CRADLE's own tables and prose (SPEC.md 1.4, 19).
ALIASES = {
    n: n.replace("_active_", "(active)_").replace("_passive_", "(passive)_") for n in CRADLE if "suicide" in n
} | {
    "childabuse_endangerment_past": "childabuseendangerment_past",
    "childabuse_endangerment_ongoing": "childabuse_ongoing",
}
OUTSIDE = "emotional_distress"
PROSE = "It is hard to choose one label for this post without more context."
# Hidden reasoning tokens before the answer; a cap below them leaves the answer empty (SPEC.md 10).
HIDDEN = re.compile(r"gpt-5|o[134]\b|gemini-(?:2\.5|3)")
HIDDEN_TOKENS = 192
IMAGE_TOKENS = 258
LETTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Temper:
    """The simulated errors of a model vendor as shares of posts (or of first attempts), and its delays in seconds."""

    wrong: float = 0.12
    refuses: Mapping[str, float] = field(default_factory=dict)
    refuses_any: float = 0.002
    malformed: float = 0.03
    throttled: float = 0.015
    failing: float = 0.01
    slow: float = 0.02
    slow_seconds: float = 0.2
    retry_after: float = 0.25
    obeys_inside: float = 0.04
    obeys_outside: float = 0.6


# SPEC.md 1.5: Gemini's filter blocks sexual violence and child abuse; the others refuse more often with severity.
TEMPERS: Mapping[str, Temper] = {
    "openai": Temper(
        wrong=0.11,
        refuses={
            "suicideideation_active_ongoing": 0.08,
            "suicideideation_passive_ongoing": 0.03,
            "selfharm_ongoing": 0.03,
            "childabuse_endangerment_ongoing": 0.05,
            "rape_ongoing": 0.05,
        },
        refuses_any=0.004,
    ),
    "anthropic": Temper(
        wrong=0.10,
        refuses={
            "suicideideation_active_ongoing": 0.07,
            "selfharm_ongoing": 0.04,
            "childabuse_endangerment_ongoing": 0.08,
            "childabuse_endangerment_past": 0.04,
        },
        refuses_any=0.006,
        obeys_inside=0.035,
    ),
    "google": Temper(
        wrong=0.14,
        refuses={
            "rape_past": 0.13,
            "rape_ongoing": 0.15,
            "sexualharassment_past": 0.15,
            "sexualharassment_ongoing": 0.05,
            "childabuse_endangerment_past": 0.2,
            "childabuse_endangerment_ongoing": 0.2,
        },
        obeys_inside=0.05,
    ),
    "azure": Temper(),
    "guard": Temper(refuses_any=0.01),
    "local": Temper(wrong=0.25, refuses_any=0.004, malformed=0.05),
}


@dataclass(frozen=True, slots=True)
class VendorQuestion:
    """One request to a simulated model, independent of the protocol; ``text`` is the last message of the user."""

    model: str
    system: str
    text: str
    images: int = 0
    schema: Mapping[str, Any] | None = None
    most_tokens: int | None = None
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a simulated model, independent of the protocol."""

    text: str
    refused: str | None
    ended: str
    input_tokens: int
    output_tokens: int
    hidden_tokens: int


@dataclass(frozen=True, slots=True)
class PostReading:
    """What the simulated model recognises in a post: its labels, a digest of its words, and injected instructions."""

    labels: frozenset[str]
    codes: frozenset[str]
    digest: str
    dictated: tuple[str, ...] | None


def post_of(asked: VendorQuestion) -> tuple[str, bool]:
    """Return the post in a request, and whether the delimiter that the prompt names encloses the post."""
    delimiters = [(m.group(), m.start(), m.end()) for m in DELIMITER.finditer(asked.text)]
    if delimiters:
        places = [(start, end) for word, start, end in delimiters if word == delimiters[-1][0]]
        if len(places) > 1:
            named = len(places) > 2 or delimiters[-1][0] in asked.system
            return asked.text[places[-2][1] : places[-1][0]], named
    return asked.text[max(0, asked.text.rfind("Title:")) :], False


@lru_cache(maxsize=50_000)
def reading(post: str) -> PostReading:
    """Recognise a post's labels and injected instructions.

    Instructions that the simulated model understands change neither labels nor digest.
    """
    own, dictated = _bare(post), None
    for order, labels in _orders().items():
        if order in own:
            own, dictated = own.replace(order, "", 1), labels
    lower, digest = post.lower(), fingerprint(post)
    if digest == fingerprint(""):  # none of the sandbox's own posts
        digest = hashlib.sha256(own.encode()).hexdigest()
    return PostReading(
        labels=recognise(post),
        codes=frozenset(code for code, phrases in PHRASES.items() if any(p in lower for p in phrases)),
        digest=digest,
        dictated=dictated,
    )


@cache
def _orders() -> Mapping[str, tuple[str, ...]]:
    """Return the instructions that a simulated model understands, and the labels that each dictates.

    It knows the texts, and not the detector: an attack that is not detected is obeyed like any other.
    """
    orders: dict[str, tuple[str, ...]] = {
        _bare(attack.text): (CALM,) for family in attacks().values() for attack in family
    }
    orders |= {_bare(text): tuple(n for n in CRADLE if n in text) or (CALM,) for text in INJECTIONS}
    return dict(sorted(orders.items(), key=lambda order: -len(order[0])))


def _bare(text: str) -> str:
    return re.sub(r"\s", "", clean(text, delimiters=()))


def reply(asked: VendorQuestion, *, vendor: str, temper: Temper, seed: int) -> Reply:
    """Return a simulated vendor's answer to a request, with its error rates; equal requests get equal answers."""
    post, inside = post_of(asked)
    read = reading(post)
    rng = seeded(seed, vendor, "|".join(sorted(read.labels)), read.digest)
    refusing, erring, obeying, garbling = (rng.random() for _ in range(4))
    tokens = len(asked.system + asked.text) // LETTERS_PER_TOKEN + IMAGE_TOKENS * asked.images
    if refusing < _wariness(read.labels, temper=temper):
        kind = "policy" if rng.random() < 0.5 else "refusal"
        return Reply("", kind, "refusal", tokens, 0, 0)
    labels = misjudged(read.labels, rng=rng) if erring < temper.wrong else read.labels
    if read.dictated and obeying < (temper.obeys_inside if inside else temper.obeys_outside):
        labels = frozenset(read.dictated)
    value = _value(asked, labels=labels, codes=read.codes)
    text = _garbled(value, rng=rng) if garbling < temper.malformed else json.dumps(value)
    return _cut(asked, text=text, tokens=tokens)


def _wariness(labels: frozenset[str], *, temper: Temper) -> float:
    spared = 1.0 - temper.refuses_any
    for label in labels:
        spared *= 1.0 - temper.refuses.get(label, 0.0)
    return 1.0 - spared


def misjudged(labels: frozenset[str], *, rng: Random) -> frozenset[str]:
    """Return a wrong variant of a label set: one label has another time or role, is missing, or is added."""
    crises = sorted(labels - {CALM})
    if not crises:
        return frozenset({rng.choice(sorted(set(CRADLE) - {CALM}))})
    label = rng.choice(crises)
    kind, when = label.rsplit("_", 1)
    others = labels - {label, CALM}
    swaps = {"active": "passive", "passive": "active"}
    chance = rng.random()
    level = kind.rpartition("_")[2]
    if level in swaps and chance < 0.35:
        changed = others | {f"{kind.rpartition('_')[0]}_{swaps[level]}_{when}"}
    elif chance < 0.6:
        changed = others | {f"{kind}_{'past' if when == 'ongoing' else 'ongoing'}"}
    elif chance < 0.8:
        changed = labels | {rng.choice(sorted(n for n in CRADLE if n != CALM and not n.startswith(kind)))}
    else:
        changed = others or frozenset({CALM})
    return frozenset(changed) if changed != labels else others or frozenset({CALM})


def _value(asked: VendorQuestion, *, labels: frozenset[str], codes: frozenset[str]) -> dict[str, Any]:
    """Return the answer with the keys that the schema requires, or that the prompt mentions."""
    fields: dict[str, Any] = dict((asked.schema or {}).get("properties", {}))
    if not fields:
        keys = dict.fromkeys(KEYS.findall(asked.system + asked.text)) or {"labels": None}
        fields = {key: {} for key in keys}
    return {key: _field(key, schema=schema, labels=labels, codes=codes) for key, schema in fields.items()}


def _field(key: str, *, schema: Mapping[str, Any], labels: frozenset[str], codes: frozenset[str]) -> Any:
    if key == "labels":
        return sorted(labels)
    prefix = {"figurative": "F", "severity": "SS", "related": "SR", "modality": "M", "context": "C"}.get(key, "")
    names = [NAMES[c] for c in sorted(codes, reverse=True) if prefix and re.fullmatch(rf"{prefix}\d", c)]
    many = schema.get("type") == "array" or (not schema and prefix in ("F", "SR"))
    allowed: Sequence[str] = (
        (schema.get("items", {}) if many else schema).get("enum") or [n for n in names if n] or ["None"]
    )
    fitting = [option for n in names for option in allowed if _alike(n, option)]
    if many:
        return sorted(set(fitting))
    none = next((a for a in allowed if a.lower() in ("none", "complementary", "no-context-required")), allowed[0])
    return fitting[0] if fitting else none


def _alike(name: str, option: str) -> bool:
    return name == option or (name in ("Suicide attempts", "Suicide death") and option.startswith("Suicide attempt"))


def _garbled(value: dict[str, Any], *, rng: Random) -> str:
    """Return a malformed answer: fenced, unclosed or misspelt (repairable), prose or a label outside the scheme."""
    kind = rng.choices(("fenced", "unclosed", "alias", "prose", "outside"), weights=(3, 2, 2, 2, 1))[0]
    labels = value.get("labels", [])
    text = json.dumps(value)
    if kind == "alias" and any(name in ALIASES for name in labels):
        return json.dumps(value | {"labels": [ALIASES.get(name, name) for name in labels]})
    if kind == "outside" and labels:
        return json.dumps(value | {"labels": [*labels, OUTSIDE]})
    if kind == "prose":
        return PROSE
    if kind == "unclosed":
        return text[:-1]
    return f"```json\n{text}\n```"


def _cut(asked: VendorQuestion, *, text: str, tokens: int) -> Reply:
    """Return the answer cut at a stop string or at the token cap, which includes hidden reasoning."""
    hidden = HIDDEN_TOKENS if HIDDEN.match(asked.model.rpartition("/")[2]) else 0
    ended = "stop"
    for stop in asked.stops:
        if stop and stop in text:
            text, ended = text[: text.index(stop)], "stop_string"
    spent = -(-len(text) // LETTERS_PER_TOKEN)
    if asked.most_tokens is not None and hidden + spent > asked.most_tokens:
        hidden = min(hidden, asked.most_tokens)
        spent = asked.most_tokens - hidden
        text, ended = text[: spent * LETTERS_PER_TOKEN], "length"
    return Reply(text, None, ended, tokens, spent, hidden)
