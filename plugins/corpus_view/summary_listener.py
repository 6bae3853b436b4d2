"""Write the summary of the Corpus page after each task that changes the corpus: a listener of Airflow.

It runs in the task's process, which has the variables of its commands, when Airflow has the task's state: what follows
need not wait. A task that failed may have done a part of its work. No task fails because of the page.
"""

from __future__ import annotations

import logging
from typing import Any

from airflow.listeners import hookimpl

from dvc_airflow import command

# The commands that change what the page shows; below `task` these.
CHANGING = frozenset({"round", "sweep", "takedown", "register", "promote", "reject", "rollback", "release", "track"})
PUBLISHING = frozenset({"publish-partition", "publish-snapshot", "label", "approve"})

log = logging.getLogger(__name__)


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Write the summary if the task ran a command that changes the corpus."""
    del previous_state, task_instance
    _write()


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    del previous_state, task_instance, error
    _write()


def _write() -> None:
    if not any(argv[0] in CHANGING or (argv[1:2] and argv[1] in PUBLISHING) for argv in command.started):
        return
    try:
        command.run("status", "--write")
    except Exception:
        log.warning("The summary of the Corpus page was not written; `corpus status --write` writes it.")
    finally:
        command.started.clear()
