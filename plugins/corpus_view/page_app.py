"""Serve the Corpus page to users who are logged in to Airflow and may read this project's Dags."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, Response

from corpus_view import airflow_runs
from corpus_view.page_view import HERE, environment, model
from corpus_view.summary_file import SummaryFile

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
    """Return the application of the page."""
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
