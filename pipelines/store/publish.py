"""Commits to the corpus branch: a month's pointers, or the replay of a snapshot's stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.params import Settings
from pipelines.store.workspace import BRANCH, git, workspace


def publish_partition(settings: Settings, *, corpus: str, month: str, pointers: Mapping[str, str]) -> dict[str, Any]:
    """Commit one month: exactly these pointers, each of them whole in the remote.

    Pointers of an earlier run of the month that are not among them go, so a month never mixes two runs.

    Returns:
        ``commit`` (the head afterwards) and ``changed`` (whether there was anything to commit).
    """
    folder = Path("data") / corpus / month
    with workspace(settings) as clone:
        clone.check_remote(pointers)
        for stale in (clone.path / folder).rglob("*.dvc"):
            stale.unlink()
        clone.place(pointers, pull=False)
        return _result(clone.commit(f"data({corpus}): {month}", paths=["data"]), head=clone.head)


def publish_snapshot(
    settings: Settings,
    *,
    corpus: str,
    targets: Sequence[str],
    base: str,
    remember: Callable[[Path], None],
    below: str | None = None,
) -> dict[str, Any]:
    """Commit ``dvc.lock`` and the metrics of ``targets``, replayed from the run-cache without running anything.

    A month that was committed after ``base``, the commit that the stages worked on, supersedes this publish: it
    changes nothing, because that month's own event wakes a run over all of them. So does a later result of the stage
    ``below``, which another Dag publishes and this one builds on.

    ``remember`` is called with the clone's root before the commit: it enters what must hold from now on, and raises
    where it contradicts what holds already. A publish that ends between the two is repeated; if a month came in
    meanwhile, what was entered still holds, for the run over both.

    Returns:
        ``commit``, ``changed`` and ``superseded``.

    Raises:
        StepFailed: a stage is not in the run-cache.
    """
    with workspace(settings) as clone:
        superseded = clone.moved(since=base, path=f"data/{corpus}") or (
            below is not None and clone.locked(below) != clone.locked(below, revision=base)
        )
        if not superseded:
            clone.repro(*targets, replay=True)
            remember(clone.path)
        commit = clone.commit(f"snapshot({corpus}): {' '.join(targets)}", paths=["dvc.lock", "metrics"])
        return {**_result(commit, head=clone.head), "superseded": superseded}


def _result(commit: str | None, *, head: str) -> dict[str, Any]:
    return {"commit": commit or head, "changed": commit is not None}


def head(settings: Settings) -> str:
    """Return the commit at the tip of the corpus branch, wherever the repository is."""
    return git("ls-remote", "--exit-code", settings.repo, f"refs/heads/{BRANCH}").split()[0]
