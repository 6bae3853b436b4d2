"""The stages that fit models, or ask those that are not fitted."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.shared import CorpusName, emit, open_vault
from pipelines.config.params import load
from pipelines.config.settings import Settings

app = typer.Typer()
ModelName = Annotated[str, typer.Option(help="a name of the section models")]


@app.command(rich_help_panel="Train")
def rationales(corpus: CorpusName) -> None:
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
    model: Annotated[str, typer.Argument(metavar="MODEL", help="such as crisis-posts@champion")],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="one JSON line for each post or meme; else stdin")
    ] = None,
) -> None:
    """Predict the labels of posts or memes, one JSON line each, with a registered model."""
    from pipelines.predict import predict as client

    with file.open() if file else nullcontext(sys.stdin) as lines:
        client.run(model, lines=lines, out=sys.stdout, folder=file.parent if file else Path())


@app.command("predict_finetuned", rich_help_panel="Train")
def predict_finetuned(corpus: CorpusName, subset: SubsetName, model: ModelName) -> None:
    """Predict dev and test with a fine-tuned model."""
    from pipelines.predict import predict_finetuned as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, subset=subset, model=model, params=load(), settings=settings, vault=vault))


@app.command(rich_help_panel="Train")
def baselines(corpus: CorpusName, model: ModelName) -> None:
    """Gather what a model says of dev and test that is taken as it is: asked now, before, or elsewhere."""
    from pipelines.predict import baselines as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, model=model, params=load(), settings=settings, vault=vault))
