"""The stages that fit models, or ask those that are not fitted."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.shared import CorpusName, emit, open_vault
from pipelines.config.params import Settings, load

app = typer.Typer()
ModelName = Annotated[str, typer.Option(help="a name of the section models")]


@app.command(rich_help_panel="Train")
def remarks(corpus: CorpusName) -> None:
    """Ask what memes leave unsaid, for the models that read it (kind m3h); without such a model nobody is asked."""
    from pipelines.label import rationales as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, params=load(), settings=settings, vault=vault))


@app.command(rich_help_panel="Train")
def train(
    corpus: CorpusName,
    model: ModelName,
    task: Annotated[str, typer.Option(help="figurative, severity or related")],
    seed: Annotated[int, typer.Option(help="of the weights, the order and the dropout")] = 1,
) -> None:
    """Fit one model for one task; a run that was killed goes on from its checkpoint."""
    from pipelines.train.classifiers import train as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(
            stage.run(corpus, task=task, model=model, seed=seed, params=load(), settings=settings, vault=vault)
            | {"history": None}
        )


@app.command(rich_help_panel="Train")
def prompted(corpus: CorpusName, model: ModelName) -> None:
    """Ask a model about the test split instead of training one."""
    from pipelines.predict import prompted as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, model=model, params=load(), settings=settings, vault=vault))


SubsetName = Annotated[str, typer.Option(help="unanimous, consensus or gold")]


@app.command(rich_help_panel="Train")
def finetune(corpus: CorpusName, subset: SubsetName, model: ModelName) -> None:
    """Tune one model on one subset of the labels; a run that was killed goes on from its checkpoint."""
    from pipelines.train import finetune as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        done = stage.run(corpus, subset=subset, model=model, params=load(), settings=settings, vault=vault)
        emit(done | {"fit": {**done["fit"], "history": None}})


@app.command(rich_help_panel="Train")
def predict(
    corpus: Annotated[str, typer.Argument(metavar="MODEL|CORPUS", help="crisis-posts@champion; or memes or posts")],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="a JSON line a post or meme; else stdin")
    ] = None,
    *,
    subset: Annotated[str | None, typer.Option(help="unanimous, consensus or gold: the stage")] = None,
    model: Annotated[str | None, typer.Option(help="a name of the section models: the stage")] = None,
) -> None:
    """Ask a registered model about lines of JSON; or, as a stage, a tuned model about dev and test."""
    if subset is None or model is None:
        from pipelines.predict import predicting

        with file.open() if file else nullcontext(sys.stdin) as lines:
            predicting.run(corpus, lines=lines, out=sys.stdout, folder=file.parent if file else Path())
        return
    from pipelines.predict import predict as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, subset=subset, model=model, params=load(), settings=settings, vault=vault))


@app.command(rich_help_panel="Train")
def untuned(corpus: CorpusName, model: ModelName) -> None:
    """Gather what a model says of dev and test that is taken as it is: asked now, before, or elsewhere."""
    from pipelines.predict import baselines as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, model=model, params=load(), settings=settings, vault=vault))
