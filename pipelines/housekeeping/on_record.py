"""Collect the MLflow runs and the commits that the registry, the journal, a release or published metrics name."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from pipelines.config.settings import Settings
from pipelines.errors import GitFailed
from pipelines.registry.journal import Journal
from pipelines.registry.versions import Registry
from pipelines.workspace.clone import BRANCH, history
from pipelines.workspace.git import git

# An id of a run, and of a commit; a longer digest is neither.
RUN = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
COMMIT = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
# Where stages write the ids of their runs.
METRICS = "metrics"


@dataclass(frozen=True)
class OnRecord:
    """What may not be removed: the ids of ``runs``, and the ``commits`` whose runs have their numbers and report."""

    runs: frozenset[str]
    commits: frozenset[str]


def collect(settings: Settings, *, registry: Registry) -> OnRecord:
    """Return all runs and commits on record; a text that only looks like an id keeps nothing that exists."""
    texts = [*_versions(registry), *_journal(settings), *_releases(settings)]
    commits = {commit for text in texts for commit in COMMIT.findall(text)}
    with history(settings) as repository:
        where = ("--git-dir", str(repository))
        tips = git(*where, "for-each-ref", "--format=%(objectname) %(*objectname)", f"refs/heads/{BRANCH}", "refs/tags")
        commits |= set(COMMIT.findall(tips))
        texts += _metrics(where, commits=commits)
    return OnRecord(frozenset(run for text in texts for run in RUN.findall(text)), frozenset(commits))


def _versions(registry: Registry) -> Iterable[str]:
    for name in registry.names():
        for version in registry.versions(name):
            yield json.dumps(asdict(version), default=str)


def _journal(settings: Settings) -> Iterable[str]:
    """Yield every row of the journal: registrations, looks of the gate, promotions, withdrawals and the rest."""
    with Journal.of(settings) as journal:
        return [json.dumps(asdict(row), default=dict) for row in journal.rows()]


def _releases(settings: Settings) -> Iterable[str]:
    return [path.read_text() for path in sorted((settings.home / "releases").glob("*/release.json"))]


def _metrics(where: Sequence[str], *, commits: Collection[str]) -> Iterator[str]:
    """Yield the lines with digests in the metrics of each of these commits that the repository has."""
    for commit in sorted(commits):
        if _found(*where, "rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}"):
            yield _found(*where, "grep", "--no-color", "-hE", "[0-9a-f]{32}", commit, "--", METRICS)


def _found(*argv: str) -> str:
    """Return the output of a git command that fails if it finds nothing."""
    try:
        return git(*argv)
    except GitFailed:
        return ""
