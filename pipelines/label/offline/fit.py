"""Fit an offline labeller on the dev gold, in seconds; it labels posts without a key or network (SPEC 2.3).

A post with gold is labelled by a model of a fold that excludes the post, its author and its near-duplicates, so that a
comparison on dev is fair. The name of the labeller marks these votes as offline.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipelines.config.label import OfflineLabeller, VotesParams
from pipelines.errors import LabellingError
from pipelines.label.offline.folds import deal
from pipelines.label.offline.member_features import Head, Rows, Targets, Values, View, view
from pipelines.llm.outcome import Answer, Outcome
from pipelines.metrics.calibration import fit_sigmoids, probabilities
from pipelines.metrics.decoding import decode

if TYPE_CHECKING:
    from pipelines.datasets.post import Post
    from pipelines.taxonomy import Category

RECIPE = 1  # increase it with every change that changes answers: it is part of the digest
FOLDS = 10  # ours: each fold's model sees nine tenths of the few hundred posts of the final model
CHUNK = 64  # posts between two reports of progress
DECIMALS = 6  # of a score: smaller differences are rounding noise


class GoldTooSmall(LabellingError):
    """The dev split has too few gold labels to fit an offline labeller."""

    message = (
        "Labeller '{labeller}' cannot be trained: the dev split has {records} posts with gold labels, in {groups} "
        "groups (same author or near-duplicates). The training needs a label that at least {needed} of these posts, "
        "from two or more groups, have and at least one of them does not have."
    )
    remedy = "Annotate more posts of the dev split in a round, or lower votes.min_positives in params.yaml."
    exit_code = 65


@dataclass(frozen=True)
class OfflineModel:
    """An offline labeller's classifiers of all labels, and their calibration sigmoids, shape (labels, 2)."""

    head: Head
    sigmoids: Values


class Offline:
    """A labeller that needs no key or network, fitted on the dev gold by :func:`fit`.

    Attributes:
        name: the labeller's name in ``params.yaml``.
        abstains: labels that are too rare in the gold to be learned, sorted; their score is always 0. Reports must list
            these labels.
        digest: SHA-256 over recipe, features and gold labels; used in place of a prompt's digest.
    """

    def __init__(
        self,
        name: str,
        *,
        category: Category,
        seen: View,
        models: Sequence[OfflineModel],
        held_out: dict[str, int],
        learned: npt.NDArray[np.intp],
        digest: str,
    ) -> None:
        self.name = name
        self.digest = digest
        self.abstains = tuple(sorted(set(category.names) - {category.names[label] for label in learned}))
        self._category = category
        self._view = seen
        self._models = models  # one per fold, then the one fitted on all gold
        self._held_out = held_out
        self._learned = learned

    def label(self, posts: Sequence[Post], *, progress: Callable[[int], None] | None = None) -> list[Answer]:
        """Return one answer per post, in order: a vote, or ``abstained`` if every valid set contains a rare label.

        A post with gold, or an altered copy with the same record id, is labelled by a model that was not fitted on it.
        ``progress`` is called with the number of posts labelled so far.
        """
        scores = np.zeros((len(posts), len(self._category.names)))
        for start in range(0, len(posts), CHUNK):
            some = posts[start : start + CHUNK]
            scores[start : start + len(some)] = self._scores(some)
            if progress is not None:
                progress(start + len(some))
        decoded = decode(scores, category=self._category)
        rare = frozenset(self.abstains)
        return [
            self._answer(post, labels=labels, scores=row, possible=not labels & rare)
            for post, labels, row in zip(posts, decoded, scores, strict=True)
        ]

    def _scores(self, posts: Sequence[Post]) -> Values:
        rows = self._view.read([post.text for post in posts])
        last = len(self._models) - 1
        which = np.array([self._held_out.get(post.record_id, last) for post in posts])
        scores = np.zeros((len(posts), len(self._category.names)))
        for index in np.unique(which):
            mine = np.flatnonzero(which == index)
            model = self._models[index]
            found = probabilities(model.head(rows[mine]), sigmoids=model.sigmoids)
            scores[np.ix_(mine, self._learned)] = np.round(found, DECIMALS)
        return scores

    def _answer(self, post: Post, *, labels: frozenset[str], scores: Values, possible: bool) -> Answer:
        return Answer(
            record_id=post.record_id,
            labeller=self.name,
            category=self._category.key,
            prompt=self.digest,
            outcome=Outcome.VOTE if possible else Outcome.ABSTAINED,
            reason="" if possible else "rare_label",
            labels=tuple(sorted(labels)) if possible else (),
            scores=tuple(float(score) for score in scores),
        )


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
        OfflineModel(head=head, sigmoids=fit_sigmoids(held_out[fold != index], targets=targets[fold != index]))
        for index, head in enumerate(heads)
    ]
    last = seen.fit(rows, targets=targets, seed=seed)
    return [*models, OfflineModel(head=last, sigmoids=fit_sigmoids(held_out, targets=targets))]


def fit(
    name: str,
    *,
    labeller: OfflineLabeller,
    gold: Sequence[tuple[Post, frozenset[str]]],
    category: Category,
    votes: VotesParams,
    groups: Sequence[str],
) -> Offline:
    """Fit an offline labeller on the gold of dev; the order of ``gold`` does not matter.

    Args:
        name: the labeller's name.
        labeller: the labeller's section of ``params.yaml``, which names the features.
        gold: posts of the dev split with their gold labels; labels outside ``category.names`` are not learned.
        category: the labels to learn and the hard rules of every answer.
        votes: ``min_positives`` (SPEC 2.3: five) and ``seed``.
        groups: author or near-duplicate group of each gold post; a group is never both learned from and labelled.

    Raises:
        GoldTooSmall: there are fewer than two groups, or no label is frequent enough.
        WeightsUnknown: the embedding model is missing, or differs from the measured version.
    """
    order = sorted(range(len(gold)), key=lambda row: gold[row][0].record_id)
    posts = [gold[row][0] for row in order]
    named = [groups[row] for row in order]
    targets = np.array([[label in gold[row][1] for label in category.names] for row in order], dtype=np.bool_)
    targets = targets.reshape(len(gold), len(category.names))
    learned = _learnable(targets, groups=named, least=votes.min_positives)
    if len(set(named)) < 2 or not len(learned):
        raise GoldTooSmall(labeller=name, records=len(gold), groups=len(set(named)), needed=votes.min_positives)
    targets = targets[:, learned]
    seen = view(labeller.features)
    rows = seen.read([post.text for post in posts], learn=True)
    fold = deal(named, targets=targets, most=FOLDS, seed=votes.seed)
    models = _cross(rows, seen=seen, targets=targets, fold=fold, seed=votes.seed % 2**32)
    rests_on = [[gold[row][0].record_id, sorted(gold[row][1]), groups[row]] for row in order]
    recipe = [RECIPE, labeller.features, category.key, list(category.names), votes.min_positives, votes.seed, rests_on]
    return Offline(
        name,
        category=category,
        seen=seen,
        models=models,
        held_out={post.record_id: int(index) for post, index in zip(posts, fold, strict=True)},
        learned=learned,
        digest=hashlib.sha256(json.dumps(recipe).encode()).hexdigest(),
    )
