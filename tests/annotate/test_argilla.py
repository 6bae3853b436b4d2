"""The backend contract against a real Argilla server in an environment of its own, ``.argilla``."""

from __future__ import annotations

import base64
import html
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from pipelines.annotate.backends.argilla.argilla import Argilla, open_argilla
from pipelines.annotate.backends.backend import AnnotationTask, Item, Queue
from pipelines.config.settings import Settings
from pipelines.errors import BackendUnavailable
from tests.annotate import backend_contract as contract
from tests.annotate.argilla_search import Search, search

pytestmark = pytest.mark.argilla

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".argilla/bin/python"
OWNER = "owner-key-of-the-test"
PEOPLE = ("a1", "a2", "c1")


@dataclass(frozen=True)
class Place:
    """A running server: how to reach it, what it found and where it keeps its database."""

    settings: Settings
    search: Search
    home: Path

    @property
    def url(self) -> str:
        return self.settings.argilla_url


def _free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(url: str, *, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"Argilla's server ended at once:\n{log.read_text()[-2000:]}")
        try:
            httpx.get(f"{url}/api/v1/version").raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.2)
        else:
            return
    pytest.fail("Argilla's server did not come up in two minutes")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if not PYTHON.exists():
        pytest.fail("there is no .argilla; `make test-argilla` installs it from argilla.lock")
    home, port = tmp_path_factory.mktemp("argilla"), _free()
    url, log = f"http://127.0.0.1:{port}", home / "log"
    with search() as (engine, engine_url), log.open("wb") as out:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "ARGILLA_HOME_PATH": str(home),
            "ARGILLA_ELASTICSEARCH": engine_url,
            "HF_HUB_OFFLINE": "1",
        }
        script = Path(__file__).with_name("argilla_serve.py")
        process = subprocess.Popen(
            [PYTHON, script, str(port), OWNER], env=env, cwd=home, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            _wait(url, process=process, log=log)
            settings = Settings.from_env().model_copy(
                update={"home": home, "argilla_url": url, "argilla_key": SecretStr(OWNER), "argilla_workspace": "team"}
            )
            yield Place(settings, engine, home)
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def backend(place: Place) -> Argilla:
    return open_argilla(place.settings, pseudonyms=PEOPLE)


class Hands:
    """Annotators who sign in with their own passwords and answer through Argilla's API, as its page does."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._clients: dict[str, httpx.Client] = {}

    def client(self, annotator: str) -> httpx.Client:
        if annotator not in self._clients:
            password = json.loads((self._place.home / "argilla-accounts.json").read_text())[annotator]
            client = httpx.Client(base_url=f"{self._place.url}/api/v1", timeout=30)
            token = client.post("/token", data={"username": annotator, "password": password}).raise_for_status().json()
            client.headers["Authorization"] = f"Bearer {token['access_token']}"
            self._clients[annotator] = client
        return self._clients[annotator]

    def datasets(self, annotator: str) -> dict[str, str]:
        found = self.client(annotator).get("/me/datasets").raise_for_status().json()["items"]
        return {dataset["name"]: dataset["id"] for dataset in found}

    def waiting(self, queue: Queue) -> dict[str, str]:
        """Records without a response of this annotator: what the page puts before them."""
        return self._records(queue, values=["pending"])

    def answer(self, queue: Queue, item: Item, *, values: Mapping[str, tuple[str, ...]], note: str = "") -> None:
        kinds = {question.key: question.kind for question in contract.form().questions}
        filled: dict[str, object] = {
            key: {"value": list(v) if kinds[key] == "multi" else v[0]} for key, v in values.items()
        }
        self._respond(queue, item, status="submitted", values=filled | ({"note": {"value": note}} if note else {}))

    def draft(self, queue: Queue, item: Item) -> None:
        self._respond(queue, item, status="draft", values={"context": {"value": "context-required"}})

    def skip(self, queue: Queue, item: Item) -> None:
        self._respond(queue, item, status="discarded", values={})

    def _respond(self, queue: Queue, item: Item, *, status: str, values: Mapping[str, object]) -> None:
        record = self._records(queue, values=["pending", "draft", "submitted", "discarded"])[f"{item[0]}/{item[1]}"]
        body = {"items": [{"record_id": record, "status": status, "values": dict(values)}]}
        (answer,) = (
            self.client(queue.annotator).post("/me/responses/bulk", json=body).raise_for_status().json()["items"]
        )
        assert answer["error"] is None, answer["error"]

    def _records(self, queue: Queue, *, values: list[str]) -> dict[str, str]:
        dataset = self.datasets(queue.annotator)[queue.name.replace("/", "__")]
        scope = {"entity": "response", "property": "status"}
        body = {"filters": {"and": [{"type": "terms", "scope": scope, "values": values}]}}
        client = self.client(queue.annotator)
        found = client.post(f"/me/datasets/{dataset}/records/search", json=body).raise_for_status().json()["items"]
        return {item["record"]["external_id"]: item["record"]["id"] for item in found}


@pytest.fixture(scope="module")
def hands(place: Place, backend: Argilla) -> Hands:
    return Hands(place)


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: str(check.__name__))
def test_contract(check: object, backend: Argilla, hands: Hands) -> None:
    assert callable(check)
    check(backend, hands=hands, name=f"memes/{check.__name__.removeprefix('check_').replace('_', '-')}")


def test_an_annotators_own_account_reaches_no_other_queue(backend: Argilla, hands: Hands) -> None:
    first, second = Queue("memes/blind", "a1"), Queue("memes/blind", "a2")
    for queue in (first, second):
        backend.prepare(queue, form=contract.form())
        backend.add(queue, tasks=contract.texts(1))
    hands.answer(second, ("r000", 0), values={"kind": ("None",), "context": ("context-required",)})
    other = hands.datasets("a2")["memes__blind"]
    record = backend._records({"id": other})[0]["id"]
    client = hands.client("a1")
    assert hands.datasets("a1")["memes__blind"] != other
    assert other not in hands.datasets("a1").values()
    for path in (f"/datasets/{other}", f"/datasets/{other}/records", f"/records/{record}", "/users", "/workspaces"):
        assert client.get(path).status_code in (403, 404, 405), path
    assert client.post(f"/me/datasets/{other}/records/search", json={}).status_code == 403
    # not even of one's own queue does an annotator see who else answered
    assert client.get(f"/datasets/{hands.datasets('a1')['memes__blind']}/records").status_code == 403
    backend.purge([first, second])


def test_a_skipped_task_does_not_come_back_and_a_draft_is_no_answer(backend: Argilla, hands: Hands) -> None:
    queue = Queue("memes/waiting", "a1")
    backend.prepare(queue, form=contract.form())
    backend.add(queue, tasks=contract.texts(3))
    hands.skip(queue, ("r000", 0))
    hands.draft(queue, ("r001", 0))
    assert set(hands.waiting(queue)) == {"r002/0"}
    assert [(answer.item, answer.skipped) for answer in backend.answers(queue)] == [(("r000", 0), True)]
    assert backend.answers(queue)[0].by == "a1"
    backend.purge([queue])


def test_every_task_shows_warning_and_contacts_and_a_picture_is_blurred(backend: Argilla, hands: Hands) -> None:
    queue = Queue("memes/form", "a1")
    form = contract.form(content="images")
    backend.prepare(queue, form=replace(form, warning="May weigh {{record.id}} <b>on you</b>"))
    backend.add(queue, tasks=contract.images(1))
    client, dataset = hands.client("a1"), hands.datasets("a1")["memes__form"]
    fields = {f["name"]: f for f in client.get(f"/datasets/{dataset}/fields").json()["items"]}
    notice = fields["notice"]["settings"]["template"]
    assert "{{" not in notice and "<b>" not in notice and "https://example.org/help?a=1&amp;b=2" in notice
    assert "blur(" in fields["picture"]["settings"]["template"]
    (found,) = client.post(f"/me/datasets/{dataset}/records/search", json={}).json()["items"]
    source = found["record"]["fields"]["picture"]["source"]
    assert base64.b64decode(source.removeprefix("data:image/png;base64,")) == contract.picture(0)
    questions = {q["name"]: q for q in client.get(f"/datasets/{dataset}/questions").json()["items"]}
    assert questions["kind"]["settings"]["options"][0]["description"] == 'Two "ways" to take it.'
    assert [q["required"] for q in questions.values()] == [True, True, False]
    guidelines = client.get(f"/datasets/{dataset}").json()["guidelines"]
    assert form.guideline.strip() in guidelines and "A &lt;friend&gt;" in guidelines
    backend.purge([queue])


def test_an_owners_answer_is_of_another_account(backend: Argilla, hands: Hands, place: Place) -> None:
    queue = Queue("memes/owner", "a1")
    backend.prepare(queue, form=contract.form())
    backend.add(queue, tasks=contract.texts(1))
    hands.skip(queue, ("r000", 0))
    record = backend._records(backend._dataset(queue))[0]["id"]
    owner = httpx.Client(base_url=f"{place.url}/api/v1", headers={"X-Argilla-Api-Key": OWNER})
    body = {"items": [{"record_id": record, "status": "discarded", "values": {}}]}
    owner.post("/me/responses/bulk", json=body).raise_for_status()
    assert [answer.by == backend.accounts["a1"] for answer in backend.answers(queue)] == [True, False]
    assert set(backend.accounts) == set(PEOPLE)
    backend.purge([queue])


def test_no_tag_of_a_post_reaches_the_page(backend: Argilla, hands: Hands) -> None:
    queue, hostile = Queue("memes/hostile", "a1"), '</script><img src="http://127.0.0.1/x"> {{record.id}}\nnext & last'
    backend.prepare(queue, form=contract.form())
    backend.add(queue, tasks=[AnnotationTask(item=("r000", 0), position=0, text={"title": hostile, "body": hostile})])
    dataset = hands.datasets("a1")["memes__hostile"]
    (found,) = hands.client("a1").post(f"/me/datasets/{dataset}/records/search", json={}).json()["items"]
    for name in ("title", "body"):
        shown = found["record"]["fields"][name]
        assert "<" not in shown.replace("<br>", "") and "{{" not in shown
        assert html.unescape(shown.replace("<br>", "\n")) == hostile
    backend.purge([queue])


def test_a_partly_created_queue_is_recreated(backend: Argilla, place: Place) -> None:
    queue = Queue("memes/half", "a1")
    workspace = backend.admit("a1")
    owner = httpx.Client(base_url=f"{place.url}/api/v1", headers={"X-Argilla-Api-Key": OWNER})
    body = {"name": "memes__half", "workspace_id": str(workspace.id)}
    owner.post("/datasets", json=body).raise_for_status()
    backend.prepare(queue, form=contract.form())
    backend.add(queue, tasks=contract.texts(1))
    assert set(backend.present(queue)) == {("r000", 0)}
    backend.purge([queue])


def test_more_than_a_page(backend: Argilla, hands: Hands) -> None:
    queue = Queue("memes/page", "a1")
    backend.prepare(queue, form=contract.form())
    backend.add(queue, tasks=contract.texts(60))
    assert len(backend.present(queue)) == 60
    backend.remove(queue, items=[(f"r{n:03}", 0) for n in range(55)])
    assert sorted(backend.present(queue)) == [(f"r{n:03}", 0) for n in range(55, 60)]
    backend.purge([queue])


def test_nothing_is_left_where_the_server_looks_and_in_live_rows(backend: Argilla, place: Place) -> None:
    import sqlite3

    queue, word = Queue("memes/leak", "a1"), "quoddamverbum"
    backend.prepare(queue, form=contract.form())
    backend.add(queue, tasks=[AnnotationTask(item=("r000", 0), position=0, text={"body": f"A {word}."})])
    assert word in place.search.words()
    backend.purge([queue])
    assert word not in place.search.words()
    with sqlite3.connect(place.home / "argilla.db") as database:
        assert not any(word in line for line in database.iterdump())


def test_other_annotators_in_a_workspace_stop_the_round(backend: Argilla) -> None:
    workspace = backend.admit("a2")
    workspace.add_user("c1")
    with pytest.raises(BackendUnavailable, match="team-a2 has other annotators"):
        backend.prepare(Queue("memes/shared", "a2"), form=contract.form())
    workspace.remove_user("c1")


def test_a_guideline_that_argilla_does_not_take_is_named(backend: Argilla) -> None:
    with pytest.raises(BackendUnavailable, match="10000"):
        backend.prepare(Queue("memes/long", "a1"), form=replace(contract.form(), guideline="x" * 10_000))


def test_passwords_are_for_their_owner_alone(backend: Argilla, place: Place) -> None:
    path = place.home / "argilla-accounts.json"
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    open_argilla(place.settings, pseudonyms=PEOPLE)
    assert path.read_bytes() == before


@pytest.mark.parametrize("key", ["", "no-key-at-all"])
def test_a_bad_key_is_named_as_such(place: Place, key: str) -> None:
    with pytest.raises(BackendUnavailable):
        open_argilla(place.settings.model_copy(update={"argilla_key": SecretStr(key)}), pseudonyms=[])


def test_an_admins_key_makes_no_workspace(place: Place, backend: Argilla) -> None:
    owner = httpx.Client(base_url=f"{place.url}/api/v1", headers={"X-Argilla-Api-Key": OWNER})
    body = {"first_name": "m", "username": "manager", "role": "admin", "password": "long enough a word"}
    key = owner.post("/users", json=body).raise_for_status().json()["api_key"]
    with pytest.raises(BackendUnavailable, match="no workspace team-a9"):
        open_argilla(place.settings.model_copy(update={"argilla_key": SecretStr(key)}), pseudonyms=["a9"])


def test_no_server() -> None:
    settings = Settings.from_env().model_copy(
        update={"argilla_url": f"http://127.0.0.1:{_free()}", "argilla_key": SecretStr("k")}
    )
    with pytest.raises(BackendUnavailable, match="ConnectError"):
        open_argilla(settings, pseudonyms=[])
