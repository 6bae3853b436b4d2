"""Run annotation queues as Label Studio projects through its API.

On the embedded server each annotator has an organization, which contains that annotator's queues, so annotators cannot
see each other's answers. There, ``purge`` also removes deleted rows from the database. On an external server
(``CORPUS_LABEL_STUDIO_URL`` and ``CORPUS_LABEL_STUDIO_KEY``) one token is used for all queues. Annotators are then
isolated only if the server limits members to their own projects, and deleted rows stay in the server's database until
the server's own maintenance removes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.annotate import backends
from pipelines.annotate.backends import Backend
from pipelines.annotate.backends._labelling_config import NOTE, config, shown
from pipelines.annotate.form import Form
from pipelines.annotate.label_studio import server
from pipelines.core.config.settings import Settings
from pipelines.core.errors import AnnotationError

if TYPE_CHECKING:
    from label_studio_sdk import LabelStudio as Client


# Ours: the server writes in short transactions.
BUSY_SECONDS = 60.0
FOLDERS = ("export", "media/export", "media/upload", "test_data")
# Label Studio: a title has at most 50 characters.
LONGEST_TITLE = 50
# Ours: the server keeps a whole request in memory.
CHUNK_BYTES = 25_000_000
PAGE = 200
SECONDS = 120.0
# Marker file in the embedded server's data folder: tasks were deleted, but the database is not cleaned yet.
UNCLEAN = "unclean"
# Requested fields; Label Studio applies one list to both tasks and their annotations.
ANSWER = "id,meta,annotations,result,was_cancelled,lead_time,updated_at,completed_by"


class LabelStudio(Backend):
    """A backend on a Label Studio server, where each annotator's queue is a project.

    ``keys`` returns the API token of a pseudonym; ``folder`` is the data folder of the embedded server, else ``None``.
    """

    def __init__(
        self, url: str, *, keys: Callable[[str], str], folder: Path | None, accounts: Mapping[str, str]
    ) -> None:
        self.accounts = accounts
        self._url = url
        self._keys = keys
        self._folder = folder
        self._clients: dict[str, Client] = {}

    @classmethod
    def open(cls, settings: Settings, *, params: Any, pseudonyms: Collection[str]) -> LabelStudio:
        """Connect to the configured external server, else to the embedded one with accounts for the pseudonyms."""
        url = server.address(settings)
        if settings.label_studio_url:
            if not (key := settings.label_studio_key.get_secret_value()):
                raise _unavailable("CORPUS_LABEL_STUDIO_KEY is not set")
            return cls(url, keys=lambda _: key, folder=None, accounts={})
        accounts = server.ensure_accounts(settings, pseudonyms=pseudonyms)

        def token(pseudonym: str) -> str:
            known = accounts.get(pseudonym) or server.ensure_accounts(settings, pseudonyms=[pseudonym])[pseudonym]
            return known.token

        emails = {pseudonym: account.email for pseudonym, account in accounts.items()}
        return cls(url, keys=token, folder=settings.label_studio, accounts=emails)

    serve = staticmethod(server.serve)

    def prepare(self, queue: backends.Queue, *, form: Form) -> None:
        """Create the queue's Label Studio project with its form unless it exists."""
        with _errors():
            if self._project(queue) is None:
                self._client(queue).projects.create(
                    title=title(queue),
                    label_config=config(form),
                    sampling="Sequential sampling",
                    skip_queue="IGNORE_SKIPPED",
                    show_skip_button=True,
                    enable_empty_annotation=False,
                    maximum_annotations=1,
                    show_collab_predictions=False,
                    show_annotation_history=False,
                )

    def present(self, queue: backends.Queue) -> dict[backends.Item, datetime]:
        """Return each item of the queue's project with the time at which it was first added."""
        if self._folder is not None and (self._folder / UNCLEAN).exists():
            self._clean()
        added: dict[backends.Item, datetime] = {}
        with _errors():
            for item, row in self._rows(queue, fields="task_only", include="id,meta,created_at"):
                moment = _moment(row["created_at"])
                added[item] = min(moment, added.get(item, moment))
        return dict(sorted(added.items()))

    def add(self, queue: backends.Queue, *, tasks: Sequence[backends.AnnotationTask]) -> None:
        """Import tasks into the queue's project in the order of ``position``, in which the annotator sees them."""
        there = self.present(queue)
        new = sorted((task for task in tasks if task.item not in there), key=lambda task: (task.position, task.item))
        with _errors():
            project = self._project(queue)
            if project is None:
                raise _unavailable("the queue was not prepared")
            for chunk in backends.in_chunks(_rows(new), size=CHUNK_BYTES):
                # No retries by the SDK: a request that was accepted but not answered would be imported twice.
                self._client(queue).projects.import_tasks(project, request=chunk, request_options={"max_retries": 0})

    def answers(self, queue: backends.Queue) -> list[backends.AnnotatorAnswer]:
        """Return the answers in the queue's project, each with its last change and the annotator's e-mail address."""
        with _errors():
            tasks = self._rows(queue, fields="all", include=ANSWER)
            rows = [(item, row) for item, task in tasks for row in task["annotations"]]
            emails = {user.id: user.email for user in self._client(queue).users.list()} if rows else {}
        answers = [_answer(row, item=item, emails=emails) for item, row in rows]
        return sorted(answers, key=lambda answer: (answer.item, answer.answered, answer.id))

    def remove(self, queue: backends.Queue, *, items: Collection[backends.Item]) -> None:
        """Delete these items' tasks from the queue's project; the embedded server also erases their deleted rows."""
        wanted = set(items)
        with _errors():
            rows = self._rows(queue, fields="task_only", include="id,meta")
            if not (ids := [int(row["id"]) for item, row in rows if item in wanted]):
                return
            project = self._project(queue)
            if self._folder is not None:
                (self._folder / UNCLEAN).touch(mode=0o600)
            self._client(queue).actions.create(
                id="delete_tasks", project=project or 0, selected_items={"all": False, "included": ids}
            )
        self._clean()

    def purge(self, queues: Collection[backends.Queue]) -> None:
        """Delete the queues' projects; on the embedded server, also erase all traces in its database and folders."""
        with _errors():
            for queue in queues:
                while (project := self._project(queue)) is not None:
                    self._client(queue).projects.delete(project)
        self._clean()

    def address(self, queue: backends.Queue) -> str:
        """Return the URL of the page on which the queue's annotator answers one task after another."""
        with _errors():
            project = self._project(queue)
        return f"{self._url}/projects/{project}/data?labeling=1" if project is not None else self._url

    def _clean(self) -> None:
        if self._folder is not None:
            clean(self._folder)
            (self._folder / UNCLEAN).unlink(missing_ok=True)

    def _client(self, queue: backends.Queue) -> Client:
        if queue.annotator not in self._clients:
            import httpx
            from label_studio_sdk import LabelStudio as Sdk

            # The embedded server is on loopback, so proxies from the environment are ignored.
            http = httpx.Client(timeout=SECONDS, follow_redirects=True, trust_env=self._folder is None)
            key = self._keys(queue.annotator)
            self._clients[queue.annotator] = Sdk(base_url=self._url, api_key=key, httpx_client=http)
        return self._clients[queue.annotator]

    def _project(self, queue: backends.Queue) -> int | None:
        pages = self._client(queue).projects.list(include="id,title", page_size=PAGE)
        return min((each.id for each in pages if each.title == title(queue)), default=None)

    def _rows(
        self, queue: backends.Queue, *, fields: str, include: str
    ) -> Iterator[tuple[backends.Item, Mapping[str, Any]]]:
        """Yield our tasks with the requested fields only, never the pictures; tasks imported by users are left out."""
        if (project := self._project(queue)) is None:
            return
        pages = self._client(queue).tasks.list(project=project, fields=fields, include=include, page_size=PAGE)
        for task in pages:
            row = json.loads(task.json())
            try:
                item = backends.item_of(str((row["meta"] or {}).get("item", "")))
            except ValueError:
                continue
            yield item, row


def title(queue: backends.Queue) -> str:
    """Return the title of the queue's Label Studio project, shortened to 50 characters with a digest at the end."""
    if len(queue.title) <= LONGEST_TITLE:
        return queue.title
    mark = hashlib.sha256(queue.title.encode()).hexdigest()[:8]
    return f"{queue.title[: LONGEST_TITLE - 10]}… {mark}"


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Convert the SDK's errors to ours; its messages contain response bodies and are not passed on."""
    import httpx
    from label_studio_sdk.core.api_error import ApiError

    try:
        yield
    except ApiError as error:
        raise _unavailable(f"the server answered with HTTP status {error.status_code}") from None
    except httpx.HTTPError as error:
        raise _unavailable(type(error).__name__) from None


def _unavailable(detail: str) -> AnnotationError:
    return AnnotationError("BackendUnavailable", backend="label_studio", detail=detail)


def _rows(tasks: Sequence[backends.AnnotationTask]) -> Iterator[tuple[dict[str, object], int]]:
    for task in tasks:
        data = shown(task)
        meta = {"item": backends.name_of(task.item), "position": task.position, "disputed": list(task.disputed)}
        yield {"data": data, "meta": meta}, sum(map(len, data.values()))


def _moment(text: object) -> datetime:
    moment = datetime.fromisoformat(str(text))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _answer(row: Mapping[str, Any], *, item: backends.Item, emails: Mapping[int, str]) -> backends.AnnotatorAnswer:
    values: dict[str, tuple[str, ...]] = {}
    note = ""
    for part in row["result"] or []:
        name, value = str(part["from_name"]), part["value"]
        if name == NOTE:
            note = "\n".join(value.get("text", []))
        elif "choices" in value:
            values[name] = tuple(map(str, value["choices"]))
    by, seconds = row["completed_by"], row["lead_time"]
    return backends.AnnotatorAnswer(
        item=item,
        by=emails.get(by, str(by)) if isinstance(by, int) else str(by),
        id=str(row["id"]),
        answered=_moment(row["updated_at"]),
        values=values,
        note=note,
        seconds=float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < inf else None,
        skipped=bool(row["was_cancelled"]),
    )


def clean(folder: Path) -> None:
    """Rewrite the embedded Label Studio's database without deleted rows, and empty its folders of exports and uploads.

    SQLite leaves deleted rows in free pages of the file; the browser's exports and uploads are in folders next to it.
    """
    for name in FOLDERS:
        for path in sorted((folder / name).glob("*")):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    database = folder / "label_studio.sqlite3"
    if not database.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(database, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
            # Keep the copy that VACUUM makes out of the temporary folder.
            for statement in ("PRAGMA temp_store=MEMORY", "VACUUM"):
                connection.execute(statement).fetchall()
            # A checkpoint that a reader blocks raises nothing; its first column is then nonzero.
            [(blocked, *_)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.OperationalError:
        blocked = True
    if blocked:
        raise _unavailable("its database is busy")
