"""Check git's push rights, the remote of DVC and the objects of its cache."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipelines.doctor.deployment import Deployment, succeeds
from pipelines.doctor.finding import Finding, failure, ok, warning
from pipelines.workspace.clone import BRANCH
from pipelines.workspace.dvc_remote import configure
from pipelines.workspace.objects import ObjectStore, file_digest

PROBE = b"corpus doctor\n"
# Ours: the names that a finding lists; there may be thousands.
SHOWN = 3


def push(deployment: Deployment, *, seconds: float) -> Finding:
    """Check the permission to push to the corpus repository, by a ``git push --dry-run`` of the corpus branch."""
    if deployment.clone is None:
        return warning("not tried without a repository", fix="See the check 'repository'.")
    repo = Path(deployment.settings.repo)
    local = "://" not in deployment.settings.repo and repo.exists()
    allowed = not local or os.access(repo / "refs", os.W_OK)
    if not allowed or not succeeds(
        "push", "--dry-run", "--quiet", "origin", f"HEAD:refs/heads/{BRANCH}", cwd=deployment.clone, seconds=seconds
    ):
        return failure(
            "the corpus repository does not accept a push",
            fix="Give this account write access to CORPUS_REPO, or give it a key or token that has it.",
        )
    return ok("may push to the branch 'corpus'")


def remote(deployment: Deployment) -> Finding:
    """Check the DVC remote: write, read and delete a test object."""
    where = deployment.settings.remote
    if "://" not in where and not Path(where).is_dir():
        return failure("CORPUS_REMOTE is not a folder", fix="Mount or create the folder that CORPUS_REMOTE names.")
    done = "opened"
    try:
        with _store(deployment) as store:
            fs = store.remote.fs
            path = fs.join(store.root, f".doctor-{socket.gethostname()}-{os.getpid()}")
            with fs.open(path, "wb") as file:
                file.write(PROBE)
            done = "written"
            with fs.open(path, "rb") as file:
                whole = file.read() == PROBE
            done = "read"
            fs.remove(path)
    except Exception as error:
        # each kind of remote raises errors of its own, whose text may quote an address with credentials
        step = {"opened": "written", "written": "read", "read": "deleted"}[done]
        return failure(
            f"an object cannot be {step} ({type(error).__name__})",
            fix="Check CORPUS_REMOTE, its credentials and their rights to write, read and delete.",
        )
    if not whole:
        return failure("an object is read with other content", fix="Check the server of CORPUS_REMOTE.")
    return ok("an object was written, read and deleted")


@contextmanager
def _store(deployment: Deployment) -> Iterator[ObjectStore]:
    from dvc.repo import Repo

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "corpus"
        (root / ".dvc").mkdir(parents=True)
        (root / ".dvc" / "config").write_text("[core]\n    no_scm = true\n")
        configure(root, settings=deployment.settings)
        with Repo(str(root)) as repo:
            yield ObjectStore(repo)


def cache(deployment: Deployment, *, deep: bool) -> Finding:
    """Compare the objects of DVC's cache with their digests: all of them, or a sample that differs from day to day."""
    folder = deployment.settings.cache / "files" / "md5"
    paths = sorted(path for path in folder.glob("??/*") if path.is_file())
    taken = paths if deep else _sample(paths, size=deployment.limits.objects, day=deployment.now.toordinal())
    poisoned = [path for path in taken if not _whole(path)]
    if poisoned:
        more = f" and {len(poisoned) - SHOWN} more" if len(poisoned) > SHOWN else ""
        names = ", ".join(path.parent.name + path.name for path in poisoned[:SHOWN])
        return failure(
            f"{len(poisoned)} of {len(taken)} objects differ from their digests: {names}{more}",
            fix="Remove them, so that they are fetched again: "
            f"`rm -f {' '.join(str(path) for path in poisoned[:SHOWN])}`.",
        )
    return ok(f"{len(taken)} of {len(paths)} objects have their digests")


def _sample(paths: Sequence[Path], *, size: int, day: int) -> Sequence[Path]:
    """Return every n-th path, from another one each day, so that daily examinations reach all of them."""
    step = max(1, -(-len(paths) // size))
    return paths[day % step :: step]


def _whole(path: Path) -> bool:
    try:
        return file_digest(path) == (path.parent.name + path.name).partition(".")[0]
    except FileNotFoundError:
        return True  # removed by a takedown meanwhile
