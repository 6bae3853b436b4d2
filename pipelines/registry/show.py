"""Show the registered models for `corpus registry`: versions, champion, decisions with figures, and training data.

Faults, such as a broken journal or a moved alias, are shown with the rest and never prevent the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from crisis_corpus.journal import JournalBroken, JournalRow, Standing, of_rows
from crisis_corpus.versions import UnknownModel, Version
from pipelines.core.config.settings import Settings
from pipelines.registry import lineage
from pipelines.registry.journal import Journal
from pipelines.registry.transitions import last_move
from pipelines.registry.versions import ALIASES, Registry

Json = dict[str, Any]


def gather(
    name: str | None, *, registry: Registry, journal: Journal, known: Mapping[str, str] | None = None
) -> list[Json]:
    """Collect the state of one registered model, or of all that have a journal row or a version of this project.

    Args:
        known: by model, the digest of a journal row that must exist (``transitions.published_anchors``).

    Returns:
        for each model ``name``, ``champion`` (by the journal), ``aliases`` (by MLflow), ``before`` (the versions for a
        rollback, oldest first), ``open`` (the number of the journal row that began an unfinished change of the
        champion), ``faults`` (sentences on what is wrong), ``versions``, and ``journal`` (its rows).
    """
    names = sorted({*journal.models(), *registry.names()})
    models = [
        _model(each, registry=registry, journal=journal, known=known or {}) for each in ([name] if name else names)
    ]
    shown = [each for each in models if each["journal"] or any(version["files"] for version in each["versions"])]
    if name and not shown:
        raise UnknownModel(name=name, known=", ".join(names))
    return shown


def summary(journal: Journal) -> list[Json]:
    """Return by model the champion, number of journal rows, last change, and when a stale champion is removed."""
    models = []
    for name in journal.models():
        last, rows = last_move(journal, name), journal.rows(name)
        change = {"event": last.event, "at": last.at, "who": last.who} if last else {}
        now = of_rows(name, rows)
        until = {"stale": end} if (end := now.stale.get(now.champion or 0)) else {}
        models.append({"name": name, "champion": now.champion, "journal": len(rows), **change, **until})
    return models


def records_of(name: str, version: int, *, registry: Registry, settings: Settings) -> Json:
    """Return a model version's lineage and the ids of all records on which it was trained or selected."""
    training = lineage.of_version(registry.version(name, version), registry=registry, settings=settings)
    return {**training.summary(), "record_ids": sorted(training.records)}


def versions_of(record_ids: Sequence[str], *, registry: Registry, settings: Settings) -> Json:
    """Return by record id the model versions trained or selected on it, and the versions whose records are unknown."""
    holders = lineage.versions_of(record_ids, registry=registry, settings=settings)
    return {
        "records": {record_id: [held.uri for held in holders.versions.get(record_id, ())] for record_id in record_ids},
        "unknown": [version.uri for version in holders.unknown],
    }


def render(models: Sequence[Json], *, console: Console | None = None) -> None:
    """Print the result of :func:`gather` as text and tables."""
    console = console or Console()
    if not models:
        console.print("Nothing is registered.")
    for model in models:
        champion = model["champion"]
        console.print(f"{model['name']}: " + (f"version {champion} is champion" if champion else "no champion"))
        for fault in model["faults"]:
            console.print(Text(f"! {fault}", style="bold red"))
        console.print(_table(["version", "is", "data commit", "files", "run"], map(_version_cells, model["versions"])))
        console.print(
            _table(["row", "at", "event", "from", "to", "who", "why", "figures"], map(_cells, model["journal"]))
        )


def _model(name: str, *, registry: Registry, journal: Journal, known: Mapping[str, str]) -> Json:
    rows = journal.rows(name)
    now = of_rows(name, rows)
    aliases = {alias: registry.alias(name, alias) for alias in ALIASES}
    recorded = {row.to_version: row.files for row in rows if row.event == "registered"}
    versions = registry.versions(name)
    return {
        "name": name,
        "champion": now.champion,
        "aliases": aliases,
        "before": list(now.before),
        "open": now.intention.number if now.intention else None,
        "faults": [
            *_journal_faults(now, journal=journal, known=known, alias=aliases["champion"]),
            *_version_faults(versions, recorded=recorded),
        ],
        "versions": [_version(version, now=now, aliases=aliases) for version in versions],
        "journal": [_row(row) for row in rows],
    }


def _journal_faults(now: Standing, *, journal: Journal, known: Mapping[str, str], alias: int | None) -> Iterator[str]:
    try:
        journal.verify(now.name, known={now.name: known[now.name]} if now.name in known else None)
    except JournalBroken as error:
        yield str(error)
    if now.intention is not None:
        yield f"a move is open since row {now.intention.number}: repeat it, or `corpus promote {now.name} --abandon`"
    elif alias != now.champion:
        points, champion = (number or "no version" for number in (alias, now.champion))
        yield f"the alias points to {points}, but {champion} is champion in the journal"


def _version_faults(versions: Sequence[Version], *, recorded: Mapping[int | None, str | None]) -> Iterator[str]:
    for version in versions:
        if version.version not in recorded:
            yield f"the journal has no registration of version {version.version}"
        elif recorded[version.version] != version.digest:
            yield f"version {version.version} has a digest tag that differs from the registered digest"


def _version(version: Version, *, now: Standing, aliases: dict[str, int | None]) -> Json:
    number = version.version
    states = [alias for alias in ALIASES if aliases[alias] == number]
    return {
        "version": number,
        "is": [
            *states,
            *(["withdrawn"] if number in now.withdrawn else []),
            *([f"stale until {now.stale[number][:10]}"] if number in now.stale else []),
        ],
        "data_commit": version.tags.get("data_commit"),
        "files": version.digest or None,
        "run": version.run_id,
    }


def _row(row: JournalRow) -> Json:
    """Return a row with the figures of its decision, without its other metrics."""
    shown_row: Json = {
        "number": row.number,
        "at": row.at,
        "event": row.event,
        "from": row.from_version,
        "to": row.to_version,
        "who": row.who,
        "why": row.why,
    }
    figures = row.metrics.get("figures", {})
    if scores := figures.get("scores"):
        shown = ("macro_f1", "recall", "severe", "abstained", "rival", "reported", "look")
        shown_row["figures"] = {key: scores[key] for key in shown if key in scores}
        shown_row["figures"] |= {"test": figures["test"]["gate"]}
    if reasons := row.metrics.get("reasons"):
        shown_row["reasons"] = list(reasons)
    return shown_row


def _version_cells(version: Json) -> list[str]:
    short = (str(version[key] or "")[:12] for key in ("data_commit", "files", "run"))
    return [str(version["version"]), ", ".join(version["is"]), *short]


def _cells(row: Json) -> list[str]:
    decision = [row["event"], *("–" if row[key] is None else str(row[key]) for key in ("from", "to")), row["who"]]
    return [str(row["number"]), f"{row['at'][:19]}Z", *decision, row["why"], "\n".join(_figures(row))]


def _figures(row: Json) -> list[str]:
    lines = list(row.get("reasons", ()))
    if figures := row.get("figures"):
        f1, look = figures["macro_f1"], figures["look"]
        if "candidate" in f1:
            scores = f"macro-F1 {f1['candidate']:.3f} against {f1['other']:.3f}"
            lines.append(f"{scores}, p = {look['p']:.4f} on {figures['test']} items")
        if "number" in look:
            lines.append(f"look {look['number']} at level {look['level']:.4g}; {look['left']} remain")
        if (rest := figures.get("reported", {"n": 0}))["n"]:
            score = f"{rest['macro_f1']['candidate']:.3f}"
            lines.append(f"to report: macro-F1 {score} on the {rest['n']} items that did not decide")
    return lines


def _table(columns: Sequence[str], rows: Any) -> Table:
    table = Table(*columns)
    for row in rows:
        # Text, so that brackets in a reason are not read as markup
        table.add_row(*map(Text, row))
    return table
