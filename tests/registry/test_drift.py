"""A month is reported if its predictions differ from those of the test by more than a bound and more than by chance."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pipelines.core.config.params import load
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import task_of
from pipelines.registry import drift
from pipelines.registry.drift import Counts
from pipelines.registry.journal import Journal

ROOT = Path(__file__).resolve().parents[2]
BOUNDS = load(ROOT).drift
TASK = task_of(scheme_of("figsim"), "severity")
LABELS = tuple(f"label{i}" for i in range(8))
RATES = np.array([0.02, 0.05, 0.05, 0.1, 0.1, 0.2, 0.3, 0.5])
LANGUAGES = {"en": 0.97, "de": 0.02, "none": 0.01}


def drawn(
    random: np.random.Generator, n: int, *, rates: np.ndarray = RATES, sure: float = 8.0, words: float = 4.0,
    english: float = 0.97,
) -> Counts:  # fmt: skip
    """Draw the counts of ``n`` predictions of the same model of posts, with a shift of one of their parameters."""
    said = random.random((n, len(LABELS))) < rates
    languages = random.multinomial(n, [english, (1 - english) * 2 / 3, (1 - english) / 3])
    lengths = np.exp(random.normal(words, 1, n)).astype(int)
    return Counts(
        answered=n,
        labels=dict(zip(LABELS, said.sum(0).tolist(), strict=True)),
        alerting=LABELS[:3],
        alerts=int(said[:, :3].any(1).sum()),
        confidence=tuple(np.histogram(random.beta(sure, 2, n), drift.TWENTIETHS, (0, 1))[0].tolist()),
        language=dict(zip(LANGUAGES, languages.tolist(), strict=True)),
        words=tuple(np.bincount(np.searchsorted(drift.WORDS, lengths, side="right"), minlength=11).tolist()),
    )


def alarms(test: int, month: int, *, draws: int = 300, **shift: object) -> dict[str, float]:
    """Return how often each quantity is reported, and any (``any``), when both test and month are drawn again."""
    random = np.random.default_rng(7)
    found = dict.fromkeys((*LABELS, "alerts", "confidence", "language", "words", "any"), 0.0)
    for _ in range(draws):
        compared = drift.compare(drawn(random, test), drawn(random, month, **shift), bounds=BOUNDS)  # type: ignore[arg-type]
        for name in {*compared["exceeded"], *(["any"] if compared["exceeded"] else [])}:
            found[name] += 1 / draws
    return found


@pytest.mark.parametrize(
    ("test", "month"),
    [*(pytest.param(1000, month, marks=pytest.mark.faults) for month in (1000, 100)), (200, 30), (100, 10)],
)
def test_months_of_the_same_distribution_are_rarely_reported(test: int, month: int) -> None:
    # alpha, and three standard errors of 300 draws
    assert alarms(test, month)["any"] <= BOUNDS.alpha + 3 * (BOUNDS.alpha * (1 - BOUNDS.alpha) / 300) ** 0.5


def shifted(label: int, points: float) -> np.ndarray:
    return np.array([rate + points * (i == label) for i, rate in enumerate(RATES)])


@pytest.mark.parametrize(
    ("name", "shift"),
    [("confidence", {"sure": 5.0}), ("language", {"english": 0.8}), ("words", {"words": 3.3}),
     ("alerts", {"rates": shifted(2, 0.1)}), ("label1", {"rates": shifted(1, 0.1)}),
     ("label5", {"rates": shifted(5, 0.12)})],
)  # fmt: skip
def test_every_shift_is_reported_as_what_it_is(name: str, shift: dict[str, object]) -> None:
    found = alarms(1000, 1000, draws=60, **shift)
    assert found[name] >= 0.95
    with_it = {"alerts": {"label2"}, "label1": {"alerts"}}.get(name, set())
    assert max(share for key, share in found.items() if key not in {name, "any", *with_it}) <= 0.05


def test_a_significant_difference_within_the_bound_is_not_reported() -> None:
    assert alarms(5_000, 5_000, draws=20, rates=shifted(5, 0.03))["any"] == 0
    wide = BOUNDS.model_copy(update={"rate": 0.02})
    random = np.random.default_rng(1)
    compared = drift.compare(drawn(random, 20_000), drawn(random, 20_000, rates=shifted(5, 0.03)), bounds=wide)
    assert compared["exceeded"] == ["label5"]
    assert compared["quantities"]["label5"] == {
        "test": pytest.approx(0.2, abs=0.01),
        "month": pytest.approx(0.23, abs=0.01),
        "p": 0,
    }


def test_counts_have_classes_of_confidence_length_and_language() -> None:
    a, b, c = (("r1", 0), ("r2", 0), ("r3", 1))
    high = drift.alerting(TASK, severe=3)
    assert high and set(high) < set(TASK.labels)
    sure = tuple(0.9 if label == high[0] else 0.1 / (len(TASK.labels) - 1) for label in TASK.labels)
    inputs = {a: (0, "en"), b: (3, "en"), c: (600, "none")}
    answers = [(a, [high[0]], sure), (b, ["None"], ()), (c, ["None"], (1.0, *[0.0] * (len(TASK.labels) - 1)))]
    found = drift.count(answers, task=TASK, alerting=high, inputs=inputs)
    assert (found.answered, found.alerts, found.labels["None"]) == (3, 1, 2)
    assert found.language == {"en": 2, "none": 1}
    assert [place for place, k in enumerate(found.words) if k] == [0, 2, 10]
    assert [place for place, k in enumerate(found.confidence) if k] == [18, 19]
    assert Counts.model_validate(json.loads(found.model_dump_json())) == found


@pytest.mark.parametrize("lost", [{}, {"confidence": ()}, {"alerting": ()}])
def test_what_a_model_does_not_give_is_not_compared(lost: dict[str, object]) -> None:
    counts = drawn(np.random.default_rng(1), 500)
    found = drift.compare(counts.model_copy(update=lost), counts, bounds=BOUNDS)
    assert found["exceeded"] == []
    assert ("confidence" in found["quantities"]) == ("confidence" not in lost)
    assert ("alerts" in found["quantities"]) == ("alerting" not in lost)
    assert drift.compare(counts.model_copy(update={"answered": 0}), counts, bounds=BOUNDS)["exceeded"] == []


def test_the_newest_test_of_a_version_is_the_reference(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    first, second = drawn(random, 10), drawn(random, 20)
    with Journal.open(f"sqlite:///{tmp_path}/journal.sqlite", secret=b"5" * 64) as journal:
        assert drift.reference(journal, name="crisis-posts", version=1) is None
        for counts in ({"1": first}, {"1": second, "2": first}, {"3": first}, {}):
            scores = {"counts": {key: value.model_dump(mode="json") for key, value in counts.items()}} if counts else {}
            metrics = {"figures": {"scores": scores}}
            journal.append("crisis-posts", event="gated", to_version=1, who="a", why="b", metrics=metrics)
        assert drift.reference(journal, name="crisis-posts", version=1) == second
        assert drift.reference(journal, name="crisis-posts", version=2) == first
        assert drift.reference(journal, name="crisis-posts", version=4) is None
