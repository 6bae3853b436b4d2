"""Render the page: arrange what a user may see, and fill the template."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from corpus_view import attention, page_tables, page_text, runs_seen
from corpus_view.runs_seen import Runs
from dvc_airflow import settings

HERE = Path(__file__).resolve().parent / "page"


def environment() -> Environment:
    """Return the templates' environment: everything that is printed is escaped and cleaned."""
    made = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=page_text.clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {name: getattr(page_text, name) for name in ("number", "money", "hours", "moment", "web")}
    return made


def model(summary: Summary, *, runs: Runs, now: datetime) -> dict[str, Any]:
    """Return the values of the template: all sections that the user may see."""
    content = summary.found
    sources = page_tables.Sources(content)
    shown = {
        corpus: _corpus(corpus, part, runs=runs, sources=sources, now=now)
        for corpus, part in content.get("corpora", {}).items()
        if runs.sees(*(f"{corpus}_{kind}" for kind in runs_seen.OF_CORPUS))
    }
    everything = len(shown) == len(content.get("corpora", {}))
    used = _used(shown) if not everything else set(content.get("commits", {}))
    return {
        "written": page_text.moment(content.get("written")),
        "commit": content.get("commit"),
        "now": now,
        "ago": partial(page_text.ago, now=now),
        "attention": attention.items(content, fault=summary.fault, runs=runs, shown=shown, now=now),
        "corpora": shown,
        "paused": sorted(runs.paused),
        "budget": page_tables.budget(content) if any(part["votes"]["labellers"] for part in shown.values()) else None,
        "registry": page_tables.registry(content) if runs.sees("promote") else None,
        "deletions": page_tables.deletions(content, runs=runs, days=attention.ERASURE_DAYS, now=now)
        if runs.sees("deletion_sweep", "takedown") and content
        else None,
        "releases": content.get("releases") if runs.sees("release") else None,
        "reports": _reports(content, shown=shown),
        "commits": _commits(content, used=used),
        "words": {"outcomes": page_tables.OUTCOMES, "agreements": page_tables.AGREEMENTS, "states": page_tables.STATES},
        "erasure_days": attention.ERASURE_DAYS,
    }


def _corpus(corpus: str, part: Mapping[str, Any], *, runs: Runs, sources: page_tables.Sources, now: datetime) -> Any:
    years = page_tables.calendar(corpus, part, runs=runs, sources=sources, now=now)
    return {
        "calendar": years,
        "counted": page_tables.counted(years),
        "records": sum(month.get("records", 0) for month in part.get("months", {}).values()),
        "funnel": page_tables.funnel(corpus, part, sources=sources),
        "rounds": page_tables.rounds(corpus, part, sources=sources),
        "votes": page_tables.votes(corpus, part, sources=sources),
        "alerts": page_tables.alerts(corpus, part, sources=sources),
    }


def _reports(content: Mapping[str, Any], *, shown: Collection[str]) -> list[dict[str, Any]]:
    """Return for each corpus the MLflow run with the numbers of its last tracked commit, and its report."""
    address, reports = page_text.web(content.get("mlflow")), []
    for corpus, tracked in content.get("tracked", {}).items():
        if corpus in shown and address:
            run = f"{address}/#/runs/{tracked['run']}"
            reports.append({"corpus": corpus, "run": run, "report": page_text.web(tracked.get("report"))})
    return reports


def _used(shown: Mapping[str, Any]) -> set[str]:
    used = {month["commit"] for part in shown.values() for year in part["calendar"] for month in year["months"]}
    for part in shown.values():
        rows = [*part["funnel"], *part["rounds"], *part["alerts"], *part["votes"]["labellers"]]
        used |= {row["source"].commit for row in [*rows, *part["votes"]["ensembles"]]}
    return used - {None}


def _commits(content: Mapping[str, Any], *, used: Collection[str]) -> list[dict[str, Any]]:
    sources = page_tables.Sources(content)
    commits = [commit for key, commit in content.get("commits", {}).items() if key in used]
    latest = sorted(commits, key=lambda commit: str(commit["at"]), reverse=True)
    return [{**commit, "run_href": sources.commit(commit["commit"]).run_href} for commit in latest]


# That of `pipelines.operate.summary.written`.
VERSION = 1
# A summary is some 100 bytes for a month and 200 for a row of the journal; a larger file is not one.
LARGEST = 32 * 1024 * 1024


@dataclass(frozen=True)
class Summary:
    """The content of the summary, or why there is none (``fault``)."""

    found: dict[str, Any]
    fault: str = ""


class SummaryFile:
    """The summary file of a home; its content is parsed once for each change of the file."""

    def __init__(self, home: Path = settings.HOME) -> None:
        self.path = home / "summary" / "corpus.json"
        self._known: tuple[tuple[int, int, int], Summary] | None = None

    def read(self) -> Summary:
        """Return the present summary."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return Summary({}, "There is no summary of the corpus yet.")
        except OSError as error:
            return Summary({}, f"The summary of the corpus cannot be read ({type(error).__name__}).")
        mark = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if self._known is None or self._known[0] != mark:
            self._known = (mark, self._parsed(stat.st_size))
        return self._known[1]

    def _parsed(self, size: int) -> Summary:
        if size > LARGEST:
            return Summary({}, "The summary of the corpus is too large to be one.")
        try:
            content = json.loads(self.path.read_bytes())
        except (OSError, ValueError) as error:
            return Summary({}, f"The summary of the corpus cannot be read ({type(error).__name__}).")
        if not isinstance(content, dict) or content.get("version") != VERSION:
            return Summary({}, "Another version of the software wrote the summary of the corpus.")
        return Summary(content)
