"""Notify people of failed and late runs by a callable or an Airflow notifier of the deployment's choice.

``CORPUS_AIRFLOW_NOTIFY`` is read where the callback runs, so that its arguments are never stored in Airflow's database.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

# Airflow 3.3's stub lacks these names
from airflow.sdk import AsyncCallback, DeadlineAlert, DeadlineReference  # type: ignore[attr-defined]

from dvc_airflow import settings

PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")

log = logging.getLogger(__name__)


class BadNotifier(ValueError):
    """CORPUS_AIRFLOW_NOTIFY is malformed; the Dag is not parsed."""


def target() -> tuple[str, dict[str, Any]] | None:
    """Return path and keyword arguments of the notifier in CORPUS_AIRFLOW_NOTIFY, or ``None``; nothing is imported."""
    setting = settings.NOTIFY.strip()
    if not setting:
        return None
    try:
        options = json.loads(setting) if setting.startswith("{") else {"path": setting}
    except ValueError:
        raise BadNotifier("CORPUS_AIRFLOW_NOTIFY: the value is not JSON.") from None
    path, kwargs = options.get("path"), options.get("kwargs", {})
    if options.keys() - {"path", "kwargs"} or not isinstance(kwargs, dict):
        raise BadNotifier('CORPUS_AIRFLOW_NOTIFY: give {"path": "module.name", "kwargs": {...}}.')
    if not isinstance(path, str) or not PATH.fullmatch(path):
        raise BadNotifier("CORPUS_AIRFLOW_NOTIFY: the path needs a module and a name, such as my_alerts.notify.")
    return path, kwargs


def send(facts: Mapping[str, Any]) -> None:
    """Call the notifier with the facts of a run: ``event``, ``dag_id``, ``run_id``, ``partition_key``, ``text``.

    A notifier class is created with its kwargs, whose templates may use the facts; another callable gets the facts
    first, then its kwargs.
    """
    log.warning("%s", facts["text"])
    if (notifier_path := target()) is None:
        return
    path, kwargs = notifier_path
    module, _, name = path.rpartition(".")
    called = getattr(import_module(module), name)
    if inspect.isclass(called):
        notifier: Any = called(**kwargs)
        notifier(dict(facts))
    else:
        called(dict(facts), **kwargs)


def failed(context: Any) -> None:
    """Notify people of a failed Dag run; Airflow calls this in the Dag processor."""
    run, task = context.get("dag_run"), context.get("ti")
    facts = {
        "event": "failed",
        "dag_id": context["dag"].dag_id,
        "run_id": context["run_id"],
        "partition_key": getattr(run, "partition_key", None),
        "task_id": getattr(task, "task_id", None),
        "reason": context.get("reason"),
    }
    at = f" at task {facts['task_id']}" if facts["task_id"] else ""
    send({**facts, "text": f"Run {facts['run_id']} of {facts['dag_id']} failed{at}."})


async def late(*, context: Mapping[str, Any]) -> None:
    """Notify people of a Dag run that missed its deadline; Airflow calls this in the triggerer."""
    run = context["dag_run"]
    facts = {"event": "late", "dag_id": run["dag_id"], "run_id": run["dag_run_id"]}
    text = f"Run {facts['run_id']} of {facts['dag_id']} has not ended by its deadline."
    await asyncio.to_thread(send, {**facts, "partition_key": run.get("partition_key"), "text": text})


def deadline(hours: float) -> Any:
    """Return the deadline of a Dag run, ``hours`` after it was queued; ``None`` for 0 hours.

    The deadline's callback runs in the triggerer: an executor without support for callbacks would stop Airflow 3.3's
    scheduler.
    """
    if not hours:
        return None
    # seconds: Airflow 3.3 cannot clear a run whose interval is a timedelta (apache/airflow#70368)
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=hours * 3600, callback=AsyncCallback(late)
    )
