"""What the most similar posts of train are labelled with, and what a labeller says beside them: no training at all.

Posts are compared by MiniLM's sentence embeddings (``neighbours.py``); how many of them vote, what the labeller weighs
and what the votes mean is chosen on dev.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.config.models import Finetune, KnnModel
from pipelines.datasets.example import TRAIN, VALIDATION, Example, LabelSet, only, targets
from pipelines.errors import BadParams, DataError
from pipelines.extract import embedding
from pipelines.metrics import calibration, recall_constraints
from pipelines.metrics.calibration import Calibration
from pipelines.taxonomy.task import Task
from pipelines.train.knn.neighbours import Index, embedded, write
from pipelines.vault.vault import Vault

Floats = npt.NDArray[np.float64]
Said = Mapping[str, LabelSet]

# Ours: how probable a label is that a labeller names, where nothing else is known; what it is worth dev says.
TRUSTED = 0.9
CHUNK = 256  # posts that are compared with all of train at once


class NoVotes(DataError):
    """The labeller that a model is blended with has said nothing of dev."""

    message = "Labeller '{labeller}' has no valid vote on dev, so its weight cannot be chosen."
    remedy = "Run its votes, or take it out of the model's entry in params.yaml."


@dataclass(frozen=True)
class Mixed:
    """How many neighbours vote and what the labeller's answer weighs, each way calibrated apart.

    A record without an answer of the labeller (a refusal) is scored by its neighbours alone.

    Args:
        neighbours: how many vote.
        blend: the labeller's weight; 0 without one.
        alone: the calibration of the neighbours' shares.
        blended: that of the pool of both, ``None`` without a labeller.
    """

    neighbours: int
    blend: float
    alone: Calibration
    blended: Calibration | None

    def __call__(self, shares: Floats, *, answers: Sequence[LabelSet | None], task: Task) -> Floats:
        """Return calibrated probabilities, shape (records, labels)."""
        found, rows = self.alone(shares), _answered(answers)
        if self.blended is not None and rows:
            found[rows] = self.blended(pooled(found, answers=answers, task=task, blend=self.blend)[rows])
        return found

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        blended = None if self.blended is None else self.blended.as_json()
        plain = {"neighbours": self.neighbours, "blend": self.blend}
        return plain | {"alone": self.alone.as_json(), "blended": blended}

    @classmethod
    def of_json(cls, stored: dict[str, Any]) -> Mixed:
        """Return what :meth:`as_json` gave."""
        blended = None if stored["blended"] is None else Calibration.of_json(stored["blended"])
        return cls(int(stored["neighbours"]), float(stored["blend"]), Calibration.of_json(stored["alone"]), blended)


def pooled(found: Floats, *, answers: Sequence[LabelSet | None], task: Task, blend: float) -> Floats:
    """Return the logarithmic opinion pool of probabilities and a labeller's answers; as they are where it has none.

    Measured on the sandbox's posts (three seeds, a labeller that is right on .63, .80 and .86 of test's label sets):
    exact match .80, .83 and .86 at the weights of the least log loss on dev (.25, .5, .5), neighbours alone .71. The
    mean of shares and answers comes as far only at other weights (.1 for the weakest), with a log loss .05 higher.

    Args:
        found: calibrated probabilities by the neighbours, shape (records, labels).
        answers: of each record.
        task: whose labels.
        blend: the weight of the answers, 0 to 1.
    """
    pool, rows = np.array(found), _answered(answers)
    said = recall_constraints.encoded([task.seen(labels) for labels in answers if labels is not None], task=task)
    others = (1 - TRUSTED) / (1 if task.kind == "multi" else max(1, len(task.labels) - 1))
    evidence = calibration.evidence(np.where(said, TRUSTED, others), kind=task.kind)
    mixed = (1 - blend) * calibration.evidence(found[rows], kind=task.kind) + blend * evidence
    pool[rows] = calibration.shares(mixed, kind=task.kind)
    return pool


def fit(
    spec: KnnModel,
    *,
    train: Sequence[Example],
    validation: Sequence[Example],
    task: Task,
    seed: int,
    settings: Finetune,
    out: Path,
    vault: Vault,
    said: Said | None,
) -> dict[str, Any]:
    """Write the index of train to ``out``, and choose on dev how it is asked.

    The number of neighbours and the labeller's weight are those of the least log loss on dev after calibration, fewer
    neighbours and the smaller weight of equals.

    Args:
        spec: an entry of ``params.models``.
        train: with the labels that vote, of train alone.
        validation: with gold, of dev alone.
        task: whose labels.
        seed: not needed: nothing here is random.
        settings: for ``recall_floors``.
        out: an empty folder, or one that is not there.
        vault: whose keys seal the embeddings.
        said: the valid answers of ``spec.labeller`` by record; ``None`` where the entry names none.

    Returns:
        ``neighbours``, ``blend`` (``None`` without a labeller), ``records`` (of the index), ``unseen`` (labels that
        train does not have), ``answered`` (records of dev with an answer), ``tried`` (log loss on dev of each choice),
        and what :func:`pipelines.metrics.recall_constraints.learned` returns.

    Raises:
        LeakRefused: examples of another split.
        BadParams: a labeller without answers, answers without a labeller, or a floor for an unknown label.
        NoVotes: no record of dev has an answer.
        NothingToCalibrate: dev has no gold.
        NoNeighbours: train is empty, or was taken down.
    """
    _consistent(spec.labeller, said=said)
    answers = _answers([e.item[0] for e in only(validation, splits={VALIDATION})], said=said)
    if spec.labeller is not None and not _answered(answers):
        raise NoVotes(labeller=spec.labeller)
    model = embedding.MiniLM()
    write(only(train, splits={TRAIN}), task=task, model=model, out=out, vault=vault)
    index = Index.open(out, task=task, vault=vault)
    asked = embedded([e.text for e in validation], model=model)
    best, tried = _chosen(spec, index=index, asked=asked, answers=answers, examples=validation, task=task)
    shares = index.shares(asked, neighbours=best.neighbours)
    found = best(shares, answers=answers, task=task)
    thresholds, metrics = recall_constraints.learned(
        found, raw=shares, examples=validation, task=task, floors=settings.recall_floors
    )
    recall_constraints.save(out, task=task, thresholds=thresholds, labeller=spec.labeller, mixed=best.as_json())
    return {
        "neighbours": best.neighbours,
        "blend": best.blend if spec.labeller else None,
        "records": len(index.vectors),
        "unseen": [
            label for label, count in zip(task.labels, index.truth.sum(axis=0).tolist(), strict=True) if not count
        ],
        "answered": len(_answered(answers)),
        "tried": tried,
        **metrics,
    }


class KnnPredictor:
    """An index and how it is asked; made by :meth:`open`."""

    def __init__(self, index: Index, *, mixed: Mixed, thresholds: Floats, task: Task, said: Said) -> None:
        """Use :meth:`open`."""
        self._index, self._mixed, self._thresholds, self._task, self._said = index, mixed, thresholds, task, said

    @classmethod
    def open(cls, out: Path, *, task: Task, vault: Vault, said: Said | None = None) -> KnnPredictor:
        """Load what :func:`fit` wrote, without the posts that were taken down since.

        Args:
            out: the folder.
            task: what the model is asked about.
            vault: whose keys open the embeddings.
            said: the valid answers by record of the labeller that the model was fitted with; ``{}`` where it says
                nothing of what will be asked about, ``None`` for a model without a labeller.

        Raises:
            OtherLabels: it was fitted for other labels than the task's.
            BadParams: a labeller without answers, or answers without a labeller.
            NoNeighbours: nothing is left.
            SealBroken: an embedding was altered, or belongs to another vault.
        """
        thresholds, stored = recall_constraints.load(out, task=task)
        _consistent(stored["labeller"], said=said)
        index = Index.open(out, task=task, vault=vault)
        return cls(index, mixed=Mixed.of_json(stored["mixed"]), thresholds=thresholds, task=task, said=said or {})

    def probabilities(
        self,
        texts: Sequence[str],
        *,
        record_ids: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Floats:
        """Return calibrated probabilities, shape (texts, labels), in the order of texts and of the task's labels.

        ``record_ids`` are whose texts they are: without them the labeller's answers are not asked. ``progress`` is told
        how many texts are done.
        """
        rows: list[Floats] = [np.zeros((0, len(self._task.labels)))]
        for start in range(0, len(texts), CHUNK):
            some = embedded(texts[start : start + CHUNK], model=self._model)
            ids = [None] * len(some) if record_ids is None else record_ids[start : start + CHUNK]
            shares = self._index.shares(some, neighbours=self._mixed.neighbours)
            rows.append(self._mixed(shares, answers=_answers(ids, said=self._said), task=self._task))
            if progress is not None:
                progress(start + len(some))
        return np.concatenate(rows)

    def labels(self, scores: Floats) -> list[frozenset[str]]:
        """Return the label set of each row of :meth:`probabilities`; see ``floors``."""
        return recall_constraints.decide(scores, task=self._task, thresholds=self._thresholds)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens of each text are read."""
        from tokenizers import Tokenizer

        tokens = Tokenizer.from_file(str(embedding.folder() / "tokenizer.json"))
        tokens.no_truncation()
        return [min(len(tokens.encode(text).ids), embedding.MOST_TOKENS) for text in texts]

    @cached_property
    def _model(self) -> embedding.MiniLM:
        return embedding.MiniLM()


def _chosen(
    spec: KnnModel,
    *,
    index: Index,
    asked: Floats,
    answers: Sequence[LabelSet | None],
    examples: Sequence[Example],
    task: Task,
) -> tuple[Mixed, list[dict[str, float]]]:
    """Return the choice of the least log loss on dev, and all that were tried."""
    truth = targets(examples, task=task) > 0
    blends = sorted(spec.blend) if spec.labeller else [0.0]
    rows, found, tried = _answered(answers), [], []
    for neighbours in sorted(spec.neighbours):
        shares = index.shares(asked, neighbours=neighbours)
        alone = calibration.fit(shares, examples=examples, task=task)
        for blend in blends:
            blended = None
            if spec.labeller:
                both = pooled(alone(shares), answers=answers, task=task, blend=blend)
                blended = calibration.fit(both[rows], examples=[examples[n] for n in rows], task=task)
            mixed = Mixed(neighbours, blend, alone, blended)
            loss = calibration.log_loss(mixed(shares, answers=answers, task=task), truth=truth, task=task)
            found.append((loss, mixed))
            tried.append({"neighbours": neighbours, "blend": blend, "log_loss": loss})
    return min(found, key=lambda pair: pair[0])[1], tried


def _answers(record_ids: Sequence[str | None], *, said: Said | None) -> list[LabelSet | None]:
    return [None if said is None or record_id is None else said.get(record_id) for record_id in record_ids]


def _answered(answers: Sequence[LabelSet | None]) -> list[int]:
    return [n for n, labels in enumerate(answers) if labels is not None]


def _consistent(labeller: str | None, *, said: Said | None) -> None:
    if labeller is not None and said is None:
        raise BadParams(where="models", detail=f"a kNN model that is blended with '{labeller}' needs its answers")
    if labeller is None and said is not None:
        raise BadParams(where="models", detail="answers of a labeller were given to a kNN model that names none")
