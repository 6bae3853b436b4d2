"""List the checks of a deployment and run them (``corpus doctor``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.core.config.settings import Settings
from pipelines.operate.doctor import machine, servers, stores
from pipelines.operate.doctor.deployment import Check, Deployment, Finding, opened, run

Found = list[tuple[str, Finding]]
# Times the time-out for a check that reads every object of a cache: a day, with the usual one.
PATIENT = 8640


def examine(settings: Settings, *, root: Path, now: datetime, seconds: float, deep: bool = False) -> Found:
    """Run every check of a deployment, and return each check's name and finding; a failure does not stop the others."""
    with opened(settings, root=root, now=now, seconds=seconds) as (deployment, first):
        listed = [] if deployment is None else checks(deployment, deep=deep)
        return [*first.items(), *run(listed, seconds=seconds)]


def checks(deployment: Deployment, *, deep: bool) -> list[Check]:
    """Return the checks of a deployment in the order in which they start."""
    params = deployment.params
    used, listed = servers.sources(params), [name for name in params.corpora if params.listing(name)]

    def of(*runs: Callable[[Deployment], Finding]) -> list[Check]:
        return [Check(run.__name__, partial(run, deployment)) for run in runs]

    def each(run: Callable[[Deployment, Any], Finding], names: Iterable[str]) -> list[Check]:
        return [Check(f"{run.__name__} {name}", partial(run, deployment, name)) for name in names]

    ocr = [Check("ocr", partial(machine.ocr, deployment), times=3)]
    return [
        # first, because it compares a server's clock with the time at which the examination began
        *of(machine.clock),
        *(ocr if any(corpus.content == "images" for corpus in params.corpora.values()) else []),
        *of(stores.remote),
        Check("cache", partial(stores.cache, deployment, deep=deep), times=PATIENT if deep else 1),
        *of(stores.push),
        *each(servers.source, used),
        *each(servers.approval, used),
        *each(servers.labeller, servers.labellers(params)),
        *each(servers.consent, servers.recipients(params)),
        *of(servers.mlflow, servers.airflow, servers.deadlines, servers.graph, servers.pools, servers.queues),
        *of(servers.housekeeping, stores.secret, stores.vault, stores.backup, stores.hub),
        *(of(stores.refreshes) if listed else []),
        *each(stores.refresh, listed),
        *of(stores.takedowns, stores.budget, stores.permissions),
        *each(stores.sweep, params.corpora),
        *of(machine.versions, machine.variables),
        *each(machine.disk, machine.places(deployment)),
        *of(machine.memory, machine.bases, machine.gpu),
    ]
