"""Start the processes that read untrusted pictures, without files, network or permissions of their own.

In order of preference: bubblewrap (namespaces, an almost empty read-only root) around a child that confines itself
(:mod:`pipelines.collect.read.confine`); the child's own Landlock, seccomp and dropped user; otherwise the start is
refused unless the parameters accept that.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from pipelines.collect.read.confine import READY, REQUEST
from pipelines.core.config.collect import Sandboxing
from pipelines.core.errors import ConfigError

T = TypeVar("T")

NAMES = (__package__ or "").split(".")
CODE = Path(__file__).resolve().parents[len(NAMES)]
# The interpreter is isolated (-I): neither the environment nor the current folder adds modules. It writes no bytecode
# (-B), which would change the digest of a registered model's files.
START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from importlib import import_module;"
    "import_module(sys.argv[2]).main(sys.argv[3:])"
)
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/alternatives")
INHERITED = ("LD_LIBRARY_PATH",)
# Loading an OCR engine takes seconds.
START_SECONDS = 120
MAX_ANNOUNCEMENT = 65_536


class ChildCrashed(Exception):
    """The child ended, or its answer is malformed: the picture may have taken over the child."""


class ChildLate(Exception):
    """The child did not answer in time and was ended."""


class ConfinedChild:
    """A confined child process, which is restarted after a crash or a timeout; one answer at a time.

    The ``main`` of a module beside this one gets ``arguments``, confines itself, announces it and serves. ``readable``
    and ``writable`` are further paths that a bubblewrap sandbox shows the child, which inherits no variables but the
    linker's.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        timeout_seconds: float,
        sandbox: Sandboxing,
        start: str | None = None,
        readable: Sequence[str] = (),
        writable: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        self._argv = [sys.executable, "-I", "-B", "-X", "utf8", "-c", start or START, str(CODE)]
        self._argv += [f"{__package__}.{module}", *arguments]
        self._timeout = timeout_seconds
        self._sandbox = sandbox
        self._readable, self._writable = readable, writable
        self._environment = environment or {}
        self._bubblewrap = shutil.which("bwrap")
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.facts: dict[str, object] = {}

    @property
    def pid(self) -> int | None:
        """The process id of the child, or ``None`` between a crash and the next picture."""
        return self._child.pid if self._child else None

    def ask(self, data: bytes, *, read: Callable[[BinaryIO], T]) -> T:
        """Send ``data``, and return what ``read`` makes of the answer.

        ``read`` checks each size before it reads that much, and raises ``ChildCrashed`` or ``ValueError``.
        """
        with self._lock:
            child, late = self.started(), threading.Event()
            timer = _killing(child, after=self._timeout, late=late)
            try:
                source, sink = _pipes(child)
                sink.write(REQUEST.pack(len(data)))
                sink.write(data)
                sink.flush()
                return read(source)
            except (OSError, ValueError, struct.error, ChildCrashed):
                self.end()
                raise (ChildLate if late.is_set() else ChildCrashed) from None
            finally:
                timer.cancel()
                # a timer that fired while the answer arrived has killed the child too
                if late.is_set():
                    self.end()

    def started(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is None:
            return self._child
        self.end()
        if self._bubblewrap and self._announced(self._wrapped(self._bubblewrap)):
            self.facts["layers"] = ["bubblewrap", *self.layers]
        else:
            # bubblewrap is not allowed in every container; the child's own confinement may be
            self._bubblewrap = None
            self._announced(self._argv)
        child = self._child
        if child is None or not self._enough():
            self.end()
            raise ConfigError("SandboxMissing", detail=", ".join(self.layers) or "the child process does not start")
        return child

    def _enough(self) -> bool:
        layers = set(self.layers)
        if "missing" in self.facts or (
            "user" in layers and ({"landlock", "seccomp"} <= layers or "bubblewrap" in layers)
        ):
            return True
        if self._sandbox == "accepted_without":
            warnings.warn("pictures are read without a sandbox", RuntimeWarning, stacklevel=4)
        return self._sandbox == "accepted_without"

    @property
    def layers(self) -> list[str]:
        layers = self.facts.get("layers")
        return [str(layer) for layer in layers] if isinstance(layers, list) else []

    def _announced(self, argv: Sequence[str]) -> bool:
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        self.facts = {}
        self._child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a traceback could quote what it read
            env=inherited | self._environment,
            cwd="/",
        )
        timer = _killing(self._child, after=START_SECONDS, late=threading.Event())
        try:
            source, _ = _pipes(self._child)
            (size,) = READY.unpack(source.read(READY.size))
            self.facts = json.loads(source.read(min(size, MAX_ANNOUNCEMENT)))
        except (OSError, ValueError, struct.error):
            self.end()
            return False
        finally:
            timer.cancel()
        return True

    def _wrapped(self, bubblewrap: str) -> list[str]:
        """Return the command line in a bubblewrap sandbox: no network, an own process tree, a read-only root.

        Root keeps no user namespace, because its uid would be mapped to root's; the child drops the user itself.
        """
        argv = [bubblewrap, "--die-with-parent", "--new-session", "--unshare-ipc", "--unshare-pid", "--unshare-net"]
        argv += ["--unshare-uts", "--unshare-cgroup-try"]
        root = os.geteuid() == 0
        argv += (
            ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if root else ["--unshare-user"]
        )
        argv += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--chdir", "/"]  # noqa: S108
        for path in dict.fromkeys((*readable(), *self._readable)):
            argv += ["--ro-bind-try", path, path]
        for path in self._writable:
            argv += ["--bind", path, path]
        return [*argv, *self._argv]

    def end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with suppress(OSError):  # unsent data for a dead child is discarded
                    pipe.close()


def readable() -> list[str]:
    """Return what an interpreter with its libraries and this code needs to read."""
    linked = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    return [*SYSTEM, sys.base_prefix, sys.prefix, *linked, str(CODE / NAMES[0])]


def _pipes(child: subprocess.Popen[bytes]) -> tuple[BinaryIO, BinaryIO]:
    return child.stdout, child.stdin  # type: ignore[return-value]


def _killing(child: subprocess.Popen[bytes], *, after: float, late: threading.Event) -> threading.Timer:
    def stop() -> None:
        late.set()
        child.kill()

    timer = threading.Timer(after, stop)
    timer.daemon = True
    timer.start()
    return timer
