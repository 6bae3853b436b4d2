"""Over 400 sandboxes, the stage finds the words of planning, and seldom a difference where the sandbox plants none.

A caption of the severity "planning" has such a word in two of three phrases (``sandbox/reddit/markers.py``); a picture
is drawn at random here, and knows no label. ``docs/log/tests.md`` has the figures.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from pipelines.core.config.params import load as load_params
from pipelines.core.taxonomy import load
from pipelines.evaluate.analysis import analysis
from pipelines.evaluate.analysis.features import VisualFeatures, open_all
from tests.analysis import sandbox_items
from tests.small_corpus import ROOT

pytestmark = pytest.mark.faults

SEEDS, SUBMISSIONS = 400, 310
# three standard errors of a share of .05
MOST = 0.05 + 3 * (0.05 * 0.95 / SEEDS) ** 0.5
PLANTED = "default.planning"


def significant(found: dict[str, Any]) -> set[str]:
    return {name for tests in found["factors"].values() for name, test in tests.items() if test.get("significant")}


def test_planted_words_are_found_and_what_no_label_decides_is_not() -> None:
    features = VisualFeatures()
    visual = [features.of(sandbox_items.plain(n), text_area=n / 30) for n in range(9)]
    given: dict[str, Any] = {"scheme": load("figsim"), "params": load_params(ROOT), "lexicons": open_all({})}
    planted = pairs = pictures = shuffled = 0
    sizes = []
    for seed in range(SEEDS):
        items, gold = sandbox_items.captions(seed, submissions=SUBMISSIONS, visual=visual)
        found = analysis.describe(items, gold=gold, **given)
        test = found["factors"]["severity"][PLANTED]
        planted += test["significant"]
        pairs += any(p["significant"] and "Suicide planning" in (p["a"], p["b"]) for p in test.get("pairs", ()))
        sizes.append(test["eta_squared"]["value"])
        pictures += any(name.startswith("visual.") for name in significant(found))
        # the labels of another meme: now no feature differs, not even the rare words
        order = Random(seed).sample(items.items, len(items.items))
        other = {
            category: {item: labels[one] for item, one in zip(items.items, order, strict=True) if one in labels}
            for category, labels in gold.items()
        }
        none = analysis.describe(items, gold=other, **given)
        shuffled += bool(significant(none))
    assert planted / SEEDS >= 0.95
    assert pairs / SEEDS >= 0.95
    assert pictures / SEEDS <= MOST
    assert shuffled / SEEDS <= MOST
    # the stated size of the effect
    assert 0.3 < np.median(sizes) < 0.42
