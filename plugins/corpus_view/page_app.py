"""Serve the Corpus page to users who are logged in to Airflow and may read this project's Dags."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.deadline import Deadline
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.utils.state import DagRunState, TaskInstanceState
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, Response
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from corpus_view.attention import Question, Runs, SeenRun, dag_ids
from corpus_view.page_text import path
from corpus_view.page_view import HERE, SummaryFile, environment, model
from dvc_airflow.settings import named

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
FILES = ("page.css", "page.js", "icon.svg", "icon-dark.svg")


def build() -> FastAPI:
    app = FastAPI(title="Corpus page", docs_url=None, redoc_url=None, openapi_url=None)
    file, template = SummaryFile(), environment().get_template("page.html")

    # not a coroutine: FastAPI runs it in a thread, so that the database never blocks the server's event loop
    @app.get("/", response_class=HTMLResponse)
    def page(user: GetUserDep, session: SessionDep) -> Response:
        content, now = file.read(), datetime.now(UTC)
        permitted = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)
        corpora = tuple(content.found.get("corpora", ()))
        runs = read(session, permitted=permitted, corpora=corpora, now=now)
        if not runs.known:
            raise HTTPException(403, "You may read none of this project's Dags.")
        body = template.render(model(content, runs=runs, now=now))
        return HTMLResponse(body, headers=HEADERS | {"Cache-Control": "no-store"})

    @app.get("/{name}")
    def asset(name: str, request: Request) -> Response:
        """Return a file of the page; these hold no data, so they need no login."""
        if name not in FILES:
            raise HTTPException(404)
        return FileResponse(HERE / name, headers=HEADERS | {"Cache-Control": "max-age=3600"})

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        """Return a plain page that says why a request is refused, with a way to log in."""
        text = environment().get_template("refused.html").render(status=error.status_code, detail=error.detail)
        return HTMLResponse(text, status_code=error.status_code, headers=HEADERS | {"Cache-Control": "no-store"})

    return app


# Every run of these is a request of its own: a later run does not repeat a failed one.
REQUESTS = ("annotation_round", "promote", "release", "takedown")
# Days in which a failed request is listed, and in which the last run of another Dag is looked for.
DAYS_OF_REQUEST, DAYS = 7, 62
MOST = 50
WAITING = (TaskInstanceState.AWAITING_INPUT, TaskInstanceState.DEFERRED)


def read(session: Session, *, permitted: Collection[str], corpora: Collection[str], now: datetime) -> Runs:
    """Return the state of the project's Dags, of those in ``permitted`` only.

    Seven queries, each of them limited by Dag, time or number.
    """
    ours = dag_ids(corpora) & set(permitted)
    models = session.execute(
        select(DagModel.dag_id, DagModel.is_paused, DagModel.has_import_errors, DagModel.is_stale).where(
            DagModel.dag_id.in_(ours)
        )
    ).all()
    collects = {named(f"{corpus}_collect") for corpus in corpora} & ours
    requests = {named(name) for name in REQUESTS} & ours
    recent, newest = DagRun.run_after >= now - timedelta(days=DAYS), select(func.max(DagRun.id))
    of_months = newest.where(DagRun.dag_id.in_(collects), DagRun.partition_key.is_not(None))
    months = _runs(session, DagRun.id.in_(of_months.group_by(DagRun.dag_id, DagRun.partition_key)))
    of_others = newest.where(DagRun.dag_id.in_(ours - collects - requests), recent)
    latest = _runs(session, DagRun.id.in_(of_others.group_by(DagRun.dag_id)))
    asked = (DagRun.dag_id.in_(requests), DagRun.run_after >= now - timedelta(days=DAYS_OF_REQUEST))
    rejected = _runs(session, *asked, DagRun.state == DagRunState.FAILED, limit=MOST)
    failed = [run for run in (*months, *latest, *rejected) if run.state == DagRunState.FAILED]
    failed.sort(key=lambda run: run.at.timestamp() if run.at else 0.0, reverse=True)
    return Runs(
        known=frozenset(row.dag_id for row in models),
        paused=frozenset(row.dag_id for row in models if row.is_paused),
        broken=frozenset(row.dag_id for row in models if row.has_import_errors or row.is_stale),
        failed=tuple(_with_tasks(session, failed[:MOST])),
        late=tuple(_late(session, ours)),
        questions=tuple(_questions(session, ours)),
        months={(run.dag, run.key): run for run in months if run.key},
        latest={run.dag: run for run in latest},
    )


def _runs(session: Session, *where: Any, limit: int | None = None) -> list[SeenRun]:
    ended = func.coalesce(DagRun.end_date, DagRun.start_date, DagRun.queued_at)
    query = select(DagRun.dag_id, DagRun.run_id, DagRun.state, ended, DagRun.partition_key).where(*where)
    return [SeenRun(*row) for row in session.execute(query.order_by(DagRun.id.desc()).limit(limit))]


def _with_tasks(session: Session, runs: list[SeenRun]) -> list[SeenRun]:
    """Return the runs with the first task of each that failed."""
    columns = (TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id)
    query = select(*columns).where(
        TaskInstance.dag_id.in_({run.dag for run in runs}),
        TaskInstance.run_id.in_({run.run_id for run in runs}),
        TaskInstance.state == TaskInstanceState.FAILED,
    )
    tasks: dict[tuple[str, str], str] = {}
    for dag, run_id, task in session.execute(query.order_by(TaskInstance.end_date)):
        tasks.setdefault((dag, run_id), task)
    return [replace(run, task=tasks.get((run.dag, run.run_id))) for run in runs]


def _late(session: Session, dags: Collection[str]) -> list[SeenRun]:
    """Return the unfinished runs that missed their deadline."""
    query = (
        select(DagRun.dag_id, DagRun.run_id, DagRun.state, Deadline.deadline_time, DagRun.partition_key)
        .join(Deadline, Deadline.dagrun_id == DagRun.id)
        .where(Deadline.missed, DagRun.dag_id.in_(dags), DagRun.state.in_([DagRunState.QUEUED, DagRunState.RUNNING]))
        .order_by(Deadline.deadline_time)
        .limit(MOST)
    )
    return [SeenRun(*row) for row in session.execute(query)]


def _questions(session: Session, dags: Collection[str]) -> list[Question]:
    columns = (TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.map_index)
    query = (
        select(*columns, HITLDetail.subject, HITLDetail.created_at)
        .join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
        .where(HITLDetail.responded_at.is_(None), TaskInstance.state.in_(WAITING), TaskInstance.dag_id.in_(dags))
        .order_by(HITLDetail.created_at)
        .limit(MOST)
    )
    questions = []
    for dag, run_id, task, index, subject, since in session.execute(query):
        mapped = ("mapped", str(index)) if index >= 0 else ()
        where = path("dags", dag, "runs", run_id, "tasks", task, *mapped, "required_actions")
        questions.append(Question(dag, subject, since, where))
    return questions
