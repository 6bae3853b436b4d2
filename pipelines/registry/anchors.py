"""Anchor the journal of decisions in signed git tags, which reveal a journal that was cut or replaced.

After a change of a model's champion, the tag ``journal/<name>/<row>`` in the corpus repository gets the digest of the
row that records the change. A journal must contain the row of the newest signed tag of each model.
"""

from __future__ import annotations

import logging
from pathlib import Path

from pipelines.core.config.settings import Settings
from pipelines.core.errors import CorpusError, NoSecret
from pipelines.registry.journal import Journal
from pipelines.registry.transitions import last_move
from pipelines.store.vault.keyring import Signer
from pipelines.workspace.clone import BRANCH, history
from pipelines.workspace.git import branches, git, read_signed_tag, write_signed_tag

log = logging.getLogger(__name__)
TAGS = "journal/"


def write(name: str, *, journal: Journal, settings: Settings) -> None:
    """Write the signed tag of a model's last champion change; a failure is only logged, as the journal has it."""
    row = last_move(journal, name)
    try:
        if row is None or BRANCH not in (branches(settings.repo) or {}):
            return
        tag, signer = f"{TAGS}{name}/{row.number}", _signer(settings)
        with history(settings, depth=1) as git_dir:
            if read_signed_tag(tag, signer=signer, cwd=git_dir) != row.digest:
                made = write_signed_tag(tag, commit=BRANCH, message=row.digest, signer=signer, cwd=git_dir)
                git("push", "--quiet", settings.repo, f"+{made}:refs/tags/{tag}", cwd=git_dir)
    except CorpusError as error:
        log.warning("The last change of the champion of %s has no tag in the corpus repository: %s", name, error)


def known(settings: Settings, *, cwd: Path) -> dict[str, str]:
    """Return by model the journal row digest in the newest signed tag; ``cwd`` is a clone with all tags."""
    signer, digests = _signer(settings), dict[str, str]()
    # newest first; a tag that another key signed, or none, is skipped
    listed = git("for-each-ref", "--sort=-version:refname", "--format=%(refname)", f"refs/tags/{TAGS}", cwd=cwd)
    for tag in (ref.removeprefix("refs/tags/") for ref in listed.split()):
        name = tag.removeprefix(TAGS).rpartition("/")[0]
        if name not in digests and (digest := read_signed_tag(tag, signer=signer, cwd=cwd)):
            digests[name] = digest
    return digests


def published(settings: Settings) -> dict[str, str]:
    """Return :func:`known` of the corpus repository's tags; empty without repository or project secret."""
    try:
        if BRANCH not in (branches(settings.repo) or {}):
            return {}
        with history(settings) as git_dir:
            return known(settings, cwd=git_dir)
    except NoSecret:
        return {}


def check(journal: Journal, *, settings: Settings, cwd: Path) -> None:
    """Check that the journal is unaltered and has the rows whose digests are in signed tags (``cwd``: a clone)."""
    journal.verify(known=known(settings, cwd=cwd))


def _signer(settings: Settings) -> Signer:
    return Signer(settings.secret(), purpose="journal-tag")
