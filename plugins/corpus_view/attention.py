"""List what failed, what is late and what waits for a person, each with what to do, from the state of the Dags."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from corpus_view.page_text import hours, money, passed, path
from dvc_airflow.settings import OF_CORPUS, named

if TYPE_CHECKING:
    from corpus_view.page_view import Summary

# The Dags of all corpora: the files of `dags/`.
OF_ALL = (
    "annotation_pull", "annotation_round", "backup", "deletion_sweep", "deliver", "doctor", "housekeeping", "promote",
    "release", "takedown",
)  # fmt: skip


@dataclass(frozen=True)
class SeenRun:
    """One run of a Dag: its state, its month if it has one, and the task that failed, if one did."""

    dag: str
    run_id: str
    state: str
    at: datetime | None
    key: str | None = None
    task: str | None = None

    @property
    def name(self) -> str:
        """The run for a reader: its Dag, and its month if it has one."""
        return f"{self.dag} of {self.key}" if self.key else f"Run of {self.dag}"

    @property
    def href(self) -> str:
        """The address of the run, or of its failed task, from the page."""
        return path("dags", self.dag, "runs", self.run_id, *(("tasks", self.task) if self.task else ()))


@dataclass(frozen=True)
class Question:
    """A task that waits for a person's answer."""

    dag: str
    subject: str
    since: datetime | None
    href: str


@dataclass(frozen=True)
class Runs:
    """What a user may see of Airflow's state; ``known`` are the ids of the Dags that the user may read."""

    known: frozenset[str] = frozenset()
    paused: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    failed: tuple[SeenRun, ...] = ()
    late: tuple[SeenRun, ...] = ()
    questions: tuple[Question, ...] = ()
    months: Mapping[tuple[str, str], SeenRun] = field(default_factory=dict)
    latest: Mapping[str, SeenRun] = field(default_factory=dict)

    def sees(self, *names: str) -> bool:
        """Return whether the user may read one of these Dags (names without the prefix)."""
        return any(named(name) in self.known for name in names)


def dag_ids(corpora: Collection[str]) -> set[str]:
    """Return the ids of all Dags of this project with these corpora."""
    return {named(f"{corpus}_{kind}") for corpus in corpora for kind in OF_CORPUS} | {named(name) for name in OF_ALL}


Json = Mapping[str, Any]

# By Dag or kind of Dag, after "Read the log of the failed task and remove the cause."
REMEDIES = {
    "backup": "Then clear the task: the backup resumes where it stopped.",
    "collect": "Then clear the task; nothing of the month was published.",
    "deletion_sweep": "Until a run succeeds, deletions on Reddit are not followed here.",
    "housekeeping": "Then clear the task: it removes what is left.",
    "doctor": "The log lists each failed check with its fix.",
    "takedown": "Then clear the task: the takedown resumes where it stopped.",
    "promote": "Then start a new run; the champion is unchanged.",
    "release": "Then start a new run; nothing was released.",
}
REMEDY = "Then clear the task and the tasks after it; nothing was published."
# Days within which an erasure is due: one month (GDPR, Art. 12(3)).
ERASURE_DAYS = 30
# That of `pipelines.release.release_store`.
DRAFT = "DRAFT"
# Share of the budget from which its end is announced; ours.
NEARLY = 0.9
# Hours without a new summary after which its numbers are called old; the daily sweep writes it. Ours.
OLD_HOURS = 48
FAILED, LATE, WAITS, CHECK = "failed", "late", "waits", "check"
KINDS = {FAILED: "Failed", LATE: "Late", WAITS: "Waits for a person", CHECK: "Check"}


@dataclass(frozen=True)
class Item:
    """One line of the first section: its subject, since when, what to do, and where."""

    kind: str
    what: str
    todo: str
    href: str | None = None
    since: Any = None
    command: str | None = None


def items(summary: Summary, *, runs: Runs, shown: Mapping[str, Json], now: datetime) -> list[Item]:
    """Return everything that needs a person, in the order failed, late, waiting, to be checked."""
    found = summary.found
    listed = [*_runs(runs), *_deletions(found, runs=runs, now=now), *_people(shown), *_decisions(found, runs=runs)]
    listed += [*_corpora(shown), *_money(found, shown=shown), *_summary(summary, now=now)]
    return sorted(listed, key=lambda item: list(KINDS).index(item.kind))


def _runs(runs: Runs) -> Iterator[Item]:
    for run in runs.failed:
        task, dag = f" at task {run.task}" if run.task else "", run.dag.removeprefix(named(""))
        remedy = REMEDIES.get(dag) or REMEDIES.get(dag.rpartition("_")[2], REMEDY)
        todo = f"Read the log of the failed task and remove the cause. {remedy}"
        yield Item(FAILED, f"{run.name} failed{task}", todo, run.href, run.at)
    for run in runs.late:
        todo = "See which task holds it up: a queue without a worker, a slow source, or a question to a person."
        yield Item(LATE, f"{run.name} has missed its deadline", todo, run.href, run.at)
    for dag in sorted(runs.broken):
        todo = "Read the import error of its file on Airflow's start page, or start the Dag processor."
        yield Item(FAILED, f"Dag {dag} cannot be parsed", todo, f"../dags/{dag}")
    for question in runs.questions:
        yield Item(WAITS, question.subject, "Read the figures and answer in Airflow.", question.href, question.since)
    sweep = named("deletion_sweep")
    if sweep in runs.paused:
        todo = "Unpause it: deletions on Reddit are not followed here while it is paused."
        yield Item(LATE, f"Dag {sweep} is paused", todo, f"../dags/{sweep}")


def _deletions(summary: Json, *, runs: Runs, now: datetime) -> Iterator[Item]:
    if not runs.sees("deletion_sweep", "takedown"):
        return
    takedowns = summary.get("takedowns") or {}
    for request in takedowns.get("open", ()):
        age = passed(request["begun"], now=now) or 0.0
        left = ERASURE_DAYS - age / 24
        places = f"; not cleared: {', '.join(request['pending'])}" if request["pending"] else ""
        what = f"Takedown {request['request']} is not complete after {hours(age)}{places}"
        todo = f"Resume it; {f'{left:.0f} days remain' if left >= 0 else 'its month is over'}."
        kind = FAILED if places or left < 0 else WAITS
        yield Item(kind, what, todo, "#deletions", request["begun"], "corpus takedown run-pending")
    for corpus, sweep in takedowns.get("swept", {}).items():
        since, limit = sweep["last"] or sweep["first_seen"], takedowns["sweep_hours"]
        if since and (passed(since, now=now) or 0) > limit:
            what = f"The last complete deletion sweep of {corpus} is older than {limit} h"
            yield Item(LATE, what, "Start a run of the Dag deletion_sweep, and read its log.", "#deletions", since)


def _people(shown: Mapping[str, Json]) -> Iterator[Item]:
    for corpus, part in shown.items():
        for round_ in (each for each in part.get("rounds", ()) if each["status"] != "closed"):
            who = "annotators" if round_["status"] == "open" else "the adjudicator"
            what, todo = f"Round {round_['round']} of {corpus}: {who}", "See whose queue has open items."
            command = f"corpus round status {corpus} {round_['round']}"
            yield Item(WAITS, what, todo, f"#rounds-{corpus}", round_["opened"], command)
        for ensemble, silver in part.get("silver", {}).items():
            if queued := silver["queue"]["records"]:
                what = f"{queued:,} records of {corpus} that the ensemble {ensemble} leaves to people"
                todo = "Open a round of review with the Dag annotation_round."
                yield Item(WAITS, what, todo, f"#votes-{corpus}")


def _decisions(summary: Json, *, runs: Runs) -> Iterator[Item]:
    if runs.sees("release"):
        for entry in summary.get("releases", ()):
            if entry.get("status") == DRAFT:
                what, command = f"Release {entry['release']} is a draft", f"corpus release approve {entry['release']}"
                todo = "Check its datasheet, then approve or replace it."
                yield Item(WAITS, what, todo, "#releases", entry.get("drafted"), command)
    if runs.sees("promote"):
        for name, entry in summary.get("registry", {}).items():
            if entry.get("open"):
                what = f"A change of {name}'s champion is unfinished since row {entry['open']} of its journal"
                todo, command = "Repeat the promotion, or give it up.", f"corpus promote {name} --abandon"
                yield Item(FAILED, what, todo, "#registry", command=command)


def _corpora(shown: Mapping[str, Json]) -> Iterator[Item]:
    for corpus, part in shown.items():
        months = [month for year in part["calendar"] for month in year["months"]]
        missing = sorted(month["key"] for month in months if month["state"] == "missing")
        if missing:
            many = f"{len(missing)} months from {missing[0]} to {missing[-1]}"
            are = f"Month {missing[0]} of {corpus} is" if len(missing) == 1 else f"{many} of {corpus} are"
            dag = named(f"{corpus}_collect")
            dates = f"--from-date {missing[0]}-01 --to-date {missing[-1]}-01"
            command = f"airflow backfill create --dag-id {dag} {dates}"
            yield Item(CHECK, f"{are} missing", "Collect them with a backfill.", f"#months-{corpus}", command=command)
        gaps = [month for month in months if month["state"] == "gap"]
        if gaps:
            lost = hours(sum(month["gap_hours"] for month in gaps))
            what = f"{len(gaps)} {'month' if len(gaps) == 1 else 'months'} of {corpus} with gaps, {lost} in all"
            todo = "The Dag that refreshes asks other sources for them for refresh.retry_days."
            yield Item(CHECK, what, todo, f"#months-{corpus}")
        for name, model in part.get("models", {}).items():
            newest = model["drift"]["newest"] or {}
            if drifted := newest.get("exceeded"):
                what = f"Predictions of {name} drifted in {newest['month']}: {', '.join(drifted)}"
                todo = "Have people label a sample of this month, then train again."
                yield Item(CHECK, what, todo, f"#alerts-{corpus}")


def _money(summary: Json, *, shown: Mapping[str, Json]) -> Iterator[Item]:
    budget = summary.get("budget") or {"limit": 0}
    if not budget["limit"] or not any(part.get("votes") for part in shown.values()):
        return
    if (used := budget["paid"] + budget["reserved"]) >= NEARLY * budget["limit"]:
        what = f"{money(used)} of the labelling budget of {money(budget['limit'])} are used"
        todo = "Requests that could exceed it are not sent: raise votes.budget_usd, or wait."
        yield Item(CHECK, what, todo, "#budget")


def _summary(summary: Summary, *, now: datetime) -> Iterator[Item]:
    command, written = "corpus status --write", summary.found.get("written")
    if summary.fault:
        todo = "It is written when a month or a snapshot is published. To write it now, run the command."
        yield Item(CHECK, summary.fault, todo, command=command)
    elif (age := passed(written, now=now)) is None or age > OLD_HOURS:
        what = "The numbers of this page are old: no task has written the summary since"
        yield Item(CHECK, what, "See whether deletion_sweep runs daily.", since=written, command=command)
    elif summary.changed:
        what = "A command has changed the corpus since the numbers of this page were written"
        yield Item(CHECK, what, "Run the command to see them.", since=summary.changed.isoformat(), command=command)
