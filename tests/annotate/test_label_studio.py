"""Against a real Label Studio: the contract of backends, blinding, and the purge."""

import base64
import contextlib
import json
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from pipelines.annotate.backends import AnnotationTask, Item, Queue
from pipelines.annotate.backends._labelling_config import CONTENT, NOTE
from pipelines.annotate.backends.label_studio import LabelStudio, title
from pipelines.annotate.label_studio.server import Account, address, ensure_accounts, serve, start
from pipelines.core.config.params import load as load_params
from pipelines.core.config.settings import Settings
from tests.annotate import annotators
from tests.annotate import backend_contract as contract
from tests.annotate.annotators import ShownTask
from tests.refusals import refused

pytestmark = pytest.mark.faults

WORD = "PLANTEDQUINCEWORD"


class Browser:
    """``Hands`` of annotators who are logged in, each in a session of their own."""

    def __init__(self, url: str, *, accounts: Mapping[str, Account], stack: contextlib.ExitStack) -> None:
        self.clients = {
            name: stack.enter_context(annotators.log_in(url, email=account.email, password=account.password))
            for name, account in accounts.items()
        }

    def answer(self, queue: Queue, item: Item, *, values: Mapping[str, tuple[str, ...]], note: str = "") -> None:
        annotators.send(self.clients[queue.annotator], self.task(queue, item), dict(values), note=note)

    def skip(self, queue: Queue, item: Item) -> None:
        annotators.send(self.clients[queue.annotator], self.task(queue, item), {}, skipped=True)

    def task(self, queue: Queue, item: Item) -> ShownTask:
        tasks = annotators.asked(self.clients[queue.annotator], queue_title=title(queue))
        return next(task for task in tasks if task.item == item)


@pytest.fixture(scope="session")
def backend(label_studio: Settings) -> LabelStudio:
    return LabelStudio.open(label_studio, params=None, pseudonyms=("a1", "a2", "c1"))


@pytest.fixture(scope="session")
def url(label_studio: Settings) -> str:
    return address(label_studio)


@pytest.fixture(scope="session")
def hands(url: str, accounts: dict[str, Account]) -> Iterator[Browser]:
    with contextlib.ExitStack() as stack:
        yield Browser(url, accounts=accounts, stack=stack)


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract_of_backends(backend: LabelStudio, hands: Browser, check: Callable[..., None]) -> None:
    check(backend, hands=hands, name=f"memes/{check.__name__}")


def test_an_outside_server_is_used_with_one_token(url: str, accounts: dict[str, Account], hands: Browser) -> None:
    outside = LabelStudio(url, keys=lambda _: accounts["a1"].token, folder=None, accounts={})
    contract.check_add(outside, hands=hands, name="memes/outside")
    rejected = LabelStudio(url, keys=lambda _: "0" * 40, folder=None, accounts={})
    with refused("BackendUnavailable", match="401"):
        rejected.present(Queue("memes/outside", "a1"))
    silent = LabelStudio("http://127.0.0.1:9", keys=lambda _: "0" * 40, folder=None, accounts={})
    with refused("BackendUnavailable", match="ConnectError"):
        silent.present(Queue("memes/outside", "a1"))


def test_annotators_are_blind_to_one_another(backend: LabelStudio, hands: Browser, url: str) -> None:
    first, second = Queue("memes/blind", "a1"), Queue("memes/blind", "a2")
    for queue in (first, second):
        backend.prepare(queue, form=contract.form())
        backend.add(queue, tasks=contract.texts(1))
        hands.answer(queue, ("r000", 0), values={"kind": ("None",), "context": ("context-required",)})
    own, other = hands.clients["a1"], hands.clients["a2"]
    (foreign,) = [p["id"] for p in other.get("/api/projects/").json()["results"] if p["title"] == title(second)]
    task = hands.task(second, ("r000", 0))
    (annotation,) = other.get(f"/api/tasks/{task.id}/annotations/").json()
    draft = {"result": [], "lead_time": 1}
    assert other.post(f"/api/tasks/{task.id}/drafts", json=draft).status_code == 201
    reading = (
        f"/api/projects/{foreign}/",
        f"/api/projects/{foreign}/tasks",
        f"/api/projects/{foreign}/export?exportType=JSON",
        f"/api/projects/{foreign}/summary/",
        f"/api/tasks?project={foreign}&fields=all",
        f"/api/dm/project?project={foreign}",
        f"/api/dm/columns?project={foreign}",
        f"/api/tasks/{task.id}",
        f"/api/tasks/{task.id}/annotations/",
        f"/api/tasks/{task.id}/drafts",
        f"/api/annotations/{annotation['id']}/",
    )
    every = {"selectedItems": {"all": True, "excluded": []}}
    writing = (
        ("POST", f"/api/dm/actions?id=next_task&project={foreign}", {}),
        ("POST", f"/api/dm/actions?id=delete_tasks&project={foreign}", every),
        ("POST", f"/api/tasks/{task.id}/annotations/", {"result": []}),
        ("POST", f"/api/tasks/{task.id}/drafts", draft),
        ("POST", "/api/tasks/", {"project": foreign, "data": {"_content": "x"}}),
        ("POST", "/api/dm/views", {"project": str(foreign), "data": {}}),
        ("PATCH", f"/api/projects/{foreign}/", {"title": "taken over"}),
        ("PATCH", f"/api/annotations/{annotation['id']}/", {"result": []}),
        ("DELETE", f"/api/projects/{foreign}/", {}),
        ("DELETE", f"/api/tasks/{task.id}/", {}),
    )
    before = backend.present(second), backend.answers(second)
    assert {path: other.get(path).status_code for path in reading} == dict.fromkeys(reading, 200)
    token = own.get("/api/current-user/token").json()["token"]
    with httpx.Client(base_url=url, headers={"Authorization": f"Token {token}"}, trust_env=False) as bare:
        for client in (own, bare):  # logged in, and with the token that a login may read
            assert client.get("/api/projects/").status_code == 200
            seen = {path: client.get(path).status_code for path in reading}
            seen |= {
                f"{verb} {path}": client.request(verb, path, json=body).status_code for verb, path, body in writing
            }
            assert all(status in (403, 404) for status in seen.values()), seen
    assert (backend.present(second), backend.answers(second)) == before
    titles = {project["title"] for project in own.get("/api/projects/").json()["results"]}
    assert title(first) in titles and not any("a2" in name for name in titles)
    assert not any("a2" in user["email"] for user in own.get("/api/users/").json())
    assert "a2" not in own.get("/api/organizations/").text
    backend.purge([first, second])


def test_items_are_asked_in_order_and_a_skipped_one_does_not_come_back(backend: LabelStudio, hands: Browser) -> None:
    queue = Queue("memes/order", "a1")
    backend.prepare(queue, form=contract.form())
    backend.add(queue, tasks=contract.texts(3)[::-1])
    client, asked = hands.clients["a1"], []
    (project,) = [p["id"] for p in client.get("/api/projects/").json()["results"] if p["title"] == title(queue)]
    for _ in range(4):
        answer = client.post(f"/api/dm/actions?id=next_task&project={project}", json={})
        if answer.status_code == 404:
            break
        asked.append(answer.json()["meta"]["position"])
        hands.skip(queue, (f"r{asked[-1]:03}", 0))
    assert asked == [0, 1, 2]
    backend.purge([queue])


def _places(home: Path, *, needles: tuple[bytes, ...]) -> set[str]:
    """Every file of the deployment that holds one of the words: database, journals, folders, logs."""
    files = [path for path in home.rglob("*") if path.is_file()]
    return {path.name for path in files if any(needle in path.read_bytes() for needle in needles)}


def test_nothing_is_left_after_the_purge(label_studio: Settings, backend: LabelStudio, hands: Browser) -> None:
    queue, other = Queue("memes/purged", "a1"), Queue("memes/stays", "a2")
    picture = contract.picture(77)
    needles = (WORD.encode(), base64.b64encode(picture))
    for each in (queue, other):
        backend.prepare(each, form=contract.form())
    backend.add(other, tasks=contract.texts(1))
    content = AnnotationTask(
        ("m0", 0), 0, text={"title": WORD, "body": WORD * 3000}, image=picture, media_type="image/png"
    )
    more = [AnnotationTask((f"m{n}", 0), n, text={"body": WORD * 200}) for n in range(1, 40)]
    backend.add(queue, tasks=[content, *more])
    hands.answer(queue, ("m0", 0), values={"kind": (WORD,), "context": ("context-required",)}, note=WORD)
    task, client = hands.task(queue, ("m1", 0)), hands.clients["a1"]
    (project,) = [p["id"] for p in client.get("/api/projects/").json()["results"] if p["title"] == title(queue)]
    typed = [{"from_name": NOTE, "to_name": CONTENT, "type": "textarea", "value": {"text": [WORD]}}]
    assert client.post(f"/api/tasks/{task.id}/drafts", json={"result": typed, "lead_time": 1}).status_code == 201
    assert client.get(f"/api/projects/{project}/export?exportType=JSON").status_code == 200  # writes a file
    upload = {"file": ("list.json", json.dumps([{"_content": WORD}]).encode(), "application/json")}
    assert client.post(f"/api/projects/{project}/import?commit_to_project=false", files=upload).status_code == 201
    assert client.post(f"/api/tasks/{task.id}/annotations/", json={"result": WORD}).status_code >= 400  # is it logged?
    assert client.post("/api/dm/views", json={"project": project, "data": {"title": WORD}}).status_code == 201
    assert len(_places(label_studio.home, needles=needles)) >= 3

    backend.remove(queue, items=[("m0", 0)])
    assert _places(label_studio.home, needles=needles[1:]) == set()
    backend.purge([queue])
    assert _places(label_studio.home, needles=needles) == set()
    assert set(backend.present(other)) == {("r000", 0)}
    backend.purge([other])


def test_the_server_is_private(label_studio: Settings, url: str) -> None:
    process = start(label_studio, port=1)  # it runs, so nothing is started
    assert {socket.laddr.ip for socket in process.net_connections("tcp") if socket.status == "LISTEN"} == {"127.0.0.1"}
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in label_studio.label_studio.iterdir()}
    assert stat.S_IMODE(label_studio.label_studio.stat().st_mode) == 0o700
    assert not any(mode & 0o077 for mode in modes.values()), modes
    with httpx.Client(base_url=url, trust_env=False) as client:
        assert client.get("/api/projects/").status_code == 401
        token = client.get("/user/login/") and client.cookies["csrftoken"]
        fields = {"csrfmiddlewaretoken": token, "email": "x@annotators.invalid", "password": "long enough 1"}
        assert client.post("/user/signup/", data=fields, headers={"Referer": url}).status_code == 403
        assert client.get("/health", headers={"Host": "elsewhere.example"}).status_code == 400
        page = client.get("/user/login/")
        elsewhere = client.get("/health", headers={"Origin": "https://x.example"})
        assert "access-control-allow-origin" not in elsewhere.headers
        assert "sentry.io" not in page.text and "sentry-cdn" not in page.text


def test_serving_again_says_where_it_is_and_shows_no_password(label_studio: Settings, url: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).resolve().parents[2])
        found = serve(label_studio, params=load_params(), port=None)
    passwords = json.loads(Path(str(found["accounts"])).read_text())
    assert found["url"] == url
    assert set(found["pseudonyms"]) <= set(passwords)  # type: ignore[call-overload]
    assert not [each for each in passwords.values() if each["password"] in json.dumps(found)]


def test_accounts_stay_the_same(label_studio: Settings, accounts: dict[str, Account], url: str) -> None:
    kept = label_studio.label_studio / "accounts.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    before = kept.read_text()
    assert ensure_accounts(label_studio, pseudonyms=["a1"]) == {"a1": accounts["a1"]}
    kept.unlink()
    again = ensure_accounts(label_studio, pseudonyms=["a2"])["a2"]
    kept.write_text(before)
    assert (again.email, again.token) == (accounts["a2"].email, accounts["a2"].token)
    with annotators.log_in(url, email=again.email, password=again.password) as client:  # a new password, and it works
        assert client.get("/api/current-user/whoami").json()["email"] == "a2@annotators.invalid"
