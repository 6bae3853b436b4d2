"""Who is really spoken to: resolves a host, refuses addresses that are not public, connects to the one it checked.

A post chooses the address, so a name that points into this network (or starts to, between the check and the
connection) must never receive a byte. Checking and connecting therefore happen here, in one place.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

import httpcore

from pipelines.collect.pace import METER, Refused

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]

DEFAULT_PORTS = frozenset({80, 443})
GLOBAL_UNICAST = ip_network("2000::/3")
# 96-bit prefixes before the IPv4 address that is reached: mapped, translated (RFC 2765), NAT64, compatible
CARRIERS = tuple(ip_network(net) for net in ("::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "::/96"))
# Special-purpose blocks that Python 3.11's is_global calls public (IANA registries; RFC 7526, 9637, 4380)
SPECIAL = tuple(ip_network(net) for net in ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20", "2001::/32"))


def carried(address: Address) -> tuple[Address, ...]:
    """Return what is reached through ``address``: the IPv4 inside a transition form, else the address itself."""
    if isinstance(address, IPv4Address):
        return (address,)
    if int(address) > 1 and any(address in net for net in CARRIERS):
        return (IPv4Address(int(address) & 0xFFFFFFFF),)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if (int(address) >> 32) & 0xFDFFFFFF == 0x5EFE:  # ISATAP, RFC 5214
        return (address, IPv4Address(int(address) & 0xFFFFFFFF))
    return (address,)


def is_public(address: Address) -> bool:
    """Say whether ``address`` is on the public internet in every form that it carries.

    ``ipaddress.is_global`` alone calls NAT64 and 6to4 forms of private addresses public (DESIGN.md 11).
    """
    return all(_is_public(part) for part in carried(address))


def _is_public(part: Address) -> bool:
    if isinstance(part, IPv6Address) and part not in GLOBAL_UNICAST:
        return False
    if any(part in net for net in SPECIAL):
        return False
    return part.is_global and not (part.is_multicast or part.is_reserved or part.is_private)


async def system_resolver(host: str, port: int) -> list[str]:
    """Return the addresses that the operating system knows for ``host``, in its order of preference."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Connects for httpcore, but only to addresses that were checked, and sees that they are the peers in the end."""

    def __init__(
        self,
        *,
        allow_loopback: bool,
        resolver: Resolver = system_resolver,
        inner: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        """``allow_loopback`` admits 127.0.0.0/8 and ::1, on any port, beside public addresses on 80 and 443.

        ``inner`` opens the sockets, httpcore's own by default; it is told addresses, never names.
        """
        self._allow_loopback = allow_loopback
        self._resolver = resolver
        self._inner = inner or httpcore.AnyIOBackend()

    async def _addresses(self, host: str, port: int) -> list[Address]:
        """Resolve ``host`` once. One forbidden answer condemns the name: honest hosts do not mix them.

        Raises:
            Refused: ``private_address``, or ``connection`` for a name without an address.
        """
        try:
            found: list[Address] = [ip_address(host)]
        except ValueError:
            try:
                found = [ip_address(text) for text in await self._resolver(host, port)]
            except (OSError, ValueError):
                raise Refused("connection", passing=True) from None
        if not found:
            raise Refused("connection", passing=True)
        for address in found:
            loopback = self._allow_loopback and all(part.is_loopback for part in carried(address))
            if not loopback and not (is_public(address) and port in DEFAULT_PORTS):
                raise Refused("private_address")
        return found

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first checked address of ``host`` that answers; nothing is sent before the peer is compared.

        Raises:
            Refused: ``private_address`` or ``connection``.
        """
        for address in await self._addresses(host, port):
            try:
                stream = await self._inner.connect_tcp(str(address), port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
            try:
                peer: Address | None = ip_address(stream.get_extra_info("socket").getpeername()[0])
            except (OSError, ValueError):
                peer = None
            if peer == address:
                return MeteredStream(stream)
            await stream.aclose()
            raise Refused("private_address" if peer else "connection", passing=peer is None)
        raise Refused("connection", passing=True)

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        """Refuse: no post may name a socket of this machine."""
        raise Refused("private_address")

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the loop."""
        await asyncio.sleep(seconds)


class MeteredStream(httpcore.AsyncNetworkStream):
    """A connection whose every read is counted by the meter of the request that is being answered."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await METER.get().read(self._inner, max_bytes=max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return MeteredStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
