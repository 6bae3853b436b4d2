"""Fit an offline labeller on the gold of validation, in seconds; it labels posts without a key or network (SPEC 2.3).

A post with gold is labelled by a model of a fold that excludes the post, its author and its near-duplicates, so that a
comparison on validation is fair. The name of the labeller marks these votes as offline.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.collect.read import ngrams
from pipelines.collect.read.embedding import MiniLM, centred, decided
from pipelines.core.config.label import OfflineLabeller, VotesParams
from pipelines.core.errors import LabellingError
from pipelines.llm.outcome import Answer, Outcome
from pipelines.metrics.calibration import fit_sigmoids, probabilities
from pipelines.metrics.decoding import decode

if TYPE_CHECKING:
    from pipelines.core.taxonomy import Category
    from pipelines.datasets.post import Post


Values = npt.NDArray[np.float64]
Targets = npt.NDArray[np.bool_]
Rows = Any  # a sparse matrix or an array, one row per text
Head = Callable[[Rows], Values]  # rows -> decision values, shape (rows, labels), uncalibrated

MIN_TEXTS = 2  # ours: an n-gram of a single training text only identifies that text


def linear(rows: Rows, *, wanted: npt.NDArray[np.bool_], c: float, seed: int) -> tuple[Values, float]:
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
    fitted = [linear(rows, wanted=targets[:, label], c=c, seed=seed) for label in range(targets.shape[1])]
    return np.array([weights for weights, _ in fitted]).T, np.array([intercept for _, intercept in fitted])


def _frequent(rows: Rows) -> npt.NDArray[np.intp]:
    return np.flatnonzero(np.bincount(rows.indices, minlength=rows.shape[1]) >= MIN_TEXTS)


class _Ngrams:
    def __init__(self, **options: Any) -> None:
        from sklearn.feature_extraction.text import CountVectorizer

        self._counts = CountVectorizer(**options, min_df=MIN_TEXTS, dtype=np.float64)

    def read(self, texts: Sequence[str], *, learn: bool = False) -> Rows:
        """Return the counts of n-grams, or whether each occurs, shape (texts, n-grams).

        ``learn`` also fixes the vocabulary: set it for posts with gold only.
        """
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
        super().__init__(ngram_range=(1, 2), token_pattern=ngrams.WORD, binary=True)

    def fit(self, rows: Rows, *, targets: Targets, seed: int) -> partial[Values]:
        """Fit one classifier per label on columns scaled by the label's log ratio (with add-one smoothing)."""
        columns = _frequent(rows)
        seen = rows[:, columns]
        weights, intercepts = np.zeros((len(columns), targets.shape[1])), np.zeros(targets.shape[1])
        for label in range(targets.shape[1]):
            wanted = targets[:, label]
            inside = np.asarray(seen[wanted].sum(axis=0)).ravel() + 1.0
            outside = np.asarray(seen[~wanted].sum(axis=0)).ravel() + 1.0
            ratio = np.log(inside / inside.sum()) - np.log(outside / outside.sum())
            fitted, intercepts[label] = linear(seen.multiply(ratio).tocsr(), wanted=wanted, c=self.C, seed=seed)
            weights[:, label] = fitted * ratio
        return partial(ngrams.decided, columns=columns, weights=weights, intercepts=intercepts)


@cache
def _embedder() -> Callable[[str], Values]:
    """Return the embedding model, which computes each text once, whichever categories are learned from it."""
    return cache(MiniLM().embed)


class Embedding:
    """MiniLM's sentence embedding, with weights from an installed package, so that nothing is downloaded."""

    C = 10.0  # ours: unit-length rows, as above

    def __init__(self) -> None:
        self._embed = _embedder()

    def read(self, texts: Sequence[str], *, learn: bool = False) -> Rows:
        """Return the mean sentence vector of each text, shape (texts, 384); the vectors are cached by text.

        ``learn`` has no effect: the vocabulary is the model's.
        """
        return np.array([self._embed(text) for text in texts]).reshape(len(texts), -1)

    def fit(self, rows: Rows, *, targets: Targets, seed: int) -> partial[Values]:
        return unit_head(rows, targets=targets, seed=seed)


def unit_head(rows: Rows, *, targets: Targets, seed: int) -> partial[Values]:
    """Fit one classifier per label on unit vectors minus the training mean, which all items have in common."""
    centre = rows.mean(axis=0)
    weights, intercepts = _each(centred(rows, centre=centre), targets=targets, c=Embedding.C, seed=seed)
    return partial(decided, centre=centre, weights=weights, intercepts=intercepts)


View = Characters | WordFeatures | Embedding
"""A method that computes features of posts (``read``), and fits a classifier for each label on them (``fit``)."""
# by their names in ``params.yaml``
VIEWS: dict[str, Callable[[], View]] = {"characters": Characters, "words": WordFeatures, "embedding": Embedding}


def deal(groups: Sequence[str], *, targets: npt.NDArray[np.bool_], most: int, seed: int) -> npt.NDArray[np.intp]:
    """Return the cross-validation fold of every row, shape (rows,); all rows of a group are in one fold.

    Groups with the rarest labels are assigned first, each to the fold with the fewest of that label, so that the other
    folds still have every label. The order of groups of equal rarity depends on ``seed`` and their names, never on the
    order of rows.

    Args:
        targets: which labels each row has, shape (rows, labels).
    """
    rows: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        rows.setdefault(group, []).append(row)
    support = targets.sum(axis=0)

    def rarest(group: str) -> int:
        carried = np.flatnonzero(targets[rows[group]].any(axis=0))
        return int(min(carried, key=lambda label: (support[label], label))) if len(carried) else -1

    def turn(group: str) -> tuple[int, int, bytes]:
        label = rarest(group)
        rarity = int(support[label]) if label >= 0 else len(groups) + 1
        return rarity, -len(rows[group]), hashlib.sha256(f"{seed}/{group}".encode()).digest()

    count = max(1, min(most, len(rows)))
    carried = np.zeros((count, targets.shape[1]))
    sizes = np.zeros(count)
    fold = np.zeros(len(groups), dtype=np.intp)
    for group in sorted(rows, key=turn):
        label = rarest(group)
        chosen = min(range(count), key=lambda k: (carried[k, label] if label >= 0 else 0, sizes[k], k))
        fold[rows[group]] = chosen
        carried[chosen] += targets[rows[group]].sum(axis=0)
        sizes[chosen] += len(rows[group])
    return fold


RECIPE = 1  # increase it with every change that changes answers: it is part of the digest
FOLDS = 10  # ours: each fold's model sees nine tenths of the few hundred posts of the final model
CHUNK = 64  # posts between two reports of progress
DECIMALS = 6  # of a score: smaller differences are rounding noise


OfflineModel = tuple[Head, Values]
"""An offline labeller's classifiers of all labels, and their calibration sigmoids, shape (labels, 2)."""


@dataclass(frozen=True)
class Offline:
    """A labeller that needs no key or network, fitted on the gold of one category by :func:`fit`.

    Args:
        models: one per fold, then the one fitted on all gold.
        held_out: the fold of each record with gold.
        digest: SHA-256 over recipe, features and gold labels; used in place of a prompt's digest.
    """

    name: str
    category: Category
    view: View
    models: Sequence[OfflineModel]
    held_out: dict[str, int]
    learned: npt.NDArray[np.intp]
    digest: str

    @property
    def abstains(self) -> tuple[str, ...]:
        """The labels that are too rare to be learned, sorted; their score is always 0, and reports must list them."""
        return tuple(sorted(set(self.category.names) - {self.category.names[label] for label in self.learned}))

    def label(self, posts: Sequence[Post], *, progress: Callable[[int], None] | None = None) -> list[Answer]:
        """Return one answer per post, in order: a vote, or ``abstained`` if every valid set contains a rare label.

        A post with gold, or an altered copy with the same record id, is labelled by a model that was not fitted on it.
        ``progress`` is called with the number of posts labelled so far.
        """
        scores = np.zeros((len(posts), len(self.category.names)))
        for start in range(0, len(posts), CHUNK):
            some = posts[start : start + CHUNK]
            scores[start : start + len(some)] = self._scores(some)
            if progress is not None:
                progress(start + len(some))
        decoded = decode(scores, category=self.category)
        rare, answers = frozenset(self.abstains), []
        for post, labels, row in zip(posts, decoded, scores, strict=True):
            said: dict[str, Any] = {"outcome": Outcome.VOTE, "labels": tuple(sorted(labels))}
            if labels & rare:
                said = {"outcome": Outcome.ABSTAINED, "reason": "rare_label"}
            said["scores"] = tuple(float(score) for score in row)
            answers.append(Answer(post.record_id, self.name, self.category.key, self.digest, **said))
        return answers

    def _scores(self, posts: Sequence[Post]) -> Values:
        rows = self.view.read([post.text for post in posts])
        last = len(self.models) - 1
        which = np.array([self.held_out.get(post.record_id, last) for post in posts])
        scores = np.zeros((len(posts), len(self.category.names)))
        for index in np.unique(which):
            mine = np.flatnonzero(which == index)
            head, sigmoids = self.models[index]
            found = probabilities(head(rows[mine]), sigmoids=sigmoids)
            scores[np.ix_(mine, self.learned)] = np.round(found, DECIMALS)
        return scores


def _learnable(targets: Targets, *, groups: Sequence[str], least: int) -> npt.NDArray[np.intp]:
    """Return the columns with ``least`` positives in at least two groups (ours: one author's words are not a label)."""
    names = np.array(groups)
    enough = [
        wanted.sum() >= least and len(set(names[wanted])) > 1 and not wanted.all() for wanted in targets.T.astype(bool)
    ]
    return np.flatnonzero(enough)


def _cross(rows: Rows, *, seen: View, targets: Targets, fold: npt.NDArray[np.intp], seed: int) -> list[OfflineModel]:
    """Return a model per fold, fitted on the other folds, then one fitted on all rows.

    A fold's sigmoids are fitted on the held-out values of the other folds: its labels never calibrate its own scores.
    """
    held_out = np.zeros(targets.shape)
    heads = []
    for index in range(int(fold.max()) + 1):
        inside = fold == index
        heads.append(seen.fit(rows[np.flatnonzero(~inside)], targets=targets[~inside], seed=seed))
        held_out[inside] = heads[-1](rows[np.flatnonzero(inside)])
    models = [
        (head, fit_sigmoids(held_out[fold != index], targets=targets[fold != index]))
        for index, head in enumerate(heads)
    ]
    return [*models, (seen.fit(rows, targets=targets, seed=seed), fit_sigmoids(held_out, targets=targets))]


def fit(
    name: str,
    *,
    labeller: OfflineLabeller,
    gold: Sequence[tuple[Post, frozenset[str]]],
    category: Category,
    votes: VotesParams,
    groups: Sequence[str],
) -> Offline:
    """Fit an offline labeller on the gold of validation; the order of ``gold`` does not matter.

    Args:
        gold: posts of validation with their gold labels; labels outside ``category.names`` are not learned.
        votes: ``min_positives`` (SPEC 2.3: five) and ``seed``.
        groups: author or near-duplicate group of each gold post; a group is never both learned from and labelled.
    """
    order = sorted(range(len(gold)), key=lambda row: gold[row][0].record_id)
    posts = [gold[row][0] for row in order]
    named = [groups[row] for row in order]
    targets = np.array([[label in gold[row][1] for label in category.names] for row in order], dtype=np.bool_)
    targets = targets.reshape(len(gold), len(category.names))
    learned = _learnable(targets, groups=named, least=votes.min_positives)
    if len(set(named)) < 2 or not len(learned):
        found = {"records": len(gold), "groups": len(set(named)), "needed": votes.min_positives}
        raise LabellingError("GoldTooSmall", labeller=name, category=category.key, **found)
    targets = targets[:, learned]
    seen = VIEWS[labeller.features]()
    rows = seen.read([post.text for post in posts], learn=True)
    fold = deal(named, targets=targets, most=FOLDS, seed=votes.seed)
    models = _cross(rows, seen=seen, targets=targets, fold=fold, seed=votes.seed % 2**32)
    rests_on = [[gold[row][0].record_id, sorted(gold[row][1]), groups[row]] for row in order]
    recipe = [RECIPE, labeller.features, category.key, list(category.names), votes.min_positives, votes.seed, rests_on]
    return Offline(
        name,
        category=category,
        view=seen,
        models=models,
        held_out={post.record_id: int(index) for post, index in zip(posts, fold, strict=True)},
        learned=learned,
        digest=hashlib.sha256(json.dumps(recipe).encode()).hexdigest(),
    )
