"""Compare a champion's predictions for a month with its predictions on the test split (drift).

The promotion gate counts the predictions of candidate and champion on the test and writes the counts to the journal;
the stage ``batch_predict`` counts those of each month. A quantity has drifted if its difference exceeds a bound, and
sampling noise does not explain it. Both are needed: a small month differs by chance, and with many records differences
are significant that do not matter. The comparison assumes that the test is a random sample of the corpus, as the stage
``sample`` draws it.

- Rates of labels and of alerts: Fisher's exact test, because rare labels have few items.
- Mean confidence: Welch's t-test, from counts by twentieth; from 30 items on, the usual rule for skewed values.
- Language and length of the input: the population stability index (PSI). The usual bound is 0.2; without drift, it
  follows about ``(1/n + 1/m)`` times a chi-square distribution with a degree of freedom less than there are classes
  (Yurdakul 2018, "Statistical properties of population stability index"), whose quantile small months must exceed, too.

``alpha`` is divided by the number of quantities (Bonferroni): it bounds the probability of a false alarm in a month.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipelines.core.config.base import Section
from pipelines.core.config.models import Drift
from pipelines.core.taxonomy.task import Task
from pipelines.registry.journal import Journal
from pipelines.store.tables import Item, items_of

# Ours: classes of length in words, by powers of two.
WORDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TWENTIETHS = 20
T_TEST_ITEMS = 30
# The tables with the words and the language of items, below ``data/<corpus>``; a corpus has one of them.
INPUTS = ("*/images/*.parquet", "*/texts/*.parquet")
ALERTS, CONFIDENCE = "alerts", "confidence"
Json = dict[str, Any]
Inputs = Mapping[Item, tuple[int, str]]
"""The number of words and the language of each item."""


class Counts(Section):
    """The counts of a model's predictions by which drift is measured.

    Args:
        alerting: the labels whose severity is high enough for an alert; empty if the task has none.
        alerts: items with at least one label of ``alerting``.
        confidence: items by the twentieth of their confidence; empty if the model gives no probabilities. The
            confidence of an answer is the probability of its label; of several, the mean probability of the decisions
            for and against each label.
        words: items by number of words, in the classes of :data:`WORDS`.
    """

    answered: int
    labels: dict[str, int]
    alerting: tuple[str, ...]
    alerts: int
    confidence: tuple[int, ...]
    language: dict[str, int]
    words: tuple[int, ...]


def alerting(task: Task, *, severe: int) -> tuple[str, ...]:
    """Return the labels of a task whose severity is at least ``severe``, so that predicting them counts as an alert."""
    return tuple(label for label in task.labels if task.category.severities.get(label, 0) >= severe)


def count(
    answers: Iterable[tuple[Item, Iterable[str], tuple[float, ...]]],
    *,
    task: Task,
    alerting: Iterable[str],
    inputs: Inputs,
) -> Counts:
    """Count a model's answers, given as item, labels and probabilities in the task's order (empty if it gives none).

    Items without a row in ``inputs`` are missing from the counts of languages and words.
    """
    rows, high = list(answers), frozenset(alerting)
    known = [inputs[item] for item, _, _ in rows if item in inputs]
    labels = Counter(label for _, named, _ in rows for label in named)
    words = Counter(bisect_right(WORDS, length) for length, _ in known)
    values = [_confidence(scores, kind=task.kind) for _, _, scores in rows if scores]
    sure = Counter(min(int(value * TWENTIETHS), TWENTIETHS - 1) for value in values)
    return Counts(
        answered=len(rows),
        labels={label: labels[label] for label in task.labels},
        alerting=tuple(label for label in task.labels if label in high),
        alerts=sum(not high.isdisjoint(named) for _, named, _ in rows),
        confidence=tuple(sure[k] for k in range(TWENTIETHS)) if sure else (),
        language=dict(sorted(Counter(language for _, language in known).items())),
        words=tuple(words[k] for k in range(len(WORDS) + 1)),
    )


def tables_of(folder: Path) -> list[Path]:
    """Return the files for :func:`inputs_of` below ``data/<corpus>``, sorted."""
    return sorted(path for pattern in INPUTS for path in folder.glob(pattern))


def inputs_of(files: Iterable[Path]) -> dict[Item, tuple[int, str]]:
    """Return the number of words and the language of each item, from tables of the corpus; nothing is decrypted."""
    inputs = {}
    for path in files:
        with pq.ParquetFile(path) as file:
            image = ["image"] if "image" in file.schema_arrow.names else []
            table = file.read(columns=["record_id", *image, "words", "language"])
        if not image:
            table = table.append_column("image", [[0] * table.num_rows])
        rows = zip(items_of(table), table["words"].to_pylist(), table["language"].to_pylist(), strict=True)
        inputs.update({item: (words or 0, language or "none") for item, words, language in rows})
    return inputs


def reference(journal: Journal, *, name: str, version: int) -> Counts | None:
    """Return the counts of a version's predictions on the test items from the last gate verdict, or ``None``."""
    for row in reversed(journal.rows(name)):
        counts = row.metrics.get("figures", {}).get("scores", {}).get("counts", {})
        if str(version) in counts:
            return Counts.model_validate(counts[str(version)])
    return None


def compare(test: Counts, month: Counts, *, bounds: Drift) -> Json:
    """Compare a model's predictions for a month with those for the test items.

    Returns:
        ``answered``: the items of the month; ``quantities``: by name (of a label, ``alerts``, ``confidence``), the
        values ``test`` and ``month`` and the probability ``p`` of such a difference without drift, and, for
        ``language`` and ``words``, ``psi`` and ``bound``; ``exceeded``: the names of the quantities that have drifted.
        Quantities that the test or the month lacks are left out.
    """
    if not (test.answered and month.answered):
        return {"answered": month.answered, "quantities": {}, "exceeded": []}
    counted = {label: (test.labels[label], month.labels.get(label, 0)) for label in test.labels}
    if test.alerting:
        counted[ALERTS] = (test.alerts, month.alerts)
    sure = min(sum(test.confidence), sum(month.confidence)) >= T_TEST_ITEMS
    alpha = bounds.alpha / (len(counted) + sure + 2)
    quantities = {name: _rates(*sizes_of, sizes=(test.answered, month.answered)) for name, sizes_of in counted.items()}
    if sure:
        quantities[CONFIDENCE] = _means(test.confidence, month.confidence)
    languages = sorted({*test.language, *month.language})
    of_language = ([sizes_of.language.get(key, 0) for key in languages] for sizes_of in (test, month))
    quantities["language"] = _psi(*of_language, alpha=alpha, bound=bounds.psi)
    quantities["words"] = _psi(test.words, month.words, alpha=alpha, bound=bounds.psi)
    exceeded = [name for name, quantity in quantities.items() if _exceeds(name, quantity, alpha=alpha, bounds=bounds)]
    return {"answered": month.answered, "quantities": quantities, "exceeded": exceeded}


def _exceeds(name: str, quantity: Json, *, alpha: float, bounds: Drift) -> bool:
    if "psi" in quantity:
        return bool(quantity["psi"] > quantity["bound"])
    bound = bounds.confidence if name == CONFIDENCE else bounds.rate
    return bool(abs(quantity["month"] - quantity["test"]) > bound and quantity["p"] < alpha)


def _confidence(scores: tuple[float, ...], *, kind: str) -> float:
    return max(scores) if kind == "single" else sum(max(p, 1 - p) for p in scores) / len(scores)


def _rates(before: int, now: int, *, sizes: tuple[int, int]) -> Json:
    from scipy.stats import fisher_exact

    n, m = sizes
    p = fisher_exact([[before, n - before], [now, m - now]]).pvalue
    return {"test": _round(before / n), "month": _round(now / m), "p": _round(p)}


def _means(before: Iterable[int], now: Iterable[int]) -> Json:
    from scipy.stats import ttest_ind_from_stats

    (n, p, v), (m, q, w) = _moments(before), _moments(now)
    # all values of both are in one twentieth each
    chance = float(p == q) if v + w == 0 else ttest_ind_from_stats(p, v**0.5, n, q, w**0.5, m, equal_var=False).pvalue
    return {"test": _round(p), "month": _round(q), "p": _round(chance)}


def _moments(counts: Iterable[int]) -> tuple[int, float, float]:
    """Return size, mean and variance of values counted by twentieth."""
    classes = [((i + 0.5) / TWENTIETHS, k) for i, k in enumerate(counts)]
    n = sum(k for _, k in classes)
    mean = sum(x * k for x, k in classes) / max(n, 1)
    return n, mean, sum(k * (x - mean) ** 2 for x, k in classes) / max(n - 1, 1)


def _psi(before: Iterable[int], now: Iterable[int], *, alpha: float, bound: float) -> Json:
    """Return the index over the classes that occur, and the bound that it must exceed."""
    from scipy.stats import chi2

    pairs = [(a, b) for a, b in zip(before, now, strict=True) if a or b]
    n, m = (sum(side) for side in zip(*pairs, strict=True))
    # half an item more in each class: an empty one would make the index infinite
    shares = [((a + 0.5) / (n + len(pairs) / 2), (b + 0.5) / (m + len(pairs) / 2)) for a, b in pairs]
    noise = float(chi2.ppf(1 - alpha, len(pairs) - 1)) * (1 / n + 1 / m) if len(pairs) > 1 else 0.0
    value = sum((q - p) * math.log(q / p) for p, q in shares)
    return {"psi": _round(value), "bound": _round(max(bound, noise))}


def _round(value: float) -> float:
    return round(float(value), 6)
