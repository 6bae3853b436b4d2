"""The fork server: a delegated command behaves like one that was started directly, and nothing depends on a server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pipelines.core import forkserver

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the fork server needs Linux")
SCRIPT = Path(forkserver.__file__)
COMMAND = """
import json, os, subprocess, sys, time
from pipelines.core.forkserver import delegate
delegate()
what, *rest = sys.argv[1:]
if what == "show":
    facts = {"argv": rest, "cwd": os.getcwd(), "ppid": os.getppid(), "stdin": sys.stdin.read(), "pid": os.getpid(),
             "value": os.environ.get("A_VARIABLE"), "json": "colorsys" in sys.modules}
    print(json.dumps(facts))
    print("to stderr", file=sys.stderr)
elif what == "exit":
    sys.exit(int(rest[0]))
elif what == "text":
    sys.exit("a message")
elif what == "fail":
    raise RuntimeError
elif what == "hide":
    sys.excepthook = lambda *_: print("hidden", file=sys.stderr)
    raise RuntimeError("a message")
elif what == "nested":
    subprocess.run([sys.executable, "-m", "pipelines", "show"])
    sys.exit(7)
elif what == "sleep":
    open(rest[0], "w").write(str(os.getpid()))
    time.sleep(60)
elif what == "tree":
    subprocess.run([sys.executable, "-m", "pipelines", "sleep", rest[0]])
"""


def patiently(done: Callable[[], object], *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Place:
    """A folder with a package ``pipelines`` of its own, and a server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / ("long-" * 30) / "server.sock"
        package = folder / "pipelines"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(COMMAND)
        (package / SCRIPT.name).write_text(SCRIPT.read_text())
        self.socket.parent.mkdir()
        self.server: subprocess.Popen[bytes] | None = None

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CORPUS_")}
        return {**kept, "PYTHONPATH": "", forkserver.ADDRESS: str(self.socket), **more}

    def serve(self, *libraries: str, **more: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-P", str(SCRIPT), str(self.socket), *(libraries or ["colorsys"])]
        self.server = subprocess.Popen(argv, env=self.environment(**more), stderr=subprocess.DEVNULL)
        patiently(self.socket.exists)
        return self.server

    def start(self, *argv: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "pipelines", *argv], cwd=self.folder, env=self.environment(**more), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def run(self, *argv: str, given: str = "", **more: str) -> tuple[int, str, str]:
        child = self.start(*argv, **more)
        out, err = child.communicate(given, timeout=60)
        return child.returncode, out, err

    def sleeping(self, *argv: str) -> tuple[subprocess.Popen[str], psutil.Process]:
        """Start a command that sleeps; return the waiting process and the one that sleeps."""
        noted = self.folder / "pid"
        waiting = self.start(*argv, str(noted))
        patiently(lambda: noted.exists() and noted.read_text())
        return waiting, psutil.Process(int(noted.read_text()))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    if place.server is not None:
        place.server.kill()
        place.server.wait()


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_command_has_its_own_arguments_files_folder_and_environment(place: Place) -> None:
    server = place.serve()
    code, out, err = place.run("show", "a", "b c", given="input", A_VARIABLE="é")
    facts = json.loads(out)
    assert (code, err) == (0, "to stderr\n")
    assert facts["ppid"] == server.pid
    assert (facts["argv"], facts["cwd"], facts["stdin"]) == (["a", "b c"], str(place.folder), "input")
    assert facts["value"] == "é" and facts["json"]


@pytest.mark.parametrize(("argv", "code"), [("exit 0", 0), ("exit 78", 78), ("text", 1), ("fail", 1), ("hide", 1)])
def test_the_exit_status_is_the_commands_and_its_hook_reports_an_exception(place: Place, argv: str, code: int) -> None:
    place.serve()
    served, alone = place.run(*argv.split()), place.run(*argv.split(), CORPUS_FORKSERVER="")
    assert served[0] == alone[0] == code
    assert ("Traceback" in served[2]) == ("Traceback" in alone[2]) == (argv == "fail")
    assert argv != "hide" or served == alone == (1, "", "hidden\n")


def test_a_command_that_a_command_starts_is_delegated_too(place: Place) -> None:
    # importing this library sets a variable, as torch and OpenCV do
    (place.folder / "a_library.py").write_text("import os\nos.environ['TORCH_FOLDER'] = 'x'\n")
    server = place.serve("colorsys", "a_library", PYTHONPATH=str(place.folder))
    code, out, _ = place.run("nested", PYTHONPATH=str(place.folder))
    assert code == 7
    assert json.loads(out)["ppid"] == server.pid


def test_without_a_server_a_command_runs_by_itself(place: Place) -> None:
    assert json.loads(place.run("show")[1])["json"] is False
    server = place.serve()
    server.kill()
    server.wait()
    # its socket is still there
    assert json.loads(place.run("show")[1])["json"] is False


def test_a_variable_that_a_library_has_read_already_starts_a_command_by_itself(place: Place) -> None:
    place.serve()
    assert json.loads(place.run("show", OMP_NUM_THREADS="37")[1])["json"] is False
    assert json.loads(place.run("show", A_VARIABLE="37")[1])["json"] is True


def test_a_damaged_request_does_not_end_the_server(place: Place) -> None:
    import socket

    place.serve()
    folder = os.open(place.socket.parent, os.O_PATH)
    for body in (b"", b"\x00", b"\x00\x00\x00\x02{}", b"\xff" * 8):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"/proc/self/fd/{folder}/{place.socket.name}")
            # The server may refuse the length and hang up before the rest is sent.
            with suppress(BrokenPipeError, ConnectionResetError):
                if body:
                    socket.send_fds(client, [body[:4]], [0, 1, 2])
                    client.sendall(body[4:])
    os.close(folder)
    assert place.run("exit", "5")[0] == 5


def test_a_signal_reaches_the_command(place: Place) -> None:
    place.serve()
    waiting, sleeper = place.sleeping("sleep")
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(30) == -signal.SIGTERM
    patiently(lambda: gone(sleeper))


@pytest.mark.parametrize("argv", [["sleep"], ["tree"]])
def test_a_command_ends_when_the_waiting_process_is_killed(place: Place, argv: list[str]) -> None:
    place.serve()
    waiting, sleeper = place.sleeping(*argv)
    waiting.kill()
    patiently(lambda: gone(sleeper))
    assert place.run("exit", "3")[0] == 3


def test_the_end_of_the_server_is_a_failure_that_airflow_retries(place: Place) -> None:
    server = place.serve()
    waiting, sleeper = place.sleeping("sleep")
    server.kill()
    server.wait()
    assert waiting.wait(30) == forkserver.LOST
    patiently(lambda: gone(sleeper))


def test_a_killed_command_looks_killed(place: Place) -> None:
    place.serve()
    waiting, sleeper = place.sleeping("sleep")
    sleeper.kill()
    assert waiting.wait(30) == -signal.SIGKILL
