"""Open a scratch (temporary) clone of the corpus repository, in which data is made and committed.

Every task works in its own clone, so DVC commands never run concurrently in one repository. Pointers and stage results
are handed over explicitly (:mod:`pipelines.workspace.results`), and git's fast-forward push is the compare-and-set. A
killed clone leaves nothing behind that another task can see.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pipelines.core import formats
from pipelines.core.config.settings import Settings
from pipelines.core.errors import CommitLost, ConfigError, GitFailed, StepFailed
from pipelines.store.blind import blind
from pipelines.store.vault.vault import Vault
from pipelines.workspace import objects, trust
from pipelines.workspace.git import branches, git, local_path, shown
from pipelines.workspace.inventory import Graph, Inventory, pointer_text, read_pointer, read_yaml
from pipelines.workspace.objects import ObjectStore
from pipelines.workspace.results import Results, StageResult
from pipelines.workspace.scratch import scratch_folder, step_environment

BRANCH = "corpus"
CODE = "code"
COMMAND = ["python", "-m", "pipelines"]


class Workspace:
    """A clone of the corpus repository at ``path`` that uses the shared DVC cache and the remote of ``settings``."""

    def __init__(self, path: Path, *, settings: Settings) -> None:
        self.path = path
        self.settings = settings
        self.head = git("rev-parse", "HEAD", cwd=path)
        self._taken: dict[str, Any] = {}

    @cached_property
    def repo(self) -> Any:
        """The clone as a DVC repository object, without reading its stages."""
        return objects.opened(self.path)

    @cached_property
    def objects(self) -> ObjectStore:
        """The DVC objects in the host's shared cache and on the remote."""
        return ObjectStore(self.repo)

    @cached_property
    def results(self) -> Results:
        """The results of DVC stages that are stored on the DVC remote."""
        return Results(self.objects.remote.fs, self.objects.root, secret=self.settings.secret())

    @cached_property
    def vault(self) -> Vault:
        """The vault of the corpus, open until :meth:`close`."""
        return Vault.existing(self.settings)

    @cached_property
    def graph(self) -> Graph:
        """The stages that the clone's ``dvc.yaml`` defines."""
        return Graph(self.repo)

    def close(self) -> None:
        """Close the files and connections that DVC opened for this clone."""
        for name in {"repo", "vault"} & self.__dict__.keys():
            getattr(self, name).close()

    def step(self, *argv: str) -> str:
        """Run ``python -m pipelines <argv>`` with the clone's code and return the last line of its output."""
        done = self._run(argv, name=f"corpus {argv[0]}", stdout=subprocess.PIPE)
        return str(done.stdout).strip().rpartition("\n")[2]

    def command(self, cmd: str, *, name: str) -> None:
        """Run the command line ``cmd`` of a DVC stage with the clone's code; send its output to stderr."""
        # without a shell: DVC fills in values of params.yaml, which any committer to the branch chooses
        argv = shlex.split(cmd)
        if argv[:3] != COMMAND:
            raise ConfigError("NotACommand", name=name)
        self._run(argv[3:], name=name, stdout=sys.stderr)

    def _run(self, argv: Sequence[str], *, name: str, stdout: Any) -> subprocess.CompletedProcess[str]:
        trust.require_signed(self.settings, self.head, cwd=self.path)
        command = [sys.executable, *COMMAND[1:], *argv]
        variables = step_environment(self.settings)
        done = subprocess.run(command, cwd=self.path, env=variables, text=True, stdout=stdout, check=False)
        if done.returncode:
            raise StepFailed(command=name, returncode=done.returncode, retry_after=_retry_after(done.stdout))
        return done

    def take(self, results: Iterable[StageResult]) -> None:
        """Use results that other tasks produced as outputs of stages in this clone, and write their metrics."""
        for result in results:
            self._taken[result.stage] = result.entry
            result.write_metrics(self.path)

    def inventory(self) -> Inventory:
        """Return the digests of all files of the clone: in git, in pointers, and outputs of stages.

        Outs of stages that were removed from ``dvc.yaml`` are excluded: DVC ignores their entries in ``dvc.lock``.
        """
        lock = {name: entry for name, entry in self.lock().items() if self.graph.defines(name)}
        return Inventory(self.path, lock=lock | self._taken, objects=self.objects)

    def link(self, files: Mapping[str, str]) -> None:
        """Fetch DVC objects and place them in the clone's working tree; ``files`` maps paths to digests."""
        self.objects.fetch(files.values())
        for path, digest in files.items():
            self.objects.link(digest, self.path / path)

    def checkout(self, *paths: str) -> None:
        """Place all files that DVC tracks at or below some paths in the clone; see :meth:`inventory`."""
        self.link(self.inventory().files(*paths))

    def checkout_months(self, corpus: str, name: str) -> None:
        """Place one table, or one folder of tables, in the clone for every month of a corpus."""
        months = sorted(path for path in (self.path / "data" / corpus).glob("*") if path.is_dir())
        self.checkout(*(f"data/{corpus}/{month.name}/{name}" for month in months))

    def place(self, pointers: Mapping[str, str]) -> None:
        """Write pointer files; ``pointers`` maps the path of each data file to the text of its ``.dvc`` file."""
        for path, text in pointers.items():
            pointer = self.path / f"{path}.dvc"
            pointer.parent.mkdir(parents=True, exist_ok=True)
            pointer.write_text(text)

    def keep(self, path: Path) -> str:
        """Add a file to the DVC cache, with bytes of its own that hide a deleted record's row; return its digest."""
        blind(path, keys=lambda: self.vault)
        return self.objects.put(path)

    def add(self, paths: Sequence[Path]) -> dict[str, str]:
        """Track files with DVC, push them to the DVC remote, and return the texts of their pointers by path."""
        pointers = {}
        for path in sorted(paths):
            # hashing makes the file a link to its object, which may change its time but not its size
            digest, size = self.keep(path), path.stat().st_size
            pointers[path.relative_to(self.path).as_posix()] = pointer_text(path.name, md5=digest, size=size)
        self.objects.push(read_pointer(text).md5 for text in pointers.values())
        self.place(pointers)
        untracked = git("ls-files", "--others", "--exclude-standard", "--", *pointers, cwd=self.path)
        for path in map(self.path.joinpath, untracked.splitlines()):
            with path.with_name(".gitignore").open("a") as rules:
                rules.write(f"/{path.name}\n")
        return pointers

    def moved(self, *, since: str, path: str) -> bool:
        """Return whether ``path`` differs between the commit ``since`` and the checked-out commit of this clone."""
        return bool(git("diff", "--name-only", since, self.head, "--", path, cwd=self.path))

    def lock(self, *, revision: str | None = None) -> dict[str, Any]:
        """Return the stages in ``dvc.lock`` of the working tree or of a commit; empty without that file."""
        if revision is None:
            path = self.path / "dvc.lock"
            return dict(_stages(path.read_text())) if path.exists() else {}
        if not git("ls-tree", revision, "dvc.lock", cwd=self.path):
            return {}
        return dict(_stages(git("show", f"{revision}:dvc.lock", cwd=self.path)))

    def write_lock(self, stages: Mapping[str, Any]) -> None:
        """Write these stages to ``dvc.lock`` in DVC's format if the file's content changes."""
        from dvc.utils.serialize import dump_yaml

        if stages != self.lock():
            # plain containers: DVC's writer knows no others
            dump_yaml(str(self.path / "dvc.lock"), json.loads(json.dumps({"schema": "2.0", "stages": stages})))

    def check_remote(self, pointers: Mapping[str, str]) -> None:
        """Check that the DVC remote contains every object of ``pointers`` with the right size."""
        outs = [read_pointer(text) for text in pointers.values()]
        self.objects.require_whole({out.md5: out.size for out in outs})

    def commit(
        self, message: str, *, paths: Sequence[str] = (".",), code: str | None = None, trailers: Sequence[str] = ()
    ) -> str | None:
        """Commit the changes below ``paths``, push them (fast-forward only) and return the commit, ``None`` for none.

        :class:`CommitLost` is raised if another publisher moved the branch first. ``code`` is the commit of newer code
        that was merged; the branch ``code`` moves with the corpus branch. ``trailers`` are lines ``Name: value`` of the
        message.
        """
        git("add", "--all", "--", *(path for path in paths if (self.path / path).exists()), cwd=self.path)
        if not git("diff", "--cached", "--name-only", cwd=self.path):
            return None
        revision = code or git("rev-parse", f"origin/{CODE}", cwd=self.path)
        block = "\n".join([*trailers, f"Code-Revision: {revision}"])
        git("commit", "--quiet", "--no-gpg-sign", "--message", f"{message}\n\n{block}\n", cwd=self.path)
        trust.sign_head(self.settings, cwd=self.path)
        moved = [f"{code}:refs/heads/{CODE}"] if code else []
        try:
            git("push", "--quiet", "--atomic", "origin", f"HEAD:refs/heads/{BRANCH}", *moved, cwd=self.path)
        except GitFailed:
            raise CommitLost(expected=self.head[:12]) from None
        return git("rev-parse", "HEAD", cwd=self.path)


def require_corpus(settings: Settings) -> None:
    """Check that the corpus repository exists, with a branch ``corpus``."""
    if BRANCH not in (branches(settings.repo) or {}):
        raise ConfigError("NoCorpus", place=shown(settings.repo))


@cache
def _stages(text: str) -> dict[str, Any]:
    stages: dict[str, Any] = read_yaml(text)["stages"]
    return stages


@contextlib.contextmanager
def workspace(
    settings: Settings, *, revision: str | None = None, folders: Sequence[str] | None = None, signed: bool = True
) -> Iterator[Workspace]:
    """Clone the corpus repository into a scratch folder, yield the clone, and remove it at the end.

    The clone is at the newest commit of the corpus branch, or at ``revision``. With ``folders``, only these are checked
    out, and the files that are in no folder: writing thousands of pointers takes seconds. Without ``signed``, the
    commit may be an attacker's.
    """
    require_corpus(settings)
    if revision and revision.startswith("-"):
        # git would take it for an option; a round's manifest names one
        raise ConfigError("UnknownName", kind="commit", name=revision, known="those of branch corpus")
    with scratch_folder(settings.home) as folder:
        path = folder / "corpus"
        # without links: one in the branch would let a later write leave the clone
        plain = ["--config", "core.symlinks=false", "--shared", "--no-checkout"]
        git("clone", "--quiet", *plain, "--branch", BRANCH, settings.repo, str(path))
        if folders is not None:
            # the option --no-cone of `set` needs git 2.35
            git("config", "core.sparseCheckout", "true", cwd=path)
            git("config", "core.sparseCheckoutCone", "false", cwd=path)
            patterns = ["/*", "!/*/", *(f"/{folder}/" for folder in (".dvc", *folders))]
            git("sparse-checkout", "set", "--stdin", cwd=path, given="\n".join(patterns))
        try:
            git("checkout", "--quiet", *(["--detach", revision] if revision else [BRANCH]), cwd=path)
        except GitFailed:
            if revision is None:
                # the branch exists, or the clone would have failed
                raise
            raise ConfigError("UnknownName", kind="commit", name=revision, known="those of branch corpus") from None
        if signed:
            trust.require_commit(settings, cwd=path)
        formats.require_corpus(path)
        objects.configure(path, settings=settings)
        with contextlib.closing(Workspace(path, settings=settings)) as clone:
            yield clone


@contextlib.contextmanager
def history(settings: Settings, *, depth: int | None = None) -> Iterator[Path]:
    """Yield a git directory with the corpus branch: the repository itself, or a copy if it is not on this host.

    A copy has the last ``depth`` commits, or all of them.
    """
    path = local_path(settings.repo)
    if path:
        trust.require_commit(settings, BRANCH, cwd=path)
        yield path
        return
    with scratch_folder(settings.home) as folder:
        shallow = [f"--depth={depth}"] if depth else []
        branch = ["--single-branch", "--branch", BRANCH]
        git("clone", "--quiet", "--bare", *shallow, *branch, settings.repo, str(folder / "git"))
        trust.require_commit(settings, BRANCH, cwd=folder / "git")
        yield folder / "git"


def _retry_after(output: str | None) -> float | None:
    """Return the delay in seconds that a failed command names in the last line of its output, if any."""
    try:
        last = json.loads((output or "").strip().rpartition("\n")[2])
    except ValueError:
        return None
    delay: float | None = last.get("retry_after") if isinstance(last, dict) else None
    return delay
