"""Show the progress of the demo's Dag runs: bars on a terminal, else one line for each finished task."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from crisis_corpus_sandbox.demo.runs import Key, Look, key_of, task_of, title_of
from pipelines.deployment.airflow_api import ENDED

SHOWN = ("success", "failed", "up_for_retry")


class Lines(AbstractContextManager["Lines"]):
    """Print one line for each task attempt that ends after the start of the demo: Dag, month, task, seconds."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._known: set[tuple[Key, int]] | None = None

    def __exit__(self, *_: object) -> None:
        """Do nothing: there are no resources to release."""

    def show(self, look: Look) -> None:
        """Print the task attempts that ended since the last poll; the first call prints nothing."""
        titles = {(run["dag_id"], run["dag_run_id"]): title_of(run) for run in look.runs}
        ended = [task for task in look.tasks if task["state"] in SHOWN and task["duration"] is not None]
        known = self._known
        self._known = (known or set()) | {(key_of(task), task["try_number"]) for task in ended}
        if known is None:
            return
        for task in sorted(ended, key=lambda task: task["end_date"] or ""):
            if (key_of(task), task["try_number"]) not in known:
                title = titles.get((task["dag_id"], task["dag_run_id"]), task["dag_id"])
                state = "" if task["state"] == "success" else f"  {task['state']}"
                line = f"{task['duration']:7.1f} s  {title:<24} {task_of(task)}{state}"
                self.console.print(line, highlight=False, soft_wrap=True, markup=False)


class Bars(AbstractContextManager["Bars"]):
    """Show one progress bar for each Dag run that was unfinished when the demo started."""

    def __init__(self, console: Console) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
        self.progress = Progress(*columns, TimeElapsedColumn(), console=console)
        self._bars: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def show(self, look: Look) -> None:
        """Update the progress bars from a snapshot of Airflow's runs and tasks."""
        for run in look.runs:
            run_id = run["dag_run_id"]
            if run_id not in self._bars:
                self._bars[run_id] = self.progress.add_task(title_of(run), total=None, note="")
            bar = self._bars[run_id]
            states = Counter(task["state"] or "waiting" for task in look.tasks_of(run))
            note = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
            done = states["success"] + states["skipped"]
            self.progress.update(bar, total=states.total() or None, completed=done, note=note)
            if run["state"] in ENDED:
                self.progress.stop_task(bar)


def view(console: Console) -> Lines | Bars:
    """Return the progress display for the console: bars on a terminal, else lines."""
    return Bars(console) if console.is_terminal else Lines(console)
