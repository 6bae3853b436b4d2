"""Serve the Corpus page to users who are logged in to Airflow and may read this project's Dags."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from corpus_view import airflow_runs, attention, page_text, sections
from corpus_view.airflow_runs import Runs
from corpus_view.summary_file import Summary, SummaryFile
from dvc_airflow.names import named

HERE = Path(__file__).resolve().parent / "page"
# Nothing of other sites, no inline script or style; only Airflow's own page may frame it.
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FILES = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "icon-dark.svg": "image/svg+xml",
}

Clock = Callable[[], datetime]


def _now() -> datetime:
    return datetime.now(UTC)


def build(summary: SummaryFile | None = None, *, clock: Clock = _now) -> FastAPI:
    """Return the application of the page.

    Args:
        summary: the file to read; default: that of ``CORPUS_HOME``.
        clock: returns the present time; tests use another one.
    """
    app = FastAPI(title="Corpus page", docs_url=None, redoc_url=None, openapi_url=None)
    file, template = summary or SummaryFile(), environment().get_template("page.html")

    # not a coroutine: FastAPI runs it in a thread, so that the database never blocks the server's event loop
    @app.get("/", response_class=HTMLResponse)
    def page(user: GetUserDep, session: SessionDep) -> Response:
        """Return the page with what the user may see."""
        found = file.read()
        permitted = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)
        corpora = tuple(found.found.get("corpora", ()))
        runs = airflow_runs.read(session, permitted=permitted, corpora=corpora, now=clock())
        if not runs.known:
            raise HTTPException(403, "You may read none of this project's Dags.")
        body = template.render(model(found, runs=runs, now=clock()))
        return HTMLResponse(body, headers=HEADERS | {"Cache-Control": "no-store"})

    @app.get("/{name}")
    def asset(name: str, request: Request) -> Response:
        """Return a file of the page; these hold no data, so they need no login."""
        if name not in FILES:
            raise HTTPException(404)
        headers = HEADERS | {"Cache-Control": "max-age=3600"}
        return Response((HERE / name).read_bytes(), media_type=FILES[name], headers=headers)

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        """Return a plain page that says why a request is refused, with a way to log in."""
        text = environment().get_template("refused.html").render(status=error.status_code, detail=error.detail)
        return HTMLResponse(text, status_code=error.status_code, headers=HEADERS | {"Cache-Control": "no-store"})

    return app


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
    found = summary.found
    sources = sections.Sources(found)
    shown = {
        corpus: _corpus(corpus, part, runs=runs, sources=sources, now=now)
        for corpus, part in found.get("corpora", {}).items()
        if runs.sees(*(f"{corpus}_{kind}" for kind in airflow_runs.OF_CORPUS))
    }
    everything = len(shown) == len(found.get("corpora", {}))
    used = _used(shown) if not everything else set(found.get("commits", {}))
    return {
        "written": page_text.moment(found.get("written")),
        "commit": found.get("commit"),
        "now": now,
        "ago": partial(page_text.ago, now=now),
        "attention": attention.items(found, fault=summary.fault, runs=runs, shown=shown, now=now),
        "corpora": shown,
        "paused": sorted(runs.paused),
        "budget": sections.budget(found) if any(part["votes"]["labellers"] for part in shown.values()) else None,
        "registry": sections.registry(found) if runs.sees("promote") else None,
        "deletions": sections.deletions(found, runs=runs, days=attention.ERASURE_DAYS, now=now)
        if runs.sees("deletion_sweep", "takedown") and found
        else None,
        "releases": found.get("releases") if runs.sees("release") else None,
        "reports": _reports(found, shown=shown),
        "commits": _commits(found, used=used),
        "words": {"outcomes": sections.OUTCOMES, "agreements": sections.AGREEMENTS, "states": sections.STATES},
        "erasure_days": attention.ERASURE_DAYS,
        "named": named,
    }


def _corpus(corpus: str, part: Mapping[str, Any], *, runs: Runs, sources: sections.Sources, now: datetime) -> Any:
    years = sections.calendar(corpus, part, runs=runs, sources=sources, now=now)
    return {
        "calendar": years,
        "counted": sections.counted(years),
        "records": sum(month.get("records", 0) for month in part.get("months", {}).values()),
        "funnel": sections.funnel(corpus, part, sources=sources),
        "rounds": sections.rounds(corpus, part, sources=sources),
        "votes": sections.votes(corpus, part, sources=sources),
        "alerts": sections.alerts(corpus, part, sources=sources),
        "ocr": part.get("ocr") or {},
    }


def _reports(found: Mapping[str, Any], *, shown: Collection[str]) -> list[dict[str, Any]]:
    """Return for each corpus the MLflow run with the numbers of its last tracked commit, and its report."""
    address, reports = page_text.web(found.get("mlflow")), []
    for corpus, one in found.get("tracked", {}).items():
        if corpus in shown and address:
            run = f"{address}/#/runs/{one['run']}"
            reports.append({"corpus": corpus, "run": run, "report": page_text.web(one.get("report"))})
    return reports


def _used(shown: Mapping[str, Any]) -> set[str]:
    """Return the commits from which the numbers of these corpora come."""
    used = {month["commit"] for part in shown.values() for year in part["calendar"] for month in year["months"]}
    for part in shown.values():
        rows = [*part["funnel"], *part["rounds"], *part["alerts"], *part["votes"]["labellers"]]
        used |= {row["source"].commit for row in [*rows, *part["votes"]["ensembles"]]}
    return used - {None}


def _commits(found: Mapping[str, Any], *, used: Collection[str]) -> list[dict[str, Any]]:
    sources = sections.Sources(found)
    commits = [one for key, one in found.get("commits", {}).items() if key in used]
    latest = sorted(commits, key=lambda one: str(one["at"]), reverse=True)
    return [{**one, "run_href": sources.commit(one["commit"]).run_href} for one in latest]
