"""Print the plan of a profile for people: a table of rows, what it needs, and what is missing with its command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.metrics.label_tables import UNDEFINED, Sheet

Json = Mapping[str, Any]


def sheet(plan: Json) -> Sheet:
    """Return the table of all rows of the paper and of what its other tables need."""
    rows = [_row(row) for row in (*plan["rows"], *plan["besides"])]
    columns = ("Row", "Entry", "Runs", "GPU memory", "Hours", "US dollars", "Runnable")
    return Sheet(f"Profile {plan['profile']}: {len(plan['rows'])} rows of the paper", columns, tuple(rows))


def _row(row: Json) -> tuple[str, ...]:
    need, asked = row["hardware"], row["requests"]
    memory = need["memory_gb"]
    gpu = UNDEFINED if memory is None else f"{memory:.0f} GB ({need['gpus']} × {need['of_gb']:.0f})" if memory else ""
    hours = UNDEFINED if need["hours"] is None else f"{need['hours']:.1f}" if need["hours"] else ""
    cost = f"{asked['usd_expected']:.2f}" if asked["requests"] else ""
    own = len(row["missing"])
    runnable = "yes" if row["runnable"] else f"no: {own} missing" if own else "no: see below"
    return (row["row"], row["entry"], row["runs"], gpu, hours, cost, runnable)


def lines(plan: Json) -> Iterator[str]:
    """Yield what the profile needs, what is missing with the command that supplies it, notes and assumptions."""
    needs = plan["needs"]
    yield f"{plan['runnable']} of {len(plan['rows'])} rows can run here on {plan['date']}."
    yield "Needs:"
    for title, names in (("keys", needs["keys"]), ("servers", needs["servers"]), ("consents", needs["consents"])):
        if names:
            yield f"  {title}: {', '.join(names)}"
    for told in needs["datasets"]:
        yield f"  dataset: {told['dataset']}"
    yield f"  approvals: {', '.join(needs['approvals'])}"
    gpus = f"{needs['gpus']} GPUs of {needs['of_gb']:.0f} GB"
    yield f"  GPUs: {needs['gpu_memory_gb']:.0f} GB at once ({gpus}), {needs['hours']:.1f} hours in all"
    yield f"  disk: {needs['disk_gb']:.0f} GB of base models"
    yield (
        f"  requests: {needs['requests']:,}, about {needs['usd_expected']:.2f} US dollars, at most "
        f"{needs['usd_at_most']:.2f}; budget {needs['budget_usd']:g}"
    )
    yield from _missing(plan)
    yield from _notes(plan)
    yield "Assumed:"
    yield from (f"  {text}" for text in plan["assumed"])


def _missing(plan: Json) -> Iterator[str]:
    """Yield each missing thing once, with the rows that lack it."""
    lacking: dict[tuple[str, str], list[str]] = {}
    for one in plan["missing"]:
        lacking[one["what"], one["command"]] = ["all rows"]
    for row in (*plan["rows"], *plan["besides"]):
        for one in row["missing"]:
            lacking.setdefault((one["what"], one["command"]), []).append(row["row"])
    if lacking:
        yield "Missing:"
    for (what, command), names in lacking.items():
        yield f"  {what} ({', '.join(names)})"
        yield f"    {command}"


def _notes(plan: Json) -> Iterator[str]:
    told: dict[str, list[str]] = {}
    for row in (*plan["rows"], *plan["besides"]):
        for note in row["notes"]:
            told.setdefault(note, []).append(row["row"])
    if told:
        yield "Notes:"
        yield from (f"  {note} ({', '.join(names)})" for note, names in told.items())
