"""The wheels have what their users need, and no more; the client works where nothing else of this project is."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from tests import built_wheels
from tests.built_once import built_once

ROOT = Path(__file__).resolve().parents[1]
BLOCKED = """
import sys
for name in ("fcntl", "resource", "pipelines", "airflow", "dvc"):
    sys.modules[name] = None
def refuse(event, args):
    if event == "open" and str(args[0]).startswith("/proc"):
        raise OSError("there is no /proc")
sys.addaudithook(refuse)
"""


@pytest.fixture(scope="module")
def wheels() -> dict[str, Path]:
    return built_wheels.wheels(built_once("wheels", built_wheels.build))


def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def metadata(wheel: Path) -> Message:
    [name] = [name for name in names(wheel) if name.endswith(".dist-info/METADATA")]
    return message_from_bytes(zipfile.ZipFile(wheel).read(name))


def test_the_client_is_small_and_typed(wheels: dict[str, Path]) -> None:
    found = metadata(wheels["crisis_corpus_client"])
    needed = {re.split(r"[<>=;]", line)[0] for line in found.get_all("Requires-Dist", [])}
    libraries = {"cryptography", "filelock", "mlflow-skinny", "psycopg2-binary", "pydantic", "sqlalchemy"}
    assert needed == libraries
    assert found["Requires-Python"] == "<3.14,>=3.11"
    contents = names(wheels["crisis_corpus_client"])
    wanted = {f"crisis_corpus/{path.name}" for path in (ROOT / "crisis_corpus").iterdir() if path.is_file()}
    assert wanted == {name for name in contents if ".dist-info/" not in name}
    assert "crisis_corpus/py.typed" in contents and any(name.endswith("LICENSE") for name in contents)


def test_the_core_brings_no_airflow_no_tests_and_no_gpl(wheels: dict[str, Path]) -> None:
    lines = metadata(wheels["crisis_corpus"]).get_all("Requires-Dist", [])
    assert [line for line in lines if "extra ==" not in line] == ["crisis-corpus-client==1.0.0"]
    core = {line.split(";")[0] for line in lines if 'extra == "core"' in line}
    assert core and not [line for line in core if line.startswith(("apache-airflow", "pytest", "krippendorff", "moto"))]


def test_the_wheel_has_what_an_airflow_needs(wheels: dict[str, Path]) -> None:
    contents = names(wheels["crisis_corpus"])
    below = {name.partition("share/crisis-corpus/")[2] for name in contents if "share/crisis-corpus/" in name}
    for folder, kind in (("dags", "*.py"), ("plugins/dvc_airflow", "*.py"), ("plugins/corpus_view", "*.*"),
                         ("plugins/corpus_view/page", "*.*"), ("papers", "*.yaml"), ("profiles", "*.*")):  # fmt: skip
        assert {str(path.relative_to(ROOT)) for path in (ROOT / folder).glob(kind)} <= below
    assert {"dvc.yaml", "params.yaml"} <= below and "pipelines/py.typed" in contents
    assert not [name for name in contents if name.startswith(("crisis_corpus/", "crisis_corpus_sandbox/"))]


def test_the_sandbox_brings_its_modules_and_adds_its_commands(wheels: dict[str, Path]) -> None:
    folder = ROOT / "sandbox"
    contents = names(wheels["crisis_corpus_sandbox"])
    modules = {str(path.relative_to(folder)) for path in (folder / "crisis_corpus_sandbox").rglob("*.py")}
    assert modules == {name for name in contents if ".dist-info/" not in name}
    [points] = [name for name in contents if name.endswith("entry_points.txt")]
    offered = zipfile.ZipFile(wheels["crisis_corpus_sandbox"]).read(points)
    assert b"[crisis_corpus.commands]" in offered and b"[crisis_corpus.components]" in offered


def test_without_the_sandbox_its_commands_are_unknown() -> None:
    code = "from pipelines.cli import main, shared\nshared.EXTENSIONS = ()\nmain.app(['sandbox', '--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2 and "No such command" in done.stderr


@pytest.mark.parametrize("module", ["client", "webhook", "hydrate"])
def test_the_client_needs_neither_pipelines_nor_linux(wheels: dict[str, Path], tmp_path: Path, module: str) -> None:
    zipfile.ZipFile(wheels["crisis_corpus_client"]).extractall(tmp_path)
    code = f"{BLOCKED}sys.path.insert(0, {str(tmp_path)!r})\nimport crisis_corpus.{module} as m\nprint(m.__file__)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.startswith(str(tmp_path)), done.stderr
