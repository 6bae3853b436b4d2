"""Connect to hosts that posts name: only to checked public addresses, within limits of size, speed and rate.

The host name comes from a post. No byte may be sent to a name that resolves into this network, even if its resolution
changes between the check and the connection. This module therefore both checks and connects.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

import httpcore

from pipelines.core.errors import SourceThrottled

WINDOW_SECONDS = 2.0  # ours: the first window is a grace period; a slow response ends after at most two windows
HEADER_BYTES = 131_072  # ours: httpcore rejects headers above 100 KiB
ATTEMPTS = 3  # ours: a picture with its retries and previews may take the time of three attempts


class Refused(Exception):
    """A picture is dropped for ``reason``; ``passing``: a retry may help; ``wait``: seconds that the host wants."""

    def __init__(self, reason: str, *, passing: bool = False, wait: float | None = None) -> None:
        self.reason = reason
        self.passing = passing
        self.wait = wait


class Allowance:
    """The time of requests (``seconds``) and of delays by hosts (``patience``) that remain for one picture."""

    def __init__(self, *, attempt_seconds: float, max_retry_after_seconds: float) -> None:
        self.seconds = ATTEMPTS * attempt_seconds
        self.patience = max_retry_after_seconds
        self._attempt = attempt_seconds

    def attempt(self) -> float:
        """Return the seconds that the next attempt may take."""
        if self.seconds <= 0:
            raise Refused("timeout")
        return min(self._attempt, self.seconds)


class Meter:
    """Count the bytes of one response, and end the response if it is too large or too slow.

    The clock starts at the first byte. Each window of ``WINDOW_SECONDS`` is checked separately, so that a fast start
    cannot compensate for a slow rest.
    """

    def __init__(self, *, max_bytes: int, min_bytes_per_second: int) -> None:
        self._left = max_bytes + max_bytes // 8 + HEADER_BYTES
        self._rate = min_bytes_per_second
        self._since: float | None = None
        self._got = 0

    async def read(self, stream: httpcore.AsyncNetworkStream, *, max_bytes: int) -> bytes:
        """Read at most ``max_bytes``; refuse a response that is ``too_large`` or ``too_slow``."""
        while True:
            patience = None
            if self._since is not None:
                patience = max(0.01, self._since + WINDOW_SECONDS - time.monotonic())
            try:
                data = await stream.read(max_bytes, timeout=patience)
            except httpcore.ReadTimeout:
                self._judge()
            else:
                self._count(len(data))
                return data

    def _count(self, size: int) -> None:
        self._left -= size
        self._got += size
        if self._left < 0:
            raise Refused("too_large")
        if self._since is None:
            self._since = time.monotonic()
        elif size:
            self._judge()

    def _judge(self) -> None:
        now = time.monotonic()
        elapsed = now - (self._since or now)
        if elapsed < WINDOW_SECONDS:
            return
        if self._got < self._rate * elapsed:
            raise Refused("too_slow")
        self._since, self._got = now, 0


METER: ContextVar[Meter] = ContextVar("METER")


def retry_after(headers: Mapping[str, str], *, longest: float) -> float | None:
    """Return the delay in seconds that a response's ``Retry-After`` requests, or ``None`` without that header.

    A ``Retry-After`` date is compared with the response's own ``Date``, so that clock differences do not matter.
    Without ``Date`` the result is ``longest``, the maximum from the parameters.
    """
    asked = headers.get("retry-after", "").strip()
    if not asked:
        return None
    if asked.isascii() and asked.isdigit():
        return float(min(int(asked[:9]), 10**8))
    try:
        until = parsedate_to_datetime(asked)
    except (ValueError, OverflowError):
        return None
    try:
        return max(0.0, (until - parsedate_to_datetime(headers.get("date", ""))).total_seconds())
    except (ValueError, OverflowError, TypeError):
        return longest


class HostGate:
    """Limit the concurrent requests to one host; no request starts while the host asks clients to wait."""

    def __init__(self, *, per_host: int) -> None:
        self._slots = asyncio.Semaphore(per_host)
        self._opens = 0.0

    def close(self, host: str, *, seconds: float, longest: float) -> None:
        """Delay every request to ``host``; raise ``SourceThrottled`` if it asks for more than ``longest`` seconds."""
        if seconds > longest:
            raise SourceThrottled(source=host, retry_after=seconds)
        self._opens = max(self._opens, time.monotonic() + seconds)

    @asynccontextmanager
    async def turn(self, total: asyncio.Semaphore) -> AsyncIterator[None]:
        """Hold a slot of the host and one of ``total`` for a request; the latter not during a wait for the host."""
        async with self._slots:
            while True:
                while (wait := self._opens - time.monotonic()) > 0:
                    await asyncio.sleep(wait)
                async with total:
                    if self._opens > time.monotonic():
                        continue
                    yield
                    return


Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

DEFAULT_PORTS = frozenset({80, 443})
GLOBAL_UNICAST = ip_network("2000::/3")
# 96-bit prefixes of an embedded IPv4 address: mapped, translated (RFC 2765), NAT64, compatible
CARRIERS = tuple(ip_network(net) for net in ("::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "::/96"))
# Special-purpose blocks that Python 3.11's is_global calls public (IANA registries; RFC 7526, 9637, 4380)
SPECIAL = tuple(ip_network(net) for net in ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20", "2001::/32"))


def carried(address: Address) -> tuple[Address, ...]:
    """Return the IPv4 addresses embedded in ``address``, or ``address`` itself if it embeds none."""
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
    """Return whether ``address`` and every address that it embeds are on the public internet.

    ``ipaddress.is_global`` alone treats NAT64 and 6to4 forms of private addresses as public (DESIGN.md 11).
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
    entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """An httpcore backend that connects only to checked addresses, and verifies the peer of each connection."""

    def __init__(
        self,
        *,
        allow_loopback: bool,
        resolver: Resolver = system_resolver,
        inner: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self._allow_loopback = allow_loopback
        self._resolver = resolver
        self._inner = inner or httpcore.AnyIOBackend()

    async def _addresses(self, host: str, port: int) -> list[Address]:
        """Resolve ``host`` once; one forbidden address rejects the name, as honest hosts do not mix them.

        Raises:
            Refused: ``private_address``, or ``connection`` for a name without an address.
        """
        try:
            addresses: list[Address] = [ip_address(host)]
        except ValueError:
            try:
                addresses = [ip_address(text) for text in await self._resolver(host, port)]
            except (OSError, ValueError):
                raise Refused("connection", passing=True) from None
        if not addresses:
            raise Refused("connection", passing=True)
        for address in addresses:
            loopback = self._allow_loopback and all(part.is_loopback for part in carried(address))
            if not loopback and not (is_public(address) and port in DEFAULT_PORTS):
                raise Refused("private_address")
        return addresses

    async def connect_tcp(self, host: str, port: int, *how: Any, **more: Any) -> httpcore.AsyncNetworkStream:
        """Connect to the first checked address of ``host`` that answers; nothing is sent before the peer is verified.

        Raises:
            Refused: ``private_address`` or ``connection``.
        """
        for address in await self._addresses(host, port):
            try:
                stream = await self._inner.connect_tcp(str(address), port, *how, **more)
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
        raise Refused("private_address")


class MeteredStream(httpcore.AsyncNetworkStream):
    """A connection whose reads are counted by the meter of the current request."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await METER.get().read(self._inner, max_bytes=max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(self, *how: Any, **more: Any) -> httpcore.AsyncNetworkStream:
        return MeteredStream(await self._inner.start_tls(*how, **more))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
