"""The registry of stores: every place that holds content or ids of records, and how a takedown clears it.

A module of this package with a subclass of :class:`Store` is all that a store needs (one in which a takedown changes
nothing stands in ``kept.py``): the takedown and its dry run execute the registry, the receipt and the table of
docs/takedown.md are rendered from it. A write or a connection outside the registered stores fails ``make demo`` and the
tests of Airflow (``crisis_corpus_sandbox/audit``).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import sqlalchemy as sa

from pipelines.core.config.operate import Takedown
from pipelines.core.config.settings import Settings
from pipelines.core.process import silent
from pipelines.store.vault.vault import Vault
from pipelines.takedown.redaction import Gone
from pipelines.workspace.git import local_path

if TYPE_CHECKING:
    from pipelines.registry.candidate import Context
    from pipelines.takedown.receipts import TakedownRequest

VAULT, REPOSITORY = "vault", "repository"


@dataclass(frozen=True, kw_only=True)
class Case:
    """The records to erase, the takedown that erases them, and the locations of the stores.

    ``gone`` are all deleted records; while the vault is erased, and in a dry run, those that were selected. ``request``
    has the counts of the stores before; it is ``None`` where a host follows another's takedown. In a dry run, nothing
    may be written, caches included. Tests kill the process in ``say``, which is called after each action.
    """

    gone: Gone
    settings: Settings
    vault: Vault
    now: datetime
    terms: Takedown | None = None
    request: TakedownRequest | None = None
    registry: Callable[[], AbstractContextManager[Context | None]] = nullcontext
    dry_run: bool = False
    say: Callable[[str], None] = silent

    def touches(self, corpus: str) -> bool:
        """Return whether a file of a corpus names one of the records, as the repository's count says, or may do so."""
        return self.request is None or bool(self.request.steps.get(REPOSITORY, {}).get(f"of_{corpus}"))


class Store:
    """A place that holds content or ids of records.

    Args:
        name: its name in receipts, errors and documentation.
        holds: the most sensitive data in the place: content (sealed or not), record ids, or neither.
        erased: what a takedown does there; ``""`` if there is nothing to do.
        keeps: what remains of a record after a takedown, and why; ``""`` for nothing.
        needs: the stores that must be erased before.
        by: the store or command that does what ``erased`` says, if :meth:`erase` does not.
        per_host: whether every host has one of its own, below its ``CORPUS_HOME``.
        home: names and patterns of its files below ``CORPUS_HOME``.
        settings: the fields of ``Settings`` with its location: a path, a database, an address.
        outs: patterns of the outputs in ``dvc.yaml`` that are stored there.
    """

    name: str
    holds: Literal["content", "ids", "nothing"]
    erased: str = ""
    keeps: str = ""
    needs: tuple[str, ...] = (VAULT, REPOSITORY)
    by: str = ""
    per_host: bool = False
    home: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    outs: tuple[str, ...] = ()

    def count(self, case: Case) -> Mapping[str, int]:
        """Count what names a deleted record, or all that may; write nothing."""
        del case
        return {}

    def erase(self, case: Case) -> None:
        """Erase what :meth:`count` counted; the same again changes nothing."""

    def patterns(self, settings: Settings) -> list[Path]:
        """Return the files and folders of this store on this machine, as paths with wildcards."""
        found = [settings.home.joinpath(name) for name in self.home]
        for field in self.settings:
            value = getattr(settings, field)
            if isinstance(value, str) and value.startswith("sqlite"):
                # journals and locks of a database stand beside it
                value = Path(f"{sa.make_url(value).database}*")
            elif isinstance(value, str):
                value = local_path(value)
            found += [value] if isinstance(value, Path) else []
        return found

    def paths(self, settings: Settings) -> list[Path]:
        patterns = self.patterns(settings)
        return sorted(path for pattern in patterns for path in pattern.parent.glob(pattern.name) if pattern.name)


@cache
def stores() -> tuple[Store, ...]:
    """Return all stores, in the order in which a takedown erases them."""
    found: dict[str, Store] = {}
    for module in pkgutil.iter_modules(__path__):
        values = vars(importlib.import_module(f"{__name__}.{module.name}"))
        classes = [value for value in values.values() if isinstance(value, type) and issubclass(value, Store)]
        made = [value() for value in classes if hasattr(value, "name")]
        found |= {store.name: store for store in (*made, *values.get("KEPT", ()))}
    order = TopologicalSorter({name: sorted(set(store.needs) - {name}) for name, store in found.items()})
    return tuple(found[name] for name in order.static_order())
