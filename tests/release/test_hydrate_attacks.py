"""A hostile package, list, folder or server reaches neither the consumer's other files nor their credentials."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from crisis_corpus import hydrate
from pipelines.release import removal
from tests.json_server import QuietHandler, serving
from tests.release.small_release import NOW, World, outcomes, table

Answer = tuple[int, dict[str, str], bytes]
TOKEN: Answer = (200, {}, b'{"access_token": "secret-token"}')
BAD_IDS = ("../../docs/*", "../../docs/thesis", "*", "..", "a" * 31 + "*", "٣" * 32, "/etc/passwd", "a" * 33)


@dataclass
class Hostile:
    """A server that answers each path with what the test says, and the requests that it got."""

    address: str
    came: list[tuple[str, dict[str, str]]]


@contextmanager
def hostile(answers: Callable[[str], Answer]) -> Iterator[Hostile]:
    came: list[tuple[str, dict[str, str]]] = []

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            came.append((self.path, dict(self.headers)))
            status, headers, data = answers(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

    with serving(Handler) as address:
        yield Hostile(address, came)


def client(address: str, *, waits: list[float] | None = None) -> hydrate.RedditClient:
    environment = {
        **dict.fromkeys(("REDDIT_CLIENT_ID", "REDDIT_CLIENT_SECRET", "REDDIT_USER_AGENT"), "x"),
        **dict.fromkeys(("REDDIT_URL", "REDDIT_OAUTH_URL"), address),
        "IMAGE_HOSTS": "127.0.0.1",
    }
    return hydrate.RedditClient(environment, sleep=(waits if waits is not None else []).append)


def pictured(answer: Answer, name: str = "a.jpg") -> str | tuple[bytes, str]:
    """Return what a client makes of a server's answer to its request for a picture."""
    with hostile(lambda _: answer) as reddit:
        return client(reddit.address).picture(f"{reddit.address}/{name}")


def thesis(world: World) -> Path:
    """Write a file of the consumer's own, which the attacks try to delete or replace."""
    path = world.home / "docs" / "thesis"
    path.parent.mkdir()
    path.write_text("three years")
    return path


def rewritten(folder: Path, *, key: bytes | None, **texts: str) -> None:
    """Replace files of a package, with their digests in the manifest; authenticate it again with the key, if any."""
    facts = json.loads((folder / "manifest.json").read_text())
    for file, text in texts.items():
        name = file.replace("_", ".")
        (folder / name).write_text(text)
        facts["files"][name] = sha256(text.encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(hydrate.authenticated(key, "manifest", facts) if key else facts))


def removal_list(key: bytes, *ids: str, number: int = 9, release: str = "p1") -> str:
    facts = {"release": release, "number": number, "ids": list(ids)}
    return json.dumps(hydrate.authenticated(key, "removal list", facts))


@pytest.mark.parametrize("place", ["removal", "table", "given"])
@pytest.mark.parametrize("keyed", [False, True])
def test_ids_that_are_paths_delete_nothing(world: World, place: str, keyed: bool) -> None:
    whole, victim, key = world.approved("posts", "p1"), thesis(world), hydrate.read_key(world.key("p1"))
    # someone who was given the key can authenticate; anyone else can only compute plain digests
    mine = key if keyed else bytes(32)
    with world.reddit() as server:
        for number, bad in enumerate(BAD_IDS):
            folder, out = shutil.copytree(whole, world.home / f"p{number}"), world.home / f"out{number}"
            more: tuple[str, ...] = ()
            if place == "removal":
                rewritten(folder, key=mine, removal_json=removal_list(mine, bad))
            elif place == "table":
                old, fetch = ((folder / f"{name}.csv").read_text() for name in ("test", "fetch"))
                first = old.splitlines()[1][:32]
                [sealed] = [row["address"] for row in table(folder / "fetch.csv") if row["id"] == first]
                found = hydrate.open_address(key, sealed, release_id=first)
                fetch = fetch.replace(sealed, hydrate.seal_address(mine, found, release_id=bad))
                rewritten(folder, key=mine, test_csv=old.replace(first, bad), fetch_csv=fetch.replace(first, bad))
            else:
                (world.home / "newer.json").write_text(removal_list(mine, bad))
                more = ("--removal", str(world.home / "newer.json"))
            code, _, wrong = world.fetched(folder, *more, key=world.key("p1"), out=out)
            assert code == 65
            assert "Traceback" not in wrong
            assert victim.read_text() == "three years"
            assert not list(out.glob("*/*"))
        assert server.counts["info"] == 0


def test_a_list_of_another_release_with_the_same_key_is_refused(world: World) -> None:
    folder, key = world.approved("posts", "p1"), hydrate.read_key(world.key("p1"))
    path = world.home / "newer.json"
    path.write_text(removal_list(key, release="p2"))
    own = {"key": world.key("p1"), "out": world.home / "out"}
    world.turned_away(folder, "--removal", str(path), said="not of this release", **own)


def test_an_altered_package_with_fitting_digests_is_refused(world: World) -> None:
    folder, out = world.approved("posts", "p1"), world.home / "out"
    text = (folder / "test.csv").read_text().replace("selfharm_ongoing", "no_crisis")
    rewritten(folder, key=None, test_csv=text)
    world.turned_away(folder, said="manifest cannot be verified", key=world.key("p1"), out=out)
    facts = json.loads((folder / "manifest.json").read_text())
    for wrong_mac in (None, 3, "", "é", facts["mac"][:-1]):
        (folder / "manifest.json").write_text(json.dumps({**facts, "mac": wrong_mac}))
        world.turned_away(folder, key=world.key("p1"), out=out)
    (folder / "manifest.json").write_text("[" * 100_000)
    world.turned_away(folder, key=world.key("p1"), out=out)
    assert not out.exists()


def test_a_draft_cannot_be_passed_off_as_approved(world: World) -> None:
    folder = Path(world.release("posts", "p1")["package"])
    facts = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(facts | {"status": "APPROVED"}))
    world.turned_away(folder, key=world.key("p1"), out=world.home / "out")


@pytest.mark.parametrize("name", ["../docs/thesis", "/etc/passwd", "..", ".hidden", "a/b", ""])
def test_files_of_the_manifest_are_in_the_package(world: World, name: str) -> None:
    folder, key = world.approved("posts", "p1"), hydrate.read_key(world.key("p1"))
    victim = thesis(world)
    facts = json.loads((folder / "manifest.json").read_text())
    facts["files"][name] = sha256(victim.read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(hydrate.authenticated(key, "manifest", facts)))
    world.turned_away(folder, said="outside the package", key=world.key("p1"), out=world.home / "out")


def test_an_older_list_cannot_be_replayed(world: World) -> None:
    folder, out = world.approved("memes", "m1"), world.home / "out"
    old = shutil.copytree(folder, world.home / "old")
    taken = ("t3_m001", "t3_m004")
    world.vault.destroy([world.record(name) for name in taken], reason="test", now=NOW)
    removal.refresh(settings=world.settings, vault=world.vault, now=NOW, at_once=True)
    ids, newer = {world.of("m1", name) for name in taken}, world.folder("m1") / "removal.json"
    with world.reddit() as server:
        assert world.fetched(old, "--removal", str(newer), key=world.key("m1"), out=out)[0] == 0
        # the folder remembers the list: the package from before fetches none of its ids again
        for more in ((), ("--again",), ("--removal", str(old / "removal.json"))):
            assert world.fetched(old, *more, key=world.key("m1"), out=out)[0] == 0
            assert not any(list(out.glob(f"*/{i}*")) for i in ids)
            assert not ids & {i for i, _ in outcomes(out)}
        asked = server.counts["info"]
        # a list that is older than the one of the package is refused at once
        own = {"key": world.key("m1"), "out": world.home / "other"}
        world.turned_away(folder, "--removal", str(old / "removal.json"), said="older than the list", **own)
        # so is a kept list that was altered
        kept = out / "removal-m1.json"
        kept.write_text(kept.read_text().replace(sorted(ids)[0], "0" * 32))
        world.turned_away(old, said="removal list cannot be verified", key=world.key("m1"), out=out)
        assert server.counts["info"] == asked


@pytest.mark.parametrize("link", ["posts", "images", "outcomes.jsonl", "posts/{id}.json", "posts/{id}.json.part"])
def test_links_in_the_output_folder_lead_to_no_other_file(world: World, link: str) -> None:
    folder, out, victim = world.approved("posts", "p1"), world.home / "out", thesis(world)
    path = out / link.format(id=world.of("p1", "t3_p002"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(victim.parent if "." not in link else victim)
    with world.reddit():
        world.turned_away(folder, said="is a link", key=world.key("p1"), out=out)
    assert victim.read_text() == "three years"
    assert list(victim.parent.iterdir()) == [victim]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("where", ["token", "info", "picture"])
def test_redirects_carry_no_request_elsewhere(where: str, status: int) -> None:
    with hostile(lambda _: TOKEN) as evil:

        def answers(path: str) -> Answer:
            part = "token" if path.startswith("/api/v1") else "info" if path.startswith("/api/info") else "picture"
            return (status, {"Location": f"{evil.address}{path}"}, b"") if part == where else TOKEN

        with hostile(answers) as reddit:
            if where == "picture":
                assert client(reddit.address).picture(f"{reddit.address}/a.jpg") == f"picture_http_{status}"
            else:
                with pytest.raises(hydrate.Stop, match=f"HTTP {status}"):
                    client(reddit.address).posts(["t3_a"])
            assert reddit.came
        assert evil.came == []


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/a", "https://127.0.0.1:1/a", "data:,x"])
def test_redirects_change_no_scheme(target: str) -> None:
    with hostile(lambda _: (302, {"Location": target}, b"")) as reddit:
        assert client(reddit.address).picture(f"{reddit.address}/a.jpg") == "picture_http_302"
        with pytest.raises(hydrate.Stop, match="HTTP 302"):
            client(reddit.address).posts(["t3_a"])


@pytest.mark.parametrize("address", ["file:///etc/hostname", "http://example.org/a.jpg", "ftp://127.0.0.1/a.jpg"])
def test_pictures_are_fetched_by_https_or_from_this_machine_only(address: str) -> None:
    assert client("http://127.0.0.1:1").picture(address) == "picture_host"


def test_a_proxy_for_plain_http_sees_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with hostile(lambda _: TOKEN) as proxy, hostile(lambda _: TOKEN) as reddit:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.address)
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(hydrate.Stop):
            client(reddit.address).posts(["t3_a"])
        assert reddit.came
        assert proxy.came == []


@pytest.mark.parametrize("said", ["inf", "-inf", "nan", "1e400", "1e12", "soon", "-5", "", "٣"])
@pytest.mark.parametrize("name", ["retry-after", "x-ratelimit-reset", "x-ratelimit-remaining"])
def test_malformed_headers_neither_stop_a_run_nor_make_it_wait_for_ever(name: str, said: str) -> None:
    waits: list[float] = []
    headers = {name: said.encode().decode("latin-1")}
    with hostile(lambda _: (429, headers, b"")) as reddit:
        with pytest.raises(hydrate.Stop, match="does not answer"):
            client(reddit.address, waits=waits).posts(["t3_a"])
        assert client(reddit.address, waits=waits).picture(f"{reddit.address}/a.jpg") == "picture_unreachable"
    assert waits
    assert all(1 <= wait <= hydrate.LONGEST_WAIT_SECONDS for wait in waits)


def test_a_picture_is_asked_for_without_credentials() -> None:
    with hostile(lambda _: (200, {"Content-Type": "image/png"}, b"x")) as reddit:
        assert client(reddit.address).picture(f"{reddit.address}/a.png") == (b"x", "png")
    [(path, headers)] = reddit.came
    assert (path, headers["User-Agent"]) == ("/a.png", "x") and "Authorization" not in headers


@pytest.mark.parametrize("answering", [True, False])
def test_each_retry_waits_twice_as_long(answering: bool) -> None:
    waits: list[float] = []
    with hostile(lambda _: (500, {}, b"")) as reddit:
        asked = client(reddit.address if answering else "http://127.0.0.1:1", waits=waits)
        with pytest.raises(hydrate.Stop, match="does not answer"):
            asked.posts(["t3_a"])
        assert asked.picture(f"{asked._api_url}/a.jpg") == "picture_unreachable"
    assert waits == [1, 2, 4, 8, 1, 2]


@pytest.mark.parametrize("said", ["abc", "-1", "1e3", "3, 3", "٣"])
def test_a_malformed_length_of_a_picture_is_no_crash(said: str) -> None:
    headers = {"Content-Type": "image/jpeg", "Content-Length": said.encode().decode("latin-1")}
    assert pictured((200, headers, b"xyz")) == "picture_cut"


def test_a_query_string_of_other_characters_is_no_crash() -> None:
    assert pictured(TOKEN, "a.jpg?é") == "picture_host"


def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hydrate, "MAX_ANSWER_BYTES", 1000)
    with hostile(lambda _: (200, {}, b'{"access_token": "x"' + b" " * 10_000 + b"}")) as reddit:
        with pytest.raises(hydrate.Stop, match="no token"):
            client(reddit.address).posts(["t3_a"])
        assert len(reddit.came) == 1


@pytest.mark.parametrize("data", [b"[" * 200_000, b"{" * 10, b'{"access_token": null' + b" " * 10_000 + b"}", b"[]"])
def test_answers_of_another_shape_or_size_end_the_run_plainly(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hydrate, "MAX_ANSWER_BYTES", 150_000 if data.startswith(b"[[") else 1000)
    for token in (True, False):

        def answers(path: str, token: bool = token) -> Answer:
            return (200, {}, data) if token or "info" in path else TOKEN

        with hostile(answers) as reddit, pytest.raises(hydrate.Stop) as stopped:
            client(reddit.address).posts(["t3_a"])
        assert stopped.value.status in (75, 77)
        assert "[[" not in str(stopped.value)


@pytest.mark.parametrize(("more", "found"), [(0, "jpg"), (1, "picture_size")])
def test_a_picture_has_at_most_twenty_mebibytes(more: int, found: str) -> None:
    data = bytes(20 * 1024 * 1024 + more)
    answer = pictured((200, {"Content-Type": "image/jpeg"}, data))
    assert (answer if isinstance(answer, str) else answer[1]) == found


def test_a_token_that_has_expired_is_renewed_once() -> None:
    def answers(path: str) -> Answer:
        return TOKEN if "access_token" in path else (401, {}, b"")

    with hostile(answers) as reddit, pytest.raises(hydrate.Stop, match="HTTP 401"):
        client(f"{reddit.address}/proxy/").posts(["t3_a"])
    asked = [path.partition("?")[0].removeprefix("/proxy") for path, _ in reddit.came]
    assert asked == ["/api/v1/access_token", "/api/info"] * 2


def test_no_text_of_an_object_shows_a_key_or_an_address() -> None:
    address = hydrate.Address("t3_secret", (123, 456))
    row = hydrate.ReleaseItem("a" * 32, 0, "test", {}, address="sealed", text="digest", picture="digest")
    removal = hydrate.RemovalList(1, frozenset(), b"signed")
    taking = hydrate.Taking(b"key", address, {"title": "words"}, client("http://127.0.0.1:1"), None)  # type: ignore[arg-type]
    said = " ".join(map(repr, (address, row, removal, taking)))
    for hidden in ("t3_secret", "123", "456", "sealed", "digest", "signed", "key", "words"):
        assert hidden not in said
