"""Make corpora by the commands of :mod:`tests.golden.world` in this process, which imports the libraries once."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crisis_corpus_sandbox.server import SandboxServer
from pipelines.cli.main import app
from pipelines.core.errors import CorpusError, StepFailed
from pipelines.workspace import trust
from pipelines.workspace.clone import Workspace
from pipelines.workspace.scratch import step_environment
from tests import mlflow_server
from tests.golden.world import CommandFailed, World

# What no command of a stage or step reads: a clone is made for each.
UNREAD = ("bench", "client", "dags", "docker", "docs", "plugins", "sandbox", "tests")


class Nearby(World):
    """A world whose commands, and the steps and stages that they start in clones, run here one after another."""

    def run(self, *argv: str, given: Any = None, refused: int = 0, cwd: Path | None = None) -> str:
        began = time.monotonic()
        text = None if given is None else json.dumps(given)
        with self._place(cwd or self.checkout, self.environment):
            done = CliRunner().invoke(app, argv, input=text)
        if os.environ.get("GOLDEN_VERBOSE"):
            sys.stderr.write(f"{time.monotonic() - began:6.1f} s {' '.join(argv[:6])}\n")
        error = done.exception
        if isinstance(error, CorpusError) and error.exit_code == refused:
            return done.stdout
        if error is not None and not (isinstance(error, SystemExit) and error.code in (0, refused)):
            detail = f"{type(error).__name__}: {error}: {done.stderr[-3000:]}"
            raise CommandFailed(f"`corpus {' '.join(argv)}` failed: {detail}") from error
        return done.stdout

    @contextlib.contextmanager
    def _place(self, folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
            for name in os.environ.keys() - environment.keys():
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(Workspace, "_run", self._inside)
            yield
        # the next command loads the code of a registered version from its own folder
        for module in [name for name in sys.modules if name.startswith("corpus_model_")]:
            del sys.modules[module]

    @staticmethod
    def _inside(clone: Workspace, argv: Any, *, name: str, stdout: Any) -> subprocess.CompletedProcess[str]:
        """Run a command in a clone, as a process of its own would."""
        trust.require_signed(clone.settings, clone.head, cwd=clone.path)
        began = time.monotonic()
        with pytest.MonkeyPatch.context() as patch, contextlib.chdir(clone.path):
            for variable, value in step_environment(clone.settings).items():
                patch.setenv(variable, value)
            done = CliRunner().invoke(app, list(argv))
        if os.environ.get("GOLDEN_VERBOSE"):
            os.write(2, f"         {time.monotonic() - began:6.1f} s {' '.join(argv)}\n".encode())
        if (error := done.exception) is not None:
            sys.stderr.write(f"{name}: {type(error).__name__}: {error}\n")
            if not isinstance(error, CorpusError):
                raise error
            raise StepFailed(command=name, returncode=error.exit_code, retry_after=None) from error
        return subprocess.CompletedProcess([*argv], 0, done.stdout)

    def _served(self) -> Iterator[None]:
        self.reddit()
        (self.home / "mlflow").mkdir()
        with (
            SandboxServer(self.home / "sandbox", port=self.port),
            mlflow_server.serving(self.home / "mlflow", files=self.home / "mlflow" / "files") as address,
        ):
            self.environment |= {"MLFLOW_TRACKING_URI": address}
            yield

    def load(self, name: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return what the champion of a name answers about inputs, loaded through the client."""
        import pandas

        from crisis_corpus import load

        with self._place(self.home, self.environment):
            found: list[dict[str, Any]] = (
                load(f"models:/{name}@champion").predict(pandas.DataFrame(rows)).to_dict("records")
            )
            return found

    def make(self) -> None:
        self.run("init", "--profile", "golden")
        self.stages = self._stages()
        for corpus in self.corpora:
            self._corpus(corpus)
