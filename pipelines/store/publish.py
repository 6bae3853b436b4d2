"""Commits to the corpus branch: a month's pointers, the replay of a snapshot's stages, or a round of annotation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipelines.errors import DataError
from pipelines.params import Settings
from pipelines.store.workspace import BRANCH, Workspace, git, workspace


class Overtaken(DataError):
    """Another run published a later result of a stage that this one would put back."""

    message = "Stage {stage} was published by another run since {base}."
    remedy = "Clear `pin` and what is below it: the run then works on what is there now; nothing was committed."
    exit_code = 65


def publish_partition(
    settings: Settings,
    *,
    corpus: str,
    month: str,
    pointers: Mapping[str, str],
    leave_out: Callable[[Workspace, str], int],
) -> dict[str, Any]:
    """Commit one month: exactly these pointers, each of them whole in the remote.

    Pointers of an earlier run of the month that are not among them go, so a month never mixes two runs.

    ``leave_out`` is told the clone and the month's folder there before the commit: it takes out who was taken down
    since the month was read, and returns the number of rows.

    Returns:
        ``commit`` (the head afterwards), ``changed`` (whether there was anything to commit) and ``left_out`` (rows).
    """
    folder = f"data/{corpus}/{month}"
    with workspace(settings) as clone:
        for stale in (clone.path / folder).rglob("*.dvc"):
            stale.unlink()
        clone.place(pointers, pull=False)
        rows = leave_out(clone, folder)
        clone.check_remote({name: (clone.path / f"{name}.dvc").read_text() for name in pointers})
        commit = clone.commit(f"data({corpus}): {month}", paths=["data", "dvc.lock"])
        return {**_result(commit, head=clone.head), "left_out": rows}


def publish_snapshot(
    settings: Settings,
    *,
    corpus: str,
    targets: Sequence[str],
    base: str,
    remember: Callable[[Path], None],
    below: Sequence[str] = (),
) -> dict[str, Any]:
    """Commit ``dvc.lock`` and the metrics of ``targets``, replayed from the run-cache without running anything.

    A month that was committed after ``base``, the commit that the stages worked on, supersedes this publish: it
    changes nothing, because that month's own event wakes a run over all of them. So does a later result of the stages
    ``below``, which another Dag publishes and this one builds on.

    Rounds are pulled every day, and champions change, and supersede nothing: the replay sees both as they were at
    ``base``; a new champion wakes a run of its own.

    ``remember`` is called with the clone's root before the commit: it enters what must hold from now on, and raises
    where it contradicts what holds already. A publish that ends between the two is repeated; if a month came in
    meanwhile, what was entered still holds, for the run over both.

    Returns:
        ``commit``, ``changed`` and ``superseded``.

    Raises:
        StepFailed: a stage is not in the run-cache.
        Overtaken: another run published a stage since ``base`` that this one would put back.
    """
    with workspace(settings) as clone:
        tip, before = clone.lock(), clone.lock(revision=base)
        later = any(tip.get(stage) != before.get(stage) for stage in below)
        superseded = later or clone.moved(since=base, path=f"data/{corpus}")
        if not superseded:
            for folder in (f"annotations/{corpus}", f"models/{corpus}"):
                if clone.moved(since=base, path=folder):
                    git("restore", f"--source={base}", "--worktree", "--", folder, cwd=clone.path)
            clone.repro(*targets, replay=True)
            _check_not_overtaken(clone, base=base)
            remember(clone.path)
        commit = clone.commit(f"snapshot({corpus}): {' '.join(targets)}", paths=["dvc.lock", "metrics"])
        return {**_result(commit, head=clone.head), "superseded": superseded}


def publish_round(
    clone: Workspace, *, corpus: str, name: str, event: str, written: Sequence[Path] = ()
) -> dict[str, Any]:
    """Commit a round's folder as it stands in ``clone``: the manifest in git, its tables as pointers.

    ``written`` are the tables that are new or changed, each of them whole in the remote before the commit; ``event``
    says in one word what happened (``opened``).

    Returns:
        ``commit`` (the head afterwards) and ``changed`` (whether there was anything to commit).

    Raises:
        CommitLost: another publisher moved the branch; do the work again in a new clone.
    """
    clone.check_remote(clone.add(written))
    commit = clone.commit(f"round({corpus}): {name} {event}", paths=[f"annotations/{corpus}/{name}"])
    return _result(commit, head=clone.head)


def publish_champions(settings: Settings, *, corpus: str, write: Callable[[Path], None]) -> dict[str, Any]:
    """Commit who is champion of the models that label a corpus: what ``write`` leaves in a clone's ``models/<corpus>``.

    Returns:
        ``commit`` (the head afterwards) and ``changed`` (whether there was anything to commit).
    """
    with workspace(settings) as clone:
        write(clone.path)
        return _result(clone.commit(f"champions({corpus})", paths=[f"models/{corpus}"]), head=clone.head)


def _check_not_overtaken(clone: Workspace, *, base: str) -> None:
    tip, before = clone.lock(), clone.lock(revision=base)
    for stage, result in yaml.safe_load((clone.path / "dvc.lock").read_text())["stages"].items():
        if result != tip.get(stage) != before.get(stage):
            raise Overtaken(stage=stage, base=base[:12])


def _result(commit: str | None, *, head: str) -> dict[str, Any]:
    return {"commit": commit or head, "changed": commit is not None}


def head(settings: Settings) -> str:
    """Return the commit at the tip of the corpus branch, wherever the repository is."""
    return git("ls-remote", "--exit-code", settings.repo, f"refs/heads/{BRANCH}").split()[0]
