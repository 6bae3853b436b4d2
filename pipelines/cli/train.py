"""Define the commands that train models and collect predictions."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.shared import CorpusName, emit, open_vault
from pipelines.config.params import Settings, load

app = typer.Typer()
ModelName = Annotated[str, typer.Option(help="a name in section models of params.yaml")]


@app.command(rich_help_panel="Train")
def remarks(corpus: CorpusName) -> None:
    """Generate rationales of memes for models of kind m3h; without such a model, nothing is requested."""
    from pipelines.label import rationales as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, params=load(), settings=settings, vault=vault))


@app.command(rich_help_panel="Train")
def train(
    corpus: CorpusName,
    model: ModelName,
    task: Annotated[str, typer.Option(help="figurative, severity or related")],
    seed: Annotated[int, typer.Option(help="the seed of weights, data order and dropout")] = 1,
) -> None:
    """Train one model for one task; a killed run resumes from its checkpoint."""
    from pipelines.train.classifiers import train as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(
            stage.run(corpus, task=task, model=model, seed=seed, params=load(), settings=settings, vault=vault)
            | {"history": None}
        )


@app.command(rich_help_panel="Train")
def prompted(corpus: CorpusName, model: ModelName) -> None:
    """Predict the test split with a prompted model, without training."""
    from pipelines.predict import prompted as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, model=model, params=load(), settings=settings, vault=vault))


SubsetName = Annotated[str, typer.Option(help="unanimous, consensus or gold")]


@app.command(rich_help_panel="Train")
def finetune(corpus: CorpusName, subset: SubsetName, model: ModelName) -> None:
    """Fine-tune one model on one subset of the labels; a killed run resumes from its checkpoint."""
    from pipelines.train import finetune as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        done = stage.run(corpus, subset=subset, model=model, params=load(), settings=settings, vault=vault)
        emit(done | {"fit": {**done["fit"], "history": None}})


@app.command(rich_help_panel="Train")
def predict(
    corpus: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|CORPUS", help="a registered model, such as crisis-posts@champion; or memes or posts"
        ),
    ],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="one JSON line per post or meme; default: stdin")
    ] = None,
    *,
    subset: Annotated[str | None, typer.Option(help="stage: unanimous, consensus or gold")] = None,
    model: Annotated[str | None, typer.Option(help="stage: a name in section models of params.yaml")] = None,
) -> None:
    """Predict JSON lines with a registered model; or, as a stage, dev and test with a fine-tuned model."""
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
    """Collect predictions of an untuned baseline on dev and test."""
    from pipelines.predict import baselines as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, model=model, params=load(), settings=settings, vault=vault))
