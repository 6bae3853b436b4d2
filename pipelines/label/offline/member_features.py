"""Compute the features of the three offline labellers, which are views of a post with different errors (SPEC 2.3).

A view converts texts to rows without using labels (``read``) and fits one linear classifier per label on the rows
(``fit``). Everything learned from more than one text, including document frequencies, is learned inside ``fit``. The
texts of a fold therefore do not influence the model that labels them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Targets = npt.NDArray[np.bool_]
Rows = Any  # a sparse matrix or an array, one row per text
Head = Callable[[Rows], Values]  # rows -> decision values, shape (rows, labels), uncalibrated

WORD = r"(?u)\b\w[\w']*"  # single letters too: "I" shows who the post is about
MIN_TEXTS = 2  # ours: an n-gram of a single training text only identifies that text


class View(Protocol):
    """The interface of a method that computes features from posts, and fits classifiers on them."""

    def read(self, texts: Sequence[str], *, learn: bool = False) -> Rows:
        """Return one row of features per text; ``learn`` also fixes the vocabulary: set it for posts with gold only."""

    def fit(self, rows: Rows, *, targets: Targets, seed: int) -> Head:
        """Fit and return a classifier for each label, a column of ``targets``, shape (rows, labels)."""


def _linear(rows: Rows, *, wanted: npt.NDArray[np.bool_], c: float, seed: int) -> tuple[Values, float]:
    """Return weights and intercept of a logistic regression; liblinear's dual is 40 times faster here (SPEC 2.3)."""
    from sklearn.linear_model import LogisticRegression

    positives = int(wanted.sum())
    if positives in (0, len(wanted)):  # all posts of a rare label are in the held-out fold: use the prior
        prior = float(np.log((positives + 0.5) / (len(wanted) - positives + 0.5)))
        return np.zeros(rows.shape[1]), prior
    model = LogisticRegression(solver="liblinear", dual=True, C=c, max_iter=1000, random_state=seed)
    model.fit(rows, wanted)
    return model.coef_[0].astype(np.float64), float(model.intercept_[0])


def _each(rows: Rows, *, targets: Targets, c: float, seed: int) -> tuple[Values, Values]:
    fitted = [_linear(rows, wanted=targets[:, label], c=c, seed=seed) for label in range(targets.shape[1])]
    return np.array([weights for weights, _ in fitted]).T, np.array([intercept for _, intercept in fitted])


def _frequent(rows: Rows) -> npt.NDArray[np.intp]:
    """Return the columns that occur in at least ``MIN_TEXTS`` rows."""
    return np.flatnonzero(np.bincount(rows.indices, minlength=rows.shape[1]) >= MIN_TEXTS)


class _Ngrams:
    def __init__(self, **options: Any) -> None:
        from sklearn.feature_extraction.text import CountVectorizer

        self._counts = CountVectorizer(**options, min_df=MIN_TEXTS, dtype=np.float64)

    def read(self, texts: Sequence[str], *, learn: bool = False) -> Rows:
        """Return the counts of n-grams, or whether each occurs, shape (texts, n-grams)."""
        return (self._counts.fit_transform if learn else self._counts.transform)(texts).tocsr()


class Characters(_Ngrams):
    """TF-IDF of character n-grams within words, which tolerate typos, inflection and scrubbing."""

    C = 10.0  # ours: unit-length rows of a few hundred texts need little shrinkage

    def __init__(self) -> None:
        super().__init__(analyzer="char_wb", ngram_range=(2, 5))

    def fit(self, rows: Rows, *, targets: Targets, seed: int) -> Head:
        """Fit one classifier per label on TF-IDF weights, with document frequencies from the training texts."""
        from sklearn.feature_extraction.text import TfidfTransformer

        columns = _frequent(rows)
        weigh = TfidfTransformer(sublinear_tf=True).fit(rows[:, columns])
        weights, intercepts = _each(weigh.transform(rows[:, columns]), targets=targets, c=self.C, seed=seed)
        return lambda some: np.asarray(weigh.transform(some[:, columns]) @ weights + intercepts)


class WordFeatures(_Ngrams):
    """Words and word pairs, each scaled by how strongly it indicates a label (NB-SVM, Wang & Manning 2012)."""

    C = 1.0  # ours: the ratios already set the scale

    def __init__(self) -> None:
        super().__init__(ngram_range=(1, 2), token_pattern=WORD, binary=True)

    def fit(self, rows: Rows, *, targets: Targets, seed: int) -> Head:
        """Fit one classifier per label on columns scaled by the label's log ratio (with add-one smoothing)."""
        columns = _frequent(rows)
        seen = rows[:, columns]
        weights, intercepts = np.zeros((len(columns), targets.shape[1])), np.zeros(targets.shape[1])
        for label in range(targets.shape[1]):
            wanted = targets[:, label]
            inside = np.asarray(seen[wanted].sum(axis=0)).ravel() + 1.0
            outside = np.asarray(seen[~wanted].sum(axis=0)).ravel() + 1.0
            ratio = np.log(inside / inside.sum()) - np.log(outside / outside.sum())
            fitted, intercepts[label] = _linear(seen.multiply(ratio).tocsr(), wanted=wanted, c=self.C, seed=seed)
            weights[:, label] = fitted * ratio
        return lambda some: np.asarray(some[:, columns] @ weights + intercepts)


class Embedding:
    """MiniLM's sentence embedding, with weights from an installed package, so that nothing is downloaded."""

    C = 10.0  # ours: unit-length rows, as above

    def __init__(self) -> None:
        from pipelines.extract.embedding import MiniLM

        self._model = MiniLM()
        self._known: dict[str, npt.NDArray[np.float64]] = {}

    def read(self, texts: Sequence[str], *, learn: bool = False) -> Rows:
        """Return the mean sentence vector of each text, shape (texts, 384); the vectors are cached by text.

        ``learn`` has no effect: the vocabulary is the model's.
        """
        for text in texts:
            if text not in self._known:
                self._known[text] = self._model.embed(text)
        return np.array([self._known[text] for text in texts]).reshape(len(texts), -1)

    def fit(self, rows: Rows, *, targets: Targets, seed: int) -> Head:
        """Fit one classifier per label on unit vectors minus the training mean, which all posts have in common."""
        centre = rows.mean(axis=0)

        def unit(some: Rows) -> Values:
            moved = some - centre
            return np.asarray(moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12))

        weights, intercepts = _each(unit(rows), targets=targets, c=self.C, seed=seed)
        return lambda some: np.asarray(unit(some) @ weights + intercepts)


def view(features: Literal["characters", "words", "embedding"]) -> View:
    """Create the view (method of computing features) with this name in ``params.yaml``."""
    views: dict[str, Callable[[], View]] = {"characters": Characters, "words": WordFeatures, "embedding": Embedding}
    return views[features]()
