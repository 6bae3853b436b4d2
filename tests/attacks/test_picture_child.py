"""A picture that has taken over the process that reads it: the attacks run inside that process, after its start.

The child of each test is the real one; only the function that answers a picture is replaced, by one that runs the
picture as Python code. Modules that an attack needs are imported before the child confines itself, which is more than a
picture could do.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import PIL
import pytest
from PIL import Image

from pipelines.collect.read import confine, confined_child
from pipelines.collect.read.confined_child import ChildCrashed, ConfinedChild
from pipelines.collect.read.confined_engine import ConfinedEngine, open_engine
from pipelines.collect.read.decode import REPLY, DecodedPicture, Decoder
from pipelines.collect.read.engine import OcrFailed
from pipelines.collect.read.ocr_child import READING
from pipelines.core.config.collect import Decode, Ocr
from pipelines.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
PARAMS = Decode(formats=("JPEG", "PNG"), max_pixels=10**6, max_frames=1, memory_mb=1024, timeout_seconds=20, quality=95)
OCR = Ocr(engine="rapidocr")
# The answer: what the code put into `found`, or the number of the error that it raised.
TAKEN_OVER = """
import sys
sys.path[:0] = [sys.argv[1], {libraries!r}]
import ctypes, encodings.idna, json, os, socket, struct, subprocess
from importlib import import_module
def answer(data, **_):
    names = dict(globals())
    try:
        exec(data, names)
        said = [0, repr(names.get("found"))]
    except OSError as error:
        said = [error.errno, ""]
    except BaseException as error:
        said = [-1, type(error).__name__]
    told = json.dumps(said).encode()
    return struct.pack(">Q", len(told)), told
def call(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
child = import_module(sys.argv[2])
child.answer = answer
child.main(sys.argv[3:])
""".replace("{libraries!r}", repr(str(Path(PIL.__file__).parents[1])))
# What the child does on a system without Landlock and seccomp.
LOOSENED = """from pipelines.collect.read import confine
confine.allow_only = lambda *_, **__: False
confine._filter = lambda **_: False
"""
DECODER = [",".join(PARAMS.formats), str(PARAMS.max_pixels), "1", "1024", "20"]
ATTACKS = {
    "read the secret": "found = open({secret!r}).read()",
    "read the vault": "found = open({vault!r}, 'rb').read()",
    "list the home": "found = os.listdir({home!r})",
    "read the password file": "found = open('/etc/passwd').read()",
    "write a file": "open({home!r} + '/planted', 'w').write('x')",
    "write to the temporary folder": "open('/tmp/planted-by-a-picture', 'w').write('x')",
    "create a file in memory": "found = os.memfd_create('x')",
    "read the parent's environment": "found = open('/proc/%d/environ' % {parent}, 'rb').read()",
    "list the parent's files": "found = os.listdir('/proc/%d/fd' % {parent})",
    "read the parent's memory": "found = open('/proc/%d/mem' % {parent}, 'rb').read(1)",
    "list processes": "found = os.listdir('/proc')",
    "trace the parent": "call(101, 16, {parent}, 0, 0)",
    "copy the parent's memory": "call(310, {parent}, 0, 0, 0, 0, 0)",
    "signal the parent": "os.kill({parent}, 0)",
    "limit the parent": "call(302, {parent}, 7, 0, 0)",
    "open a socket": "found = socket.socket()",
    "open a local socket": "found = socket.socket(socket.AF_UNIX)",
    "connect to a server": "found = socket.create_connection(('127.0.0.1', {port}), 2)",
    "fork": "found = os.fork()",
    "run a program": "os.execv('/bin/true', ['true'])",
    "start a program": "found = subprocess.run(['/bin/true'])",
    "become root": "os.setresuid(0, 0, 0)",
    "become another group": "os.setgroups([0])",
    "make a namespace": "call(272, 0x10000000)",
    "mount": "call(165, b'none', b'/tmp', b'tmpfs', 0, 0)",
    "open a ring": "call(425, 8, ctypes.create_string_buffer(256))",
    "use the second table of calls": "call(0x40000000 + 2, b'/etc/passwd', 0)",
    "load a program into the kernel": "call(321, 0, 0, 0)",
    "raise a limit": "call(302, 0, 9, struct.pack('<QQ', 2**62, 2**62), 0)",
}


class Taken:
    """A child that answers each picture with the result of running it as code."""

    engine: object = None  # kept, because it ends its child

    def __init__(self, child: ConfinedChild, facts: dict[str, Any]) -> None:
        self.child, self._facts = child, facts

    def run(self, code: str) -> list[Any]:
        def read(source: BinaryIO) -> list[Any]:
            (size,) = struct.unpack(">Q", source.read(8))
            return list(json.loads(source.read(size)))

        return self.child.ask(code.format(**self._facts).encode(), read=read)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A home whose files everybody may read, so that no attack fails on a mode, and a server that listens."""
    home = tmp_path_factory.mktemp("home")
    for name in ("secret", "vault.sqlite"):
        (home / name).write_text("planted")
    for path in (home, *home.parents[:3], *home.iterdir()):
        path.chmod(0o777)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {
            "home": str(home),
            "secret": str(home / "secret"),
            "vault": str(home / "vault.sqlite"),
            "parent": os.getpid(),
            "port": server.getsockname()[1],
        }


def taken_child() -> ConfinedChild:
    return ConfinedChild("decode_child", DECODER, timeout_seconds=20, sandbox="required", start=TAKEN_OVER)


@pytest.fixture(scope="module", params=["landlock", "bubblewrap"])
def taken(request: pytest.FixtureRequest, facts: dict[str, Any]) -> Iterator[Taken]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "landlock":
            patch.setattr(shutil, "which", lambda name: None)
        elif not shutil.which("bwrap"):
            pytest.skip("bubblewrap is not installed")
        child = taken_child()
    child.started()
    if request.param == "bubblewrap" and "bubblewrap" not in str(child.facts["layers"]):
        pytest.skip("bubblewrap is not allowed here")
    yield Taken(child, facts)
    child.end()


def test_the_planted_code_runs_in_the_child(taken: Taken) -> None:
    assert taken.run("found = 6 * 7") == [0, "42"]
    assert taken.run("found = 0 in (os.getuid(), os.getgid())") == [0, "False"]
    assert {"landlock", "user", "seccomp"} <= set(taken.child.facts["layers"])  # type: ignore[arg-type]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_picture_that_took_over_the_decoder_cannot(taken: Taken, attack: str) -> None:
    assert taken.run(ATTACKS[attack]) == [errno.EPERM, ""]
    assert taken.run("found = 1") == [0, "1"]


HARMLESS = (
    *("read the secret", "read the vault", "list the home", "read the parent's environment"),
    *("list the parent's files", "signal the parent", "limit the parent"),
    *("connect to a server", "start a program"),
)


@pytest.mark.parametrize("attack", HARMLESS)
def test_without_the_sandbox_the_same_attack_succeeds(facts: dict[str, Any], loose: Taken, attack: str) -> None:
    number, _ = loose.run(ATTACKS[attack])
    assert number == 0


@pytest.fixture(scope="module")
def loose(facts: dict[str, Any]) -> Iterator[Taken]:
    user = "confine._drop = lambda: True\n"
    start = TAKEN_OVER.replace("child = import_module", f"{LOOSENED}{user}child = import_module")
    child = ConfinedChild("decode_child", DECODER, timeout_seconds=20, sandbox="accepted_without", start=start)
    child._bubblewrap = None
    with pytest.warns(RuntimeWarning):
        child.started()
    yield Taken(child, facts)
    child.end()


def test_no_variable_and_no_open_file_reaches_the_child(
    taken: Taken, facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_SECRET", "planted")
    with Path(facts["secret"]).open() as file:
        os.set_inheritable(file.fileno(), True)
        fresh = taken_child()
        fresh.started()
        try:
            there = Taken(fresh, facts)
            assert "planted" not in there.run("found = dict(os.environ)")[1]
            assert there.run("found = [n for n in range(3, 64) if os.fstat(n)]")[0] != 0
        finally:
            fresh.end()


@pytest.mark.parametrize("attack", ["read the secret", "open a socket", "fork", "read the parent's environment"])
def test_a_thread_of_the_ocr_engine_cannot_either(facts: dict[str, Any], ocr_child: Taken, attack: str) -> None:
    """The filter holds for threads that the engine started before the child confined itself."""
    code = f"def attack():\n    {ATTACKS[attack]}\nfound = _['engine']._thread.submit(attack).result()\n"
    assert ocr_child.run(code) == [errno.EPERM, ""]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_picture_that_took_over_the_ocr_engine_cannot(ocr_child: Taken, attack: str) -> None:
    assert ocr_child.run(ATTACKS[attack]) == [errno.EPERM, ""]


@pytest.fixture(scope="module")
def ocr_child(facts: dict[str, Any]) -> Iterator[Taken]:
    taken = taken_engine("rapidocr", facts)
    yield taken
    taken.child.end()


def taken_engine(name: str, facts: dict[str, Any]) -> Taken:
    with pytest.MonkeyPatch.context() as patch:
        start = TAKEN_OVER.replace("exec(data, names)", "names['_'] = _; exec(data, names)")
        patch.setattr(confined_child, "START", start)
        engine = ConfinedEngine(OCR.model_copy(update={"engine": name}))
    taken = Taken(engine._child, facts)
    taken.engine = engine
    return taken


# What the program `tesseract` needs: to be started, and the identity and temporary files of a process.
NEEDED = {"fork", "run a program", "start a program", "create a file in memory"}


@pytest.mark.skipif(not shutil.which("tesseract"), reason="tesseract is not installed")
def test_a_picture_that_took_over_tesseract_can_only_start_programs(facts: dict[str, Any]) -> None:
    taken = taken_engine("tesseract", facts)
    try:
        results = {name: taken.run(code)[0] for name, code in ATTACKS.items() if name not in NEEDED}
        # the copy of a process that the attack started has the same permissions
        copy = "found = subprocess.run(['/usr/bin/head', '-c1', {secret!r}], capture_output=True).returncode"
        assert taken.run(copy) == [0, "1"]
    finally:
        taken.child.end()
    assert {name for name, number in results.items() if number not in (errno.EPERM, errno.EACCES)} == set()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to become another user")
def test_another_user_is_protected_from_his_own_child(facts: dict[str, Any]) -> None:
    """Without root there is no other user to become: Landlock and seccomp alone keep the child from its parent."""
    python = next((p for p in ("/usr/bin/python3.11",) if Path(p).exists()), None)
    if python is None:
        pytest.skip("no interpreter that another user may run")
    libraries = str(Path(PIL.__file__).parents[1])
    code = (
        f"import sys, os, json; sys.path[:0] = [{str(ROOT)!r}, {libraries!r}, {str(ROOT / 'tests' / 'attacks')!r}]\n"
        "import test_picture_child as t\n"
        f"facts = {facts!r} | {{'parent': os.getpid()}}\n"
        "child = t.taken_child(); child.started(); taken = t.Taken(child, facts)\n"
        "print(json.dumps([taken.run('found = os.getuid()'), child.facts['layers'],\n"
        "                  {name: taken.run(code)[0] for name, code in t.ATTACKS.items()}]))\n"
    )
    argv = ["setpriv", "--reuid=65531", "--regid=65531", "--clear-groups", python, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"HOME": "/", "PATH": "/usr/bin"})
    if done.returncode and "PermissionError" in done.stderr:
        pytest.skip("the checkout is not readable by others")
    assert done.returncode == 0, done.stderr
    user, layers, results = json.loads(done.stdout)
    assert user == [0, "65531"] and {"landlock", "seccomp"} <= set(layers)
    assert {name for name, number in results.items() if number != errno.EPERM} == set()


HOSTILE = {
    "more pixels than allowed": REPLY.pack(b"", 50_000, 50_000, 1, 3 * 50_000**2),
    "more bytes than pixels": REPLY.pack(b"", 2, 2, 1, 2**40) + b"x" * 4096,
    "a file instead of pixels": REPLY.pack(b"", 2, 2, 1, 4) + b"\xff\xd8\xff\xe0",
    "fewer bytes than pixels": REPLY.pack(b"", 200, 200, 1, 3 * 200 * 200) + b"x",
    "no pixels": REPLY.pack(b"", 0, 5, 1, 0),
    "a reason of its own": REPLY.pack(b"<script>", 0, 0, 0, 0),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_decoder_that_was_taken_over_cannot_give_more_than_pixels(kind: str) -> None:
    start = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pipelines.collect.read import decode_child as c;"
        f"c.answer = lambda data, **_: [{HOSTILE[kind]!r}]; c.main(sys.argv[3:])"
    )
    decoder = Decoder(PARAMS.model_copy(update={"timeout_seconds": 2.0}))
    decoder._child = ConfinedChild("decode_child", DECODER, timeout_seconds=2, sandbox="required", start=start)
    with decoder:
        assert decoder.decode(b"\x89PNG") in ("decoder_crashed", "decoder_timeout")
        assert decoder._child.pid is None


def test_the_stored_file_is_made_of_the_pixels_by_the_parent() -> None:
    start = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pipelines.collect.read import decode_child as c;"
        "c.answer = lambda data, **_: [c.REPLY.pack(b'', 8, 8, 1, 192), b'planted!' * 24]; c.main(sys.argv[3:])"
    )
    decoder = Decoder(PARAMS)
    decoder._child = ConfinedChild("decode_child", DECODER, timeout_seconds=20, sandbox="required", start=start)
    with decoder:
        picture = decoder.decode(b"\x89PNG")
    assert isinstance(picture, DecodedPicture)
    assert picture.data.startswith(b"\xff\xd8") and b"planted" not in picture.data


UNCONFINED = (
    "import sys; sys.path.insert(0, sys.argv[1]); from importlib import import_module\n"
    f"{LOOSENED}import_module(sys.argv[2]).main(sys.argv[3:])"
)


def without_a_sandbox(patch: pytest.MonkeyPatch) -> None:
    """A system without bubblewrap, Landlock and seccomp."""
    patch.setattr(shutil, "which", lambda name: None)
    patch.setattr(confined_child, "START", UNCONFINED)


def test_without_a_sandbox_no_picture_is_read_unless_that_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    without_a_sandbox(monkeypatch)
    with pytest.raises(ConfigError, match="only: user"), Decoder(PARAMS):
        pass
    with pytest.raises(ConfigError, match="sandbox"):
        open_engine(OCR)
    accepted = PARAMS.model_copy(update={"sandbox": "accepted_without"})
    with pytest.warns(RuntimeWarning, match="without a sandbox"), Decoder(accepted) as decoder:
        assert decoder.decode(b"no picture") == "not_an_image"


@pytest.mark.parametrize(
    ("does", "layers"),
    [
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", []),
        (f'while [ "$1" != "{sys.executable}" ]; do shift; done; exec "$@"', ["bubblewrap"]),
    ],
    ids=["refuses", "starts the child"],
)
def test_a_bubblewrap_is_one_more_layer_unless_the_system_forbids_it(
    does: str, layers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\n{does}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with Decoder(PARAMS) as decoder:
        assert decoder.layers == [*layers, "landlock", "user", "seccomp"]


@pytest.fixture(scope="module")
def engine() -> Iterator[ConfinedEngine]:
    engine = ConfinedEngine(OCR)
    yield engine
    engine.close()


def test_a_picture_that_crashes_the_ocr_engine_costs_one_picture(engine: ConfinedEngine) -> None:
    child = engine._child
    assert child.pid
    os.kill(child.pid, 19)
    threading.Timer(0.2, os.kill, (child.pid, 9)).start()
    with pytest.raises(OcrFailed, match="ocr_crashed"):
        engine.read(b"anything")
    blank = io.BytesIO()
    Image.new("RGB", (64, 64)).save(blank, "JPEG")
    assert engine.read(blank.getvalue()).text == ""


@pytest.mark.parametrize(
    "reply",
    [(9e9, 0.0, 0.0, 3), (float("nan"), 0.0, 0.0, 3), (0.5, -1.0, 0.0, 3), (0.5, 0.0, 2.0, 3), (0.5, 0.0, 0.0, 2**40)],
)
def test_an_ocr_engine_that_was_taken_over_gives_a_text_or_nothing(
    engine: ConfinedEngine, reply: tuple[float, float, float, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lies(_: bytes, *, read: Any) -> Any:
        return read(io.BytesIO(READING.pack(0, *reply) + b"abc"))

    monkeypatch.setattr(engine._child, "ask", lies)
    with pytest.raises((OcrFailed, ChildCrashed)):
        engine.read(b"")


NAMED_PATHS = """
import sys
from pathlib import Path
from pipelines.collect.read import confine
readable, writable = ["folder", "file"], ["other folder", "other file", "missing"]
assert confine.allow_only(readable, writable=writable)
def possible(act):
    try:
        act()
    except PermissionError:
        return False
    return True
for place in map(Path, ["file", "folder", "other file", "other folder", "third"]):
    inside = place / "x" if "folder" in place.name else place
    acts = (lambda: list(place.iterdir())) if inside != place else inside.read_bytes, lambda: inside.write_text("y")
    print(place, *map(possible, acts))
"""


def test_only_the_paths_that_are_named_stay_open(tmp_path: Path) -> None:
    for name in ("folder/x", "file", "other folder/z", "other file", "third"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-B", "-c", NAMED_PATHS]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "file True False",
        "folder True False",
        "other file True True",
        "other folder True True",
        "third False False",
    ]


@pytest.mark.parametrize(("column", "header"), [(0, "x86_64-linux-gnu/asm/unistd_64.h"), (1, "asm-generic/unistd.h")])
def test_the_filters_name_the_system_calls_of_the_kernel(column: int, header: str) -> None:
    path = Path("/usr/include") / header
    if not path.exists():
        pytest.skip("the kernel's headers are not installed")
    known = {name: int(n) for name, n in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", path.read_text())}
    listed = confine.COMPUTING | confine.LIMITS | confine.DANGEROUS
    assert {name: numbers[column] for name, numbers in listed.items()} == {name: known[name] for name in listed}


def test_another_system_confines_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine.sys, "platform", "darwin")
    assert confine.allow_only() is False
    assert confine._filter(programs=False) is False
    monkeypatch.undo()
    monkeypatch.setattr(confine.platform, "machine", lambda: "riscv64")
    assert confine._filter(programs=True) is False


def test_what_the_kernel_refuses_does_not_count_as_held(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise PermissionError

    for where, name in ((confine, "_call"), (os, "setgroups"), (os, "setresgid"), (os, "setresuid")):
        monkeypatch.setattr(where, name, refuses)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert confine.allow_only() is False
    assert confine._drop() is False


@pytest.mark.parametrize(
    ("uid", "has", "lacks"), [(0, "--cap-drop", "--unshare-user"), (7, "--unshare-user", "--cap-add")]
)
def test_only_root_keeps_rights_until_the_child_drops_them(
    uid: int, has: str, lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    child = ConfinedChild("decode_child", ["JPEG"], timeout_seconds=1, sandbox="required")
    argv = child._wrapped("bwrap")
    assert has in argv and lacks not in argv
    alone = {"--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"}
    assert alone | {"--die-with-parent", "--new-session"} <= {*argv}
    assert " --dev /dev --proc /proc --tmpfs /tmp --chdir / --ro-bind-try " in " ".join(argv)


def test_an_ended_child_leaves_no_pipe_open() -> None:
    child = Decoder(PARAMS)._child
    process = child.started()
    child.end()
    assert process.returncode == -9 and child.pid is None
    assert process.stdin and process.stdin.closed and process.stdout and process.stdout.closed
