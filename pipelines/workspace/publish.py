"""Commit to the corpus branch: a month's pointers, the results of a snapshot's stages, or an annotation round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pipelines.core.config.settings import Settings
from pipelines.core.errors import DataError
from pipelines.workspace.clone import BRANCH, Workspace, history, require_corpus, workspace
from pipelines.workspace.git import git
from pipelines.workspace.inventory import check_handed_over
from pipelines.workspace.results import StageResult, Token
from pipelines.workspace.stages import StageRun, dependencies, in_graph_order, objects_of


def publish_partition(
    settings: Settings,
    *,
    corpus: str,
    month: str,
    pointers: Mapping[str, str],
    leave_out: Callable[[Workspace, str], int],
    keep_below: int = 0,
    run: str | None = None,
) -> dict[str, Any]:
    """Commit exactly these DVC pointers of one month, after checking that the DVC remote contains their objects.

    Pointers of an earlier run of the month that are not among them are removed, so a month never mixes two runs; an
    addition to a month keeps its published shards, whose numbers are below ``keep_below``. ``leave_out`` is called with
    the clone and the month's folder before the commit: it removes records that were taken down since the month was
    read, and returns the number of rows (``left_out``).
    """
    folder = f"data/{corpus}/{month}"
    with workspace(settings) as clone:
        for stale in (clone.path / folder).rglob("*.dvc"):
            number = stale.name.partition(".")[0]
            if not (number.isdigit() and int(number) < keep_below):
                stale.unlink()
        clone.place(check_handed_over(pointers, below=folder))
        rows = leave_out(clone, folder)
        clone.check_remote({name: (clone.path / f"{name}.dvc").read_text() for name in pointers})
        commit = clone.commit(f"{_month_of(corpus)}{month}", paths=["data", "dvc.lock"], trailers=_of_run(run))
        return {**_result(commit, head=clone.head), "left_out": rows}


def publish_snapshot(
    settings: Settings,
    *,
    corpus: str,
    targets: Sequence[str],
    run: str,
    base: str,
    tokens: Sequence[Token],
    remember: Callable[[Workspace], None],
    below: Sequence[str] = (),
) -> dict[str, Any]:
    """Commit the results of the DVC stages of a Dag run: their entries in ``dvc.lock`` and their metrics.

    The entries are merged by stage into the newest commit of the corpus branch. A month that was committed after
    ``base``, the commit that the stages worked on, supersedes this publish: nothing is committed, because that month's
    event starts a run over all months. A later result of a stage in ``below``, which another Dag publishes and this run
    builds on, supersedes this publish, too.

    Rounds that are pulled and champions that change do not supersede: the check of dependencies uses both in their
    state at ``base``, and a new champion starts its own run.

    ``remember`` is called with the clone before the commit: it stores permanent assignments and raises if they
    contradict stored ones. A publish that is killed between the two is repeated; if a month was committed meanwhile,
    the stored assignments stay valid for the run over both. ``differing`` counts the stages whose result differs from
    the one stored first for the same inputs.
    """
    with workspace(settings) as clone:
        tip, before = clone.lock(), clone.lock(revision=base)
        later = any(tip.get(stage) != before.get(stage) for stage in below)
        superseded = later or clone.moved(since=base, path=f"data/{corpus}")
        if not superseded:
            results = StageRun(clone, run, base).receive(tokens)
            _check_mergeable(results, tip=tip, before=before, base=base)
            for folder in (f"annotations/{corpus}", f"models/{corpus}"):
                if clone.moved(since=base, path=folder):
                    git("restore", f"--source={base}", "--worktree", "--", folder, cwd=clone.path)
            clone.take(results)
            _check_dependencies(clone, results, base=base)
            entries = {result.stage: result.entry for result in results}
            clone.objects.require_whole(objects_of(entries.values()))
            clone.write_lock(in_graph_order(tip | entries))
            remember(clone)
        message = f"snapshot({corpus}): {' '.join(targets)}"
        commit = clone.commit(message, paths=["dvc.lock", "metrics"], trailers=_of_run(run))
        differing = sum(bool(token.get("differs")) for token in tokens)
        return {**_result(commit, head=clone.head), "superseded": superseded, "differing": differing}


def publish_round(
    clone: Workspace, *, corpus: str, name: str, event: str, written: Sequence[Path] = ()
) -> dict[str, Any]:
    """Commit the folder of an annotation round from ``clone``: the manifest in git, its tables as DVC pointers.

    ``written`` are the new or changed tables, which are pushed and checked on the remote before the commit; ``event``
    is one word for the commit message, such as ``opened``.
    """
    clone.check_remote(clone.add(written))
    commit = clone.commit(f"round({corpus}): {name} {event}", paths=[f"annotations/{corpus}/{name}"])
    return _result(commit, head=clone.head)


def publish_champions(settings: Settings, *, corpus: str, write: Callable[[Path], None]) -> dict[str, Any]:
    """Commit the files in ``models/<corpus>`` that name the champions, which ``write`` writes to the clone's folder."""
    with workspace(settings) as clone:
        write(clone.path)
        return _result(clone.commit(f"champions({corpus})", paths=[f"models/{corpus}"]), head=clone.head)


def _check_mergeable(
    results: Sequence[StageResult], *, tip: Mapping[str, Any], before: Mapping[str, Any], base: str
) -> None:
    for result in results:
        now = tip.get(result.stage)
        if now != before.get(result.stage) and now != result.entry:
            raise DataError("Overtaken", stage=result.stage, base=base[:12])


def _check_dependencies(clone: Workspace, results: Sequence[StageResult], *, base: str) -> None:
    """Raise if a result's dependencies differ from those in the merged commit."""
    inventory = clone.inventory()
    digest = cache(inventory.digest)
    for result in results:
        if any(digest(path) != md5 for path, md5 in dependencies(result.entry).items()):
            raise DataError("Overtaken", stage=result.stage, base=base[:12])


def _month_of(corpus: str) -> str:
    return f"data({corpus}): "


def _of_run(run: str | None) -> list[str]:
    return [f"Dag-Run: {run}"] if run and run.isprintable() else []


def _result(commit: str | None, *, head: str) -> dict[str, Any]:
    return {"commit": commit or head, "changed": commit is not None}


def later_month(settings: Settings, *, corpus: str, commits: Collection[str]) -> bool:
    """Return whether a month of the corpus was committed after all of these commits of the corpus branch.

    The task that commits a month triggers a run over all months, so that the runs of ``commits`` need not work. Other
    commits, such as an import's or a takedown's, trigger none and do not count; nor do any after a commit that the
    branch no longer has.
    """
    require_corpus(settings)
    later = False
    with history(settings) as repo:
        for line in git("--git-dir", str(repo), "log", "--format=%H %s", BRANCH).splitlines():
            commit, _, subject = line.partition(" ")
            if commit in commits:
                return later
            later = later or subject.startswith(_month_of(corpus))
    return False


def head(settings: Settings) -> str:
    """Return the newest commit of the corpus branch of a local or remote repository."""
    require_corpus(settings)
    return git("ls-remote", "--exit-code", settings.repo, f"refs/heads/{BRANCH}").split()[0]
