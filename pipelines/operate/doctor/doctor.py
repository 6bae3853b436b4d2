"""List the checks of a deployment and run them (``corpus doctor``)."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path

from pipelines.core.config.settings import Settings
from pipelines.operate.doctor import machine, servers, stores
from pipelines.operate.doctor.deployment import Deployment, opened
from pipelines.operate.doctor.finding import Check, Finding, run

Found = list[tuple[str, Finding]]


def examine(settings: Settings, *, root: Path, now: datetime, seconds: float, deep: bool = False) -> Found:
    """Run every check of a deployment, and return each check's name and finding; a failure does not stop the others."""
    with opened(settings, root=root, now=now, seconds=seconds) as (deployment, first):
        listed = [] if deployment is None else checks(deployment, seconds=seconds, deep=deep)
        return [*first.items(), *run(listed, seconds=seconds)]


def checks(deployment: Deployment, *, seconds: float, deep: bool) -> list[Check]:
    """Return the checks of a deployment in the order in which they start."""
    params = deployment.params
    used = servers.sources(params)
    # requests end before the check does, so that their finding names the server
    soon = seconds * 0.8
    ocr = [Check("ocr", partial(machine.ocr, deployment), times=3)]
    listed = [name for name, corpus in params.corpora.items() if corpus.listed]
    return [
        # first, because it compares a server's clock with the time at which the examination began
        Check("clock", partial(machine.clock, deployment, seconds=soon)),
        *(ocr if any(corpus.content == "images" for corpus in params.corpora.values()) else []),
        Check("remote", partial(stores.remote, deployment)),
        Check("cache", partial(stores.cache, deployment, deep=deep), patient=deep),
        Check("push", partial(stores.push, deployment, seconds=soon)),
        *(Check(f"source {name}", partial(servers.source, deployment, name)) for name in used),
        *(Check(f"approval {name}", partial(servers.approval, deployment, name)) for name in used),
        *(
            Check(f"labeller {name}", partial(servers.labeller, deployment, name, seconds=soon))
            for name in servers.labellers(params)
        ),
        *(Check(f"consent {name}", partial(servers.consent, deployment, name)) for name in servers.recipients(params)),
        Check("mlflow", partial(servers.mlflow, deployment, seconds=soon)),
        Check("airflow", partial(servers.airflow, deployment, seconds=soon)),
        Check("deadlines", partial(servers.deadlines, deployment, seconds=soon)),
        Check("graph", partial(servers.graph, deployment)),
        Check("pools", partial(servers.pools, deployment)),
        Check("queues", partial(servers.queues, deployment)),
        Check("housekeeping", partial(servers.housekeeping, deployment)),
        Check("secret", partial(stores.secret, deployment)),
        Check("vault", partial(stores.vault, deployment)),
        Check("backup", partial(stores.backup, deployment)),
        Check("hub", partial(stores.hub, deployment)),
        *([Check("refreshes", partial(stores.refreshes, deployment))] if listed else []),
        *(Check(f"refresh {corpus}", partial(stores.refresh, deployment, corpus)) for corpus in listed),
        Check("takedowns", partial(stores.takedowns, deployment)),
        Check("budget", partial(stores.budget, deployment)),
        Check("permissions", partial(stores.permissions, deployment)),
        *(Check(f"sweep {corpus}", partial(stores.sweep, deployment, corpus)) for corpus in params.corpora),
        Check("versions", partial(machine.versions, deployment)),
        *(Check(f"disk {name}", partial(machine.disk, deployment, name)) for name in machine.places(deployment)),
        Check("memory", partial(machine.memory, deployment)),
        Check("bases", partial(machine.bases, deployment)),
        Check("gpu", partial(machine.gpu, deployment)),
    ]
