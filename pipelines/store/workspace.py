"""A scratch clone of the corpus repository: the one way in which data is made and committed.

Every task works in a clone of its own, so no two DVC commands ever meet; DVC's run-cache and the shared cache
carry results between clones, and git's fast-forward push is the compare-and-set (DESIGN: a commit is git and DVC).
A clone that dies leaves nothing behind that anyone can see.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipelines.errors import CommitLost, DataError, StepFailed
from pipelines.params import Settings

BRANCH = "corpus"
CODE = "code"
IDENTITY = {
    "GIT_AUTHOR_NAME": "Crisis Corpus",
    "GIT_AUTHOR_EMAIL": "corpus@localhost",
    "GIT_COMMITTER_NAME": "Crisis Corpus",
    "GIT_COMMITTER_EMAIL": "corpus@localhost",
}


class PointerIncomplete(DataError):
    """The remote does not hold an object that is about to be committed."""

    message = "Object {digest} of {path} is not whole in the remote."
    remedy = "Clear the task that made it; nothing was committed."
    exit_code = 75


def git(*argv: str, cwd: Path | None = None) -> str:
    """Run git and return its output, stripped.

    Raises:
        StepFailed: git's exit status was not 0; its message went to stderr.
    """
    done = subprocess.run(
        ["git", *argv], cwd=cwd, env={**os.environ, **IDENTITY}, text=True, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        raise StepFailed(command=f"git {argv[0]}", returncode=done.returncode)
    return done.stdout.strip()


class Workspace:
    """One clone at ``path``, configured with the shared cache and the remote of ``settings``."""

    def __init__(self, path: Path, *, settings: Settings) -> None:
        self.path = path
        self.settings = settings
        self.head = git("rev-parse", "HEAD", cwd=path)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a step: this interpreter's ``python`` first, every setting absolute."""
        binaries = str(Path(sys.executable).parent)
        return {
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}",
            "CORPUS_HOME": str(self.settings.home),
            "PYTHONPATH": "",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "DVC_NO_ANALYTICS": "1",
            "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR") or str(self.settings.home / "kernels"),
            "NUMBA_CACHE_LOCATOR_CLASSES": "pipelines.curate.kernel_cache.ByContent",
        }

    @contextlib.contextmanager
    def dvc(self) -> Iterator[Any]:
        """Open the clone with DVC; stages started inside see :attr:`environment`."""
        from dvc.repo import Repo

        before, here = dict(os.environ), Path.cwd()
        os.environ.update(self.environment)
        os.chdir(self.path)
        try:
            with contextlib.closing(Repo(str(self.path))) as repo:
                yield repo
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(before)

    def step(self, *argv: str) -> str:
        """Run ``python -m pipelines <argv>`` with the clone's own code and return the last line it printed.

        Raises:
            StepFailed: with the step's exit status, its message having gone to stderr.
        """
        done = subprocess.run(
            [sys.executable, "-m", "pipelines", *argv],
            cwd=self.path,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            check=False,
        )
        if done.returncode:
            raise StepFailed(command=f"corpus {argv[0]}", returncode=done.returncode)
        return done.stdout.strip().rpartition("\n")[2]

    def place(self, pointers: Mapping[str, str], *, pull: bool = True) -> None:
        """Write pointer files (path of the data file -> text of its ``.dvc`` file) and check their data out."""
        for path, text in pointers.items():
            pointer = self.path / f"{path}.dvc"
            pointer.parent.mkdir(parents=True, exist_ok=True)
            pointer.write_text(text)
        if pull and pointers:
            with self.dvc() as repo:
                repo.pull(targets=[f"{path}.dvc" for path in pointers])

    def add(self, paths: Sequence[Path]) -> dict[str, str]:
        """Track files with DVC, push them, and return their pointers."""
        names = [str(p.relative_to(self.path)) for p in sorted(paths)]
        if names:
            with self.dvc() as repo:
                repo.add(names)
                repo.push(targets=[f"{name}.dvc" for name in names])
        return {name: (self.path / f"{name}.dvc").read_text() for name in names}

    def repro(self, *targets: str, replay: bool = False) -> None:
        """Reproduce stages (upstream ones from the run-cache) and push what they made.

        ``replay`` forbids running anything: a stage that is not in the run-cache fails (``NotInRunCache``).

        Raises:
            StepFailed: with the exit status of the stage's command, its message having gone to stderr.
        """
        from dvc.exceptions import ReproductionError

        with self.dvc() as repo:
            if replay:
                os.environ["CORPUS_REPLAY"] = "1"
            try:
                repo.reproduce(targets=list(targets) or None, pull=True)
            except ReproductionError as error:
                raise _stage_failed(error) from None
            if not replay:
                repo.push(run_cache=True)

    def pull(self, *folders: str) -> None:
        """Check out everything that this commit has below some folders: pointed to by name, or made by stages."""
        below = tuple(f"{folder}/" for folder in folders)
        pointers = [str(p.relative_to(self.path)) for folder in folders for p in (self.path / folder).rglob("*.dvc")]
        stages = [
            name
            for name, stage in self.lock().items()
            if any(f"{out['path']}/".startswith(below) for out in stage.get("outs", ()))
        ]
        if pointers or stages:
            with self.dvc() as repo:
                repo.pull(targets=[*pointers, *stages])

    def moved(self, *, since: str, path: str) -> bool:
        """Whether ``path`` differs between the commit ``since`` and this clone's head."""
        return bool(git("diff", "--name-only", since, self.head, "--", path, cwd=self.path))

    def lock(self, *, revision: str = "HEAD") -> dict[str, Any]:
        """Return the stages of ``dvc.lock`` in a commit; none where nothing was ever run."""
        if not git("ls-tree", revision, "dvc.lock", cwd=self.path):
            return {}
        stages: dict[str, Any] = yaml.safe_load(git("show", f"{revision}:dvc.lock", cwd=self.path))["stages"]
        return stages

    def check_remote(self, pointers: Mapping[str, str]) -> None:
        """Ask the remote that every object of ``pointers`` is there with its size.

        Raises:
            PointerIncomplete: naming the first that is not.
        """
        with self.dvc() as repo:
            odb = repo.cloud.get_remote_odb()
            for path, text in pointers.items():
                for out in yaml.safe_load(text)["outs"]:
                    place = odb.oid_to_path(out["md5"])
                    if not odb.fs.exists(place) or odb.fs.size(place) != out["size"]:
                        raise PointerIncomplete(path=path, digest=out["md5"])

    def commit(self, message: str, *, paths: Sequence[str] = (".",)) -> str | None:
        """Commit what changed under ``paths`` and push it with fast-forward only; ``None`` when nothing changed.

        Raises:
            CommitLost: another publisher moved the branch first.
        """
        git("add", "--all", "--", *(path for path in paths if (self.path / path).exists()), cwd=self.path)
        if not git("diff", "--cached", "--name-only", cwd=self.path):
            return None
        code = git("rev-parse", f"origin/{CODE}", cwd=self.path)
        git("commit", "--quiet", "--message", f"{message}\n\nCode-Revision: {code}\n", cwd=self.path)
        try:
            git("push", "--quiet", "origin", f"HEAD:{BRANCH}", cwd=self.path)
        except StepFailed:
            raise CommitLost(expected=self.head[:12]) from None
        return git("rev-parse", "HEAD", cwd=self.path)


def _stage_failed(error: Exception) -> StepFailed:
    """Say which stage failed with which exit status; DVC tells the status in the words of the cause only."""
    status = re.search(r"exited with (\d+)", str(error.__cause__))
    return StepFailed(command=str(error), returncode=int(status[1]) if status else 1)


def configure(path: Path, *, settings: Settings, scratch: bool = True) -> None:
    """Point a clone at the shared cache and the remote in its uncommitted ``.dvc/config.local``.

    A scratch clone keeps DVC's own state in its scratch folder, so that nothing of it stays when it goes.
    """
    lines = [
        f'[cache]\n    dir = {settings.cache}\n    type = "reflink,hardlink,copy"',
        "[core]\n    remote = corpus\n    analytics = false\n    autostage = false\n    check_update = false\n"
        + (f"    site_cache_dir = {path.parent / 'site'}\n" if scratch else ""),
        f"['remote \"corpus\"']\n    url = {settings.remote}",
    ]
    (path / ".dvc" / "config.local").write_text("\n".join(lines) + "\n")


@contextlib.contextmanager
def workspace(settings: Settings, *, revision: str | None = None) -> Iterator[Workspace]:
    """Clone the corpus repository into a scratch folder, give it out, and remove it whatever happens.

    The clone is at the tip of the corpus branch, or at ``revision``.
    """
    scratch = settings.home / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    _sweep(scratch)
    folder = Path(tempfile.mkdtemp(prefix=f"{socket.gethostname()}-{os.getpid()}-", dir=scratch))
    try:
        git("clone", "--quiet", "--shared", "--branch", BRANCH, settings.repo, str(folder / "corpus"))
        if revision:
            git("checkout", "--quiet", "--detach", revision, cwd=folder / "corpus")
        configure(folder / "corpus", settings=settings)
        yield Workspace(folder / "corpus", settings=settings)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(scratch: Path) -> None:
    """Remove the clones of processes of this host that were killed before they could."""
    for folder in scratch.glob(f"{socket.gethostname()}-*-*"):
        owner = int(folder.name.rsplit("-", 2)[1])
        if not Path("/proc", str(owner)).exists():
            shutil.rmtree(folder, ignore_errors=True)
