"""A consumer in an environment of its own: small, with what it needs, for every supported Python that is present.

The packages come from the index that uv is configured with.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crisis_corpus.webhook import signature
from pipelines.registry.webhook import new_secret
from tests import built_wheels, mlflow_server
from tests.built_once import built_once
from tests.registry import small_registry
from tests.registry.small_registry import GRAVEST, NAME
from tests.release import small_release

pytestmark = pytest.mark.faults

UV = [sys.executable, "-m", "uv"]
# Of the client's installed files, without compiled ones; measured were about 110 MB on 3.11, most of it MLflow.
MEGABYTES = 200
CONSUMER = """
import importlib.metadata, json, sys
from crisis_corpus import load, verify
model = load(sys.argv[1])
labels = [row["labels"] for row in model([{"text": sys.argv[2]}])]
given = json.load(sys.stdin)
webhook = verify(given["secret"], headers=given["headers"], body=given["body"].encode())
installed = sorted(found.name.lower() for found in importlib.metadata.distributions())
print(json.dumps({"labels": labels, "webhook": webhook.data["name"], "installed": installed}))
"""
# None of them, nor anything whose name begins so.
FOREIGN = ("apache-airflow", "pytest", "dvc", "torch", "transformers", "moto", "krippendorff", "hypothesis")


@dataclass(frozen=True)
class Environment:
    """A virtual environment with a distribution of this project."""

    python: Path

    def run(self, *argv: str, **how: Any) -> subprocess.CompletedProcess[str]:
        quiet = {"PATH": os.environ["PATH"], "MLFLOW_DISABLE_TELEMETRY": "true"}
        given = {"env": quiet | how.pop("env", {}), "capture_output": True, "text": True, **how}
        return subprocess.run([str(self.python), *argv], check=False, **given)


def pythons() -> list[str]:
    """Return an interpreter of each supported version that is on this machine."""
    found = {}
    for wanted in ("3.11", "3.12", "3.13"):
        asked = [*UV, "python", "find", "--no-python-downloads", "--system", wanted]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found[wanted] = done.stdout.strip()
    return list({"3.11": sys.executable, **found}.values())


@pytest.fixture(scope="module", params=pythons())
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("consumer")
    wheels = built_once("wheels", built_wheels.build)
    subprocess.run([*UV, "venv", "--quiet", "--python", request.param, str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    # the whole distribution is for Python 3.11 only; its extra `client` installs the client
    wanted = "crisis-corpus[client]" if "3.11" in version(python) else "crisis-corpus-client"
    pip = [*UV, "pip", "install", "--quiet", "--python", str(python), "--find-links", str(wheels), wanted]
    subprocess.run(pip, check=True)
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) / 1e6
    sys.stderr.write(f"{version(python).strip()}: {size:.0f} MB\n")
    assert size < MEGABYTES, "the client has grown"
    # what the model needs
    subprocess.run([*pip[:-1], "pandas"], check=True)
    return Environment(python)


def version(python: Path) -> str:
    return subprocess.run([str(python), "--version"], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Serve a registry with a champion; the variables that a consumer sets."""
    home = tmp_path_factory.mktemp("registry") / "home"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CORPUS_HOME", "MLFLOW_TRACKING_URI"):
            patch.setenv(name, "replaced")
        small_registry.begin(home)
        with small_registry.opened(home) as context:
            small_registry.champion(context, small_registry.add(context, knows=6).version)
    with mlflow_server.serving(home, files=home / "artifacts") as address:
        yield {"MLFLOW_TRACKING_URI": address, "CORPUS_JOURNAL_URL": f"sqlite:///{home}/journal.sqlite"}


def test_a_consumer_loads_the_champion_and_verifies_a_webhook(
    environment: Environment, registry: dict[str, str], tmp_path: Path
) -> None:
    secret, now, body = new_secret(), int(time.time()), json.dumps({"type": "model.promoted", "data": {"name": NAME}})
    signed = signature(secret, id="one", at=now, body=body.encode())
    headers = {"webhook-id": "one", "webhook-timestamp": str(now), "webhook-signature": signed}
    given = json.dumps({"secret": secret, "headers": headers, "body": body})
    word = next(word for label, word in small_registry.small_memes.WORDS["severity"].items() if "death" in label)
    done = environment.run(
        "-c", CONSUMER, NAME, f"a {word}", input=given, env={**registry, "CORPUS_HOME": "home"},
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert (found["labels"], found["webhook"]) == ([[GRAVEST]], NAME)
    assert not [name for name in found["installed"] if name.startswith(FOREIGN)]


def test_a_consumer_fetches_a_release(environment: Environment, tmp_path: Path) -> None:
    home, port = small_release.made()
    with small_release.opened(home, to=tmp_path / "home", port=port) as world, world.reddit():
        folder, out = world.approved("posts", "p1"), tmp_path / "out"
        argv = ("-m", "crisis_corpus.hydrate", str(folder), "--key", str(world.key("p1")), "--out", str(out))
        done = environment.run(*argv, env=world.consumer, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]
        found = {outcome for outcome, _ in small_release.outcomes(out).values()}
        assert "ok" in found and found <= {"ok", "changed"}


def test_the_command_without_its_extra_names_the_installation(environment: Environment, tmp_path: Path) -> None:
    corpus = environment.python.with_name("corpus")
    if not corpus.exists():
        pytest.skip("the client alone has no command")
    shutil.rmtree(tmp_path / "home", ignore_errors=True)
    done = subprocess.run([str(corpus), "status"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (78, "")
    [line] = done.stderr.splitlines()
    assert "pip install 'crisis-corpus[core]'" in line
