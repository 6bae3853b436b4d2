"""Run the stage ``train``: fit one meme classifier for one task with one seed, and predict validation and test.

A killed run can be retried: its checkpoints are under ``CORPUS_HOME`` until it ends, and its MLflow run is found by
key.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.core.config.models import Based, M3hModel, Model, WithRationales, YadavModel
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import task_of
from pipelines.datasets import features
from pipelines.datasets.example import Material
from pipelines.datasets.memes import load
from pipelines.models import TRAINABLE
from pipelines.store import tables
from pipelines.store.metrics_file import write_metrics
from pipelines.store.vault.vault import Vault
from pipelines.train import tracking
from pipelines.train.predictors import training_records
from pipelines.train.predictors.prediction import VOTE, Prediction
from pipelines.workspace.git import commit_of

EXPERIMENT = "{corpus}_train"
SEVERITY = "severity"


def run(
    corpus: str,
    *,
    task: str,
    model: str,
    seed: int,
    params: Params,
    settings: Settings,
    vault: Vault,
    root: Path = Path(),
) -> dict[str, Any]:
    """Fit a model; write ``snapshot/<corpus>/predictions/train/<task>/<model>/<seed>/predictions.parquet`` and metrics.

    The specialised systems (M3H, Yadav et al.; also ours with rationales) cover severity alone (FigSIM T3): for another
    task they predict nothing and report it.

    Returns:
        ``bases`` (``base_files.identified``), ``environment`` (``train.tracking``), ``epoch`` (the best
        one), ``validation_macro_f1``, ``thresholds`` by label, ``history``, ``without`` and ``taken_down`` (items by
        split that have no gold, or were taken down), ``unseen`` (labels that train does not have), ``train`` and
        ``selected`` (train and validation; ``records``, ``digest`` of their ids), ``weights`` (MLflow's ``run``, and
        the SHA-256 of its ``files``), ``remarks`` (models with rationales: outcomes of requesting them); or ``skipped``
        with the reason.
    """
    spec = params.models.get(model)
    if spec is None or spec.kind not in TRAINABLE:
        raise ConfigError("NotTrained", model=model, kinds=", ".join(TRAINABLE))
    out = root / "snapshot" / corpus / "predictions" / "train" / task / model / str(seed) / "predictions.parquet"
    metrics_file = root / "metrics" / corpus / f"train-{task}-{model}-{seed}.json"
    asked = task_of(scheme_of(params.corpora[corpus].scheme, root=root), task)
    if isinstance(spec, YadavModel | WithRationales) and task != SEVERITY:
        tables.write(tables.SCHEMAS["predictions"].empty_table(), out, name="predictions")
        return write_metrics({"skipped": f"{spec.kind} is about severity alone"}, metrics_file)
    material = load(corpus, task=asked, params=params, vault=vault, root=root)
    learnt = {e.item: (e.split, e.group) for e in (*material.train, *material.validation)}
    selected = training_records.write(learnt, folder=out.parent)
    rows, metrics = _trained(
        corpus, spec=spec, model=model, seed=seed, material=material, params=params, settings=settings, vault=vault,
        root=root,
    )  # fmt: skip
    tables.write(pa.Table.from_pylist(rows, schema=tables.SCHEMAS["predictions"]), out, name="predictions")
    own = training_records.trained_on([example.item[0] for example in material.train])
    lists = {"train": own.model_dump(), "selected": selected.model_dump()}
    return write_metrics(metrics | lists, metrics_file)


def _trained(
    corpus: str,
    *,
    spec: Model,
    model: str,
    seed: int,
    material: Material,
    params: Params,
    settings: Settings,
    vault: Vault,
    root: Path,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Fit, predict, and log; return the prediction rows and the run's metrics."""
    from pipelines.metrics.decoding import decide
    from pipelines.models import build
    from pipelines.models.pretrained import base_files
    from pipelines.train.classifiers import loop
    from pipelines.train.classifiers.loss_and_optimizer import settings_of, weigh
    from pipelines.train.predictors import inference

    task, train = material.task, params.train
    settled = settings_of(spec, train=train)
    # the extra input of some models: their labeller's remarks, from the stage rationales, and the memes to compare with
    more: dict[str, Any] = {}
    if isinstance(spec, WithRationales):
        more["cues"] = features.load(corpus, model=model, labeller=spec.labeller, vault=vault, root=root)
    if isinstance(spec, M3hModel):
        more |= {"train": material.train, "others": (*material.validation, *material.test)}
    cap, reweighted = train.max_pos_weight, settled.reweighted
    weights = weigh(material.train, task=task, max_pos_weight=cap, reweighted=reweighted)
    key = f"{task.key}-{model}-{seed}-{commit_of(root)}"
    folder = settings.home / "train" / corpus / f"{task.key}-{model}-{seed}"
    described = {**train.model_dump(include=LOGGED), "model": model, "kind": spec.kind, "task": task.key, "seed": seed}
    if isinstance(spec, M3hModel):
        described |= {**settled.model_dump(include={*LOGGED, "schedule", "reweighted"}), "max_tokens": spec.max_tokens}
    learnt = [example.item[0] for example in (*material.train, *material.validation)]
    selected = training_records.trained_on(learnt).digest
    data = {"data_commit": commit_of(root), "corpus": corpus, training_records.TAG: selected}
    tags = data | tracking.environment_tags()
    splits = {"training": material.train, "validation": material.validation, "test": material.test}
    used = tracking.LoggedData(f"{corpus}/{task.key}", commit_of(root), splits)
    with tracking.run(
        settings, experiment=EXPERIMENT.format(corpus=corpus), key=key, params=described, tags=tags,
        name=f"{model} on {task.key}, seed {seed}", data=used,
    ) as log:  # fmt: skip
        built = build(spec, task=task, seed=seed, folder=folder, max_tokens=train.max_tokens, **more)

        def say(epoch: dict[str, float]) -> None:
            log.metrics(epoch, step=int(epoch["epoch"]))

        fitted = loop.fit(
            built, train=material.train, validation=material.validation, task=task, settings=settled, seed=seed,
            folder=folder, weights=weights, say=say,
        )  # fmt: skip
        rows: list[dict[str, Any]] = []
        for examples in (material.validation, material.test):
            scores = inference.predict(built, examples=examples, task=task, batch=settled.batch)
            sets = decide(scores, task=task, thresholds=fitted.thresholds)
            said = [Prediction(VOTE, labels, tuple(row)) for labels, row in zip(sets, scores.tolist(), strict=True)]
            about = {"task": task.key, "model": model, "seed": seed, "alerts": None}
            rows += [one.row(e.item, split=e.split, **about) for e, one in zip(examples, said, strict=True)]
        stored = log.weights(fitted.state)
    shutil.rmtree(folder, ignore_errors=True)
    best = next(epoch for epoch in fitted.history if epoch["epoch"] == fitted.epoch)
    return rows, {
        "bases": base_files.identified(spec.bases) if isinstance(spec, Based | YadavModel | M3hModel) else [],
        "environment": tracking.environment(),
        "epoch": fitted.epoch,
        "validation_macro_f1": best["validation_macro_f1"],
        "thresholds": dict(zip(task.labels, fitted.thresholds.tolist(), strict=True)),
        "history": list(fitted.history),
        "without": material.without,
        "taken_down": material.taken_down,
        "unseen": list(weights.empty),
        "weights": stored,
        **({"remarks": dict(more["cues"].outcomes)} if "cues" in more else {}),
    }


LOGGED = {"mode", "epochs", "batch", "learning_rate", "warmup", "weight_decay", "clip", "max_pos_weight", "max_tokens"}
