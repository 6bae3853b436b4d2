"""Run annotation queues as datasets on a user's Argilla server, FigSIM's own tool (3.3), through its SDK.

Every annotator has a separate workspace (``<CORPUS_ARGILLA_WORKSPACE>-<pseudonym>``), and every queue is a dataset in
that workspace. An account sees only the datasets of its workspaces, so annotators cannot see each other's answers. With
an owner's key, missing workspaces and accounts are created; with an admin's key, they must exist.

Argilla has three limits. It keeps one response per account and record, so a later answer replaces an earlier one. It
does not measure the seconds per answer. Its API cannot remove deleted rows from the database: ``purge`` deletes
datasets with their search index, and the server's operator must remove the rest (SQLite: ``PRAGMA secure_delete=ON``,
``VACUUM``; PostgreSQL: ``VACUUM FULL`` and its log; Elasticsearch: merge the segments; no backups during a round).
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.annotate.backends.argilla import argilla_form
from pipelines.annotate.backends.backend import AnnotationTask, AnnotatorAnswer, Item, Queue, in_chunks
from pipelines.annotate.backends.files.answer_files import item_of, name_of
from pipelines.annotate.forms.form import Form
from pipelines.config.private_file import write_private
from pipelines.config.settings import Settings
from pipelines.errors import BackendUnavailable

if TYPE_CHECKING:
    from argilla import Argilla as Client
    from argilla import User, Workspace

# Ours: records contain their pictures, so pages and requests are small; the server's limits are 1,000 and 500 records.
_PAGE = 25
_REQUEST = 20_000_000
# The server's limit of records per deletion.
_DELETED = 100
_SECONDS = 60
Json = dict[str, Any]


class Argilla:
    """A backend that keeps each annotator's queue as an Argilla dataset; ``accounts`` is a file with new passwords."""

    def __init__(self, client: Client, *, workspace: str, accounts: Path) -> None:
        self.accounts: Mapping[str, str] = {}
        self._client = client
        self._prefix = workspace
        self._accounts = accounts

    def prepare(self, queue: Queue, *, form: Form) -> None:
        """Create the queue's account, workspace and dataset if they do not exist; recreate an incomplete dataset.

        Raises:
            BackendUnavailable: the server does not answer, rejects the key or the form, or another annotator is in the
                workspace.
        """
        with _usable():
            workspace = self.admit(queue.annotator)
            found = self._dataset(queue)
            if found is not None and found["status"] == "draft":
                self._call("DELETE", f"datasets/{found['id']}")
                found = None
            if found is None:
                argilla_form.dataset(form, name=_name(queue), workspace=workspace, client=self._client).create()

    def admit(self, annotator: str) -> Workspace:
        """Return the annotator's workspace; create workspace and account if they are missing and the key permits it.

        Raises:
            BackendUnavailable: the workspace cannot be created, or another annotator is a member of it.
        """
        import argilla as rg

        name = f"{self._prefix}-{annotator}"
        with _usable():
            workspace = self._workspace(annotator)
            if workspace is None:
                if self._client.me.role != "owner":
                    raise _unavailable(f"there is no workspace {name}, and only an owner's key can create it")
                workspace = rg.Workspace(name=name, client=self._client).create()
            members = {user.username for user in workspace.users if user.role == "annotator"}
            if members - {annotator}:
                raise _unavailable(f"the workspace {name} has other annotators than {annotator}")
            if not members:
                workspace.add_user(self._account(annotator))
        return workspace

    def present(self, queue: Queue) -> dict[Item, datetime]:
        """Return each item of the queue's dataset with the time at which it was added.

        Raises:
            BackendUnavailable: the server does not answer or rejects the key.
        """
        with _usable():
            records = self._records(self._dataset(queue))
            return {item_of(record["external_id"]): _time(record["inserted_at"]) for record in records}

    def add(self, queue: Queue, *, tasks: Sequence[AnnotationTask]) -> None:
        """Add annotation tasks to the queue's dataset as records, in the order of ``position``.

        Raises:
            BackendUnavailable: the queue was not prepared, or the server rejects a record.
        """
        held = self.present(queue)
        fresh = {task.item: task for task in tasks if task.item not in held}
        with _usable():
            found = self._dataset(queue)
            if found is None:
                raise _unavailable(f"the queue {queue.title} was not prepared")
            rows = _rows(sorted(fresh.values(), key=lambda task: task.position))
            for chunk in in_chunks(rows, size=_REQUEST, most=_PAGE):
                self._call("POST", f"datasets/{found['id']}/records/bulk", json={"items": chunk})

    def answers(self, queue: Queue) -> list[AnnotatorAnswer]:
        """Return the queue's submitted responses as answers and discarded responses as skips; leave drafts out.

        The SDK's records have neither the id nor the time of a response, so this calls the API with the SDK's client.

        Raises:
            BackendUnavailable: the server does not answer or rejects the key.
        """
        with _usable():
            workspace = self._workspace(queue.annotator)
            names = {str(user.id): user.username for user in workspace.users} if workspace is not None else {}
            records = self._records(self._dataset(queue))
            found = [answer for record in records for answer in _answers(record, names=names)]
        return sorted(found, key=lambda answer: (answer.item, answer.answered, answer.id))

    def remove(self, queue: Queue, *, items: Collection[Item]) -> None:
        """Delete the records of these items from the queue's dataset, with the responses to them.

        Raises:
            BackendUnavailable: the server does not answer or rejects the key; repeat the call.
        """
        gone = {name_of(item) for item in items}
        with _usable():
            found = self._dataset(queue)
            ids = [record["id"] for record in self._records(found) if record["external_id"] in gone]
            for start in range(0, len(ids), _DELETED):
                chunk = ",".join(ids[start : start + _DELETED])
                self._call("DELETE", f"datasets/{found['id'] if found else ''}/records", params={"ids": chunk})

    def purge(self, queues: Collection[Queue]) -> None:
        """Delete the queues' datasets with their search indexes; the empty workspaces and the accounts remain.

        Raises:
            BackendUnavailable: the server does not answer or rejects the key; repeat the call.
        """
        with _usable():
            for queue in queues:
                if (found := self._dataset(queue)) is not None:
                    self._call("DELETE", f"datasets/{found['id']}")

    def address(self, queue: Queue) -> str:
        """Return the URL where the queue's annotator signs in and answers.

        Raises:
            BackendUnavailable: the server does not answer or rejects the key.
        """
        with _usable():
            found = self._dataset(queue)
        base = str(self._client.api_url).rstrip("/")
        return f"{base}/dataset/{found['id']}/annotation-mode" if found else base

    def _account(self, annotator: str) -> User:
        """Return the annotator's account; a new account's password is written to the file before it is created."""
        import argilla as rg

        for user in self._client.users:
            if user.username == annotator:
                return user
        known: dict[str, str] = json.loads(self._accounts.read_bytes()) if self._accounts.exists() else {}
        if annotator not in known:
            known[annotator] = secrets.token_urlsafe(18)
            write_private(self._accounts, json.dumps(known, indent=2))
        return rg.User(username=annotator, password=known[annotator], client=self._client).create()

    def _workspace(self, annotator: str) -> Workspace | None:
        name = f"{self._prefix}-{annotator}"
        return next((workspace for workspace in self._client.workspaces if workspace.name == name), None)

    def _dataset(self, queue: Queue) -> Json | None:
        workspace = self._workspace(queue.annotator)
        if workspace is None:
            return None
        found = self._call("GET", "me/datasets", params={"workspace_id": str(workspace.id)})["items"]
        return next((dataset for dataset in found if dataset["name"] == _name(queue)), None)

    def _records(self, dataset: Json | None) -> list[Json]:
        """Return all records of a dataset with their responses, without their fields."""
        found: list[Json] = []
        while dataset is not None:
            params = {"include": "responses", "offset": len(found), "limit": _PAGE}
            page = self._call("GET", f"datasets/{dataset['id']}/records", params=params)["items"]
            found += [{key: value for key, value in record.items() if key != "fields"} for record in page]
            if len(page) < _PAGE:
                break
        return found

    def _call(self, method: str, path: str, **request: Any) -> Json:
        response = self._client.http_client.request(method, f"/api/v1/{path}", **request)
        response.raise_for_status()
        answer: Json = response.json() if response.content else {}
        return answer


def open_argilla(settings: Settings, *, pseudonyms: Collection[str]) -> Argilla:
    """Connect to ``CORPUS_ARGILLA_URL`` with ``CORPUS_ARGILLA_KEY``; ensure each annotator has a workspace.

    Passwords of new accounts are written to ``<home>/argilla-accounts.json`` (mode 600); the operator gives each
    annotator the password.

    Raises:
        BackendUnavailable: the server does not answer, rejects the key, or a person's workspace cannot be used.
    """
    import argilla as rg

    with _usable():
        if not settings.argilla_key.get_secret_value():
            raise _unavailable("CORPUS_ARGILLA_KEY is not set")
        client = rg.Argilla(
            api_url=settings.argilla_url, api_key=settings.argilla_key.get_secret_value(), timeout=_SECONDS, retries=2
        )
        found = Argilla(client, workspace=settings.argilla_workspace, accounts=settings.home / "argilla-accounts.json")
        for pseudonym in sorted(pseudonyms):
            found.admit(pseudonym)
        # ``admit`` allows only the account of that name as annotator, but an owner may answer in any workspace
        found.accounts = {pseudonym: pseudonym for pseudonym in pseudonyms}
    return found


def _name(queue: Queue) -> str:
    """Return the dataset's name; names of corpora and rounds never contain two underscores in a row."""
    return queue.name.replace("/", "__")


def _rows(tasks: Sequence[AnnotationTask]) -> Iterator[tuple[Json, int]]:
    """Yield records and their sizes in characters."""
    for task in tasks:
        record = {"external_id": name_of(task.item), "fields": argilla_form.fields(task)}
        yield record, len(json.dumps(record))


def _answers(record: Json, *, names: dict[str, str]) -> Iterator[AnnotatorAnswer]:
    for response in record.get("responses") or []:
        if response["status"] not in ("submitted", "discarded"):
            continue
        values = {key: value["value"] for key, value in (response["values"] or {}).items()}
        note = values.pop(argilla_form.NOTE, "")
        skipped = response["status"] == "discarded"
        yield AnnotatorAnswer(
            item=item_of(record["external_id"]),
            by=names.get(response["user_id"], response["user_id"]),
            id=response["id"],
            answered=_time(response["updated_at"]),
            values={} if skipped else {key: (v,) if isinstance(v, str) else tuple(v) for key, v in values.items()},
            note=note,
            skipped=skipped,
        )


def _time(text: str) -> datetime:
    """Return a time of the server, which writes UTC without a zone."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _unavailable(detail: str) -> BackendUnavailable:
    return BackendUnavailable(backend="argilla", detail=detail)


@contextlib.contextmanager
def _usable() -> Iterator[None]:
    """Convert errors of the SDK and of HTTP to ours; their messages may quote a record."""
    import httpx
    from argilla._exceptions import ArgillaError

    try:
        yield
    except httpx.HTTPStatusError as error:
        raise _unavailable(f"it answered with HTTP status {error.response.status_code}") from None
    except (ArgillaError, httpx.HTTPError, OSError) as error:
        raise _unavailable(f"it failed with {type(error).__name__}") from None
