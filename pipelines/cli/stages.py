"""Define a command for each stage of ``dvc.yaml``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.cli.options import STAGES as PANEL
from pipelines.cli.options import CorpusName, checked, option
from pipelines.cli.shared import context, emit
from pipelines.core.errors import DataError

# Stage -> its module, in the order of the graph.
STAGES = {
    "dedupe": "pipelines.curate.dedupe.dedupe",
    "sample": "pipelines.curate.sample",
    "gold": "pipelines.annotate.gold",
    "split": "pipelines.curate.split",
    "quality": "pipelines.curate.quality",
    "agreement": "pipelines.annotate.agreement",
    "few_shot": "pipelines.label.few_shot",
    "votes": "pipelines.label.votes",
    "silver": "pipelines.label.silver",
    "injection_test": "pipelines.label.injection_test",
    "rationales": "pipelines.label.rationales",
    "train": "pipelines.models.train",
    "predict": "pipelines.models.predict",
    "moderation": "pipelines.evaluate.moderation.moderation",
    "analysis": "pipelines.evaluate.analysis.analysis",
    "evaluate": "pipelines.evaluate.evaluate",
    "report": "pipelines.evaluate.report.report",
    "batch_predict": "pipelines.registry.batch_predict",
}
# Characters of a value of metrics that is printed.
LONG = 2_000
RowName = Annotated[
    str,
    option(
        "a row of rows.yaml without its corpus, such as labels-knn-consensus-20251001; only stages with rows have it",
        **checked("row"),
    ),
]


def run_stage(name: str, corpus: str, *, row: str = "") -> None:
    """Run a stage on a corpus, here; print what it returns as JSON, without what its metrics list at length."""
    from pipelines.core.process import now
    from pipelines.store import approvals
    from pipelines.workspace.scratch import temporary_files

    stage = import_module(STAGES[name])
    if bool(row) != bool(stage.STAGE.rows):
        detail = "is missing" if stage.STAGE.rows else f"the stage {name} has no rows"
        raise typer.BadParameter(detail, param_hint="'--row'")
    with context(corpus, row=row) as ctx, temporary_files(ctx.settings.home):
        if use := stage.STAGE.use:
            sources = approvals.sources_of(corpus, params=ctx.params, root=ctx.root)
            approvals.require(use, sources, today=now().date())
        _require_inputs(stage.STAGE.reads, name=name, corpus=corpus)
        done = stage.run(ctx)
        emit({key: value for key, value in done.items() if len(json.dumps(value)) <= LONG})


def _require_inputs(reads: Sequence[str], *, name: str, corpus: str) -> None:
    """Refuse a stage where what pointers name below its inputs is not there whole.

    With ``--single-item``, DVC runs a stage on a folder that has pointers only: its tables would be empty.
    """
    from pipelines.workspace.inventory import unfinished

    folders = [Path(top, corpus) for top in ("data", "annotations") if top in reads]
    if missing := [path for folder in folders for path in unfinished(folder)]:
        raise DataError("InputMissing", stage=name, corpus=corpus, count=len(missing), path=missing[0])


def summary(name: str) -> str:
    """Return the first line of a stage's module, which is not imported for it."""
    with Path(__file__).parents[2].joinpath(*STAGES[name].split(".")).with_suffix(".py").open() as file:
        return file.readline().strip().strip('"').replace("``", "`")


def _command(name: str) -> Any:
    def stage(corpus: CorpusName, row: RowName = "") -> None:
        run_stage(name, corpus, row=row)

    return stage


app = typer.Typer()
for _name in STAGES:
    app.command(_name, rich_help_panel=PANEL, help=summary(_name))(_command(_name))
