"""Run the stage ``finetune``: tune one model on the labels of one subset, choosing epoch or settings on dev's gold.

A subset is ``unanimous`` or ``consensus`` (labels on which an ensemble of labellers agrees) or ``gold`` (by people).
The weights are the stage's own output; MLflow receives metrics only. A killed run resumes from its checkpoints, which
are under ``CORPUS_HOME`` until it ends, and its MLflow run is found by key.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.core.config.models import EncoderModel, KnnModel, SftModel
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError, DataError
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets import posts
from pipelines.datasets.posts import GOLD, Posts
from pipelines.store.metrics_file import rounded, write_metrics
from pipelines.store.vault.vault import Vault
from pipelines.train import tracking
from pipelines.train.predictors import finetuned, training_records
from pipelines.train.predictors.finetuned import Card
from pipelines.train.predictors.training_records import TrainingRecords
from pipelines.workspace.git import commit_of

log = logging.getLogger(__name__)

EXPERIMENT = "{corpus}_finetune"
KINDS = ("sft", "encoder", "knn")
Numbers = dict[str, float]


@dataclass(frozen=True)
class FinetuneRun:
    """The inputs of one fine-tuning run, and the folders of its model (``out``) and its checkpoints (``folder``)."""

    corpus: str
    subset: str
    model: str
    spec: SftModel | EncoderModel | KnnModel
    params: Params
    settings: Settings
    vault: Vault
    root: Path
    scheme: Scheme
    task: Task
    material: Posts
    out: Path
    folder: Path

    @property
    def trained_on(self) -> TrainingRecords:
        """The number of records of train that this run uses, and the digest of their ids."""
        return training_records.trained_on([example.item[0] for example in self.material.train])

    def fit(self, say: Callable[[Numbers], None]) -> dict[str, Any]:
        """Fine-tune the model, write it to ``out``, and return its metrics; ``say`` is called after every epoch."""
        section = self.params.finetune
        options: dict[str, Any] = {
            "train": self.material.train,
            "validation": self.material.validation,
            "task": self.task,
            "seed": section.seed,
            "settings": section,
            "out": self.out,
        }
        if isinstance(self.spec, SftModel):
            from pipelines.train.sft import sft

            shared = self.settings.finetune_processes
            job = sft.SftJob(self.spec, scheme=self.scheme, folder=self.folder, processes=shared, **options)
            return asdict(sft.fit(job, say=say)) | sft.calibrate(job)
        if isinstance(self.spec, EncoderModel):
            from pipelines.train.classifiers import encoder_training

            return encoder_training.fit(self.spec, folder=self.folder, say=say, **options)
        from pipelines.train.predictors import knn

        said = finetuned.votes_for(self.spec, corpus=self.corpus, task=self.task, root=self.root)
        return knn.fit(self.spec, vault=self.vault, said=said, **options)

    def card(self, selected: TrainingRecords) -> Card:
        """Return the model's card (``model.json``); ``selected``: count and digest of the records of train and dev."""
        return Card(
            kind=self.spec.kind,
            corpus=self.corpus,
            model=self.model,
            subset=self.subset,
            task=self.task.key,
            scheme=self.scheme.name,
            labels=self.task.labels,
            base=base_of(self.spec),
            seed=self.params.finetune.seed,
            data_commit=commit_of(self.root),
            train=self.trained_on,
            selected=selected,
            spec=self.spec,
        )


def run(
    corpus: str,
    *,
    subset: str,
    model: str,
    params: Params,
    settings: Settings,
    vault: Vault,
    root: Path = Path(),
) -> dict[str, Any]:
    """Tune a model; write ``snapshot/<corpus>/finetuned/<subset>/<model>/`` (weights, lineage, card) and metrics.

    Lineage is the list of records that the model was trained on or selected by.

    Args:
        subset: ``unanimous`` or ``consensus`` of the silver of ``finetune.ensemble``, or ``gold``.

    Returns:
        ``kind``, ``base``, ``bases`` (``base_files.identified``), ``environment`` (``train.tracking``),
        ``subset``, ``ensemble`` (``None`` for gold), ``train`` and ``selected`` (train and dev; ``records``,
        ``digest`` of their ids), ``validation`` (records), ``support`` (records of train by label), ``unseen``
        (labels that train does not have), ``examples`` (records of dev in the prompt, left out), ``without`` (records
        without labels) and ``taken_down`` by split, ``weights`` (MLflow's ``run``, and the SHA-256 of each of the
        model's ``files``),
        ``fit``: the metrics of the model's kind, and of an ``sft`` model ``prompt``: see
        :attr:`pipelines.llm.prompting.prompts.Prompt.origin`.
    """
    out = finetuned.folder_of(corpus, subset=subset, model=model, root=root)
    folder = settings.home / "train" / corpus / f"finetune-{subset}-{model}"
    metrics = tune(
        corpus, subset=subset, model=model, params=params, settings=settings, vault=vault, root=root, out=out,
        folder=folder,
    )  # fmt: skip
    return write_metrics(metrics, root / "metrics" / corpus / f"finetune-{subset}-{model}.json")


def tune(
    corpus: str,
    *,
    subset: str,
    model: str,
    params: Params,
    settings: Settings,
    vault: Vault,
    root: Path,
    out: Path,
    folder: Path,
) -> dict[str, Any]:
    """Fine-tune as :func:`run` does, with the model in ``out`` and checkpoints in ``folder``; return the metrics."""
    spec = params.models.get(model)
    if not isinstance(spec, SftModel | EncoderModel | KnnModel):
        raise ConfigError("NotTuned", model=model, kinds=", ".join(KINDS))
    if isinstance(spec, SftModel):
        # the libraries take seconds to import
        from pipelines.train import preflight

        needed = preflight.check(model, params=params, settings=settings, root=root, folder=folder)
        for line in needed.lines():
            log.info(line)
    section = params.finetune
    scheme = scheme_of(params.corpora[corpus].scheme, root=root)
    task = task_of(scheme, section.category)
    material = posts.load(
        corpus, task=task, subset=subset, ensemble=section.ensemble, params=params, vault=vault, root=root,
        weighted=not isinstance(spec, KnnModel) and spec.weights == "posterior",
    )  # fmt: skip
    for split, examples in (("train", material.train), (material.validation_name, material.validation)):
        if not examples:
            raise DataError("NothingToLearn", model=model, split=split, subset=subset, corpus=corpus)
    tuning = FinetuneRun(
        corpus, subset, model, spec, params, settings, vault, root, scheme, task, material, out, folder
    )
    # files of an earlier attempt are not part of this model
    shutil.rmtree(tuning.out, ignore_errors=True)
    tuning.out.mkdir(parents=True)
    prompt = _prompt(tuning) if isinstance(spec, SftModel) else {}
    fit_metrics, run_id = _tuned(tuning)
    learnt = {e.item: material.placed[e.item] for e in (*material.train, *material.validation)}
    card = tuning.card(training_records.write(learnt, folder=tuning.out))
    finetuned.write(tuning.out, card=card)
    shutil.rmtree(tuning.folder, ignore_errors=True)
    counts = Counter(label for example in material.train for label in example.labels or ())
    support = {label: counts[label] for label in task.labels}
    return {
        "kind": spec.kind,
        "base": card.base,
        "bases": _bases(spec),
        "environment": tracking.environment(),
        "subset": subset,
        "ensemble": None if subset == GOLD else section.ensemble,
        "train": card.train.model_dump(),
        "selected": card.selected.model_dump(),
        "validation": len(material.validation),
        "support": support,
        "unseen": [label for label, count in support.items() if not count],
        "examples": material.examples,
        "without": material.without,
        "taken_down": material.taken_down,
        # committed to git: what the registry may package
        "weights": {"run": run_id, "files": training_records.digests(finetuned.parts(tuning.out))},
        # the JSON round trip turns tuples into lists
        "fit": rounded(json.loads(json.dumps(fit_metrics))),
        **prompt,
    }


def _prompt(tuning: FinetuneRun) -> dict[str, Any]:
    """Put a team's own prompt into the model's folder, where training and prediction read it; return its origin."""
    from pipelines.llm.prompting import own_prompts
    from pipelines.train.predictors import instruct

    own = own_prompts.read(tuning.params.prompts, root=tuning.root)
    prompt = instruct.instruction(tuning.scheme, category=tuning.task.key, own=own)
    instruct.store(prompt, tuning.out)
    return {"prompt": prompt.origin}


def base_of(spec: SftModel | EncoderModel | KnnModel) -> str:
    """Return the name of a model's base model; for a kNN model, that of its sentence-embedding model."""
    from pipelines.collect.read import embedding

    return embedding.PACKAGE if isinstance(spec, KnnModel) else spec.base


def _bases(spec: SftModel | EncoderModel | KnnModel) -> list[dict[str, Any]]:
    from pipelines.models.pretrained import base_files

    return [] if isinstance(spec, KnnModel) else base_files.identified(spec.bases)


def _tuned(tuning: FinetuneRun) -> tuple[dict[str, Any], str | None]:
    """Fit the model; log parameters, the data's commit and metrics to MLflow; return the metrics and the run's id."""

    commit = commit_of(tuning.root)
    section = tuning.params.finetune.model_dump(include={"category", "ensemble", "recall_floors", "seed"})
    data = {"data_commit": commit, "corpus": tuning.corpus, "train_digest": tuning.trained_on.digest}
    splits = {"training": tuning.material.train, "validation": tuning.material.validation}
    described = {**tuning.spec.model_dump(), **section, "model": tuning.model, "subset": tuning.subset}
    with tracking.run(
        tuning.settings,
        experiment=EXPERIMENT.format(corpus=tuning.corpus),
        key=f"{tuning.task.key}-{tuning.subset}-{tuning.model}-{tuning.params.finetune.seed}-{commit}",
        params={name: str(value) for name, value in described.items()},
        tags=data | tracking.environment_tags(),
        name=f"{tuning.model} on {tuning.subset} labels, seed {tuning.params.finetune.seed}",
        data=tracking.logged(f"{tuning.corpus}/{tuning.subset}", splits=splits, commit=commit),
    ) as log:

        def say(epoch: Numbers) -> None:
            numbers = {name: value for name, value in epoch.items() if math.isfinite(value)}
            log.metrics(numbers, step=round(epoch["epoch"]))

        return tuning.fit(say), log.run_id
