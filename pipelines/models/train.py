"""Fit one model for one task on one subset of the labels with one seed (a row of ``fits``).

A subset is ``unanimous`` or ``consensus`` (labels on which an ensemble of labellers agrees) or ``gold`` (by people);
epoch or settings are chosen on validation's gold. A row that is kept has the model's weights as the stage's out; any
other has its predictions, and the weights, which would double the memory of content, are deleted. MLflow receives
figures and digests only. A killed run resumes from its checkpoints, which are under ``CORPUS_HOME`` until it ends, and
its MLflow run is found by key.
"""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.core import rows
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError, DataError
from pipelines.core.rows import GOLD, Fit
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets import features, items
from pipelines.datasets.example import Material
from pipelines.llm import own_prompts
from pipelines.models import kind
from pipelines.models.fitting import asking, card, tracking, training_records
from pipelines.models.fitting.card import Card
from pipelines.models.fitting.training_records import TrainingRecords
from pipelines.models.kind import Desk, Job, Kind, Serving
from pipelines.models.predictions_file import write_predictions
from pipelines.store.metrics_file import rounded, write_metrics
from pipelines.store.stage import CONTENT, SCHEME, Context, Stage
from pipelines.store.vault.vault import Vault
from pipelines.workspace.git import commit_of

EXPERIMENT = "{corpus}_train"
Numbers = dict[str, float]


STAGE = Stage(
    reads=("data", "few_shot", "gold", "split", "{labels}", "{reads}"),
    params=(
        "models.{model}",
        "rows.fits.{key}.keep",
        "train.mode",
        "predict.batch",
        "prompts",
        "distributions",
        CONTENT,
        SCHEME,
    ),
    writes=("fits/{name}",),
    rows="fits",
    use="train",
)


def run(ctx: Context) -> dict[str, Any]:
    """Fit the model of a row of ``rows.yaml``; write ``snapshot/<corpus>/fits/<row>/`` and metrics.

    The folder has the card and the lineage, the list of records that the model was trained on or selected by, and
    either the model's files or its predictions of validation and test, of a backtest those of later items.

    Returns:
        ``kind``, ``bases`` (``base_files.identified``), ``environment`` (``fitting.tracking``), ``task``, ``subset``,
        ``ensemble`` (``None`` for gold), ``seed``, ``train`` and ``selected`` (train and validation; ``records``,
        ``digest`` of their ids), ``validation`` (items), ``support`` (items of train by label), ``unseen`` (labels that
        train does not have), ``scarce`` (labels with fewer items than the kind needs), ``soft`` (items of train whose
        targets are annotators' shares; only of kinds that learn from them), ``examples`` (items of validation in the
        prompt, left out), ``without`` (items without labels) and ``taken_down`` by split, ``weights`` (MLflow's
        ``run``, and the SHA-256 of each of the model's ``files``), ``score`` on validation (the macro-F1 of a
        classifier, else the share of exact label sets), ``fit``: the metrics of the model's kind; of some kinds
        ``prompt`` (:attr:`pipelines.llm.prompts.Prompt.origin`) and ``remarks`` (outcomes of requesting the
        rationales); of a row that is not kept ``predictions``, as the stage ``predict`` reports them.
    """
    corpus, row, params, settings, vault, root = ctx.corpus, ctx.row, ctx.params, ctx.settings, ctx.vault, ctx.root
    fit = rows.read(root).fit(corpus, row)
    metrics = TrainRun(fit, params, settings, vault, root).fit()
    return write_metrics(metrics, root / "metrics" / corpus / f"train-{row}.json")


def serving_of(
    row: Fit, *, spec: Kind, material: Material, params: Params, vault: Vault, root: Path, folder: Path
) -> dict[str, Any]:
    """Return what a model is fitted and opened with (:class:`Serving`), read from other stages' results."""
    task, corpus = material.task, row.corpus
    given: dict[str, Any] = {"task": task, "seed": row.seed, "folder": folder, "vault": vault}
    given |= {"scheme": scheme_of(params.corpora[corpus].scheme, root=root), "batch": params.predict.batch}
    given |= {"train": material.train, "others": material.asked}
    if spec.rationales is not None:
        given["cues"] = features.load(corpus, model=row.model, labeller=spec.rationales, vault=vault, root=root)
    if spec.votes is not None:
        found = asking.votes(corpus, labeller=spec.votes, task=task, root=root)
        given["said"] = asking.valid(found)
    return given


def material_of(row: Fit, *, spec: Kind, params: Params, vault: Vault, root: Path, learning: bool = True) -> Material:
    """Return the examples of a row: if they are learnt from, those of train with the labels of its subset."""
    task = task_of(scheme_of(params.corpora[row.corpus].scheme, root=root), row.task)
    subset = row.subset if learning or spec.compares else None
    labels: dict[str, Any] = {"subset": subset, "ensemble": params.ensemble(row.corpus)}
    places: dict[str, Any] = {"params": params, "vault": vault, "root": root}
    return items.load(row.corpus, task=task, weighted=spec.weighted, soft=spec.soft, **labels, **places)


@dataclass(frozen=True)
class TrainRun:
    """A row, and where its inputs and outs are."""

    row: Fit
    params: Params
    settings: Settings
    vault: Vault
    root: Path

    @cached_property
    def spec(self) -> Kind:
        """The model's entry, of a kind that can be fitted on the corpus."""
        model, corpus = self.row.model, self.row.corpus
        spec = kind.spec(self.params, model)
        if not spec.fitted:
            raise ConfigError("NotTrained", model=model, kind=spec.kind)
        if missing := set(spec.inputs) - set(items.CONTENTS[self.params.corpora[corpus].content].inputs):
            raise ConfigError("NoInput", model=model, kind=spec.kind, corpus=corpus, input=", ".join(sorted(missing)))
        return spec

    @cached_property
    def scheme(self) -> Scheme:
        """The label scheme of the corpus."""
        return scheme_of(self.params.corpora[self.row.corpus].scheme, root=self.root)

    @cached_property
    def task(self) -> Task:
        """What the model learns."""
        return task_of(self.scheme, self.row.task)

    @property
    def scratch(self) -> Path:
        """The folder that outlives a killed process."""
        return self.settings.home / "train" / self.row.corpus / self.row.name

    @property
    def out(self) -> Path:
        """The folder of the stage's out."""
        return card.folder_of(self.row.corpus, self.row.name, root=self.root)

    @property
    def _places(self) -> dict[str, Any]:
        return {"params": self.params, "vault": self.vault, "root": self.root}

    @cached_property
    def material(self) -> Material:
        """The examples, at least one of train and of validation."""
        row, material = self.row, material_of(self.row, spec=self.spec, **self._places)
        if row.until:
            material = material.known(until=row.until, months=items.months_of(row.corpus, root=self.root))
        for split, examples in (("train", material.train), (material.validation_name, material.validation)):
            if not examples:
                about = {"model": row.model, "subset": row.subset, "corpus": row.corpus}
                raise DataError("NothingToLearn", split=split, **about)
        if len({frozenset(example.labels or ()) for example in material.train}) == 1:
            about = {"model": row.model, "task": row.task, "subset": row.subset, "corpus": row.corpus}
            raise DataError("OneAnswer", items=len(material.train), needed=self.spec.least, **about)
        return material

    @cached_property
    def job(self) -> Job[Any]:
        """What the model is fitted with."""
        folder = self.scratch / "checkpoints"
        given = serving_of(self.row, spec=self.spec, material=self.material, folder=folder, **self._places)
        return Job(
            **given,
            spec=self.spec,
            validation=self.material.validation,
            out=self.out if self.row.keep else self.scratch / "model",
            mode=self.params.train.mode,
            checkpoint_steps=self.params.train.checkpoint_steps,
            own=own_prompts.read(self.params.prompts, root=self.root),
            processes=self.settings.finetune_processes,
        )

    def fit(self) -> dict[str, Any]:
        """Fit the model, write the stage's out, and return the metrics (see :func:`run`)."""
        row, spec = self.row, self.spec
        spec.check(row.model, params=self.params, settings=self.settings, root=self.root, folder=self.scratch)
        material, job = self.material, self.job
        # files of an earlier attempt are not part of this model
        for folder in {self.out, job.out}:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
        trained = training_records.trained_on([example.item[0] for example in material.train])
        learnt = {e.item: material.placed[e.item] for e in (*material.train, *material.validation)}
        selected = training_records.write(learnt, folder=self.out)
        found, run_id = self._tracked(job, trained=trained, selected=selected)
        # the JSON round trip turns tuples into lists
        measured = rounded(json.loads(json.dumps(found)))
        files = training_records.digests(card.parts(job.out))
        predicted = {}
        if not row.keep:
            given: dict[str, Any] = {"row": row, "material": material, "settings": self.settings, **self._places}
            predicted["predictions"] = predict_with(spec, job.out, serving=job, to=self.out, **given)
        self._write_card(trained=trained, selected=selected)
        shutil.rmtree(self.scratch, ignore_errors=True)
        counts = Counter(label for example in material.train for label in example.labels or ())
        support = {label: counts[label] for label in self.task.labels}
        return {
            "kind": spec.kind,
            "bases": _identified(spec),
            "environment": tracking.environment(),
            "task": row.task,
            "subset": row.subset,
            "ensemble": self._ensemble,
            "seed": row.seed,
            "train": trained.model_dump(),
            "selected": selected.model_dump(),
            "validation": len(material.validation),
            **({"soft": sum(e.shares is not None for e in material.train)} if self.spec.soft else {}),
            "support": support,
            "unseen": [label for label, count in support.items() if not count],
            "scarce": [label for label, count in support.items() if 0 < count < spec.least],
            "examples": material.examples,
            "without": material.without,
            "taken_down": material.taken_down,
            # committed to git: what the registry may package
            "weights": {"run": run_id, "files": files},
            "score": measured.get("validation_macro_f1", measured.get("exact")),
            **({"remarks": dict(job.cues.outcomes)} if job.cues else {}),
            **({"prompt": measured.pop("prompt")} if "prompt" in measured else {}),
            "fit": measured,
            **predicted,
        }

    @property
    def _ensemble(self) -> str | None:
        return None if self.row.subset == GOLD else self.params.ensemble(self.row.corpus)

    def _tracked(
        self, job: Job[Any], *, trained: TrainingRecords, selected: TrainingRecords
    ) -> tuple[dict[str, Any], str | None]:
        """Fit the model; log parameters, the data's commit and metrics to MLflow; return metrics and the run's id."""
        row, material, commit = self.row, self.material, commit_of(self.root)
        data = {"data_commit": commit, "corpus": row.corpus, "train_digest": trained.digest}
        data |= {training_records.TAG: selected.digest}
        splits = {"training": material.train, "validation": material.validation, "test": material.test}
        described = {**self.spec.model_dump(), **row.model_dump(include={"model", "task", "subset", "seed"})}
        described |= {"mode": self.params.train.mode, "ensemble": self._ensemble}
        with tracking.run(
            self.settings,
            experiment=EXPERIMENT.format(corpus=row.corpus),
            key=f"{row.name}-{commit}",
            params={name: str(value) for name, value in described.items()},
            tags=data | tracking.environment_tags(),
            name=f"{row.shown} on {row.task}, seed {row.seed}",
            data=tracking.LoggedData(f"{row.corpus}/{row.task}", commit, splits),
        ) as log:

            def say(epoch: Numbers) -> None:
                numbers = {name: value for name, value in epoch.items() if math.isfinite(value)}
                log.metrics(numbers, step=round(epoch["epoch"]))

            return self.spec.fit(job, say=say), log.run_id

    def _write_card(self, *, trained: TrainingRecords, selected: TrainingRecords) -> None:
        row = self.row
        made = Card(
            corpus=row.corpus,
            model=row.model,
            subset=row.subset,
            ensemble=self._ensemble,
            task=row.task,
            scheme=self.scheme.name,
            labels=self.task.labels,
            base=self.spec.named,
            seed=row.seed,
            data_commit=commit_of(self.root),
            train=trained,
            selected=selected,
            kept=row.keep,
            spec=self.spec,
        )
        card.write(self.out, card=made)


def predict_with(
    spec: Kind, folder: Path, *, serving: Serving, row: Fit, material: Material, to: Path, **places: Any
) -> dict[str, Any]:
    """Predict validation and test with the fitted model in ``folder``; write to ``to``, return the metrics.

    ``places`` are parameters, settings, vault and root, as of :class:`Desk`.
    """
    from pipelines.models.fitting.asking import ask

    desk = Desk(row.corpus, row.model, material.task, **places)
    predictor = spec.open(folder, replace(serving, asked=spec.asked(desk)))
    said, spent = ask(predictor, material.asked, name=row.shown)
    predictor.forget()
    about = {"task": row.task, "model": row.shown}
    return write_predictions(to, {row.seed: said}, material=material, spent=spent, **about)


def _identified(spec: Kind) -> list[dict[str, Any]]:
    from pipelines.models import base_files

    return base_files.identified(spec.bases) if spec.bases else []
