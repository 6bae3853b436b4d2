"""Read the clock, end a process together with its parent, keep its files and messages private, report its progress."""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import secrets
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from pipelines.core.errors import BadParams

# Set for commands that an Airflow worker starts; a command that a person starts may outlive their terminal.
DIES_WITH_PARENT = "CORPUS_DIES_WITH_PARENT"
# Begins a message of a step that people should read though the step succeeded.
WARNING = "warning: "


def now() -> datetime:
    """Return the current time in UTC; only commands and the check of consents call this; steps receive it."""
    return datetime.now(UTC)


def login() -> str:
    """Return the operating system's user of this process, such as ``os:anna``; no option can change it."""
    try:
        return f"os:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"os:{os.getuid()}"


def die_with_parent() -> None:
    """Make Linux end this process and its children when the Airflow worker that started it ends."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1

        def end(*_: object) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if os.getpgrp() == os.getpid():
                os.killpg(0, signal.SIGTERM)
            sys.exit(143)

        signal.signal(signal.SIGTERM, end)
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def private_files() -> None:
    """Make files that this process and its children write readable only to their user.

    ``CORPUS_UMASK`` (octal) is for a ``CORPUS_HOME`` that several users of a host share, such as 007 for the users of a
    group.
    """
    os.umask(umask())


def private_home(home: Path) -> None:
    """Create the folder ``CORPUS_HOME`` unless it exists, and remove the permissions that the umask denies."""
    home.mkdir(parents=True, exist_ok=True)
    mode = home.stat().st_mode & 0o7777
    if mode & umask():
        home.chmod(mode & ~umask())


def umask() -> int:
    """Return the umask of new files from ``CORPUS_UMASK``, by default 077 (octal)."""
    text = os.environ.get("CORPUS_UMASK") or "077"
    try:
        mask = int(text, 8)
    except ValueError:
        mask = -1
    if not 0 <= mask <= 0o777:
        raise BadParams(where="CORPUS_UMASK", detail="needs an octal number such as 007")
    return mask


def hide_messages() -> None:
    """Make Python report uncaught exceptions of all threads without their messages, which may quote a post."""
    sys.excepthook = lambda _, error, __: report(error)
    threading.excepthook = lambda failure: report(None if failure.exc_type is SystemExit else failure.exc_value)
    sys.unraisablehook = lambda failure: report(failure.exc_value)
    if logging.lastResort:
        logging.lastResort.setFormatter(logging.Formatter(f"{WARNING}%(message)s"))
    # a record that cannot be formatted is not printed with its arguments
    logging.raiseExceptions = False


def report(error: BaseException | None) -> None:
    """Print the type and traceback of an exception, and of those that caused it, on stderr without their messages."""
    sys.stderr.write("".join(_described(error, seen=set())))


def _described(error: BaseException | None, *, seen: set[int]) -> Iterator[str]:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield from _described(error.__cause__ or (None if error.__suppress_context__ else error.__context__), seen=seen)
    for inner in getattr(error, "exceptions", ()):
        yield from _described(inner, seen=seen)
    yield "Traceback (most recent call last):\n"
    yield from traceback.format_tb(error.__traceback__)
    yield f"{type(error).__name__} (its message may quote content and is not printed)\n"


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, readable only by its owner: after a crash, too, it has the old or the new content."""
    _half(path, text).replace(path)


def create_private(path: Path, text: str) -> str:
    """Write a private file unless it exists, and return its content; if several processes write, the first one wins."""
    if not path.exists():
        half = _half(path, text)
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(half)
        half.unlink()
    return path.read_text()


def _half(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    half.touch(mode=0o600)
    with half.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return half


def silent(message: object) -> None:
    """Ignore a progress message; this is the default of parameters that take a progress callback."""


def reporter(name: str, *, total: int) -> Callable[[int], None]:
    """Return a function that, called with the number of completed items, prints ``name: done/total`` and the time left.

    A terminal shows one line that is rewritten at most once a second; a log gets about twenty lines.
    """
    terminal = sys.stderr.isatty()
    said, began, last = 0, time.monotonic(), float("-inf")

    def progress(done: int) -> None:
        nonlocal said, last
        now = time.monotonic()
        due = now - last >= 1 if terminal else done - said >= total / 20
        if done <= said or not (due or done == total):
            return
        said, last = done, now
        text = f"{name}: {done}/{total}"
        if done < total:
            text += f", about {duration((now - began) * (total - done) / done)} left"
        sys.stderr.write(f"\r\x1b[K{text}" + "\n" * (done == total) if terminal else f"{text}\n")
        sys.stderr.flush()

    return progress


def duration(seconds: float) -> str:
    """Format a duration, such as ``12 s``, ``5 min`` or ``3.5 h``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
