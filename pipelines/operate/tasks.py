"""Run steps and stages in temporary clones, and commit their results: what tasks of Airflow and `corpus run` do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.core import rows
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.process import now
from pipelines.core.telemetry import outcome
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.inventory import check_handed_over, hand_over, received
from pipelines.workspace.results import Token
from pipelines.workspace.stages import StageRun

# What a command that asks about records reads of other stages.
READ_TO_ASK = ("split", "gold", "few_shot")


def step(argv: Sequence[str], *, settings: Settings, out: Sequence[str], pointers: Mapping[str, str]) -> dict[str, Any]:
    """Run a command of corpus in a temporary clone; return its ``result``, and ``pointers`` to the files of ``out``."""
    secret = settings.secret()
    with workspace(settings) as clone:
        handed_over = check_handed_over(received(pointers, secret=secret))
        clone.place(handed_over)
        clone.checkout(*handed_over)
        with outcome(argv[0]):
            result = json.loads(clone.step(*argv))
        written = [path for pattern in out for path in clone.path.glob(pattern) if path.is_file()]
        return {"result": result, "pointers": hand_over(clone.add(written), secret=secret)}


@contextmanager
def stage_run(
    settings: Settings, *, base: str, run: str, results: Sequence[Token]
) -> Iterator[tuple[Workspace, StageRun]]:
    """Yield a clone at a commit with the results of a run's upstream stages, and the run."""
    with workspace(settings, revision=base) as clone:
        # before DVC fills values of both files into command lines and paths
        load(clone.path)
        rows.check(clone.path)
        context = StageRun(clone, run, base)
        clone.take(context.receive(results))
        yield clone, context


def reproduce(stage: str, *, context: StageRun) -> Token:
    """Run a stage, unless its result exists, and count the outcome."""
    with outcome(stage):
        return context.reproduce(stage)


def ask(
    corpus: str, argv: Sequence[str], *, settings: Settings, base: str, run: str, results: Sequence[Token]
) -> dict[str, Any]:
    """Run a command that asks about the records of a corpus, or plans this; return what it prints."""
    with stage_run(settings, base=base, run=run, results=results) as (clone, _):
        clone.checkout(f"data/{corpus}", *(f"snapshot/{corpus}/{name}" for name in READ_TO_ASK))
        done: dict[str, Any] = json.loads(clone.step(*argv))
        return done


def publish_month(
    corpus: str, month: str, *, settings: Settings, pointers: Mapping[str, str], run: str | None
) -> dict[str, Any]:
    """Commit the .dvc files of one month's data to the corpus branch, and close the month."""
    from pipelines.collect.month import Window, addition
    from pipelines.collect.month_ledger import GAPS, close_month
    from pipelines.takedown.redaction import Gone
    from pipelines.takedown.rewrite import left_out
    from pipelines.workspace import publish

    written = received(pointers, secret=settings.secret())
    options: dict[str, Any] = {"corpus": corpus, "month": month, "pointers": written, "keep_below": addition(written)}
    # rows of records that are taken down later are found in the pushed objects and replaced by that takedown
    with Vault.existing(settings) as vault:
        gone = Gone(vault.tombstones())
    done = publish.publish_partition(settings, **options, run=run, leave_out=partial(left_out, gone=gone))
    recorded = f"data/{corpus}/{month}/{GAPS}" in written
    window, commit = Window.from_key(month), done["commit"]
    return done | (close_month(corpus, window, settings=settings, revision=commit, now=now()) if recorded else {})


def publish_stages(
    corpus: str,
    targets: Sequence[str],
    *,
    settings: Settings,
    base: str,
    run: str,
    results: Sequence[Token],
    below: Sequence[str] = (),
) -> dict[str, Any]:
    """Commit the results of a run's stages, and remember the split permanently."""
    from pipelines.curate import split
    from pipelines.workspace import publish

    def remember(clone: Workspace) -> None:
        if f"split@{corpus}" not in {token["stage"] for token in results}:
            return
        clone.checkout(f"snapshot/{corpus}/split")
        with Vault.existing(settings) as vault:
            split.remember(corpus, params=load(clone.path), vault=vault, now=now(), root=clone.path)

    options: dict[str, Any] = {"corpus": corpus, "targets": targets, "run": run, "base": base, "tokens": results}
    return publish.publish_snapshot(settings, **options, remember=remember, below=below)


def publish_champions(corpus: str, *, settings: Settings) -> dict[str, Any]:
    """Commit the version numbers of the champions that label a corpus; ``champions`` are the names of the models."""
    from pipelines.registry import batch_predict
    from pipelines.registry.journal import Journal
    from pipelines.registry.versions import Registry
    from pipelines.workspace import publish

    pinned: list[str] = []

    def write(root: Path) -> None:
        with Journal.of(settings) as journal:
            options: dict[str, Any] = {"params": load(root), "registry": Registry.open(settings), "journal": journal}
            pinned.extend(pin.model for pin in batch_predict.champions(corpus, root=root, **options))

    return publish.publish_champions(settings, corpus=corpus, write=write) | {"champions": pinned}
