"""Write and query the index of a k-nearest-neighbours model: encrypted embeddings of train's posts.

An embedding is content, because much of its post can be reconstructed from it; so it is encrypted under its record's
key. A takedown makes the embedding unreadable, and its post no longer votes. Embeddings are centred on the mean of
train before they are compared, as all posts have much in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipelines.datasets.example import Example, targets
from pipelines.errors import DataError
from pipelines.extract import embedding
from pipelines.metrics import recall_constraints
from pipelines.storage import tables
from pipelines.storage.seal import open_column, write_rows
from pipelines.taxonomy.task import Task
from pipelines.vault.vault import Vault

Floats = npt.NDArray[np.float64]

TABLE, FILE = "neighbours", "neighbours.parquet"
# Ours, measured on the sandbox's posts (180 of train, six runs, 10 to 180 neighbours): a vote weighs exp(SHARPNESS *
# cosine), a Gaussian of the distance of unit vectors. At 7 dev's log loss is 1.46 to 1.63 and test's exact match .69 to
# .73; at 5 1.47 to 1.66, at 10 1.51 to 1.62 (.67 to .71), at 20 1.82 and more, with equal weights 1.56 to 1.99.
SHARPNESS = 7.0
# Ours: label frequencies of train also vote, with the weight of one neighbour at this cosine. .2 to .6 differ little.
PRIOR_AT = 0.4
WIDTH = 384  # MiniLM's
DECIMALS = 9  # of a cosine: further digits depend on which other posts are in the same batch


class NoNeighbours(DataError):
    """The index of a kNN model has no posts, because train is empty or all its posts were taken down."""

    message = "All {records} posts that the kNN model compares with were taken down."
    remedy = "Run `dvc repro finetune` again, which uses the records that are left in train."


@dataclass(frozen=True)
class Index:
    """A kNN model's posts of train: embeddings ``vectors`` (posts, 384), float64, ``truth`` (posts, labels), 0 or 1."""

    vectors: Floats
    truth: Floats

    @classmethod
    def open(cls, out: Path, *, task: Task, vault: Vault) -> Index:
        """Load the index from the model's folder; decrypt the embeddings of posts that were not taken down."""
        table = tables.read(out / FILE, name=TABLE)
        opened = open_column(table, name=TABLE, column="vector", vault=vault)
        kept = [(vector, labels) for vector, labels in zip(opened, table["labels"].to_pylist(), strict=True) if vector]
        if not kept:
            raise NoNeighbours(records=table.num_rows)
        vectors = np.stack([np.frombuffer(vector, "<f4") for vector, _ in kept]).astype(np.float64)
        return cls(
            vectors, recall_constraints.encoded([frozenset(labels) for _, labels in kept], task=task).astype(np.float64)
        )

    def shares(self, asked: Floats, *, neighbours: int) -> Floats:
        """Return each label's share of the nearest posts' votes, (asked, labels), in (0, 1) if train has the label.

        Equally near posts are taken in the order of their record ids.

        Args:
            asked: embeddings of the posts to label, shape (asked, 384).
            neighbours: how many posts vote; all of them if there are fewer.
        """
        near = self._unit(asked) @ self._around.T
        near = near.round(DECIMALS)
        first = np.argsort(-near, axis=1, kind="stable")[:, :neighbours]
        weights = np.exp(SHARPNESS * np.take_along_axis(near, first, 1))
        prior = np.exp(SHARPNESS * PRIOR_AT)
        votes = np.einsum("ak,akl->al", weights, self.truth[first]) + prior * self.truth.mean(axis=0)
        return np.asarray(votes / (weights.sum(axis=1, keepdims=True) + prior))

    @cached_property
    def _around(self) -> Floats:
        return self._unit(self.vectors)

    def _unit(self, vectors: Floats) -> Floats:
        moved = vectors - self.vectors.mean(axis=0)
        return np.asarray(moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12))


def write(examples: Sequence[Example], *, task: Task, model: embedding.MiniLM, out: Path, vault: Vault) -> None:
    """Write the index of a kNN model: the encrypted embedding and the labels of every post of train."""
    rows = (
        {
            "record_id": example.item[0],
            "labels": sorted(label for label, has in zip(task.labels, truth, strict=True) if has),
            "vector": model.embed(example.text).astype("<f4").tobytes(),
        }
        for example, truth in zip(examples, targets(examples, task=task).tolist(), strict=True)
    )
    write_rows(rows, out / FILE, name=TABLE, vault=vault)


def embedded(texts: Sequence[str], *, model: embedding.MiniLM) -> Floats:
    """Compute the embeddings of texts, shape (texts, 384)."""
    return np.array([model.embed(text) for text in texts]).reshape(len(texts), WIDTH)
