"""Choose ports for servers that take long to start."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

# Below the ports that the kernel gives to connections (32768 and more): the tests beside this one open many of these
# before a slow server takes its own.
PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a loopback port that a server can take: nothing listens on it, and no closed connection holds it still."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
