"""Against a real loopback host with every bad habit; it speaks raw sockets, so that it can break the protocol too."""

import asyncio
import gzip
import hashlib
import logging
import socket
import ssl
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.collect import image_fetch
from pipelines.collect.image_fetch import fetch_images
from pipelines.core.config.collect import Fetch
from pipelines.core.config.params import load
from pipelines.core.errors import BadParams, SourceThrottled

PICTURE = b"\x89PNG" + b"picture" * 200
REMOVED = b"\x89PNG" + b"if you can read this, it is gone"
LIMIT = 100_000
NO_TRUST = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
PARAMS = Fetch(
    hosts=("127.0.0.1",),
    allow_http=True,
    allow_loopback=True,
    per_host=4,
    concurrency=8,
    max_bytes=LIMIT,
    timeout_seconds=6,
    min_bytes_per_second=2048,
    max_redirects=3,
    max_retry_after_seconds=3,
    retries=1,
    user_agent="crisis-corpus/1 (research; {contact})",
    placeholders=(hashlib.sha256(REMOVED).hexdigest(),),
)


def head(status: int | str = 200, *, length: int | None = None, kind: str = "image/png", **more: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", *(f"{k.replace('_', '-')}: {v}" for k, v in more.items())]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode()


def whole(body: bytes = PICTURE, **more) -> bytes:
    return head(length=len(body), **more) + body


async def trickle(writer: asyncio.StreamWriter, data: bytes, *, size: int, pause: float) -> None:
    for start in range(0, len(data), size):
        writer.write(data[start : start + size])
        await writer.drain()
        await asyncio.sleep(pause)


ANSWERS = {
    "empty": whole(b""),
    "removed": whole(REMOVED),
    "page": whole(kind="text/html"),
    "typeless": b"HTTP/1.1 200 X\r\nContent-Length: 3\r\n\r\nabc",
    "until_closed": head() + PICTURE,
    "bomb": whole(gzip.compress(bytes(50_000_000)), Content_Encoding="gzip"),
    "uncoded": whole(Content_Encoding=""),
    "coded": head(Transfer_Encoding="gzip, chunked") + b"0\r\n\r\n",
    "short": head(length=len(PICTURE) + 1) + PICTURE,
    "short_chunks": head(Transfer_Encoding="chunked") + b"ff\r\nabc",
    "noise": b"this is not HTTP\r\n\r\n",
    "loop": head(301, length=0, Location="/loop"),
    "nowhere": head(301, length=0),
}
# The connection ends with these answers.
CUT = {"until_closed", "short", "short_chunks", "noise"}


class Host:
    """Answers by path; counts requests, connections and how many are served at once."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1", latency: float = 0.0) -> None:
        self.tls, self.address, self.latency = tls, address, latency
        self.seen: list[tuple[float, str]] = []
        self.heads: list[str] = []
        self.hits: Counter[str] = Counter()
        self.connections = self.active = self.peak = 0

    async def __aenter__(self) -> "Host":
        self.server = await asyncio.start_server(self._connected, self.address, 0, ssl=self.tls)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    def url(self, path: str, *, host: str | None = None) -> str:
        name = host or (f"[{self.address}]" if ":" in self.address else self.address)
        return f"{'https' if self.tls else 'http'}://{name}:{self.port}/{path}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = request.split(" ", 2)[1].lstrip("/")
                self.seen.append((time.monotonic(), path))
                self.heads.append(request)
                self.hits[path] += 1
                self.active += 1
                self.peak = max(self.peak, self.active)
                await asyncio.sleep(self.latency)
                try:
                    await self.respond(path, writer)
                finally:
                    self.active -= 1
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, EOFError):
            pass
        finally:
            writer.close()

    async def respond(self, path: str, writer: asyncio.StreamWriter) -> None:
        name, _, argument = path.partition("/")
        first = self.hits[path] == 1
        busy = {"Retry_After": unquote(argument), "Date": "Sat, 03 Dec 2022 12:00:00 GMT"}
        answers = ANSWERS | {
            "ok": whole(PICTURE + argument.encode()),
            "status": head(argument, length=0, Location="/ok"),
            "busy": head(429, length=0, **busy) if first else whole(),
            "always_busy": head(503, length=0, Retry_After=argument),
            "flaky": head(500, length=0) if first else whole(),
            "hangs_up": b"" if first else whole(),
            "moved": head(302, length=0, Location=unquote(argument)),
        }
        if name not in answers:
            await getattr(self, f"_{name}")(writer)
            return
        writer.write(answers[name])
        if name in CUT or not answers[name]:
            raise EOFError

    async def _chunked(self, writer: asyncio.StreamWriter) -> None:
        writer.write(head(Transfer_Encoding="chunked"))
        for start in range(0, len(PICTURE), 100):
            part = PICTURE[start : start + 100]
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
        writer.write(b"0\r\n\r\n")

    async def _huge(self, writer: asyncio.StreamWriter) -> None:
        writer.write(head(length=10**12))
        await trickle(writer, bytes(LIMIT), size=LIMIT, pause=0)

    async def _endless(self, writer: asyncio.StreamWriter) -> None:
        writer.write(head())
        await trickle(writer, bytes(10**8), size=50_000, pause=0)

    async def _padded(self, writer: asyncio.StreamWriter) -> None:
        """One byte of picture a chunk, and kilobytes of chunk extension around each: small body, endless wire."""
        writer.write(head(Transfer_Encoding="chunked"))
        await trickle(writer, (b"1;" + b"x" * 4000 + b"\r\na\r\n") * 10_000, size=40_050, pause=0)

    async def _trickle(self, writer: asyncio.StreamWriter) -> None:
        writer.write(head(length=50_000))
        await trickle(writer, bytes(50_000), size=20, pause=0.1)

    async def _slow_head(self, writer: asyncio.StreamWriter) -> None:
        await trickle(writer, head(length=3, X_Pad="x" * 1000) + b"abc", size=5, pause=0.1)

    async def _stalls(self, writer: asyncio.StreamWriter) -> None:
        writer.write(head(length=50_000) + bytes(3000))
        await asyncio.sleep(30)

    async def _unhurried(self, writer: asyncio.StreamWriter) -> None:
        """Slow, but above the minimum, for longer than one window."""
        await trickle(writer, head(length=12_000) + bytes(12_000), size=1200, pause=0.25)

    async def _mute(self, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    async def _information(self, writer: asyncio.StreamWriter) -> None:
        await trickle(writer, b"HTTP/1.1 103 X\r\nLink: more\r\n\r\n" * 100_000, size=30_000, pause=0)


def fetch(
    *jobs: str | tuple[str, ...], host: Host | None = None, name: str = "", using: dict | None = None, **options
) -> list[bytes | str]:
    """Fetch jobs, each a path or the paths of its alternatives, of a host, with PARAMS changed by ``using``."""
    host = host or Host()

    async def run() -> list[bytes | str]:
        async with host:
            paths = [(job,) if isinstance(job, str) else job for job in jobs]
            addresses = [tuple(host.url(path, host=name or None) for path in job) for job in paths]
            return await fetch_images(addresses, params=PARAMS.model_copy(update=using or {}), **options)

    return asyncio.run(run())


def moved(target: str) -> str:
    return f"moved/{quote(target, safe='')}"


REASONS = {
    "empty": ["empty"],
    "placeholder": ["removed", moved("/removed.png")],
    "content_type": ["page", "typeless"],
    "too_large": ["huge", "endless", "padded", "information"],
    "content_encoding": ["bomb"],
    "connection": ["coded", "noise"],
    "truncated": ["short", "short_chunks"],
    "not_found": ["status/404", moved("/status/404")],
    "gone": ["status/410"],
    **{f"http_{code}": [f"status/{code}"] for code in (403, 204, 206, 300, 304, 429, 503)},
    "redirects": ["loop"],
    "http_301": ["nowhere"],
    "host_not_allowed": [moved("http://10.0.0.1/x"), moved("//elsewhere.test/x")],
    "scheme": [moved("ftp://127.0.0.1/x"), moved("file:///etc/hosts")],
    "address": [moved("http://user:word@127.0.0.1/x"), moved("http://127.0.0.1:99999/x")],
}
OUTCOMES = {path: reason for reason, paths in REASONS.items() for path in paths}


@pytest.mark.parametrize(("path", "reason"), OUTCOMES.items(), ids=OUTCOMES)
def test_each_bad_habit_has_its_reason(path: str, reason: str) -> None:
    began = time.monotonic()
    assert fetch(path, using={"retries": 0}) == [reason]
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    "path",
    [
        "ok",
        "chunked",
        "until_closed",
        "uncoded",
        *(f"status/{n}" for n in (301, 302, 303, 307, 308)),
        moved("/" + moved("/ok")),
    ],
)
def test_a_picture_arrives_whole_by_every_honest_way(path: str) -> None:
    assert fetch(path) == [PICTURE]


def test_slow_answers_are_dropped_long_before_the_time_limit_and_steady_ones_are_not() -> None:
    began = time.monotonic()
    result = fetch("trickle", "slow_head", "stalls", "unhurried", "mute", using={"timeout_seconds": 5, "per_host": 8})
    assert result[:3] == ["too_slow"] * 3
    assert isinstance(result[3], bytes)
    assert result[4] == "timeout"
    assert time.monotonic() - began < 7
    began = time.monotonic()
    assert fetch("trickle", using={"timeout_seconds": 30}) == ["too_slow"]
    assert time.monotonic() - began < 3.5


@pytest.mark.parametrize(
    "path", ["flaky", "hangs_up", "busy/1", "busy/0", f"busy/{quote('Sat, 03 Dec 2022 12:00:01 GMT')}"]
)
def test_what_may_pass_is_tried_again(path: str) -> None:
    assert [type(result) for result in fetch(path)] == [bytes]


def test_what_will_not_pass_is_asked_once() -> None:
    host = Host()
    fetch("status/404", "page", "short", host=host, using={"retries": 2})
    assert host.hits == {"status/404": 1, "page": 1, "short": 3}


def test_each_retry_waits_twice_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_fetch, "BACKOFF_SECONDS", 0.1)
    host = Host()
    fetch("status/500", host=host, using={"retries": 2})
    first, second, third = (when for when, _ in host.seen)
    assert second - first >= 0.1
    assert 0.2 <= third - second < 1.5


def test_retry_after_holds_back_every_job_of_the_host() -> None:
    host = Host()
    result = fetch("busy/1", *(f"ok/{n}" for n in range(12)), host=host, using={"per_host": 1})
    assert all(isinstance(r, bytes) for r in result)
    times = [when for when, _ in sorted(host.seen)]
    assert times[1] - times[0] >= 1


def test_a_picture_with_all_its_addresses_takes_the_time_of_three_attempts() -> None:
    host, began = Host(), time.monotonic()
    mute = tuple(f"mute/{n}" for n in range(6))
    assert fetch(mute, "ok", host=host, using={"timeout_seconds": 0.2}) == ["timeout", PICTURE]
    assert host.hits.total() - 1 == 3
    assert time.monotonic() - began < 1.5


def test_the_redirects_of_an_attempt_share_its_time() -> None:
    assert fetch("loop", host=Host(latency=0.2), using={"timeout_seconds": 0.5, "retries": 0}) == ["timeout"]


def test_patience_with_a_host_that_is_always_busy_ends() -> None:
    began = time.monotonic()
    assert fetch("always_busy/1", using={"retries": 100}) == ["http_503"]
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("asked", ["3600", "Sat, 03 Dec 2022 13:00:00 GMT"])
def test_a_host_that_asks_for_too_long_stops_the_step(asked: str) -> None:
    began = time.monotonic()
    with pytest.raises(SourceThrottled) as caught:
        fetch(f"busy/{quote(asked)}", "ok", "mute")
    assert time.monotonic() - began < 5
    assert caught.value.fields == {"source": "127.0.0.1", "retry_after": 3600.0}


def test_alternatives_are_tried_in_order_and_the_first_reason_is_reported() -> None:
    outcomes: dict[tuple[str, ...], bytes | str] = {
        ("status/404", "ok/preview"): PICTURE + b"preview",
        ("short", "status/404", "ok"): PICTURE,
        ("page", "status/404"): "content_type",
        ("removed", "ok"): "placeholder",  # taken away by its host: the preview is not asked for
        ("status/410", "ok"): "gone",
        (): "address",
    }
    assert fetch(*outcomes) == [*outcomes.values()]


def test_a_host_sees_no_more_than_its_share_at_once_and_connections_are_kept() -> None:
    host = Host(latency=0.02)
    result = fetch(*(f"ok/{n}" for n in range(40)), host=host, using={"per_host": 3})
    assert result == [PICTURE + str(n).encode() for n in range(40)]
    assert host.peak == 3
    assert host.connections == 3


def test_all_hosts_together_see_no_more_than_the_total() -> None:
    async def run() -> int:
        peak = 0
        async with Host(latency=0.02) as one, Host(latency=0.02, address="127.0.0.2") as two:

            async def watch() -> None:
                nonlocal peak
                while True:
                    peak = max(peak, one.active + two.active)
                    await asyncio.sleep(0.002)

            watcher = asyncio.create_task(watch())
            jobs = [(host.url(f"ok/{n}"),) for n in range(20) for host in (one, two)]
            params = PARAMS.model_copy(update={"hosts": ("127.0.0.1", "127.0.0.2"), "concurrency": 5})
            result = await fetch_images(jobs, params=params)
            watcher.cancel()
            assert all(isinstance(r, bytes) for r in result)
        return peak

    assert asyncio.run(run()) == 5


def test_the_request_identifies_the_client_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    host = Host()
    assert isinstance(fetch("ok", host=host, contact="team@research.test")[0], bytes)
    lines = dict(line.split(": ", 1) for line in host.heads[0].split("\r\n")[1:] if line)
    assert lines == {
        "Host": f"127.0.0.1:{host.port}",
        "User-Agent": "crisis-corpus/1 (research; team@research.test)",
        "Accept": "image/*",
        "Accept-Encoding": "identity",
    }


def test_a_contact_that_cannot_be_sent_is_refused_before_anything_is() -> None:
    with pytest.raises(BadParams):
        fetch("ok", contact="a\r\nX: b")


REFUSED = {
    "http://127.0.0.1/x": ({"allow_http": False, "allow_loopback": False}, "private_address"),
    "ftp://127.0.0.1/x": ({"allow_http": False}, "scheme"),
    "http://evil.test/removed.png": ({}, "host_not_allowed"),
    "http://127.0.0.1/removed.png": ({}, "placeholder"),
    "file:///etc/hosts": ({}, "scheme"),
    "not an address": ({}, "scheme"),
    "": ({}, "scheme"),
    "http://[::1": ({}, "address"),
    "http://127.0.0.1:99999/": ({}, "address"),
    "https://127.0.0.1:8443/x": ({"allow_loopback": False}, "address"),
    "https://name@127.0.0.1/x": ({}, "address"),
    "https://127.0.0.1.evil.test/x": ({}, "host_not_allowed"),
    "https://evil.test#127.0.0.1": ({}, "host_not_allowed"),
    "https://127.0.0.1/x": ({"allow_loopback": False}, "private_address"),
    "https://10.0.0.1/x": ({"hosts": ("10.0.0.1",)}, "private_address"),
    "https://[64:ff9b::a00:1]/x": ({"hosts": ("64:ff9b::a00:1",)}, "private_address"),
}


@pytest.mark.parametrize(("address", "case"), REFUSED.items(), ids=REFUSED)
def test_an_address_is_refused_by_its_looks(address: str, case: tuple[dict, str]) -> None:
    params = PARAMS.model_copy(update={"allow_http": True, **case[0]})
    assert asyncio.run(fetch_images([(address,)], params=params)) == [case[1]]


def test_a_redirect_to_a_private_address_of_an_allowed_name_is_refused_at_the_peer() -> None:
    async def resolver(name: str, port: int) -> list[str]:
        return ["127.0.0.1"] if name == "images.test" else ["10.0.0.1"]

    using = {"hosts": ("images.test", "inside.test")}
    path = moved("http://inside.test/x")
    assert fetch(path, name="images.test", using=using, resolver=resolver) == ["private_address"]


def test_a_name_is_resolved_again_for_each_connection_and_checked_each_time() -> None:
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])

    async def resolver(name: str, port: int) -> list[str]:
        return next(answers)

    using = {"hosts": ("images.test",), "per_host": 1}
    result = fetch("ok", "until_closed", "ok/after", name="images.test", using=using, resolver=resolver)
    assert result == [PICTURE, PICTURE, "private_address"]


def test_the_second_address_of_a_name_serves_when_the_first_does_not_answer() -> None:
    async def resolver(name: str, port: int) -> list[str]:
        return ["127.0.0.3", "127.0.0.1"]

    using = {"hosts": ("images.test",), "retries": 0}
    assert fetch("ok", name="images.test", using=using, resolver=resolver) == [PICTURE]


def test_ipv6_loopback_is_served_too() -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
    host = Host(address="::1")
    assert isinstance(fetch("ok", host=host, using={"hosts": ("::1",)})[0], bytes)
    assert f"Host: [::1]:{host.port}" in host.heads[0]
    assert fetch("ok", host=Host(address="::1"), using={"hosts": ("::1",), "allow_loopback": False}) == ["address"]


@given(st.text(), st.sampled_from(["", "https://127.0.0.1", "https://", "http://127.0.0.1:"]))
@settings(max_examples=200, deadline=None)
def test_no_address_however_odd_does_more_than_drop_its_picture(text: str, start: str) -> None:
    params = PARAMS.model_copy(update={"allow_loopback": False, "retries": 0})
    (result,) = asyncio.run(fetch_images([(start + text,)], params=params, tls=NO_TRUST))
    assert result in {"address", "scheme", "host_not_allowed", "private_address"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "images.test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("images.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "host.pem"
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(made.public_bytes(encoding) + private)
    return path


def tls_server(certificate: Path) -> ssl.SSLContext:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    return server


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.mark.parametrize(
    ("name", "trusted", "outcome"),
    [("images.test", True, PICTURE), ("images.test", False, "connection"), ("other.test", True, "connection")],
)
def test_tls_is_verified_by_name(certificate: Path, name: str, trusted: bool, outcome: bytes | str) -> None:
    asked: list[str | None] = []
    server = tls_server(certificate)
    server.sni_callback = lambda _socket, wanted, _context: asked.append(wanted)
    using = {"hosts": (name,), "allow_http": False, "retries": 0}
    client = ssl.create_default_context(cafile=str(certificate)) if trusted else None
    assert fetch("ok", host=Host(tls=server), name=name, using=using, resolver=loopback, tls=client) == [outcome]
    assert asked == [name]


def test_an_address_with_http_is_requested_by_https(certificate: Path) -> None:
    async def run() -> list[bytes | str]:
        async with Host(tls=tls_server(certificate)) as host:
            params = PARAMS.model_copy(update={"hosts": ("images.test",), "allow_http": False, "retries": 0})
            client = ssl.create_default_context(cafile=str(certificate))
            plain = host.url("ok", host="images.test").replace("https:", "http:")
            back = host.url(moved(plain), host="images.test")
            return await fetch_images([(plain,), (back,)], params=params, resolver=loopback, tls=client)

    assert asyncio.run(run()) == [PICTURE, PICTURE]


def test_known_and_own_placeholders_count_together() -> None:
    own, known = (hashlib.sha256(PICTURE + end).hexdigest() for end in (b"own", b"known"))
    using = {"placeholders": (own.upper(),), "known_placeholders": (known,)}
    assert fetch("ok/own", "ok/known", using=using) == ["placeholder"] * 2


def test_the_placeholder_of_imgur_is_known_in_every_profile() -> None:
    root = Path(__file__).resolve().parents[2]
    imgur = "9b5936f4006146e4e1e9025b474c02863c0b5614132ad40db4b925a10e8bfbb9"
    for profile in (None, "sandbox", "cradle", "cssrs"):
        assert imgur in load(root, profile=profile).images.fetch.placeholder_digests


def test_no_address_is_logged_even_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        fetch("ok/findme", moved("/ok/findme"), "short", "busy/findme", using={"retries": 0})
    assert "findme" not in caplog.text
