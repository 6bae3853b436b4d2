"""Generate attacks (instructions to a labeller, by family of disguise), and insert them into copies of posts.

The attacks measure the labellers and the detector of injections, so this package shares nothing with the detector: a
contract of import-linter forbids imports in both directions. Orders written by us (``attacks.yaml``) are used
unchanged, translated or disguised.
"""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from pipelines.datasets.post import Post

SEED = 20261123
PLACES = ("start", "middle", "end")
END = re.compile(r"[.!?] |\n")
AS_WRITTEN = (
    "orders", "paraphrase", "role_play", "quoted_story", "indirect", "authority", "fake_delimiter", "chat_tokens",
    "answer_shape", "split_payload",
)  # fmt: skip


@dataclass(frozen=True)
class Attack:
    """An injected instruction to label a post as no crisis, and the family of its disguise."""

    family: str
    text: str


@cache
def attacks() -> dict[str, tuple[Attack, ...]]:
    """Return all attacks (instructions to inject into posts) by family; their texts are the same in every process."""
    data: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "attacks.yaml").read_text())
    texts: dict[str, list[str]] = {family: data[family] for family in AS_WRITTEN}
    texts["other_languages"] = [text for language in data["languages"].values() for text in language]
    rng = Random(SEED)  # noqa: S311
    for family, disguises in _disguises(data, rng=rng).items():
        texts[family] = [disguise(order) for disguise in disguises for order in data["orders"]]
    return {family: tuple(Attack(family, text) for text in found) for family, found in texts.items()}


def _disguises(data: Mapping[str, Any], *, rng: Random) -> dict[str, list[Callable[[str], str]]]:
    """Return the ways in which each family disguises an order."""

    def swapped(table: Mapping[str, str], share: float) -> Callable[[str], str]:
        return lambda text: "".join(table[c] if c in table and rng.random() < share else c for c in text.lower())

    def shifted(first: int) -> Callable[[str], str]:
        return lambda text: "".join(chr(first + ord(c) - ord("a")) if c.islower() else c for c in text)

    def between(sign: str) -> Callable[[str], str]:
        return lambda text: " ".join(sign.join(word) for word in text.split())

    return {
        "homoglyphs": [*(swapped(table, 0.6) for table in data["homoglyphs"].values()), shifted(0x1D5BA)],
        "leetspeak": [swapped(data["leet"], 0.7)],
        "base64": [
            lambda text: base64.b64encode(text.encode()).decode(),
            lambda text: " ".join(base64.b64encode(word.encode()).decode() for word in text.split()),
        ],
        "hex": [lambda text: text.encode().hex(), lambda text: text.encode().hex(" ")],
        "rot13": [lambda text: codecs.encode(text, "rot13")],
        "reversed": [lambda text: text[::-1], lambda text: " ".join(reversed(text.split()))],
        "broken_words": [between(sign) for sign in (".", "-", "\u200b", "\u00ad")],
    }


def pick(which: int) -> tuple[Attack, str]:
    """Return the attack for the number ``which`` and its place in a post (``start``, ``middle`` or ``end``).

    Consecutive numbers go through the families.
    """
    families = list(attacks().values())
    turn, family = divmod(which, len(families))
    return families[family][turn % len(families[family])], PLACES[(which + turn) % len(PLACES)]


def inject(post: Post, *, which: int) -> Post:
    """Return a copy of a post with the attack for the number ``which`` in its body; the record id is unchanged."""
    attack, place = pick(which)
    cut = {"start": 0, "middle": _middle(post.body), "end": len(post.body)}[place]
    pieces = (post.body[:cut].rstrip(), attack.text, post.body[cut:].lstrip())
    return replace(post, body=" ".join(piece for piece in pieces if piece))


def _middle(body: str) -> int:
    ends = [found.end() for found in END.finditer(body)]
    return min(ends, key=lambda end: (abs(2 * end - len(body)), end), default=len(body))
