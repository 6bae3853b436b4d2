"""Give every task its pool, queue, executor and limits: the project's options, overridden by the deployment's.

The project's options are in ``profiles/tasks.json``, the deployment's in ``CORPUS_AIRFLOW_TASKS``, by Dag and task,
task or step; ``*`` is for tasks without options. Of a step with a model's answers, ``<step>__computed`` are the tasks
that run the model here, and ``<step>__asked`` those that ask labellers or read their stored votes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from dvc_airflow import settings
from dvc_airflow.graph import graph, listed
from dvc_airflow.settings import OF_CORPUS, named

KINDS: dict[str, type] = {
    "queue": str,
    "pool": str,
    "pool_slots": int,
    "executor": str,
    "executor_config": dict,
    "priority_weight": int,
    "retries": int,
    "timeout_minutes": int,
}
EVERY = "*"


class BadTaskOptions(ValueError):
    """An option of an Airflow task is unknown or has a wrong type; the Dag is not parsed."""


def checked(options: Any, *, where: str) -> dict[str, Any]:
    """Validate the options of a task, and return them as arguments of an Airflow operator."""
    if not isinstance(options, dict):
        raise BadTaskOptions(f"{where}: a task needs a mapping of options, such as {{queue: gpu}}.")
    for key, value in options.items():
        if key not in KINDS:
            raise BadTaskOptions(f"{where}: '{key}' is not an option of a task; choose from {', '.join(KINDS)}.")
        if not isinstance(value, KINDS[key]) or isinstance(value, bool):
            raise BadTaskOptions(f"{where}: {key} needs a value of type {KINDS[key].__name__}.")
    if "pod_override" in options.get("executor_config", {}):
        raise BadTaskOptions(f"{where}: a file cannot hold a pod_override; use pod_template_file in executor_config.")
    arguments = {key: value for key, value in options.items() if key != "timeout_minutes"}
    if "timeout_minutes" in options:
        arguments["execution_timeout"] = timedelta(minutes=options["timeout_minutes"])
    return arguments


def for_every_task() -> dict[str, Any]:
    """Return the deployment's operator arguments for tasks that have no options of their own."""
    return checked(_deployment().get(EVERY, {}), where=f"CORPUS_AIRFLOW_TASKS, {EVERY}")


def place(tasks: Mapping[str, Any], *, dag: str) -> None:
    """Set the options (pool, queue and so on) of the tasks of a Dag."""
    deployment = _deployment()
    project: dict[str, Any] = json.loads((settings.ROOT / "profiles" / "tasks.json").read_text())
    _known(deployment, project=project)
    stages, corpus = graph(), dag.rpartition("_")[0]
    for task_id, task in tasks.items():
        step = task_id.partition("__")[0]
        stage = stages.get(task_id.replace("__", f"@{corpus}-", 1))
        names = dict.fromkeys((step, f"{step}__{stage.answers}" if stage and stage.answers else step, task_id))
        keys = [*names, *(f"{dag}.{name}" for name in names)]
        arguments: dict[str, Any] = {}
        for key in keys:
            arguments |= checked(project.get(key, {}), where=f"profiles/tasks.json, {key}")
        if "pool" in arguments:
            arguments["pool"] = named(arguments["pool"])
        for key in keys:
            arguments |= checked(deployment.get(key, {}), where=f"CORPUS_AIRFLOW_TASKS, {key}")
        # a mapped operator has no setter for executor_config
        mapped = getattr(task, "partial_kwargs", None)
        for key, value in arguments.items():
            if mapped is None:
                setattr(task, key, value)
            else:
                mapped[key] = value


def _deployment() -> dict[str, Any]:
    setting = settings.TASKS.strip()
    if not setting:
        return {}
    import yaml

    try:
        options = yaml.safe_load(setting if setting.startswith("{") else Path(setting).read_text())
    except OSError as error:
        raise BadTaskOptions(f"CORPUS_AIRFLOW_TASKS: the file cannot be read ({type(error).__name__}).") from None
    except yaml.YAMLError:
        raise BadTaskOptions("CORPUS_AIRFLOW_TASKS: the value is neither JSON nor the path of a YAML file.") from None
    if not isinstance(options or {}, dict):
        raise BadTaskOptions("CORPUS_AIRFLOW_TASKS: the file needs a mapping of tasks to options.")
    return options or {}


def _known(deployment: Mapping[str, Any], *, project: Mapping[str, Any]) -> None:
    """Refuse a key that matches no Dag or no task."""
    if not deployment:
        return
    steps = {stage.step for stage in graph().values()} | {str(key).rpartition(".")[2] for key in project}
    dags = {path.stem for path in (settings.ROOT / "dags").glob("*.py")}
    dags |= {f"{corpus}_{kind}" for corpus in listed("corpora") for kind in OF_CORPUS}
    for key in deployment:
        dag, _, rest = str(key).partition(".")
        # a Dag and its only task may have the same name, such as `deliver`
        task = rest if rest and dag in dags else str(key)
        if key != EVERY and task.partition("__")[0] not in steps:
            raise BadTaskOptions(f"CORPUS_AIRFLOW_TASKS: no Dag has a task '{key}'.")
