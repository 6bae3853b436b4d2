"""Note every write and connection of this process outside the registered stores.

Python imports this module in each process whose ``PYTHONPATH`` has this folder and whose ``CORPUS_AUDIT`` names what
:func:`crisis_corpus_sandbox.audit.begin` has written. Only the standard library is imported, because each process
does. What libraries write without Python (Parquet, SQLite, git) raises no event: the files are looked at afterwards.
"""

import fnmatch
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

VARIABLE = "CORPUS_AUDIT"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# the argument that is written to, by event
TARGETS = {"os.rename": 1, "os.link": 1, "os.symlink": 1, "os.mkdir": 0, "sqlite3.connect": 0}


class Watch:
    """An audit hook, which is called at every event of the interpreter."""

    def __init__(self, place: str) -> None:
        terms = json.loads(Path(place).read_text())
        self._child = {VARIABLE: place, "PYTHONPATH": str(Path(__file__).parent)}
        self._allowed = [*terms["paths"], f"{sys.prefix}/*"]
        self._addresses = {(host, port) for host, port in terms["addresses"]}
        self._log = os.open(terms["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._known: set[tuple[str, str]] = set()
        self._busy = False

    def __call__(self, event: str, args: Any) -> None:
        """Note the event if it is a write or connection outside the stores."""
        if self._busy or event not in HANDLED:
            return
        self._busy = True
        try:
            if (what := HANDLED[event](self, event, args)) and (event, what) not in self._known:
                self._known.add((event, what))
                line = {"event": event, "what": what, "argv": sys.argv[:4], "by": list(_lines(sys._getframe(1)))[:40]}
                os.write(self._log, json.dumps(line).encode() + b"\n")
        finally:
            self._busy = False

    def opened(self, event: str, args: Any) -> str | None:
        return self.outside(args[0]) if isinstance(args[2], int) and args[2] & WRITES else None

    def changed(self, event: str, args: Any) -> str | None:
        return self.outside(args[TARGETS[event]])

    def connected(self, event: str, args: Any) -> str | None:
        family, address = args[0].family, args[1]
        if family == socket.AF_UNIX:
            return self.outside(address)
        if family in (socket.AF_INET, socket.AF_INET6) and tuple(address[:2]) not in self._addresses:
            return f"{address[0]}:{address[1]}"
        return None

    def started(self, event: str, args: Any) -> None:
        # commands in clones get an empty PYTHONPATH
        if isinstance(args[3], dict):
            args[3].update(self._child)

    def outside(self, path: Any) -> str | None:
        if isinstance(path, int) or path in (None, "", b"", ":memory:"):
            return None
        text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links are not followed
        known = "/__pycache__" in text or any(fnmatch.fnmatchcase(text, each) for each in self._allowed)
        return None if known or _probed() else text


def _probed() -> bool:
    # `tempfile` writes a file to see whether a folder can be written to
    frame: FrameType | None = sys._getframe(3)
    while frame is not None and frame.f_code.co_name != "_get_default_tempdir":
        frame = frame.f_back
    return frame is not None


def _lines(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back


HANDLED: dict[str, Any] = {
    "open": Watch.opened,
    **dict.fromkeys(TARGETS, Watch.changed),
    "socket.connect": Watch.connected,
    "subprocess.Popen": Watch.started,
}
if os.environ.get(VARIABLE) and Path(os.environ[VARIABLE]).exists():
    sys.addaudithook(Watch(os.environ[VARIABLE]))
