import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.collect.connection import METER, CheckedBackend, Meter, Refused, is_public

PRIVATE = [
    *("0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.0.0.8"),
    *("192.88.99.1", "192.168.1.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1"),
    *("fe80::1", "fc00::1", "fec0::1", "ff0e::1", "2001:db8::1", "3fff::1", "5f00::1"),
    *("64:ff9b:1::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
]
FORMS = {
    "mapped": "::ffff:{}",
    "compatible": "::{}",
    "translated": "::ffff:0:{}",
    "nat64": "64:ff9b::{}",
    "isatap": "2606:4700::5efe:{}",
    "isatap unique": "2606:4700::200:5efe:{}",
}


def sixtofour(address: str) -> IPv6Address:
    return IPv6Address((0x2002 << 112) | (int(IPv4Address(address)) << 80) | 1)


@pytest.mark.parametrize("text", PRIVATE)
def test_private_addresses_are_refused(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("inner", ["10.0.0.1", "127.0.0.1", "169.254.169.254", "100.64.0.1", "224.0.0.1"])
def test_private_addresses_are_refused_in_every_ipv6_form(form: str, inner: str) -> None:
    assert not is_public(ip_address(form.format(inner)))
    assert not is_public(sixtofour(inner))


@pytest.mark.parametrize("text", ["8.8.8.8", "2606:4700::1111", *(form.format("8.8.8.8") for form in FORMS.values())])
def test_public_addresses_pass_in_every_form(text: str) -> None:
    assert is_public(ip_address(text))


@given(st.ip_addresses(v=4))
def test_an_ipv6_form_never_passes_where_its_ipv4_does_not(address: IPv4Address) -> None:
    for form in FORMS.values():
        assert not is_public(ip_address(form.format(address))) or is_public(address)
    assert not is_public(sixtofour(str(address))) or is_public(address)


class Detour(httpcore.AsyncNetworkBackend):
    """A network that carries every connection to a loopback server, whatever address was asked for."""

    def __init__(self, port: int) -> None:
        self.asked: list[tuple[str, int]] = []
        self.port = port

    async def connect_tcp(self, host, port, timeout=None, local_address=None, socket_options=None):
        self.asked.append((host, port))
        return await httpcore.AnyIOBackend().connect_tcp("127.0.0.1", self.port)


def connect(backend_options: dict, *, host: str, port: int | None = None) -> tuple[str, list, bytes]:
    """Connect through a detour to a recording server; return the reason, the requests, the received bytes."""

    async def run() -> tuple[str, list, bytes]:
        received = bytearray()
        gone = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            received.extend(await reader.read())
            writer.close()
            gone.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        here = server.sockets[0].getsockname()[1]
        detour = Detour(here)
        reason = "connected"
        async with server:
            METER.set(Meter(max_bytes=1, min_bytes_per_second=1))
            try:
                stream = await CheckedBackend(inner=detour, **backend_options).connect_tcp(host, port or here)
                await stream.aclose()
            except Refused as refused:
                reason = refused.reason
            if detour.asked:
                await asyncio.wait_for(gone.wait(), 5)
        return reason, detour.asked, bytes(received)

    return asyncio.run(run())


def rebinding(*answers: list[str]):
    """A name server that changes its mind: each question gets the next answer, the last one for ever."""
    calls: list[str] = []

    async def resolver(host: str, port: int) -> list[str]:
        calls.append(host)
        return answers[min(len(calls), len(answers)) - 1]

    return resolver, calls


def test_a_rebinding_name_is_asked_once_and_only_the_checked_address_is_dialled() -> None:
    resolver, calls = rebinding(["93.184.216.34"], ["127.0.0.1"])
    reason, asked, received = connect({"allow_loopback": False, "resolver": resolver}, host="images.test", port=443)
    assert calls == ["images.test"]
    assert asked == [("93.184.216.34", 443)]
    # the detour led to another peer than the checked one: noticed before a byte went out
    assert (reason, received) == ("private_address", b"")


@pytest.mark.parametrize("answer", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["64:ff9b::7f00:1"], ["::ffff:10.0.0.1"]])
def test_a_name_with_any_private_address_is_not_dialled(answer: list[str]) -> None:
    resolver, _ = rebinding(answer)
    reason, asked, _ = connect({"allow_loopback": False, "resolver": resolver}, host="images.test", port=443)
    assert (reason, asked) == ("private_address", [])


def test_loopback_is_dialled_only_when_allowed_and_then_nothing_else_private_is() -> None:
    assert connect({"allow_loopback": True}, host="127.0.0.1")[0] == "connected"
    assert connect({"allow_loopback": False}, host="127.0.0.1")[:2] == ("private_address", [])
    assert connect({"allow_loopback": True}, host="10.0.0.1")[:2] == ("private_address", [])
    assert connect({"allow_loopback": True}, host="8.8.8.8", port=8080)[:2] == ("private_address", [])


@pytest.mark.parametrize("host", ["0x7f.1", "2130706433", "127.1", "localhost"])
def test_odd_spellings_of_loopback_are_resolved_and_refused(host: str) -> None:
    reason, asked, _ = connect({"allow_loopback": False}, host=host)
    assert reason in ("private_address", "connection")
    assert asked == []


def test_a_name_without_an_address_is_a_connection_error() -> None:
    async def fails(host: str, port: int) -> list[str]:
        raise socket.gaierror

    for resolver in (fails, rebinding([])[0]):
        assert connect({"allow_loopback": False, "resolver": resolver}, host="images.test")[0] == "connection"


def test_a_unix_socket_is_never_opened() -> None:
    with pytest.raises(Refused, match="private_address"):
        asyncio.run(CheckedBackend(allow_loopback=True).connect_unix_socket("any"))
