"""Write the summary for the Corpus page to ``CORPUS_HOME/summary/corpus.json``, after each change of the corpus.

The file holds counts, dates, digests, ids of runs, and the reasons that people recorded; no content, no record ids.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.config.params import validate
from pipelines.config.private_file import write_private
from pipelines.config.settings import Settings
from pipelines.process import now
from pipelines.registry import mlflow_pages
from pipelines.summary import commit_parts, store_facts
from pipelines.telemetry import count
from pipelines.vault import locks
from pipelines.vault.vault import Vault
from pipelines.workspace.address import local_path

Json = dict[str, Any]

# Raised when the page needs another form of the file; a page that finds another one asks for the command below.
VERSION = 1
FAILED = "The summary for the Corpus page was not written ({cause}); `corpus status --write` writes it again.\n"


def place(settings: Settings) -> Path:
    """Return the path of the summary."""
    return settings.home / "summary" / "corpus.json"


def write(
    settings: Settings, *, at: datetime | None = None, tracked: Mapping[str, Mapping[str, Any]] | None = None
) -> Json:
    """Gather and write the summary, and return it.

    Writers of one host take turns, so that the last one to write has seen the newest state.

    Args:
        settings: the location of the corpus.
        at: the time of writing; default: now.
        tracked: by corpus, what ``corpus track`` returned: the MLflow run with the numbers of the newest commit.

    Raises:
        NoCorpus: there is no corpus repository yet.
        CorpusError: a database or the repository cannot be read.
    """
    path = place(settings)
    with locks.of_host(settings, "summary"):
        before = _before(path)
        runs = {
            corpus: {"run": told["run"], "report": mlflow_pages.web(told.get("report"))}
            for corpus, told in (tracked or {}).items()
            if "run" in told
        }
        before["tracked"] = before.get("tracked", {}) | runs
        made = _gather(settings, before=before, at=at or now())
        count("corpus.takedowns.open", len(made["takedowns"]["open"]))
        count("corpus.takedowns.done", made["takedowns"]["done"])
        count("corpus.budget.spent_usd", made["budget"]["paid"] + made["budget"]["reserved"])
        count("corpus.budget.limit_usd", made["budget"]["limit"])
        write_private(path, json.dumps(made, separators=(",", ":"), sort_keys=True) + "\n")
    return made


def renew(settings: Settings) -> None:
    """Write the summary again if there is one."""
    if place(settings).exists():
        write(settings)


def quietly(writer: Callable[[Settings], object]) -> None:
    """Run a writer of the summary; print a fault on stderr instead of raising it.

    Nothing is written before there is a corpus.
    """
    try:
        settings = Settings.from_env()
        # a repository that is not on this host is assumed to exist
        if (local_path(settings.repo) or settings.home).exists():
            writer(settings)
    except Exception as error:  # a takedown must not fail because of a page
        sys.stderr.write(FAILED.format(cause=type(error).__name__))


def _gather(settings: Settings, *, before: Json, at: datetime) -> Json:
    told, pointers, values = commit_parts.read(settings, before=before)
    params = validate(values, where="params.yaml")
    digests = {corpus: part.pop("gaps") for corpus, part in told["corpora"].items()}
    hours = store_facts.gap_hours(digests, before=before.get("gap_hours", {}), settings=settings)
    with Vault.existing(settings) as vault:
        counts = store_facts.by_month(vault)
        takedowns = store_facts.takedowns(settings, params=params, vault=vault)
    for corpus in params.corpora:
        part = told["corpora"].setdefault(corpus, {})
        part["period"] = [params.corpora[corpus].first_month, params.corpora[corpus].last_month]
        part["months"] = _months(corpus, pointers=pointers, counts=counts.get(corpus, {}), gaps=digests, hours=hours)
        part["swept"] = takedowns["swept"].get(corpus)
    return {
        "version": VERSION,
        "written": at.isoformat(),
        **told,
        "gap_hours": hours,
        "budget": store_facts.budget(settings, params=params),
        "registry": store_facts.registry(settings),
        "takedowns": takedowns,
        "releases": store_facts.releases(settings),
        "tracked": before.get("tracked", {}),
        "mlflow": mlflow_pages.web(settings.mlflow_tracking_uri),
    }


def _months(
    corpus: str, *, pointers: list[str], counts: dict[str, Json], gaps: dict[str, dict[str, str]], hours: Json
) -> dict[str, Json]:
    """Return for each month with data or records: whether it is published, its counts and its gap in hours."""
    published = {path.split("/")[2] for path in pointers if path.startswith(f"data/{corpus}/")}
    found: dict[str, Json] = {}
    for month in sorted(published | counts.keys()):
        gap = hours.get(gaps.get(corpus, {}).get(month, ""))
        found[month] = {"published": month in published, "gap_hours": gap, **counts.get(month, {})}
    return found


def _before(path: Path) -> Json:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("version") == VERSION else {}
