"""Draw features of simulated memes: some differ by severity by a stated amount, others do not.

The corpus has the size and the severities of FigSIM's. Memes come in groups (authors), most of one meme. Memes of a
group share their severity more often than chance, and all their features have a part in common, so that the memes of a
group are not independent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.evaluate.analysis.group_comparison import Factor

# FigSIM Table 8, in the scheme's order
SEVERITY = {
    "None": 161, "Wish to be dead": 189, "Suicide ideation": 339, "Suicide planning": 163, "Suicide attempts": 167,
    "Suicide death": 30,
}  # fmt: skip
# The planted effect: memes of the two levels are higher by this many standard deviations (eta squared about .065).
RAISED, SHIFT = ("Suicide planning", "Suicide attempts"), 0.6
EQUAL = tuple(level for level in SEVERITY if level not in RAISED)
PLANTED = ("planted.normal", "planted.skewed", "planted.share")
NULL = 15


@dataclass(frozen=True)
class Simulated:
    """Features by name, the factors, the unit of each meme, and which features differ by severity."""

    features: dict[str, NDArray[np.float64]]
    factors: dict[str, Factor]
    units: list[str]


def draw(seed: int, *, planted: bool = True) -> Simulated:
    """Return one simulated corpus; without ``planted`` no feature differs by severity."""
    rng = np.random.default_rng(seed)
    levels = tuple(SEVERITY)
    n = sum(SEVERITY.values())
    # two memes in three are their author's only one; the other groups have two to six
    sizes: list[int] = []
    while sum(sizes) < n:
        sizes.append(1 if rng.random() < 0.85 else int(rng.integers(2, 7)))
    unit = np.repeat(np.arange(len(sizes)), sizes)[:n]
    shares = np.array(list(SEVERITY.values())) / n
    own = rng.choice(len(levels), size=n, p=shares)
    common = rng.choice(len(levels), size=len(sizes), p=shares)[unit]
    severity = np.where(rng.random(n) < 0.7, common, own)
    raised = np.isin(severity, [levels.index(level) for level in RAISED]) * (SHIFT if planted else 0.0)

    def latent() -> NDArray[np.float64]:
        """Return standard normal values of which a group's have a correlation of .5."""
        drawn: NDArray[np.float64] = np.sqrt(0.5) * (rng.normal(size=len(sizes))[unit] + rng.normal(size=n))
        return drawn

    features = {
        "planted.normal": latent() + raised,
        "planted.skewed": np.exp(latent() + raised),
        # like a share of words: most memes have none or a few, so that there are many ties
        "planted.share": np.clip(np.round(2 * (latent() + raised)), 0, None),
    }
    for i in range(NULL):
        x = latent()
        kinds = (x, np.exp(x), np.clip(np.round(2 * x), 0, None), (x > 1).astype(float))
        features[f"null.{i}"] = kinds[i % len(kinds)]
    figurative = [str(value) for value in np.where(rng.random(n) < 0.86, "any", "none")]
    factors = {
        "severity": Factor(levels, [levels[i] for i in severity]),
        "figurative": Factor(("none", "any"), figurative),
    }
    return Simulated(features, factors, [f"u{i}" for i in unit])


def rare(seed: int, *, features: int = 12) -> Simulated:
    """Return features that most memes do not have, such as words of a rare category, and that differ by no label.

    The last level has eight memes, and every meme a unit of its own.
    """
    rng = np.random.default_rng(seed)
    sizes = dict(zip(SEVERITY, (110, 130, 230, 110, 115, 8), strict=True))
    n = sum(sizes.values())
    shares = (0.004, 0.01, 0.02, 0.05)
    drawn = {
        f"rare.{i}": np.where(rng.random(n) < shares[i % len(shares)], rng.gamma(2, 2, n), 0.0) for i in range(features)
    }
    figurative = [str(value) for value in np.where(rng.random(n) < 0.86, "any", "none")]
    factors = {
        "severity": Factor(tuple(sizes), [level for level, many in sizes.items() for _ in range(many)]),
        "figurative": Factor(("none", "any"), figurative),
    }
    return Simulated(drawn, factors, [f"u{i}" for i in range(n)])
