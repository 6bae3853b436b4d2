"""What the demo shows of the registry: a first champion, a worse one refused, a better one, the way back, a forgery.

Every step goes as a person would go it: the Dag ``promote``, an answer in Airflow, the command ``corpus rollback``.
What was done by an earlier call is on record and not done again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipelines.evaluate.benchmark import Run
from pipelines.params import Settings
from pipelines.registry import contents
from pipelines.registry.commands import opened
from pipelines.registry.entries import Context, enter, scratch
from pipelines.registry.journal import Journal, Row
from pipelines.registry.versions import digest, listing, subject
from pipelines.sandbox.airflow_api import Airflow, RunFailed
from pipelines.sandbox.services import Deployment

DAG = "promote"
WHO = "demo"
CONTESTED, OTHERS = "meme-severity", ("crisis-posts",)
SHOWN = ("gated", "refused", "promoted", "rolled_back", "withdrawn")


@dataclass(frozen=True)
class Act:
    """What is needed to promote: Airflow, the settings, the deployment's environment."""

    airflow: Airflow
    settings: Settings
    deployment: Deployment

    def play(self, console: Console) -> None:
        """Do what is not on record yet, and print the journal.

        Raises:
            RunFailed: a run failed, or a decision came out otherwise than planned.
        """
        self.airflow.unpause(DAG)
        for name in OTHERS:
            self.step(name, "promoted", 1, partial(self.run, name, 1))
        registry = {"mlflow_tracking_uri": self.deployment.environment["MLFLOW_TRACKING_URI"]}
        settings = self.settings.model_copy(update=registry)
        if not self.on_record(CONTESTED, "rolled_back"):
            worse, first, better = parts(settings, name=CONTESTED)
            self.step(CONTESTED, "promoted", first, partial(self.run, CONTESTED, first))
            self.step(CONTESTED, "refused", worse, partial(self.run, CONTESTED, worse))
            self.step(CONTESTED, "promoted", better, partial(self.run, CONTESTED, better))
            self.step(CONTESTED, "rolled_back", first, partial(self.rollback, leaving=better))
        console.print(journal(self.settings, name=CONTESTED))
        for what, reason in forgeries(settings, name=CONTESTED):
            console.print(f"[green]✓[/] refused: {what} – {reason}")

    def step(self, name: str, event: str, version: int, do: Callable[[], None]) -> None:
        """Do something unless the journal has it, and look whether it has it then."""
        if not self.on_record(name, event, version):
            do()
            if not self.on_record(name, event, version):
                detail = f"version {version} of {name} was to be {event}"
                raise RunFailed(dag=DAG, state="done otherwise", detail=detail, address=self.airflow.base)

    def on_record(self, name: str, event: str, version: int | None = None) -> bool:
        """Whether the journal has such a row, of any version if none is named."""
        with Journal.open(self.settings.journal_url) as journal:
            return any(row.event == event and version in (None, row.to_version) for row in journal.rows(name))

    def run(self, name: str, version: int) -> None:
        """Start the Dag, and approve if it asks."""
        run_id = self.airflow.trigger(DAG, conf={"name": name, "version": version})
        why = "the figures are as they should be for a demo"
        self.airflow.finish(DAG, run_id, answers={"approve": ("Promote", {"why": why})})

    def rollback(self, *, leaving: int) -> None:
        """Go back with the command, as a person would."""
        argv = ["rollback", CONTESTED, "--who", WHO, "--why", "to show the way back", "--leaving", str(leaving)]
        done = subprocess.run(
            [sys.executable, "-m", "pipelines", *argv], cwd=self.deployment.root, env=self.deployment.environment,
            capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RunFailed(dag="rollback", state="failed", detail=f"exit status {done.returncode}", address="-")


def parts(settings: Settings, *, name: str) -> tuple[int, int, int]:
    """Return which of the first three versions plays whom: the worse one, the first champion, the better one.

    They are compared as the gate compares them, on its test and by its terms: who is ahead is a matter of which memes
    stand in the test, and that of the home's own secret.

    Raises:
        RunFailed: none of them is ahead of the majority set and of one other, and behind the third.
    """
    from pipelines.registry import frozen
    from pipelines.registry.scores import compare

    with opened(settings, name=name) as context, scratch(settings) as folder:
        corpus, category = subject(name, params=context.params)
        given: dict[str, Any] = {"params": context.params, "vault": context.vault, "root": context.root}
        test = frozen.open_test(corpus, category=category, **given)
        floors = context.terms.recall_floors.get(name, {})
        entries = (enter(version, context=context, folder=folder) for version in context.registry.versions(name)[:3])
        said: dict[int | None, Run] = {
            entry.version.version: frozen.ask(entry.folder, frozen=test) for entry in entries if entry.sound
        }
        said[None] = test.constant()

        def passes(version: int, champion: int | None) -> bool:
            found = compare(
                test, candidate=said[version], other=said[champion], champion=champion, floors=floors,
                terms=context.terms,
            )  # fmt: skip
            return not any(found.reasons.values())

        for worse, first, better in permutations(v for v in said if v is not None):
            if passes(first, None) and not passes(worse, first) and passes(better, first):
                return worse, first, better
    detail = f"of the first three versions of {name} no one stands between the others"
    raise RunFailed(dag=DAG, state="not begun", detail=detail, address="-")


def journal(settings: Settings, *, name: str) -> Table:
    """Return the decisions about a model, for a terminal."""
    table = Table(title=f"the journal of {name}", title_justify="left")
    for column in ("row", "event", "from", "to", "who", "why"):
        table.add_column(column)
    with Journal.open(settings.journal_url) as opened_journal:
        for row in opened_journal.rows(name):
            if row.event in SHOWN:
                table.add_row(str(row.number), row.event, *map(_text, (row.from_version, row.to_version)), *_said(row))
    return table


def forgeries(settings: Settings, *, name: str) -> Iterator[tuple[str, str]]:
    """Try to bring in a pickle, a version without a card, and one byte changed after registration.

    Yields what was tried and why it was refused.
    """
    from pipelines.registry import register

    with opened(settings) as context:
        for what, plant in (("a planted pickle", _pickle), ("a missing card", _no_card)):
            with _copy(context, name=name) as folder:
                plant(folder)
                try:
                    register.put(name, folder, context=context, who=WHO, why="a forgery")
                except register.Unregistrable as error:
                    yield what, str(error.fields["detail"])
                else:
                    raise RunFailed(dag=DAG, state="fooled", detail=what, address="-")
        with _copy(context, name=name) as folder:
            registered = digest(folder)
            card = contents.place(folder) / contents.CARD
            card.write_bytes(card.read_bytes().replace(b" ", b"\t", 1))
            faults = contents.faults(folder, registered=registered)["files"]
            if not faults:
                raise RunFailed(dag=DAG, state="fooled", detail="a changed byte", address="-")
            yield "a changed byte", faults[0]


@contextmanager
def _copy(context: Context, *, name: str) -> Iterator[Path]:
    with scratch(context.settings) as place:
        yield context.registry.fetch(context.registry.version(name, 1), to=place / "version")


def _pickle(folder: Path) -> None:
    """Put what every pickle begins and ends with among the pack's files, and list it as if it belonged there."""
    pack = contents.place(folder)
    (pack / "weights.bin").write_bytes(b"\x80\x04N.")
    _listed(pack)


def _no_card(folder: Path) -> None:
    pack = contents.place(folder)
    (pack / contents.CARD).unlink()
    _listed(pack)


def _listed(pack: Path) -> None:
    (pack / contents.FILES).unlink()
    (pack / contents.FILES).write_text(json.dumps(listing(pack)))


def _said(row: Row) -> tuple[str, str]:
    reasons: Any = row.metrics.get("reasons")
    return row.who, "; ".join(reasons) if reasons else row.why


def _text(version: int | None) -> str:
    return "–" if version is None else str(version)
