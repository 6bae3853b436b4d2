"""Freeze what the code gives, or compare this checkout with it (``make golden``, ``make golden-all``).

    python tests/golden/golden.py compare [PROFILE ...]
    python tests/golden/golden.py freeze [PROFILE ...]

Profiles: ``surface`` (commands, Dags), ``small`` (two months of both corpora and every stage once, in minutes),
``demo`` (what ``make demo`` computes), ``figsim`` and ``cradle`` (the papers' profiles with tiny weights). Default:
``surface`` and ``small``; ``all`` is all of them. ``compare`` prints a line for each difference, by stage, and exits 1
if there is one. The bits of trained weights depend on the processor: freeze and compare on one kind of host.

With GOLDEN_VERBOSE each command is named with its seconds; with GOLDEN_KEEP the folder of the run is left. What is
imported of the product, to unseal tables, list commands and run the papers, is in this file, in one place.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT)]
if "tests" not in sys.modules:
    # a library of ours installs a package of that name
    sys.modules["tests"] = types.ModuleType("tests")
    sys.modules["tests"].__path__ = [str(ROOT / "tests")]

from tests.golden import frozen, world  # noqa: E402

FILES = Path(__file__).resolve().parent / "expected"
PROFILES = ("surface", "small", "demo", "figsim", "cradle")
# Run by Airflow's own parser, in a process of its own.
DAGS = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
print(json.dumps({dag_id: {task.task_id: " ".join(sorted(task.upstream_task_ids)) for task in dag.tasks}
                  for dag_id, dag in bag.dags.items()}))
"""


# --- all that is imported of the product ------------------------------------------------------------------------------
def unsealer() -> Callable[[pa.Table], pa.Table]:
    """Return a function that decrypts the content of a table under the vault of the environment's home."""
    from pipelines.core.config.settings import Settings
    from pipelines.store import seal, tables
    from pipelines.store.vault.vault import Vault

    vault = Vault.existing(Settings.from_env())

    def unseal(table: pa.Table) -> pa.Table:
        sealed = [field.name for field in table.schema if b"sealed" in (field.metadata or {})]
        if sealed:
            name = next(name for name, schema in tables.SCHEMAS.items() if schema.names == table.schema.names)
            for column, values in zip(
                sealed, seal.open_columns(table, name=name, columns=sealed, vault=vault), strict=True
            ):
                field = table.schema.field(column)
                table = table.set_column(table.column_names.index(column), field, pa.array(values, field.type))
        return table

    return unseal


def command_tree() -> Any:
    """Return the root of all commands, as click has it."""
    from typer.main import get_command

    from pipelines.cli.main import app

    return get_command(app)


@contextmanager
def paper(name: str, home: Path) -> Iterator[Path]:
    """Yield a clone with all stages of a paper's profile with tiny weights, and the environment of its vault."""
    from pipelines.workspace.clone import workspace
    from tests.profiles import small_profile
    from tests.stages import run_commands

    with small_profile.made(home, paper=name) as profile, workspace(profile.settings) as clone:
        run_commands(f"report@{profile.corpus}", clone=clone)
        yield clone.path


# ----------------------------------------------------------------------------------------------------------------------
def commands(command: Any, path: str = "corpus") -> Iterator[tuple[str, str]]:
    """Yield every command with its arguments and options."""
    yield path, " ".join(sorted("/".join(param.opts) for param in command.params))
    names = command.list_commands(None) if hasattr(command, "list_commands") else ()
    for name in sorted(names):  # those of other distributions, too, are in no attribute
        yield from commands(command.get_command(None, name), f"{path} {name}")


def surface(home: Path) -> frozen.Frozen:
    """Return the commands with their options, and the Dags with their tasks."""
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "CORPUS_HOME": str(home / "var"),
        "CORPUS_PROFILE": "sandbox",
    }
    argv = [sys.executable, "-c", DAGS, str(ROOT / "dags")]
    done = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    dags = json.loads(done.stdout.strip().rpartition("\n")[2])
    return {"commands": {"corpus": dict(commands(command_tree()))}, "Dags": dags}


def outs_of(root: Path) -> dict[str, list[str]]:
    """Return the outs of each stage of the ``dvc.yaml`` of a clone, and of each month and round of annotation."""
    from dvc.repo import Repo

    found: dict[str, list[str]] = {}
    with Repo(str(root)) as repo:
        for stage in repo.index.stages:
            for path in (Path(out.fs_path).relative_to(root).as_posix() for out in stage.outs):
                owner = getattr(stage, "name", None) or " ".join(Path(path).parts[:3])
                found.setdefault(owner, []).append(path)
    return found


def sandbox_corpus(home: Path, values: Mapping[str, Any] | None = None) -> frozen.Frozen:
    """Make both corpora of the sandbox's profile, under these further values, and return what came out."""
    profile = world.overlay(world.read(ROOT / "profiles" / "sandbox.yaml"), values or {})
    corpora = world.World(world.check_out(ROOT, home / "checkout", profile=profile), home / "var")
    with corpora.serving():
        corpora.make()
        root = corpora.clone()
        os.environ.update(corpora.environment)
        found = frozen.freeze(root, outs_of(root), unseal=unsealer())
        found["stages"] = {"dvc.yaml": dict.fromkeys(corpora.stages, "")}
        found["registry"] = {name: frozen.values_of(journal) for name, journal in corpora.journal().items()}
    return found


def paper_corpus(home: Path, *, name: str) -> frozen.Frozen:
    """Run a paper's profile with tiny weights from its published files to its report, and return what came out."""
    with redirect_stdout(sys.stderr), paper(name, home) as root:
        outs = outs_of(root)
        found = frozen.freeze(root, outs, unseal=unsealer())
        return found | {"stages": {"dvc.yaml": dict.fromkeys((stage for stage in outs if "@" in stage), "")}}


def made(profile: str) -> frozen.Frozen:
    """Return what the code of this checkout gives under a profile."""
    home = Path(tempfile.mkdtemp(prefix=f"golden-{profile}-"))
    began, before = time.monotonic(), dict(os.environ)
    try:
        match profile:
            case "surface":
                found = surface(home)
            case "small":
                found = sandbox_corpus(home, world.read(Path(__file__).parent / "small.yaml"))
            case "demo":
                found = sandbox_corpus(home, {"round": {"backend": "files", "daily_cap": 1000}})
            case _:
                found = paper_corpus(home, name=profile)
    finally:
        os.environ.clear()
        os.environ.update(before)
        if not os.environ.get("GOLDEN_KEEP"):
            shutil.rmtree(home, ignore_errors=True)
    sys.stderr.write(f"{profile}: {time.monotonic() - began:.0f} s\n")
    return found


def main() -> int:
    """Freeze or compare; return 1 if anything differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", choices=("freeze", "compare"))
    parser.add_argument("profiles", nargs="*", metavar="PROFILE", help=f"{', '.join(PROFILES)}, all")
    given = parser.parse_args()
    chosen = PROFILES if "all" in given.profiles else given.profiles or PROFILES[:2]
    if unknown := set(chosen) - set(PROFILES):
        parser.error(f"unknown profiles: {', '.join(sorted(unknown))}")
    # sums in another order have other last bits
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the servers end, too
    differs = 0
    for profile in chosen:
        if given.action == "compare" and not (FILES / f"{profile}.xz").exists():
            sys.stdout.write(f"{profile} was never frozen\n")
            differs = 1
            continue
        found = made(profile)
        if given.action == "freeze":
            frozen.save(found, FILES / profile)
            continue
        for line in frozen.differences(frozen.load(FILES / profile), found):
            differs = 1
            sys.stdout.write(f"{profile} {line}\n")
    return differs


if __name__ == "__main__":
    status = 1
    try:
        status = main()
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # after a failure, threads of the papers' server would keep the process
