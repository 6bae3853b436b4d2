"""Run stages in a clone as tasks do, and ask DVC whether it would run any again."""

from __future__ import annotations

import contextlib
import os

import networkx as nx
import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.workspace.clone import Workspace
from pipelines.workspace.results import Token
from pipelines.workspace.scratch import step_environment
from pipelines.workspace.stages import Definition, StageRun, in_graph_order


def reproduce(clone: Workspace, *targets: str, run: str = "a run") -> list[Token]:
    """Run target stages, or all, and those above them; write the lock, place the outs, return the tokens."""
    names = clone.graph.names()
    defined = Definition.resolve_all(clone.repo, names)
    context = StageRun(clone, run, clone.head)
    tokens: list[Token] = []
    entries = {}
    for name in _closure(defined, targets or names):
        tokens.append(context.reproduce(name))
        [result] = context.receive(tokens[-1:])
        clone.take([result])
        entries[name] = result.entry
    clone.write_lock(in_graph_order(clone.lock() | entries))
    clone.checkout(*(out for name in entries for out in defined[name].outs))
    return tokens


def run_commands(target: str, *, clone: Workspace) -> tuple[str, ...]:
    """Run the commands of a stage and of all above it, as DVC resolves them, with DVC's own conditions.

    A process for each, as `dvc repro` has it, would import the libraries once for each stage.
    """
    done = []
    corpus = target.partition("@")[2]
    clone.checkout(f"data/{corpus}", f"annotations/{corpus}")
    with contextlib.chdir(clone.path):
        last = next(stage for stage in clone.repo.index.stages if getattr(stage, "name", None) == target)
        for stage in nx.dfs_postorder_nodes(clone.repo.index.graph, last):
            if stage.cmd is None:
                continue
            assert [dep.def_path for dep in stage.deps if not dep.exists] == [], f"{stage.name} would not start"
            start, argv = stage.cmd.split()[:3], stage.cmd.split()[3:]
            assert start == ["python", "-m", "pipelines"]
            assert CliRunner().invoke(app, argv, catch_exceptions=False).exit_code == 0, stage.name
            assert [out.def_path for out in stage.outs if not out.exists] == [], f"{stage.name} left not all"
            done.append(stage.name)
    return tuple(done)


def rerun(clone: Workspace, *targets: str) -> list[str]:
    """Return the stages that ``dvc repro`` runs in a clone, beside what it finds unchanged."""
    from dvc.repo import Repo

    with pytest.MonkeyPatch.context() as patch:
        for name, value in step_environment(clone.settings).items():
            patch.setenv(name, value)
        patch.chdir(clone.path)
        with Repo(str(clone.path)) as repo:
            return [stage.addressing for stage in repo.reproduce(targets=list(targets) or None, pull=True)]


def _closure(defined: dict[str, Definition], targets: list[str] | tuple[str, ...]) -> list[str]:
    lock = {
        name: {"deps": [{"path": path} for path in one.deps], "outs": [{"path": path} for path in one.outs]}
        for name, one in defined.items()
    }
    needed: set[str] = set()
    for name in reversed(in_graph_order(lock)):
        feeds = any(_touch(out, dep) for out in defined[name].outs for other in needed for dep in defined[other].deps)
        if name in targets or feeds:
            needed.add(name)
    return [name for name in in_graph_order(lock) if name in needed]


def _touch(one: str, other: str) -> bool:
    return os.path.commonpath([one, other]) in {one, other}
