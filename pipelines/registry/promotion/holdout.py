"""Read the frozen test split of a corpus and run registered models on it.

Candidate and champion are both run here from the files that consumers load, because earlier predictions of a stage with
its own weights would not test the package. The test's labels leave this module only in a :class:`Board` for scoring;
models receive only the input that a consumer would send.

Without a champion that can be compared, the rivals of a candidate are baselines: constants and the models in
``promote.baselines``, such as the offline ensemble, whose predictions the corpus has. The candidate must beat each of
them (:mod:`pipelines.registry.promotion.scores`); the figures show the best one on the gate set.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crisis_corpus import integrity
from crisis_corpus.client import unpickled
from crisis_corpus.integrity import TrainedWeights
from pipelines.core.config.params import Params
from pipelines.core.errors import CorpusError, RegistryError
from pipelines.core.rows import resolve
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import VALIDATION
from pipelines.datasets.items import digest_of, load, split_digest
from pipelines.evaluate.inputs import COLUMNS as PREDICTED
from pipelines.evaluate.inputs import EvaluationGold, runs_of
from pipelines.evaluate.model_scores import VOTE, Board, Item, Json, Run, Sampling, counted, figures
from pipelines.models.kinds.registered.version import BadAnswer, read_answers
from pipelines.registry import drift
from pipelines.registry.candidate import Pack
from pipelines.store import tables
from pipelines.store.vault.vault import Vault

if TYPE_CHECKING:
    import pandas as pd

TEST = "test"
# Ours: items per request, so that not all images are in memory twice.
TOGETHER = 64


@dataclass(frozen=True)
class Answered(Run):
    """A model's answers and alerts on the test items; not every model raises alerts."""

    alerts: Mapping[Item, frozenset[str]] = field(default_factory=dict)

    @property
    def noticed(self) -> dict[Item, frozenset[str]]:
        """By item, the labels that a user of the model notices: those that it gives and those whose alert it raises."""
        return {item: labels | self.alerts.get(item, frozenset()) for item, labels in self.answers.items()}

    def alerted(self, labels: Collection[str]) -> dict[Item, frozenset[str]]:
        """Return :attr:`noticed`, but of ``labels``, whose alerts guarantee a recall, only those alerted on."""
        own = frozenset(labels)
        return {item: (named - own) | self.alerts.get(item, frozenset()) for item, named in self.answers.items()}


class CannotBeAsked(RegistryError):
    """A registered model does not load, fails, or returns output that does not match its signature."""


@dataclass(frozen=True)
class Frozen:
    """The test items of a corpus with gold labels in one category, without those that were taken down or leak.

    Only a published split has leaking items: a model may have learnt them, which no claim of ours can rest on.

    Args:
        majority: the most frequent label set of the validation split, which the constant baseline predicts.
        digest: a digest of the items and their gold; scores on different digests are not comparable.
        groups_of: the groups of near-duplicates of every record of the split, by which leaks are found.
        inputs: what a model may be sent of each item, by column, in the order of ``board``.
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
        return self.board.task

    @property
    def record_ids(self) -> frozenset[str]:
        return frozenset(record_id for record_id, _ in self.board.items)

    def frames(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Yield the input columns of a model as tables of at most ``TOGETHER`` items."""
        import pandas as pd

        for start in range(0, len(self.inputs), TOGETHER):
            yield pd.DataFrame(list(self.inputs[start : start + TOGETHER]))[[*columns]]

    def seen_by(self, records: Collection[str]) -> frozenset[str]:
        """Return the near-duplicate groups of test items that contain a record of ``records``, which a model learnt."""
        learnt = frozenset[str]().union(*(self.groups_of.get(record_id, ()) for record_id in records))
        return learnt & set(self.board.groups)


def open_test(corpus: str, *, category: str, params: Params, vault: Vault, root: Path) -> Frozen:
    """Read the leak-free test items with gold labels in a category from a clone of the corpus."""
    task = task_of(scheme_of(params.corpora[corpus].scheme, root=root), category)
    material = load(corpus, task=task, subset=None, ensemble=None, params=params, vault=vault, root=root)
    truth, counts = material.truth(TEST), Counter(material.truth(VALIDATION).values())
    leaks = tables.leaks(root / "snapshot" / corpus)
    test = [example for example in material.test if example.item not in leaks]
    items = tuple(example.item for example in test)
    groups, gold = tuple(example.group for example in test), tuple(truth[item] for item in items)
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
        inputs=tuple(material.posts[item].cells for item in items),
        groups_of=_groups(root / "snapshot" / corpus),
        traits=drift.inputs_of(drift.tables_of(root / "data" / corpus)),
    )


def _groups(folder: Path) -> dict[str, frozenset[str]]:
    by_record: dict[str, set[str]] = defaultdict(set)
    for row in tables.read(folder / "split" / "splits.parquet", name="splits").to_pylist():
        by_record[row["record_id"]].add(row["group"])
    return {record_id: frozenset(groups) for record_id, groups in by_record.items()}


def ask(folder: Path, *, frozen: Frozen, columns: Sequence[str]) -> Answered:
    """Load a model that reads ``columns`` from a folder with verified files; return its answers on the test items."""
    from mlflow import pyfunc

    with unpickled():
        try:
            model = pyfunc.load_model(str(folder))
            said = [
                answer
                for frame in frozen.frames(columns)
                for answer in read_answers(model.predict(frame), task=frozen.task, count=len(frame))
            ]
        except BadAnswer as bad:
            raise CannotBeAsked(detail=f"an answer is not valid for '{frozen.task.key}': {bad}") from None
        except CorpusError as error:
            raise CannotBeAsked(detail=str(error)) from None
        except Exception as error:
            # a model's own message may quote its input
            raise CannotBeAsked(detail=f"the model fails ({type(error).__name__})") from None
    by_item = dict(zip(frozen.board.items, said, strict=True))
    voted = {item: answer for item, answer in by_item.items() if answer.outcome == VOTE}
    return Answered(
        0,
        {item: answer.outcome for item, answer in by_item.items()},
        {item: answer.labels for item, answer in voted.items()},
        {item: answer.scores for item, answer in voted.items() if answer.scores},
        {item: answer.alerts for item, answer in voted.items()},
    )


def counts(run: Run, *, frozen: Frozen, severe: int) -> drift.Counts:
    """Count a model's predictions on the test items, to compare them later with its predictions of a month (drift)."""
    answers = [(item, labels, run.scores.get(item, ())) for item, labels in run.answers.items()]
    high = drift.alerting(frozen.task, severe=severe)
    return drift.count(answers, task=frozen.task, alerting=high, inputs=frozen.traits)


@dataclass(frozen=True)
class Rival:
    """What a candidate is compared with.

    Args:
        name: of the champion, or of the baseline with the best macro-F1 on the gate set.
        runs: the answers of all; the candidate must be better than each.
    """

    name: str
    run: Run
    digest: str
    among: tuple[str, ...]
    runs: tuple[Run, ...]


def baseline(board: Board, *, frozen: Frozen, corpus: str, models: Collection[str], root: Path) -> Rival:
    """Return the baselines, of which the one with the best macro-F1 is shown, on a gate set with at least one item.

    ``models`` are names of predictions; one without predictions on this test is left out.
    """
    items = frozen.board.items
    constant = constants(frozen).items()
    by_name = {name: [Run(0, dict.fromkeys(items, VOTE), dict.fromkeys(items, labels))] for name, labels in constant}
    by_name |= predicted(corpus, frozen=frozen, models=models, root=root)
    scored = [(name, run, macro_f1(board, run=run)) for name, runs in sorted(by_name.items()) for run in runs]
    name, best, _ = max(scored, key=lambda each: each[2])
    runs = tuple(run for _, run, _ in scored)
    return Rival(name, best, digest_of(map(answers_of, runs)), tuple(sorted(by_name)), runs)


def answers_of(run: Run) -> str:
    """Return a digest of a run's seed and answers."""
    return digest_of([str(run.seed), *(f"{item} {sorted(labels)}" for item, labels in sorted(run.answers.items()))])


def names(params: Params, *, root: Path) -> set[str]:
    """Return the names of all predictions that a corpus may have; a fitted model is named with its subset."""
    return {row.shown for row in resolve(params, root=root).answers.values()}


def constants(frozen: Frozen) -> dict[str, frozenset[str]]:
    """Return by name the label sets of baselines that answer all items alike: the most frequent set, and all labels."""
    every = {"every label": frozenset(frozen.task.labels)} if frozen.task.kind == "multi" else {}
    return {"majority set": frozen.majority, **every}


def predicted(corpus: str, *, frozen: Frozen, models: Collection[str], root: Path) -> dict[str, list[Run]]:
    """Return by model the stored predictions of the test items, one run for each seed, ordered by seed."""
    folder, task = root / "snapshot" / corpus, frozen.task
    paths = sorted((folder / "predictions").glob(f"{task.key}-*/predictions.parquet")) if models else []
    rows = [row for path in paths for row in tables.read(path, name="predictions", columns=PREDICTED).to_pylist()]
    own = [row for row in rows if row["model"] in models]
    runs = runs_of(own, tasks={task.key: task}, gold=EvaluationGold.read(folder)) if own else {}
    return {model: list(of_model) for model, of_model in runs.get(task.key, {}).items()}


def seeds(pack: Pack, *, frozen: Frozen, corpus: str, root: Path) -> list[Run]:
    """Return the predictions of a candidate's model trained with other seeds, if the corpus still has that training."""
    described = json.loads((pack.folder / integrity.MODEL).read_bytes())
    model, subset, own = described.get("model"), described.get("subset"), described.get("seed")

    def trained(seed: int) -> Json:
        path = root / "metrics" / corpus / f"train-{frozen.task.key}-{model}-{subset}-{seed}.json"
        return dict(json.loads(path.read_bytes())) if path.is_file() else {}

    own_metrics = trained(own)
    if pack.manifest.weights is None or "weights" not in own_metrics or not own_metrics.get("selected"):
        return []
    if TrainedWeights.model_validate(own_metrics["weights"]) != pack.manifest.weights:
        return []
    shown = described.get("shown")
    runs = predicted(corpus, frozen=frozen, models={shown}, root=root).get(shown, ())
    return [run for run in runs if run.seed != own and trained(run.seed).get("selected") == own_metrics["selected"]]


def macro_f1(board: Board, *, run: Run) -> float:
    """Return the macro-F1 of a run on test items, without an interval."""
    sums = counted(board, predicted=board.predicted(run), valid=False).sum(axis=0)
    return float(np.nan_to_num(figures(sums, task=board.task)["macro_f1"]))
