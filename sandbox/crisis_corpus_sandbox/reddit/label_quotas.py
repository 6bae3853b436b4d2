"""Draw labels for synthetic posts in the papers' proportions, so that splits and tables have realistic marginals.

Counts are drawn by quota, not at random: the marginals of ``n`` posts equal the papers' within rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from pipelines.core.taxonomy import load, tiers_of

# FigSIM T8 totals (SPEC.md 1.5): the three split columns summed.
FIGURATIVE = {"F1": 161, "F2": 121, "F3": 833}
FIGURATIVE_NONE = 146
SEVERITY = {"SS1": 189, "SS2": 339, "SS3": 163, "SS4": 167, "SS5": 30, "SS6": 161}
RELATED = {"SR1": 266, "SR2": 81, "SR3": 70, "SR4": 282, "SR5": 21}
RELATED_NONE = 401
MODALITY = {"M1": 946, "M2": 74, "M3": 29}
CONTEXT = {"C1": 916, "C2": 133}
MEMES = 1049
NAMES = {x.code: x.name for category in load("figsim").categories.values() for x in category.labels}
# CRADLE T11, consensus column: 4,649 labels of 4,181 posts, 435 of which carry more than one (T7).
CRADLE = {
    "no_crisis": 1160,
    "selfharm_ongoing": 703,
    "suicideideation_passive_ongoing": 600,
    "suicideideation_active_ongoing": 434,
    "rape_past": 352,
    "domesticviolence_past": 267,
    "domesticviolence_ongoing": 233,
    "sexualharassment_ongoing": 219,
    "selfharm_past": 214,
    "sexualharassment_past": 156,
    "childabuse_endangerment_past": 143,
    "suicideideation_active_past": 60,
    "rape_ongoing": 55,
    "childabuse_endangerment_ongoing": 39,
    "suicideideation_passive_past": 14,
}
CRADLE_POSTS = 4181
# CRADLE T2: no post carries more than four labels.
MOST_CRISES = 4


@dataclass(frozen=True, slots=True)
class Figsim:
    """The labels of one meme in FigSIM's five categories, as codes."""

    figurative: tuple[str, ...]
    severity: str
    related: tuple[str, ...]
    modality: str
    context: str

    def carried(self) -> tuple[str, ...]:
        """Return the label codes that text or picture must express: all except modality, ``SS6`` and ``C1``."""
        single = (self.severity, self.context)
        return (*self.figurative, *(c for c in single if c not in ("SS6", "C1")), *self.related)

    def names(self) -> dict[str, list[str]]:
        """Return the labels by category in the papers' spelling; the papers' None is an empty list."""
        return {
            "figurative": [NAMES[c] for c in self.figurative],
            "severity": [NAMES[self.severity]],
            "related": [NAMES[c] for c in self.related],
            "modality": [NAMES[self.modality]],
            "context": [NAMES[self.context]],
        }


def figsim(count: int, *, rng: Random) -> list[Figsim]:
    """Return labels for ``count`` memes with the proportions of FigSIM's Table 8 (largest remainders rounded up)."""
    figurative = _sets(FIGURATIVE, empty=FIGURATIVE_NONE, count=count, rng=rng)
    related = _sets(RELATED, empty=RELATED_NONE, count=count, rng=rng)
    severity, modality, context = (_single(t, count=count, rng=rng) for t in (SEVERITY, MODALITY, CONTEXT))
    return [Figsim(*row) for row in zip(figurative, severity, related, modality, context, strict=True)]


def cradle(count: int, *, rng: Random) -> list[tuple[str, ...]]:
    """Return label sets for ``count`` posts with the proportions of CRADLE's Table 11, valid under its hard rules."""
    totals = {name: max(1, n) if count >= len(CRADLE) else n for name, n in _scaled(CRADLE, count=count).items()}
    calm = min(totals.pop("no_crisis"), count)
    crises = [name for name, n in totals.items() for _ in range(n)]
    rng.shuffle(crises)
    sets: list[set[str]] = [set() for _ in range(count - calm)]
    for name in crises:
        empty = next((s for s in sets if not s), None)
        chosen = empty if empty is not None else _fitting(sets, name=name, rng=rng)
        if chosen is not None:
            chosen.add(name)
    drawn = [tuple(sorted(s)) or ("no_crisis",) for s in sets] + [("no_crisis",)] * calm
    rng.shuffle(drawn)
    return drawn


def _fitting(sets: Sequence[set[str]], *, name: str, rng: Random) -> set[str] | None:
    for _ in range(50):
        candidate = rng.choice(sets) if sets else set()
        if len(candidate) < MOST_CRISES and not any(_clash(name, other) for other in candidate):
            return candidate
    return None


@cache
def _clash(left: str, right: str) -> bool:
    return bool(load("cradle").category().check([left, right], mode="strict", tiers=tiers_of("improved")).violations)


def _scaled(totals: Mapping[str, int], *, count: int) -> dict[str, int]:
    of = CRADLE_POSTS if totals is CRADLE else MEMES
    exact = {name: n * count / of for name, n in totals.items()}
    floors = {name: int(value) for name, value in exact.items()}
    missing = round(sum(exact.values())) - sum(floors.values())
    for name in sorted(exact, key=lambda k: floors[k] - exact[k])[:missing]:
        floors[name] += 1
    return floors


def _single(totals: Mapping[str, int], *, count: int, rng: Random) -> list[str]:
    column = [name for name, n in _scaled(totals, count=count).items() for _ in range(n)]
    rng.shuffle(column)
    return column


def _sets(totals: Mapping[str, int], *, empty: int, count: int, rng: Random) -> list[tuple[str, ...]]:
    """Return ``count`` label sets: the paper's share of them empty, all others with at least one label."""
    labels = _single(totals, count=count, rng=rng)
    labels.sort(key=lambda name: totals[name] == max(totals.values()), reverse=True)
    sets: list[set[str]] = [set() for _ in range(count - round(count * empty / MEMES))]
    for i, name in enumerate(labels):
        free = [sets[i]] if i < len(sets) else [s for s in sets if name not in s and len(s) < 2]
        if free:
            rng.choice(free).add(name)
    column = [tuple(sorted(s)) for s in sets] + [()] * (count - len(sets))
    rng.shuffle(column)
    return column
