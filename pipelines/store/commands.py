"""``corpus task``: what an Airflow task runs, a step or a stage in a clone of its own, or a publish."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.console import CorpusName, Month, emit, now, open_vault
from pipelines.params import Settings, load

app = typer.Typer(no_args_is_help=True, help="What an Airflow task runs: a step or a stage in a clone of its own.")


Base = Annotated[str, typer.Option(help="the commit to work on")]
Pointers = Annotated[str, typer.Option(help="JSON: data file -> text of its .dvc file")]


@app.command("step", context_settings={"ignore_unknown_options": True})
def step(argv: list[str], pointers: Pointers = "{}", out: Annotated[list[str] | None, typer.Option()] = None) -> None:
    """Run a step in a clone of its own; hand over pointers to what it wrote under the --out globs."""
    from pipelines.store.workspace import workspace

    with workspace(Settings.from_env()) as clone:
        clone.place(json.loads(pointers))
        result = json.loads(clone.step(*argv))
        written = [path for pattern in out or [] for path in clone.path.glob(pattern) if path.is_file()]
        emit({"result": result, "pointers": clone.add(written)})


@app.command("pin")
def pin() -> None:
    """Answer the tip of the corpus branch: all stages of one run work on the same commit."""
    from pipelines.store.publish import head

    emit({"commit": head(Settings.from_env())})


@app.command("stage")
def stage(stage: str, base: Base) -> None:
    """Reproduce one stage of dvc.yaml in a clone of its own and push its result."""
    from pipelines.store.workspace import workspace

    with workspace(Settings.from_env(), revision=base) as clone:
        clone.repro(stage)
        emit({"stage": stage, "base": clone.head})


@app.command("ask")
def ask(corpus: CorpusName, labeller: str, shard: int, base: Base, wait: bool = True) -> None:
    """Ask one labeller about one shard of the records that a commit's split holds."""
    from pipelines.store.workspace import workspace

    with workspace(Settings.from_env(), revision=base) as clone:
        clone.repro(f"gold@{corpus}")
        how = "--wait" if wait else "--no-wait"
        emit(json.loads(clone.step("ask", corpus, "--labeller", labeller, "--shard", str(shard), how)))


@app.command("estimate")
def estimate(corpus: CorpusName, base: Base) -> None:
    """Say what labelling a commit's records would cost, and name the jobs."""
    from pipelines.store.workspace import workspace

    with workspace(Settings.from_env(), revision=base) as clone:
        clone.repro(f"gold@{corpus}")
        emit(json.loads(clone.step("estimate", corpus)))


@app.command("agreement")
def agreement(corpus: CorpusName, name: str, base: Base) -> None:
    """Work out the agreement of a commit's rounds; say how one of them came out."""
    from pipelines.annotate.agreement_report import summary
    from pipelines.store.workspace import workspace

    with workspace(Settings.from_env(), revision=base) as clone:
        clone.repro(f"agreement@{corpus}")
        emit({"base": clone.head, "text": summary(clone.path, corpus, name=name)})


@app.command("publish-partition")
def publish_partition(corpus: CorpusName, month: Month, pointers: Pointers) -> None:
    """Commit a month's pointers."""
    from pipelines.privacy.gone import Gone
    from pipelines.privacy.rewrite import left_out
    from pipelines.store import publish

    settings = Settings.from_env()
    given: dict[str, Any] = {"corpus": corpus, "month": month, "pointers": json.loads(pointers)}
    # whoever is taken down after this look: their rows are found in what was pushed for the month, and are replaced
    with open_vault(settings) as vault:
        gone = Gone(vault.tombstones())
    emit(publish.publish_partition(settings, **given, leave_out=partial(left_out, gone=gone)))


@app.command("champions")
def champions(corpus: CorpusName) -> None:
    """Commit which champions label a corpus."""
    from pipelines.registry import scoring
    from pipelines.registry.journal import Journal
    from pipelines.registry.versions import Registry
    from pipelines.store import publish

    settings = Settings.from_env()
    pinned: list[str] = []

    def write(root: Path) -> None:
        with Journal.open(settings.journal_url) as journal:
            given: dict[str, Any] = {"params": load(root), "registry": Registry.open(settings), "journal": journal}
            pinned.extend(pin.model for pin in scoring.champions(corpus, root=root, **given))

    emit(publish.publish_champions(settings, corpus=corpus, write=write) | {"champions": pinned})


@app.command("publish-snapshot")
def publish_snapshot(
    corpus: CorpusName,
    targets: list[str],
    base: Base,
    below: Annotated[list[str] | None, typer.Option(help="stages of another Dag that these build on")] = None,
) -> None:
    """Commit dvc.lock, replayed from the run-cache."""
    from pipelines.curate import split
    from pipelines.store import publish

    def remember(root: Path) -> None:
        # what is not built on the split replays none
        if not (root / "snapshot" / corpus / "split").exists():
            return
        with open_vault(settings) as vault:
            split.remember(corpus, params=load(root), vault=vault, now=now(), root=root)

    settings = Settings.from_env()
    emit(
        publish.publish_snapshot(
            settings, corpus=corpus, targets=targets, base=base, remember=remember, below=below or ()
        )
    )
