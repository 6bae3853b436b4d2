"""Clear the caches of a host after a takedown that ran on another one.

A takedown clears the caches in its own ``CORPUS_HOME``. Hosts with homes of their own clear theirs before their next
task: the vault has the number of the last takedown, and each home the number of the last one that it has followed.
"""

from __future__ import annotations

from pathlib import Path

from pipelines.config.settings import Settings
from pipelines.takedown import purge
from pipelines.takedown.object_versions import DIGEST, write_whole
from pipelines.takedown.redaction import Gone
from pipelines.vault import locks, vault_metadata
from pipelines.vault.vault import Vault
from pipelines.workspace.clone import workspace
from pipelines.workspace.objects import TREE

MARK = "takedowns"
# The places of `purge` that each host has for itself.
PLACES = frozenset({"resume", "train", "scratch", "lineage"})


def announce(*, settings: Settings, vault: Vault) -> None:
    """Let all other hosts clear their caches; call this when a takedown has cleared those of this host."""
    with vault.database.writing() as connection:
        number = int(vault_metadata.get(connection, name=MARK) or b"0") + 1
        vault_metadata.put(connection, name=MARK, value=str(number).encode())
    write_whole(_file(settings), str(number))


def follow(*, settings: Settings, vault: Vault) -> int:
    """Clear the caches of this host if a takedown has ended on another one; return the number of removed objects."""
    number = _announced(vault)
    if number == _followed(settings):
        return 0
    # processes of this host only: the home is not shared
    with locks.of_host(settings, "caches"):
        if number == _followed(settings):
            return 0
        gone = Gone(vault.tombstones())
        removed = _clear_objects(gone, settings=settings)
        folder = settings.home / "train"
        corpora = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        site = purge.Site(gone, settings, vault, corpora)
        for place in purge.PLACES:
            if place.name in PLACES:
                place.clear(site)
        write_whole(_file(settings), str(number))
    return removed


def _clear_objects(gone: Gone, *, settings: Settings) -> int:
    with workspace(settings) as clone:
        cache = clone.objects.cache
        found = [digest for digest in cache.all() if DIGEST.fullmatch(digest) and not digest.endswith(TREE)]
        named = [digest for digest in found if gone.within(Path(cache.oid_to_path(digest)))]
        for digest in named:
            cache.delete(digest)
    return len(named)


def _announced(vault: Vault) -> int:
    with vault.database.reading() as connection:
        return int(vault_metadata.get(connection, name=MARK) or b"0")


def _file(settings: Settings) -> Path:
    return settings.home / "followed"


def _followed(settings: Settings) -> int:
    try:
        return int(_file(settings).read_text())
    except (OSError, ValueError):
        return 0
