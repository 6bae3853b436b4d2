"""Starting the embedded server where it cannot be started; the running one is in ``test_label_studio.py``."""

import socket
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pipelines.annotate.backends import Queue
from pipelines.annotate.backends.label_studio import LONGEST_TITLE, LabelStudio, title
from pipelines.annotate.label_studio.server import DATABASE, address, environment, start
from pipelines.core.components import ServiceFailed, down
from pipelines.core.config.settings import Settings
from tests.ports import free_port
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
MIGRATE = """
import sys, pathlib, label_studio
sys.path.insert(0, str(pathlib.Path(label_studio.__file__).parent))
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in ("CORPUS_LABEL_STUDIO", "CORPUS_LABEL_STUDIO_URL", "CORPUS_LABEL_STUDIO_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CORPUS_LABEL_STUDIO_ENV", str(tmp_path / "env"))
    return Settings.from_env()


def _programs(settings: Settings, *, server: str, tables: str = 'touch "$DATABASE_NAME"') -> None:
    for name, text in (("label-studio", server), ("python", tables)):
        program = settings.label_studio_env / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)


def test_without_its_environment_the_remedy_says_how_to_install_it(settings: Settings) -> None:
    with pytest.raises(ServiceFailed) as failed:
        start(settings, port=free_port())
    assert "make annotate" in failed.value.remedy


def test_a_taken_port_is_no_other_port(settings: Settings) -> None:
    _programs(settings, server="exit 0")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ServiceFailed, match="is taken"):
            start(settings, port=other.getsockname()[1])


@pytest.mark.parametrize(
    ("programs", "said", "logged"),
    [
        ({"server": "echo broken >&2; exit 3"}, "its process ended", "broken"),
        (
            {"server": "exit 0", "tables": 'echo no tables >&2; touch "$DATABASE_NAME"; exit 1'},
            "tables could not be created",
            "no tables",
        ),
    ],
)
def test_what_fails_is_reported_with_its_log(settings: Settings, programs: Any, said: str, logged: str) -> None:
    _programs(settings, **programs)
    with pytest.raises(ServiceFailed, match=said):
        start(settings, port=free_port())
    assert logged in (settings.home / "logs" / "label-studio.log").read_text()
    assert (settings.label_studio / DATABASE).exists() == ("tables" not in programs), "no half of the tables is left"


@pytest.mark.faults
def test_the_tables_are_those_of_its_migrations(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_LABEL_STUDIO_ENV", str(ROOT / ".label-studio"))
    settings = Settings.from_env()
    start(settings, port=free_port())
    down(settings)
    migrated = settings.home / "migrated.sqlite3"
    program = settings.label_studio_env / "bin" / "label-studio"
    subprocess.run(
        # the script without what replaces the migrations
        [str(program.with_name("python")), "-P", "-c", MIGRATE], cwd=settings.label_studio, check=True,
        env=environment(settings) | {"DATABASE_NAME": str(migrated)}, capture_output=True,
    )  # fmt: skip
    assert _tables(settings.label_studio / DATABASE) == _tables(migrated)


def _tables(path: Path) -> dict[str, Any]:
    """Columns and indexes by table; an index by what it covers, because its name may contain a number."""
    with closing(sqlite3.connect(path)) as database:

        def rows(of: str, name: str) -> list[Any]:
            return database.execute(f"SELECT * FROM pragma_{of}(?)", (name,)).fetchall()

        def covered(index: Any) -> Any:
            return index[2], [column for _, _, column in rows("index_info", index[1])]

        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: (
                sorted(row[1:] for row in rows("table_info", name)),
                sorted(map(covered, rows("index_list", name))),
                sorted(row[2:] for row in rows("foreign_key_list", name)),
            )
            for name in names
        }


def test_without_a_server_or_its_key_it_is_unavailable(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("BackendUnavailable", match="does not run"):
        address(settings)
    with refused("BackendUnavailable", match="does not run"):
        LabelStudio.open(settings, params=None, pseudonyms=["a1"])
    monkeypatch.setenv("CORPUS_LABEL_STUDIO_URL", "https://annotate.example.org/")
    outside = Settings.from_env()
    assert address(outside) == "https://annotate.example.org"
    with refused("BackendUnavailable", match="CORPUS_LABEL_STUDIO_KEY"):
        LabelStudio.open(outside, params=None, pseudonyms=["a1"])


def test_the_server_inherits_no_key_of_ours(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_OPENAI_KEY", "a-key-that-must-not-travel")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert not {name for name in environment(settings) if "KEY" in name or "PROXY" in name}


def test_a_long_title_is_shortened_and_stays_its_own() -> None:
    short = Queue("memes/calibration", "annotator-1")
    long = [Queue(f"posts/a-round-with-quite-a-long-name-{n}/adjudication", "adjudicator-1") for n in range(2)]
    assert title(short) == short.title
    assert len({title(queue) for queue in long}) == 2
    assert all(len(title(queue)) <= LONGEST_TITLE for queue in long)
