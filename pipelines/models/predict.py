"""Collect the answers of one model for one task (a row of ``answers``).

The predictions of a fit that kept none of its weights are copied, other fits predict; a model that is not fitted here
is asked, or its stored answers are read. A prediction has labels only if its outcome is ``vote``. An item without an
answer has no row; evaluation counts it as missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.core import rows
from pipelines.core.errors import ConfigError, DataError
from pipelines.core.rows import Answer, Fit
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import task_of
from pipelines.datasets.example import TEST, TRAIN, Material
from pipelines.llm.asking import PlannedRequests
from pipelines.models import kind
from pipelines.models.fitting import card
from pipelines.models.kind import Desk, Kind, Serving
from pipelines.models.predictions_file import copied, write_predictions
from pipelines.models.train import material_of, predict_with, serving_of
from pipelines.store.metrics_file import write_metrics
from pipelines.store.stage import ASKED, Context, Stage

if TYPE_CHECKING:
    from pipelines.datasets.post import Post
    from pipelines.label.remote import Remote

STAGE = Stage(
    reads=("data", "few_shot", "gold", "split", "{source}", "{labels}", "{reads}"),
    params=("models.{model}", "ensembles", "labellers", "predict.batch", *ASKED),
    writes=("predictions/{name}",),
    rows="answers",
)


def run(ctx: Context) -> dict[str, Any]:
    """Collect a model's predictions; write them to ``snapshot/<corpus>/predictions/<row>/``, and metrics.

    ``predictions.parquet`` has a row for each answer about an item of validation or test with gold, except the prompt's
    examples. ``spent.json`` has the cost: for votes and ensembles the tokens and US dollars of these items, without a
    time, as it was not measured. Saved predictions have no such file, as their cost is unknown.

    Returns:
        ``kind``, ``records`` and ``outcomes`` by split (including ``missing``), ``spent`` as in ``spent.json``;
        ``without`` and ``taken_down`` (:class:`pipelines.datasets.example.Material`), if the items were read; of a fit
        ``data_commit``, of one whose weights were kept ``taken_down_since`` (records that it was trained on or selected
        by, and that were taken down since); and what the kind of model adds (:class:`pipelines.models.kind.Answers`).
    """
    corpus, row, root = ctx.corpus, ctx.row, ctx.root
    answer = rows.read(root).answer(corpus, row)
    place = root / "snapshot" / corpus / "predictions" / row
    if answer.seed is not None:
        fit = rows.read(root).fit(corpus, row)
        metrics = _fitted(fit, ctx=ctx, to=place)
    else:
        metrics = _answered(_desk(answer, ctx=ctx), to=place)
    return write_metrics(metrics, root / "metrics" / corpus / f"predict-{row}.json")


def planned(ctx: Context) -> Iterator[PlannedRequests]:
    """Yield what each row of the corpus would send to a labeller, and at what cost."""
    for spec, desk in _not_fitted(ctx):
        yield from spec.planned(desk)


def asking(ctx: Context, *, labeller: str) -> Iterator[tuple[Remote, list[Post]]]:
    """Yield the requests to a labeller of each row of the corpus; nothing is sent."""
    for spec, desk in _not_fitted(ctx):
        if labeller in spec.labellers(ctx.params):
            yield from spec.asking(desk)


def _not_fitted(ctx: Context) -> Iterator[tuple[Kind, Desk]]:
    for answer in rows.resolve(ctx.params, root=ctx.root).answers.values():
        if answer.corpus == ctx.corpus and answer.seed is None:
            yield kind.spec(ctx.params, answer.model), _desk(answer, ctx=ctx)


def _desk(answer: Answer, *, ctx: Context) -> Desk:
    task = task_of(scheme_of(ctx.params.corpora[answer.corpus].scheme, root=ctx.root), answer.task)
    return Desk(answer.corpus, answer.model, task, ctx.params, ctx.settings, ctx.vault, ctx.root)


def _answered(desk: Desk, *, to: Path) -> dict[str, Any]:
    """Collect the answers of a model that is not fitted here."""
    spec = kind.spec(desk.params, desk.model)
    if spec.fitted:
        raise ConfigError("NotUntuned", model=desk.model, kind=spec.kind)
    found = spec.answer(desk)
    about: dict[str, Any] = {"task": desk.task.key, "model": desk.model, "splits": found.splits}
    counts = write_predictions(to, found.runs, material=desk.material, spent=found.spent, **about)
    return {"kind": spec.kind, **counts, **found.more}


def _fitted(fit: Fit, *, ctx: Context, to: Path) -> dict[str, Any]:
    """Copy the predictions of a fit, or predict with its weights."""
    params, vault, root = ctx.params, ctx.vault, ctx.root
    folder = card.folder_of(fit.corpus, fit.name, root=root)
    made = card.read(folder, allowed=params.distributions)
    about = {"kind": made.kind, "data_commit": made.data_commit}
    if not made.kept:
        return about | copied(folder, to=to, vault=vault)
    card.task_asked(made, folder=folder, root=root)
    material = material_of(fit, spec=made.spec, params=params, vault=vault, root=root, learning=False)
    seen = card.lineage(folder)
    refuse_seen(material, seen=seen, model=made.shown)
    scratch = ctx.settings.home / "train"
    given = serving_of(fit, spec=made.spec, material=material, params=params, vault=vault, root=root, folder=scratch)
    places: dict[str, Any] = {"params": params, "settings": ctx.settings, "vault": vault, "root": root}
    counts = predict_with(made.spec, folder, serving=Serving(**given), row=fit, material=material, to=to, **places)
    return about | counts | {"taken_down_since": len(vault.tombstoned(seen))}


def refuse_seen(material: Material, *, seen: Mapping[str, str], model: str) -> None:
    """Raise an error if items to predict are of records that the model was trained on, or test ones that selected it.

    Args:
        seen: record id -> its split when the model was trained.
    """
    items = sum(
        seen.get(example.item[0]) == TRAIN or (example.split == TEST and example.item[0] in seen)
        for example in material.asked
    )
    if items:
        raise DataError("SeenInTraining", model=model, items=items)
