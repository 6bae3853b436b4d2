"""Define the commands that train models and collect predictions."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipelines.cli.shared import STAGES, CorpusName, emit, named, open_vault, require_mlflow, run_stage, suggested
from pipelines.config.params import load
from pipelines.config.settings import Settings

app = typer.Typer()
ModelName = Annotated[
    str,
    typer.Option(
        help="the model: a name in section models of catalogue.yaml",
        callback=named("model", "models"),
        autocompletion=suggested("models"),
    ),
]
TaskName = Annotated[
    Literal["figurative", "severity", "related"], typer.Option(help="the label category that the model predicts")
]
SubsetName = Annotated[
    Literal["unanimous", "consensus", "gold"],
    typer.Option(
        help="training labels: unanimous or consensus (silver labels on which all or most labellers agree), or gold"
    ),
]


@app.command(rich_help_panel=STAGES)
def rationales(corpus: CorpusName) -> None:
    """Request short explanations of memes from a labeller; models of kinds m3h and infused read them."""
    from pipelines.label.memes import rationales as stage

    run_stage(stage.run, corpus)


@app.command(rich_help_panel=STAGES)
def train(
    corpus: CorpusName,
    model: ModelName,
    task: TaskName,
    seed: Annotated[int, typer.Option(help="the random seed of initial weights, data order and dropout")] = 1,
) -> None:
    """Train a model to predict one label category (its task); a killed run resumes from its checkpoint."""
    from pipelines.train.classifiers import train as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(
            stage.run(corpus, task=task, model=model, seed=seed, params=load(), settings=settings, vault=vault)
            | {"history": None}
        )


@app.command(rich_help_panel=STAGES)
def prompted(corpus: CorpusName, model: ModelName) -> None:
    """Predict the labels of the test split by prompting a language model, without training."""
    from pipelines.predict import prompted as stage

    run_stage(stage.run, corpus, model=model)


@app.command(rich_help_panel=STAGES)
def finetune(corpus: CorpusName, subset: SubsetName, model: ModelName) -> None:
    """Fine-tune one model on one subset of the training labels; a killed run resumes from its checkpoint."""
    from pipelines.train import finetune as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        done = stage.run(corpus, subset=subset, model=model, params=load(), settings=settings, vault=vault)
        emit(done | {"fit": {**done["fit"], "history": None}})


@app.command(rich_help_panel="Registry")
def predict(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="a registered model, such as crisis-posts@champion, or the folder of an MLflow model"
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            exists=True,
            dir_okay=False,
            help="a file of posts or memes, one JSON object per line; default: stdin",
        ),
    ] = None,
) -> None:
    """Predict the labels of posts or memes, one JSON line each, with a registered model."""
    from pipelines.predict import predict as client

    if not Path(model).is_dir():
        require_mlflow(Settings.from_env())
    with file.open() if file else nullcontext(sys.stdin) as lines:
        client.run(model, lines=lines, out=sys.stdout, folder=file.parent if file else Path())


@app.command("predict_finetuned", rich_help_panel=STAGES)
def predict_finetuned(corpus: CorpusName, subset: SubsetName, model: ModelName) -> None:
    """Predict the labels of the dev and test splits with a fine-tuned model."""
    from pipelines.predict import predict_finetuned as stage

    run_stage(stage.run, corpus, subset=subset, model=model)


@app.command(rich_help_panel=STAGES)
def repeats(
    corpus: CorpusName,
    subset: SubsetName,
    model: ModelName,
    seed: Annotated[int, typer.Option(help="the random seed; it must differ from finetune.seed in params.yaml")],
) -> None:
    """Fine-tune a model with another seed and predict, to measure the spread over seeds; keep only the predictions."""
    from pipelines.predict import repeats as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        done = stage.run(corpus, subset=subset, model=model, seed=seed, params=load(), settings=settings, vault=vault)
        emit(done | {"fit": {**done["fit"], "history": None}})


@app.command(rich_help_panel=STAGES)
def baselines(corpus: CorpusName, model: ModelName) -> None:
    """Predict the labels of the dev and test splits with a model that is not fine-tuned on this corpus."""
    from pipelines.predict import baselines as stage

    run_stage(stage.run, corpus, model=model)
