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
from dataclasses import dataclass
from functools import cached_property
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
from pipelines.train.predictors.finetuned import Card, FinetuneJob
from pipelines.train.predictors.training_records import TrainingRecords
from pipelines.workspace.git import commit_of

log = logging.getLogger(__name__)

EXPERIMENT = "{corpus}_finetune"
KINDS = ("sft", "encoder", "knn")
Numbers = dict[str, float]


def run(
    corpus: str, *, subset: str, model: str, params: Params, settings: Settings, vault: Vault, root: Path = Path()
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
    metrics = FinetuneRun(corpus, subset, model, params, settings, vault, root, out, folder).tune()
    return write_metrics(metrics, root / "metrics" / corpus / f"finetune-{subset}-{model}.json")


@dataclass(frozen=True)
class FinetuneRun:
    """The inputs of one fine-tuning run, and the folders of its model (``out``) and its checkpoints (``folder``)."""

    corpus: str
    subset: str
    model: str
    params: Params
    settings: Settings
    vault: Vault
    root: Path
    out: Path
    folder: Path

    @cached_property
    def spec(self) -> SftModel | EncoderModel | KnnModel:
        """The model's entry."""
        spec = self.params.models.get(self.model)
        if not isinstance(spec, SftModel | EncoderModel | KnnModel):
            raise ConfigError("NotTuned", model=self.model, kinds=", ".join(KINDS))
        return spec

    @cached_property
    def scheme(self) -> Scheme:
        """The label scheme of the corpus."""
        return scheme_of(self.params.corpora[self.corpus].scheme, root=self.root)

    @cached_property
    def task(self) -> Task:
        """The task of section ``finetune``."""
        return task_of(self.scheme, self.params.finetune.category)

    @cached_property
    def material(self) -> Posts:
        """The posts of train and dev with the labels of the subset, at least one of each."""
        weighted = not isinstance(self.spec, KnnModel) and self.spec.weights == "posterior"
        places: dict[str, Any] = {"params": self.params, "vault": self.vault, "root": self.root}
        labels: dict[str, Any] = {
            "subset": self.subset,
            "ensemble": self.params.finetune.ensemble,
            "weighted": weighted,
        }
        material = posts.load(self.corpus, task=self.task, **labels, **places)
        for split, examples in (("train", material.train), (material.validation_name, material.validation)):
            if not examples:
                raise DataError("NothingToLearn", model=self.model, split=split, subset=self.subset, corpus=self.corpus)
        return material

    def tune(self) -> dict[str, Any]:
        """Fine-tune, write the model to ``out``, and return the metrics (see :func:`run`)."""
        spec, section = self.spec, self.params.finetune
        if isinstance(spec, SftModel):
            # the libraries take seconds to import
            from pipelines.train import preflight

            needed = preflight.check(
                self.model, params=self.params, settings=self.settings, root=self.root, folder=self.folder
            )
            for line in needed.lines():
                log.info(line)
        material = self.material
        # files of an earlier attempt are not part of this model
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        prompt = self._store_prompt() if isinstance(spec, SftModel) else {}
        trained = training_records.trained_on([example.item[0] for example in material.train])
        fit_metrics, run_id = self._tracked(trained)
        learnt = {e.item: material.placed[e.item] for e in (*material.train, *material.validation)}
        selected = training_records.write(learnt, folder=self.out)
        base, bases = _bases(spec)
        finetuned.write(
            self.out,
            card=Card(
                kind=spec.kind,
                corpus=self.corpus,
                model=self.model,
                subset=self.subset,
                task=self.task.key,
                scheme=self.scheme.name,
                labels=self.task.labels,
                base=base,
                seed=section.seed,
                data_commit=commit_of(self.root),
                train=trained,
                selected=selected,
                spec=spec,
            ),
        )
        shutil.rmtree(self.folder, ignore_errors=True)
        counts = Counter(label for example in material.train for label in example.labels or ())
        support = {label: counts[label] for label in self.task.labels}
        return {
            "kind": spec.kind,
            "base": base,
            "bases": bases,
            "environment": tracking.environment(),
            "subset": self.subset,
            "ensemble": None if self.subset == GOLD else section.ensemble,
            "train": trained.model_dump(),
            "selected": selected.model_dump(),
            "validation": len(material.validation),
            "support": support,
            "unseen": [label for label, count in support.items() if not count],
            "examples": material.examples,
            "without": material.without,
            "taken_down": material.taken_down,
            # committed to git: what the registry may package
            "weights": {"run": run_id, "files": training_records.digests(finetuned.parts(self.out))},
            # the JSON round trip turns tuples into lists
            "fit": rounded(json.loads(json.dumps(fit_metrics))),
            **prompt,
        }

    def _store_prompt(self) -> dict[str, Any]:
        """Put a team's own prompt into the model's folder, where training and prediction read it; return its origin."""
        from pipelines.llm.prompting import own_prompts
        from pipelines.train.predictors import instruct

        own = own_prompts.read(self.params.prompts, root=self.root)
        prompt = instruct.instruction(self.scheme, category=self.task.key, own=own)
        instruct.store(prompt, self.out)
        return {"prompt": prompt.origin}

    def _tracked(self, trained: TrainingRecords) -> tuple[dict[str, Any], str | None]:
        """Fit the model; log parameters, the data's commit and metrics to MLflow; return metrics and the run's id."""
        commit, seed = commit_of(self.root), self.params.finetune.seed
        section = self.params.finetune.model_dump(include={"category", "ensemble", "recall_floors", "seed"})
        data = {"data_commit": commit, "corpus": self.corpus, "train_digest": trained.digest}
        splits = {"training": self.material.train, "validation": self.material.validation}
        described = {**self.spec.model_dump(), **section, "model": self.model, "subset": self.subset}
        with tracking.run(
            self.settings,
            experiment=EXPERIMENT.format(corpus=self.corpus),
            key=f"{self.task.key}-{self.subset}-{self.model}-{seed}-{commit}",
            params={name: str(value) for name, value in described.items()},
            tags=data | tracking.environment_tags(),
            name=f"{self.model} on {self.subset} labels, seed {seed}",
            data=tracking.LoggedData(f"{self.corpus}/{self.subset}", commit, splits),
        ) as log:

            def say(epoch: Numbers) -> None:
                numbers = {name: value for name, value in epoch.items() if math.isfinite(value)}
                log.metrics(numbers, step=round(epoch["epoch"]))

            return self._fit(say), log.run_id

    def _fit(self, say: Callable[[Numbers], None]) -> dict[str, Any]:
        """Fine-tune the model, write it to ``out``, and return its metrics; ``say`` is called after every epoch."""
        section, material, spec = self.params.finetune, self.material, self.spec
        data = (material.train, material.validation, self.task, self.scheme, section.seed, section)
        folders = (self.folder, self.out, self.settings.finetune_processes)
        if isinstance(spec, SftModel):
            from pipelines.train.sft import sft

            job = FinetuneJob(spec, *data, *folders)
            return sft.fit(job, say=say) | sft.calibrate(job)
        if isinstance(spec, EncoderModel):
            from pipelines.train.classifiers import encoder_training

            return encoder_training.fit(FinetuneJob(spec, *data, *folders), say=say)
        from pipelines.train.predictors import knn

        said = finetuned.votes_for(spec, corpus=self.corpus, task=self.task, root=self.root)
        return knn.fit(FinetuneJob(spec, *data, *folders), vault=self.vault, said=said)


def _bases(spec: SftModel | EncoderModel | KnnModel) -> tuple[str, list[dict[str, Any]]]:
    """Return the name of a model's base model (of a kNN model, its sentence embeddings'), and what identifies it."""
    from pipelines.collect.read import embedding
    from pipelines.models.pretrained import base_files

    return (embedding.PACKAGE, []) if isinstance(spec, KnnModel) else (spec.base, base_files.identified(spec.bases))
