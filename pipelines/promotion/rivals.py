"""Find the rival with which a candidate is compared, and the candidate's runs with other seeds.

Without a champion that can be compared, the rivals are baselines: constants and the models in ``promote.baselines``,
such as the offline ensemble, whose predictions the corpus has. The candidate must beat each of them
(:mod:`pipelines.promotion.superiority`); the figures show the best one on the gate set.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crisis_corpus import integrity
from crisis_corpus.integrity import TrainedWeights
from pipelines.config.params import Params
from pipelines.datasets.posts import digest_of
from pipelines.evaluate.inputs import COLUMNS, EvaluationGold, runs_of
from pipelines.evaluate.model_scores import VOTE, Board, Json, Run, counted, figures
from pipelines.promotion.holdout import Frozen
from pipelines.registry.contents import Pack
from pipelines.storage import tables


@dataclass(frozen=True)
class Rival:
    """What a candidate is compared with.

    Args:
        name: of the champion, or of the baseline with the best macro-F1 on the gate set.
        run: its answers.
        digest: of the answers of all.
        among: the names of all baselines.
        runs: the answers of all; the candidate must be better than each.
    """

    name: str
    run: Run
    digest: str
    among: tuple[str, ...]
    runs: tuple[Run, ...]


def baseline(board: Board, *, frozen: Frozen, corpus: str, models: Collection[str], root: Path) -> Rival:
    """Return the baselines, of which the one with the best macro-F1 is shown, on a gate set with at least one item.

    Args:
        frozen: the whole test.
        models: names of predictions; one without predictions on this test is left out.
    """
    found = {name: [_constant(frozen, labels=labels)] for name, labels in constants(frozen).items()}
    found |= predicted(corpus, frozen=frozen, models=models, root=root)
    scored = [(name, run, _macro_f1(board, run=run)) for name, runs in sorted(found.items()) for run in runs]
    name, best, _ = max(scored, key=lambda each: each[2])
    runs = tuple(run for _, run, _ in scored)
    return Rival(name, best, digest_of(map(answers_of, runs)), tuple(sorted(found)), runs)


def answers_of(run: Run) -> str:
    """Return a digest of a run's seed and answers."""
    return digest_of([str(run.seed), *(f"{item} {sorted(labels)}" for item, labels in sorted(run.answers.items()))])


def names(params: Params) -> set[str]:
    """Return the names of all predictions that a corpus may have: a fine-tuned model is named with its subset."""
    tuned = {f"{model}-{subset}" for model in params.finetune.models for subset in params.finetune.subsets}
    return {*params.train.models, *params.prompted.models, *params.baselines.models} | tuned


def constants(frozen: Frozen) -> dict[str, frozenset[str]]:
    """Return by name the label sets of baselines that answer all items alike: the most frequent set, and all labels."""
    every = {"every label": frozenset(frozen.task.labels)} if frozen.task.kind == "multi" else {}
    return {"majority set": frozen.majority, **every}


def predicted(corpus: str, *, frozen: Frozen, models: Collection[str], root: Path) -> dict[str, list[Run]]:
    """Return by model the stored predictions of the test items, one run for each seed, ordered by seed."""
    folder, task = root / "snapshot" / corpus, frozen.task
    paths = sorted((folder / "predictions").rglob("predictions.parquet")) if models else []
    rows = [row for path in paths for row in tables.read(path, name="predictions", columns=COLUMNS).to_pylist()]
    own = [row for row in rows if row["model"] in models]
    runs = runs_of(own, tasks={task.key: task}, gold=EvaluationGold.read(folder)) if own else {}
    return {model: list(of_model) for model, of_model in runs.get(task.key, {}).items()}


def seeds(pack: Pack, *, frozen: Frozen, corpus: str, root: Path) -> list[Run]:
    """Return the predictions of a candidate's model trained with other seeds, if the corpus still has that training."""
    described = json.loads((pack.folder / integrity.MODEL).read_bytes())
    model, own = described.get("model"), described.get("seed")

    def trained(seed: int) -> Json:
        path = root / "metrics" / corpus / f"train-{frozen.task.key}-{model}-{seed}.json"
        return dict(json.loads(path.read_bytes())) if path.is_file() else {}

    told = trained(own)
    if pack.manifest.weights is None or "weights" not in told or not told.get("selected"):
        return []
    if TrainedWeights.model_validate(told["weights"]) != pack.manifest.weights:
        return []
    runs = predicted(corpus, frozen=frozen, models={model}, root=root).get(model, ())
    return [run for run in runs if run.seed != own and trained(run.seed).get("selected") == told["selected"]]


def _constant(frozen: Frozen, *, labels: frozenset[str]) -> Run:
    return Run(0, dict.fromkeys(frozen.board.items, VOTE), dict.fromkeys(frozen.board.items, labels))


def _macro_f1(board: Board, *, run: Run) -> float:
    sums = counted(board, predicted=board.predicted(run), valid=False).sum(axis=0)
    return float(np.nan_to_num(figures(sums, task=board.task)["macro_f1"]))
