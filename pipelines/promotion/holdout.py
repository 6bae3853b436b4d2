"""Read the frozen test split of a corpus and run registered models on it.

Candidate and champion are both run here from the files that consumers load, because earlier predictions of a stage with
its own weights would not test the package. The test's labels leave this module only in a :class:`Board` for scoring;
models receive only the input that a consumer would send.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crisis_corpus.client import unpickled
from pipelines.config.params import Params
from pipelines.datasets.posts import digest_of, split_digest
from pipelines.errors import CorpusError, RegistryError
from pipelines.evaluate.model_scores import ABSTAINED, VOTE, Board, Item, Run, Sampling
from pipelines.registry import drift
from pipelines.storage import tables
from pipelines.taxonomy import load as scheme_of
from pipelines.taxonomy.task import Task, task_of
from pipelines.vault.vault import Vault

if TYPE_CHECKING:
    import pandas as pd

TEST = "test"
COLUMNS, ALERTS = ("labels", "probabilities", "abstain"), "alerts"
# Ours: items per request, so that not all images are in memory twice.
TOGETHER = 64


@dataclass(frozen=True)
class Answered(Run):
    """A model's answers and alerts on the test items; model versions of earlier releases raise no alerts."""

    alerts: Mapping[Item, frozenset[str]] = field(default_factory=dict)

    @property
    def noticed(self) -> dict[Item, frozenset[str]]:
        """By item, the labels that a user of the model notices: those that it gives and those whose alert it raises."""
        return {item: labels | self.alerts.get(item, frozenset()) for item, labels in self.answers.items()}

    def alerted(self, labels: Collection[str]) -> dict[Item, frozenset[str]]:
        """Return :attr:`noticed`, but of ``labels``, whose alerts guarantee a recall, only those alerted on."""
        own = frozenset(labels)
        return {item: (given - own) | self.alerts.get(item, frozenset()) for item, given in self.answers.items()}


class CannotBeAsked(RegistryError):
    """A registered model does not load, fails, or returns output that does not match its signature."""

    message = "The registered model cannot predict the test items: {detail}."
    remedy = "Correct the model or its code, then run `corpus register NAME`, which packages it as a new version."
    exit_code = 65


@dataclass(frozen=True)
class Frozen:
    """The test items of a corpus with gold labels in one category, without those that were taken down.

    Args:
        board: the items with their gold and groups, for scoring.
        majority: the most frequent label set of the validation split, which the constant baseline predicts.
        digest: a digest of the items and their gold; scores on different digests are not comparable.
        split: the digest of the whole split (:func:`split_digest`).
        taken_down: how many test items were taken down.
        groups_of: the groups of near-duplicates of every record of the split, by which leaks are found.
        inputs: the model's input columns for each item, in the order of ``board``.
        traits: number of words and language of each item.
    """

    board: Board
    majority: frozenset[str]
    digest: str
    split: str
    taken_down: int
    groups_of: Mapping[str, frozenset[str]] = field(repr=False)
    inputs: tuple[dict[str, Any], ...] = field(repr=False)
    traits: drift.Inputs = field(repr=False)

    @property
    def task(self) -> Task:
        """The label category that the models predict, as a task."""
        return self.board.task

    @property
    def record_ids(self) -> frozenset[str]:
        """The record ids of the test items."""
        return frozenset(record_id for record_id, _ in self.board.items)

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield the model inputs as tables of at most ``TOGETHER`` items."""
        import pandas as pd

        for start in range(0, len(self.inputs), TOGETHER):
            yield pd.DataFrame(list(self.inputs[start : start + TOGETHER]))

    def seen_by(self, records: Collection[str]) -> frozenset[str]:
        """Return the near-duplicate groups of test items that contain a record of ``records``, which a model learnt."""
        learnt = frozenset[str]().union(*(self.groups_of.get(record_id, ()) for record_id in records))
        return learnt & set(self.board.groups)


def open_test(corpus: str, *, category: str, params: Params, vault: Vault, root: Path) -> Frozen:
    """Read the test items with gold labels in a category from a clone of the corpus."""
    task = task_of(scheme_of(params.corpora[corpus].scheme, root=root), category)
    given: dict[str, Any] = {"task": task, "params": params, "vault": vault, "root": root}
    if params.corpora[corpus].content == "texts":
        from pipelines.datasets import posts

        material: Any = posts.load(corpus, subset=None, ensemble=None, **given)
        found = [material.posts[example.item[0]] for example in material.test]
        inputs = [{"title": post.title, "body": post.body} for post in found]
    else:
        from pipelines.datasets import memes

        material = memes.load(corpus, **given)
        inputs = [{"image": example.image, "text": example.text} for example in material.test]
    truth, counts = material.truth(TEST), Counter(material.truth("validation").values())
    items = tuple(example.item for example in material.test)
    groups, gold = tuple(example.group for example in material.test), tuple(truth[item] for item in items)
    majority: frozenset[str] = min(
        counts, key=lambda s: (-counts[s], sorted(map(task.labels.index, s))), default=frozenset()
    )
    lines = (f"{i[0]} {i[1]} {g} {','.join(sorted(s))}" for i, g, s in zip(items, groups, gold, strict=True))
    return Frozen(
        board=Board(task, items, gold, groups, Sampling(params.evaluate.resamples, params.evaluate.seed)),
        majority=majority,
        digest=digest_of([corpus, task.key, *lines]),
        split=split_digest(corpus, root=root),
        taken_down=material.taken_down[TEST],
        inputs=tuple(inputs),
        groups_of=_groups(root / "snapshot" / corpus),
        traits=drift.inputs_of((root / "data" / corpus).glob(drift.INPUTS[params.corpora[corpus].content])),
    )


def _groups(folder: Path) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for row in tables.read(folder / "split" / "splits.parquet", name="splits").to_pylist():
        found[row["record_id"]].add(row["group"])
    return {record_id: frozenset(groups) for record_id, groups in found.items()}


def ask(folder: Path, *, frozen: Frozen) -> Answered:
    """Load a model from a folder with verified files and return its predictions on the test items."""
    from mlflow import pyfunc

    with unpickled():
        try:
            model = pyfunc.load_model(str(folder))
            said = [row for frame in frozen.frames() for row in _rows(model.predict(frame), asked=len(frame))]
        except CannotBeAsked:
            raise
        except CorpusError as error:
            raise CannotBeAsked(detail=str(error)) from None
        except Exception as error:
            # a model's own message may quote its input
            raise CannotBeAsked(detail=f"the model fails ({type(error).__name__})") from None
    outcomes, answers, scores, alerts = {}, {}, {}, {}
    for item, (labels, probabilities, abstained, raised) in zip(frozen.board.items, said, strict=True):
        outcomes[item] = ABSTAINED if abstained else VOTE
        if not abstained:
            answers[item] = _labels(labels, task=frozen.task)
            scores[item] = _scores(probabilities, task=frozen.task)
            alerts[item] = _alerts(raised, task=frozen.task)
    return Answered(0, outcomes, answers, {item: found for item, found in scores.items() if found}, alerts)


def counts(run: Run, *, frozen: Frozen, severe: int) -> drift.Counts:
    """Count a model's predictions on the test items, to compare them later with its predictions of a month (drift)."""
    answers = [(item, labels, run.scores.get(item, ())) for item, labels in run.answers.items()]
    high = drift.alerting(frozen.task, severe=severe)
    return drift.count(answers, task=frozen.task, alerting=high, inputs=frozen.traits)


def _rows(answer: Any, *, asked: int) -> Iterator[tuple[Any, Any, bool, Any]]:
    import pandas as pd

    if not isinstance(answer, pd.DataFrame) or not {*COLUMNS} <= {*answer.columns}:
        raise CannotBeAsked(detail=f"the output must have the columns {', '.join(COLUMNS)}")
    if len(answer) != asked:
        raise CannotBeAsked(detail=f"the model returned {len(answer)} answers for {asked} items")
    alerts = answer[ALERTS].tolist() if ALERTS in answer else [()] * asked
    told = (*(answer[column].tolist() for column in COLUMNS), alerts)
    for labels, probabilities, abstained, raised in zip(*told, strict=True):
        if not isinstance(abstained, bool | np.bool_):
            raise CannotBeAsked(detail="the column abstain has values that are not boolean")
        yield labels, probabilities, bool(abstained), raised


def _scores(values: Any, *, task: Task) -> tuple[float, ...]:
    try:
        scores = tuple(float(value) for value in ([] if values is None else values))
    except (TypeError, ValueError):
        raise CannotBeAsked(detail="the column probabilities has values that are not lists of numbers") from None
    if scores and (len(scores) != len(task.labels) or not all(0 <= p <= 1 for p in scores)):
        raise CannotBeAsked(detail="the column probabilities has not one number from 0 to 1 for each label")
    return scores


def _alerts(labels: Any, *, task: Task) -> frozenset[str]:
    if not isinstance(labels, Sequence | np.ndarray) or isinstance(labels, str):
        raise CannotBeAsked(detail="the column alerts has values that are not lists")
    if not (named := frozenset(map(str, labels))) <= {*task.labels}:
        raise CannotBeAsked(detail=f"an alert is of a label that is not in task '{task.key}'")
    return named


def _labels(labels: Any, *, task: Task) -> frozenset[str]:
    if not isinstance(labels, Sequence | np.ndarray) or isinstance(labels, str):
        raise CannotBeAsked(detail="the column labels has values that are not lists")
    named = frozenset(map(str, labels))
    if not named <= {*task.labels} or (task.kind == "single" and len(named) != 1):
        raise CannotBeAsked(
            detail=f"an answer has labels that are not in task '{task.key}', or not exactly one where one is required"
        )
    return named
