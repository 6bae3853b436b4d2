"""The stores that a takedown does not change, each with what it keeps of a record, and why."""

from __future__ import annotations

from pipelines.takedown.stores import Store


class Takedowns(Store):
    """Receipts, and the tombstones for a restored backup."""

    name = "takedowns"
    holds = "ids"
    keeps = "`tombstones.json`, to be kept apart from the vault and replayed after a restore; receipts hold counts"
    home = ("takedowns",)


class Requests(Store):
    """Files with what a person asked to take down."""

    name = "requests"
    holds = "ids"
    erased = "the file is removed when all is done"
    by = "corpus takedown"
    home = ("requests",)


class Journal(Store):
    """Decisions about models."""

    name = "journal"
    holds = "nothing"
    settings = ("journal_url",)
    home = ("journal.pub",)


class Sources(Store):
    """Dumps, the offline Reddit, and Reddit itself."""

    name = "sources"
    holds = "content"
    keeps = "dumps, which are not changed: the tombstone keeps their records out"
    settings = ("dumps", "sandbox")


class Providers(Store):
    """Vendors of models that answer about texts."""

    name = "providers of models"
    holds = "content"
    keeps = "requests, for as long as the provider's terms state: name the days in your assessment"


class Backups(Store):
    """Backups of all stores."""

    name = "backups"
    holds = "content"
    keeps = (
        "the vault's keys and the earlier tables, until `corpus backup --keep-days` deletes the backup; the tombstones "
        "beside the backups keep them from coming back: see the rules in docs/privacy.md"
    )
    settings = ("vault_backup",)


class People(Store):
    """What people took out of the corpus."""

    name = "clones and opened items of people"
    holds = "content"
    keeps = (
        "tables from `corpus clone`: their content is unreadable; users must delete the ids themselves, and the "
        "folders that `corpus errors --content` wrote as soon as they were read"
    )


class Exports(Store):
    """Copies for people and for a hub of models and datasets."""

    name = "exports and repositories on a hub"
    holds = "content"
    keeps = (
        "repositories on a hub that were pushed from here, until a person replaces or removes them by the command that "
        "`corpus export list` and the takedown's output print; folders of `corpus export`, which belong to the person "
        "who wrote them, and copies that others downloaded"
    )
    settings = ("hub_url",)


class Services(Store):
    """Airflow's own files, logs, and what services were started with."""

    name = "Airflow and logs"
    holds = "nothing"
    home = ("airflow", "airflow.dump", "graph", "logs", "run", "ports.json", "services.env", "summary", "dvc-airflow*")


class House(Store):
    """Secrets, locks, and tools that are installed."""

    name = "house"
    holds = "nothing"
    home = ("secret", "followed", "locks", "rounds.lock", "kernels", "label-studio-env")
    settings = ("label_studio_env",)
