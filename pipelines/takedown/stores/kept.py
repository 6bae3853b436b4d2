"""The stores in which a takedown itself changes nothing, each with what it keeps of a record, and why."""

from __future__ import annotations

from typing import Literal

from pipelines.takedown.stores import Store


class Kept(Store):
    """A store in which :meth:`erase` has nothing to do; ``by`` names what clears it, if anything does."""

    def __init__(
        self,
        name: str,
        holds: Literal["content", "ids", "nothing"],
        *,
        erased: str = "",
        keeps: str = "",
        by: str = "",
        home: tuple[str, ...] = (),
        settings: tuple[str, ...] = (),
        outs: tuple[str, ...] = (),
    ) -> None:
        self.name, self.holds, self.erased, self.keeps, self.by = name, holds, erased, keeps, by
        self.home, self.settings, self.outs = home, settings, outs


KEPT = (
    Kept(
        "weights",
        "content",
        erased=(
            "models that were trained on the records are marked stale at once, trained again, and refused by "
            "the registry; at the deadline their weights are removed from cache, remote, every version "
            "and verified copies"
        ),
        keeps=("weights that may remember training records, for `takedown.weights_days`; copies that consumers have"),
        by="deletion_sweep",
        outs=("snapshot/${item.corpus}/fits/*",),
    ),
    Kept(
        "index",
        "ids",
        erased="the entries of removed objects are removed with them, on other hosts by their next sweep",
        by="objects",
        home=("object_index",),
    ),
    Kept(
        "annotation server of your own",
        "content",
        erased="items are removed from the queues through its API",
        keeps="freed pages, search index and backups of that server, which its operator must clear",
        by="annotation",
        settings=("label_studio_url",),
    ),
    Kept(
        "takedowns",
        "ids",
        keeps=("`tombstones.json`, to be kept apart from the vault and replayed after a restore; receipts hold counts"),
        home=("takedowns",),
    ),
    Kept("requests", "ids", erased="the file is removed when all is done", by="corpus takedown", home=("requests",)),
    Kept("journal", "nothing", settings=("journal_url",), home=("journal.pub*",)),
    Kept(
        "sources",
        "content",
        keeps="dumps, which are not changed: the tombstone keeps their records out",
        settings=("dumps", "sandbox"),
    ),
    Kept(
        "providers of models",
        "content",
        keeps="requests, for as long as the provider's terms state: name the days in your assessment",
    ),
    Kept(
        "backups",
        "content",
        keeps=(
            "the vault's keys and the earlier tables, until `corpus backup --keep-days` deletes the backup; the"
            " tombstones beside the backups keep them from coming back: see the rules in docs/privacy.md"
        ),
        settings=("vault_backup",),
    ),
    Kept(
        "clones and opened items of people",
        "content",
        keeps=(
            "tables from `corpus clone` and the clone's own cache: their content is unreadable; users must delete the"
            " ids themselves, and the folders that `corpus errors --content` wrote as soon as they were read"
        ),
    ),
    Kept(
        "exports and repositories on a hub",
        "content",
        keeps=(
            "repositories on a hub that were pushed from here, until a person replaces or removes them by the "
            "command that `corpus export list` and the takedown's output print; folders of `corpus export`, "
            "which belong to the person who wrote them, and copies that others downloaded"
        ),
        settings=("hub_url",),
    ),
    Kept(
        "Airflow and logs",
        "nothing",
        home=(
            "airflow",
            "airflow.dump",
            "graph",
            "logs",
            "run",
            "ports.json",
            "services.env",
            "summary",
            "dvc-airflow*",
        ),
    ),
    Kept(
        "house",
        "nothing",
        home=("secret", "corpus.env", "followed", "locks", "rounds.lock", "kernels", "label-studio-env"),
    ),
)
