"""List what failed, what is late and what waits for a person, each with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from corpus_view.page_text import hours, moment, money
from corpus_view.runs_seen import Runs, SeenRun
from dvc_airflow.names import named

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
WORDS = {FAILED: "Failed", LATE: "Late", WAITS: "Waits for a person", CHECK: "Check"}


@dataclass(frozen=True)
class Item:
    """One line of the first section: its subject, since when, what to do, and where."""

    kind: str
    what: str
    todo: str
    href: str | None = None
    since: Any = None
    command: str | None = None

    @property
    def word(self) -> str:
        """The kind in words."""
        return WORDS[self.kind]


def items(summary: Json, *, fault: str, runs: Runs, shown: Mapping[str, Json], now: datetime) -> list[Item]:
    """Return everything that needs a person, in the order failed, late, waiting, to be checked."""
    listed = [*_runs(runs), *_deletions(summary, runs=runs, now=now), *_people(shown)]
    listed += [
        *_decisions(summary, runs=runs),
        *_corpora(shown),
        *_money(summary, shown=shown),
        *_summary(summary, fault=fault, now=now),
    ]
    return sorted(listed, key=lambda item: list(WORDS).index(item.kind))


def _runs(runs: Runs) -> Iterator[Item]:
    for run in runs.failed:
        task = f" at task {run.task}" if run.task else ""
        todo = f"Read the log of the failed task and remove the cause. {_remedy(run)}"
        yield Item(FAILED, f"{_name(run)} failed{task}", todo, run.href, run.at)
    for run in runs.late:
        todo = "See which task holds it up: a queue without a worker, a slow source, or a question to a person."
        yield Item(LATE, f"{_name(run)} has missed its deadline", todo, run.href, run.at)
    for dag in sorted(runs.broken):
        todo = "Read the import error of its file on Airflow's start page, or start the Dag processor."
        yield Item(FAILED, f"Dag {dag} cannot be parsed", todo, f"../dags/{dag}")
    for question in runs.questions:
        yield Item(WAITS, question.subject, "Read the figures and answer in Airflow.", question.href, question.since)
    sweep = named("deletion_sweep")
    if sweep in runs.paused:
        todo = "Unpause it: deletions on Reddit are not followed here while it is paused."
        yield Item(LATE, f"Dag {sweep} is paused", todo, f"../dags/{sweep}")


def _name(run: SeenRun) -> str:
    return f"{run.dag} of {run.key}" if run.key else f"Run of {run.dag}"


def _remedy(run: SeenRun) -> str:
    dag = run.dag.removeprefix(named(""))
    return REMEDIES.get(dag) or REMEDIES.get(dag.rpartition("_")[2]) or REMEDY


def _deletions(summary: Json, *, runs: Runs, now: datetime) -> Iterator[Item]:
    if not runs.sees("deletion_sweep", "takedown"):
        return
    takedowns = summary.get("takedowns") or {}
    for request in takedowns.get("open", ()):
        begun = moment(request.get("begun"))
        age = (now - begun).total_seconds() / 3600 if begun else 0.0
        left = ERASURE_DAYS - age / 24
        kind = FAILED if request.get("pending") or left < 0 else WAITS
        places = f"; not cleared: {', '.join(request['pending'])}" if request.get("pending") else ""
        what = f"Takedown {request['request']} is not complete after {hours(age)}{places}"
        term = f"{left:.0f} days remain" if left >= 0 else "its month is over"
        yield Item(kind, what, f"Resume it; {term}.", "#deletions", begun, "corpus takedown run-pending")
    for corpus, sweep in takedowns.get("swept", {}).items():
        since, limit = moment(sweep.get("last")) or moment(sweep.get("first_seen")), takedowns.get("sweep_hours")
        if since and limit and (now - since).total_seconds() > 3600 * limit:
            what = f"The last complete deletion sweep of {corpus} is older than {limit} h"
            yield Item(LATE, what, "Start a run of the Dag deletion_sweep, and read its log.", "#deletions", since)


def _people(shown: Mapping[str, Json]) -> Iterator[Item]:
    for corpus, part in shown.items():
        for round_ in part["rounds"]:
            if round_["status"] == "closed":
                continue
            who = "annotators" if round_["status"] == "open" else "the adjudicator"
            command = f"corpus round status {corpus} {round_['round']}"
            yield Item(WAITS, f"Round {round_['round']} of {corpus}: {who}", "See whose queue has open items.",
                       f"#rounds-{corpus}", round_["opened"], command)  # fmt: skip
        for ensemble in part["votes"]["ensembles"]:
            if ensemble["queued"]:
                left = f"that the ensemble {ensemble['ensemble']} leaves to people"
                what = f"{ensemble['queued']:,} records of {corpus} {left}"
                todo = "Open a round of review with the Dag annotation_round."
                yield Item(WAITS, what, todo, f"#votes-{corpus}")


def _decisions(summary: Json, *, runs: Runs) -> Iterator[Item]:
    if runs.sees("release"):
        for entry in summary.get("releases", ()):
            if entry.get("status") == DRAFT:
                what, command = f"Release {entry['release']} is a draft", f"corpus release approve {entry['release']}"
                yield Item(WAITS, what, "Check its datasheet, then approve or replace it.", "#releases",
                           entry.get("drafted"), command)  # fmt: skip
    if runs.sees("promote"):
        for name, entry in summary.get("registry", {}).items():
            if entry.get("open"):
                what = f"A change of {name}'s champion is unfinished since row {entry['open']} of its journal"
                yield Item(FAILED, what, "Repeat the promotion, or give it up.", "#registry", None,
                           f"corpus promote {name} --abandon")  # fmt: skip


def _corpora(shown: Mapping[str, Json]) -> Iterator[Item]:
    for corpus, part in shown.items():
        months = [month for year in part["calendar"] for month in year["months"]]
        missing = sorted(month["key"] for month in months if month["state"] == "missing")
        if missing:
            what = f"{_many(missing)} of {corpus} {'is' if len(missing) == 1 else 'are'} missing"
            dag = named(f"{corpus}_collect")
            dates = f"--from-date {missing[0]}-01 --to-date {missing[-1]}-01"
            yield Item(CHECK, what, "Collect them with a backfill.", f"#months-{corpus}", None,
                       f"airflow backfill create --dag-id {dag} {dates}")  # fmt: skip
        gaps = [month for month in months if month["state"] == "gap"]
        if gaps:
            lost = hours(sum(month["gap"] for month in gaps))
            what = f"{len(gaps)} {'month' if len(gaps) == 1 else 'months'} of {corpus} with gaps, {lost} in all"
            yield Item(CHECK, what, "The Dag that refreshes asks other sources for them for refresh.retry_days.",
                       f"#months-{corpus}")  # fmt: skip
        for model in part["alerts"]:
            drifted = [row["label"] for row in model["rows"] if row["drifted"]] + model["others"]
            if drifted:
                what = f"Predictions of {model['model']} drifted in {model['newest']}: {', '.join(drifted)}"
                yield Item(CHECK, what, "Have people label a sample of this month, then train again.",
                           f"#alerts-{corpus}")  # fmt: skip


def _many(months: Sequence[str]) -> str:
    return f"Month {months[0]}" if len(months) == 1 else f"{len(months)} months from {months[0]} to {months[-1]}"


def _money(summary: Json, *, shown: Mapping[str, Json]) -> Iterator[Item]:
    budget = summary.get("budget") or {}
    used = budget.get("paid", 0) + budget.get("reserved", 0)
    if (
        any(part["votes"]["labellers"] for part in shown.values())
        and budget.get("limit")
        and used >= NEARLY * budget["limit"]
    ):
        what = f"{money(used)} of the labelling budget of {money(budget['limit'])} are used"
        yield Item(
            CHECK, what, "Requests that could exceed it are not sent: raise votes.budget_usd, or wait.", "#budget"
        )


def _summary(summary: Json, *, fault: str, now: datetime) -> Iterator[Item]:
    command = "corpus status --write"
    if fault:
        todo = "It is written when a month or a snapshot is published. To write it now, run the command."
        yield Item(CHECK, fault, todo, command=command)
        return
    written = moment(summary.get("written"))
    if written is None or (now - written).total_seconds() > 3600 * OLD_HOURS:
        what = "The numbers of this page are old: no command has written the summary since"
        yield Item(CHECK, what, "See whether deletion_sweep runs daily.", since=written, command=command)
