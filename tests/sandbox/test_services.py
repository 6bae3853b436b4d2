"""What keeps the embedded deployment startable: pid files, ports, a real PostgreSQL that was killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import psutil
import pytest
from sqlalchemy import create_engine, text

from crisis_corpus_sandbox import component
from crisis_corpus_sandbox.reddit.build import MARKER
from pipelines.core.components import Ports, ServiceFailed, down, end_left, is_free, running
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.operate.services import services
from pipelines.operate.services.services import AddedComponent, LocalDeployment
from tests.ports import free_port
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    for name in ("AIRFLOW", "MLFLOW", "POSTGRES"):
        monkeypatch.setenv(f"{name}_PORT", str(free_port()))
    made = Settings.from_env()
    yield made
    down(made)


@pytest.fixture
def deployment(settings: Settings) -> LocalDeployment:
    made = LocalDeployment(settings, root=ROOT, profile="sandbox")
    made.logs.mkdir(parents=True)
    made.run.mkdir(parents=True, exist_ok=True)
    return made


def query(deployment: LocalDeployment, statement: str) -> list[tuple[object, ...]]:
    engine = create_engine(deployment.database.url)
    with engine.begin() as connection:
        found = connection.execute(text(statement))
        rows = [tuple(row) for row in found] if found.returns_rows else []
    engine.dispose()
    return rows


def test_a_database_survives_kills_and_a_stale_lock(deployment: LocalDeployment, settings: Settings) -> None:
    left = deployment.database.folder.with_name("postgres.new-killed")
    (left / "base").mkdir(parents=True)
    deployment._postgres()
    assert not left.exists()
    query(deployment, "create table kept as select 1 as a")
    server = running(deployment.run / "postgres.pid")
    assert server is not None
    family = [server, *server.children(recursive=True)]
    for process in family:
        process.send_signal(signal.SIGKILL)
    psutil.wait_procs(family, timeout=20)
    lock = deployment.database.folder / "postmaster.pid"
    lock.write_text("\n".join([str(os.getpid()), *lock.read_text().splitlines()[1:]]) + "\n")
    deployment._postgres()
    assert query(deployment, "select a from kept") == [(1,)]
    assert down(settings) == ["postgres"]
    assert not lock.exists(), "it was not shut down, but killed"


def test_the_database_asks_for_its_password(deployment: LocalDeployment) -> None:
    deployment._postgres()
    argv = deployment.database.command()
    assert deployment.database.password not in argv
    engine = create_engine(deployment.database.url.replace(deployment.database.password, "wrong"))
    with pytest.raises(Exception, match="password authentication failed"):
        engine.connect()


LOCKS_A_ROW = """
import multiprocessing, sys, time, sqlalchemy
connection = sqlalchemy.create_engine(sys.argv[1]).connect()
multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,)).start()
connection.execute(sqlalchemy.text("SELECT * FROM runs FOR UPDATE"))
open(sys.argv[2], "w").close()
time.sleep(60)
"""


@pytest.mark.parametrize("then", ["start", "down"])
def test_what_a_killed_component_left_behind_ends_and_holds_no_lock(
    settings: Settings, deployment: LocalDeployment, tmp_path: Path, then: str
) -> None:
    """A worker that a killed scheduler has forked shares its connection, which holds locks."""
    deployment._postgres()
    query(deployment, "CREATE TABLE runs AS SELECT 1 AS id")
    locked = tmp_path / "locked"
    deployment._start("scheduler", [sys.executable, "-c", LOCKS_A_ROW, deployment.database.url, str(locked)])
    scheduler = running(deployment.run / "scheduler.pid")
    assert scheduler is not None
    deployment._wait("scheduler", locked.exists)
    [worker] = scheduler.children()
    scheduler.kill()
    scheduler.wait()
    assert query(deployment, "SELECT * FROM runs FOR UPDATE SKIP LOCKED") == [], "the worker keeps the lock"
    if then == "down":
        down(settings)
        assert not worker.is_running()
        return
    deployment._start("scheduler", SLEEP)
    assert not worker.is_running()
    assert query(deployment, "SELECT * FROM runs FOR UPDATE SKIP LOCKED") == [(1,)]


def test_a_note_of_another_session_ends_nothing(tmp_path: Path) -> None:
    note = tmp_path / "old.pid"
    stranger = subprocess.Popen(["/bin/sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True,
                                start_new_session=True)  # fmt: skip
    assert stranger.stdout is not None
    child = psutil.Process(int(stranger.stdout.readline()))
    began = psutil.Process(stranger.pid).create_time()
    try:
        note.write_text(json.dumps({"pid": stranger.pid, "started": began - 60}))
        end_left(note)
        assert child.is_running(), "the number was used again, by a process that runs"
        stranger.kill()
        stranger.wait()
        note.write_text(json.dumps({"pid": stranger.pid, "started": psutil.boot_time() - 60}))
        end_left(note)
        assert child.is_running(), "the note is older than the last boot"
    finally:
        child.kill()
        stranger.kill()


def test_a_component_notes_itself_and_is_not_started_again(deployment: LocalDeployment) -> None:
    """The process that started it may be killed before it notes anything."""
    deployment._start("sleeper", SLEEP)
    note = deployment.run / "sleeper.pid"
    noted = json.loads(note.read_text())
    note.write_text(json.dumps({"pid": noted["pid"]}))
    process = running(note)
    assert process is not None and process.pid == noted["pid"]
    deployment._start("sleeper", SLEEP)
    assert process == running(note)


def test_a_number_that_was_used_before_is_another_process(tmp_path: Path) -> None:
    note = tmp_path / "old.pid"
    note.write_text(json.dumps({"pid": os.getpid()}))
    before = psutil.Process().create_time() - 60
    os.utime(note, (before, before))
    assert running(note) is None


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"pid": 0}'])
def test_a_broken_note_is_no_process(tmp_path: Path, content: str) -> None:
    note = tmp_path / "broken.pid"
    note.write_text(content)
    assert running(note) is None


def test_a_taken_port_is_named(deployment: LocalDeployment) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with refused("PortTaken"):
            deployment._start("thing", SLEEP, port=taken.getsockname()[1])
    assert not (deployment.run / "thing.pid").exists()


@pytest.mark.parametrize("login", ["", "nothing-there"])
def test_a_server_that_is_not_protected_is_refused(deployment: LocalDeployment, login: str) -> None:
    """One of an earlier version still runs, or Airflow could not load the plugin, which it only logs."""
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}/"
        with pytest.raises(ServiceFailed, match="thing did not start: it is not protected from other users"):
            deployment._require_guard("thing", open_to_all=base, login=base + login)
        server.shutdown()


def test_a_component_that_ends_is_named_with_its_log(deployment: LocalDeployment) -> None:
    deployment._start("thing", [sys.executable, "-c", "raise SystemExit('broken')"])
    with pytest.raises(ServiceFailed, match="thing did not start: its process ended"):
        deployment._wait("thing", lambda: False)
    assert "broken" in (deployment.logs / "thing.log").read_text()


@pytest.mark.parametrize("content", ["", "{", '{"airflow": "x"}', "[]", "{}"])
def test_broken_ports_are_chosen_again(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ports.json"
    path.write_text(content)
    chosen = Ports.choose(tmp_path)
    assert chosen == Ports.choose(tmp_path)


@contextmanager
def listening(*ports: int) -> Iterator[None]:
    with ExitStack() as stack:
        for port in ports:
            server = stack.enter_context(socket.socket())
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))
            server.listen()
        yield


def test_a_deployment_beside_another_has_other_ports_and_stops_only_its_own(
    settings: Settings, deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = {*asdict(deployment.ports).values()}
    for name, port in asdict(deployment.ports).items():
        monkeypatch.setenv(f"{name.upper()}_PORT", str(port))
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "second"))
    beside = Settings.from_env()
    with listening(*first):
        second = LocalDeployment(beside, root=ROOT, profile=None)
        assert not first & {*asdict(second.ports).values()} and len({*asdict(second.ports).values()}) == 3
    second.logs.mkdir(parents=True)
    deployment._start("sleeper", SLEEP)
    second._start("sleeper", SLEEP)
    assert down(beside) == ["sleeper"]
    assert running(deployment.run / "sleeper.pid") and not running(second.run / "sleeper.pid")


def test_ports_of_components_that_run_are_kept_and_a_taken_one_is_refused_before_anything_starts(
    settings: Settings, deployment: LocalDeployment
) -> None:
    """Components know each other's addresses: a moved server would not be found."""
    with listening(deployment.ports.mlflow):
        assert Ports.choose(settings.home).mlflow != deployment.ports.mlflow
    (settings.home / "ports.json").write_text(json.dumps(asdict(deployment.ports)))
    deployment._start("sleeper", SLEEP)
    with listening(deployment.ports.mlflow):
        again = LocalDeployment(settings, root=ROOT, profile="sandbox")
        assert again.ports == deployment.ports
        with refused("PortTaken", match="corpus down"):
            again.up(say=lambda _: None)
    assert [path.stem for path in deployment.run.glob("*.pid")] == ["sleeper"]


def test_an_added_component_is_started_with_its_variables(settings: Settings) -> None:
    port = free_port()
    argv = ("-m", "http.server", "--bind", "127.0.0.1", str(port))
    made = AddedComponent("extra", port, argv, "/", {"CORPUS_EXTRA_URL": f"http://127.0.0.1:{port}"})
    deployment = LocalDeployment(settings, root=ROOT, profile=None, added=[made])
    deployment.logs.mkdir(parents=True)
    assert deployment.environment["CORPUS_EXTRA_URL"].endswith(str(port))
    assert not any(
        name.startswith("CORPUS_REDDIT") for name in LocalDeployment(settings, root=ROOT, profile=None).environment
    )
    deployment._add(made)
    assert down(settings) == ["extra"]


def test_the_offline_reddit_is_drawn_for_a_free_port_and_keeps_it(settings: Settings) -> None:
    params = load(ROOT, profile="sandbox")
    usual = params.sandbox.port
    with listening(usual) if is_free(usual) else nullcontext():
        port = component.with_port(params, settings).port
        assert port > usual
    settings.sandbox.mkdir(parents=True)
    (settings.sandbox / MARKER).write_text(json.dumps({"port": port}))
    assert component.with_port(params, settings).port == port
    with listening(port), refused("PortTaken", match="export CORPUS_SANDBOX_PORT="):
        component.with_port(params, settings)


def test_a_component_outlives_the_process_that_started_it(settings: Settings, deployment: LocalDeployment) -> None:
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom pipelines.core.config.settings import Settings\n"
        "from pipelines.operate.services.services import LocalDeployment\n"
        f"d = LocalDeployment(Settings.from_env(), root=Path({str(ROOT)!r}), profile='sandbox')\n"
        f"d._start('sleeper', {SLEEP!r})\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    process = running(deployment.run / "sleeper.pid")
    assert process is not None
    addresses = [settings.home / name for name in ("ports.json", "services.env")]
    for path in addresses:
        path.write_text("")
    assert down(settings) == ["sleeper"]
    assert not process.is_running() and not any(path.exists() for path in addresses)


def test_a_secret_that_was_cut_off_is_replaced(deployment: LocalDeployment) -> None:
    note = deployment.run / "airflow-jwt.secret"
    note.write_text("")
    again = LocalDeployment(Settings.from_env(), root=ROOT, profile="sandbox")
    assert len(again.environment["AIRFLOW__API_AUTH__JWT_SECRET"]) == 96
    assert note.stat().st_mode & 0o077 == 0


def test_writers_at_once_agree_on_one_secret(tmp_path: Path) -> None:
    path = tmp_path / "run" / "a.secret"
    with ThreadPoolExecutor(8) as pool:
        read = set(pool.map(lambda n: services.create_private(path, str(n)), range(200)))
    assert read == {path.read_text()}
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o600
