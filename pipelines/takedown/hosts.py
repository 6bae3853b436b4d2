"""Clear the stores of this host after a takedown on another one.

A takedown clears the stores in its own ``CORPUS_HOME``. Hosts with homes of their own clear theirs before their next
task: the vault has the number of the last takedown, and each home the number of the last one that it has followed.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pipelines.core.config.settings import Settings
from pipelines.core.process import write_private
from pipelines.store.vault import locks
from pipelines.store.vault.database import get_mark, put_mark
from pipelines.store.vault.vault import Vault
from pipelines.takedown.object_versions import DIGEST
from pipelines.takedown.redaction import Gone
from pipelines.takedown.stores import Case, stores
from pipelines.workspace.clone import workspace
from pipelines.workspace.objects import TREE, is_whole

MARK = "takedowns"


def announce(*, settings: Settings, vault: Vault) -> None:
    """Let all other hosts clear their caches; call this when a takedown has cleared those of this host."""
    with vault.database.writing() as connection:
        number = int(get_mark(connection, name=MARK) or b"0") + 1
        put_mark(connection, name=MARK, value=str(number).encode())
    write_private(_file(settings), str(number))


def follow(*, settings: Settings, vault: Vault, now: datetime) -> int:
    """Clear the caches of this host if a takedown has ended on another one; return the number of removed objects."""
    with vault.database.reading() as connection:
        number = int(get_mark(connection, name=MARK) or b"0")
    if number == _followed(settings):
        return 0
    # processes of this host only: the home is not shared
    with locks.of_host(settings, "caches"):
        if number == _followed(settings):
            return 0
        gone = Gone(vault.tombstones())
        with workspace(settings) as clone:
            cache = clone.objects.cache
            digests = [digest for digest in cache.all() if DIGEST.fullmatch(digest) and not digest.endswith(TREE)]
            # an altered object may hide the record that it names
            named = [d for d in digests if not is_whole(path := Path(cache.oid_to_path(d)), d) or gone.within(path)]
            for digest in named:
                cache.delete(digest)
        case = Case(gone=gone, settings=settings, vault=vault, now=now)
        for store in stores():
            if store.per_host:
                store.erase(case)
        write_private(_file(settings), str(number))
    return len(named)


def _file(settings: Settings) -> Path:
    return settings.home / "followed"


def _followed(settings: Settings) -> int:
    try:
        return int(_file(settings).read_text())
    except (OSError, ValueError):
        return 0
