"""A remote on a real S3 server: configured by the environment, checked before use, and reached by a takedown."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from pipelines.core.config.operate import Takedown
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, CorpusError
from pipelines.takedown import takedown
from pipelines.takedown.object_versions import Objects
from pipelines.takedown.redaction import Gone
from pipelines.takedown.selection import Criteria, select
from pipelines.workspace import objects, publish, repository
from pipelines.workspace.clone import workspace
from tests.ports import free_port
from tests.privacy import used_corpus as used
from tests.small_corpus import begin, code_of
from tests.stages import rerun
from tests.store.conftest import SERVER
from tests.store.test_results import CODE, collect, stages

ROOT = Path(__file__).resolve().parents[2]
KEYS = {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "se,cr'et#$x%s"}


@pytest.fixture
def apart(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix of the bucket; its endpoint and keys are only in the variables of the remote."""
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("CORPUS_REMOTE", f"{s3}/{tmp_path.name}")
    monkeypatch.setenv("CORPUS_REMOTE_ENDPOINT", os.environ["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("CORPUS_REMOTE_REGION", "eu-central-1")
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    for name, value in KEYS.items():
        monkeypatch.setenv(f"CORPUS_REMOTE_{name}", value)
    return f"{s3}/{tmp_path.name}"


def test_a_corpus_on_s3_is_collected_published_and_fetched_into_a_new_clone(apart: str, tmp_path: Path) -> None:
    settings = Settings.from_env()
    assert KEYS["SECRET_ACCESS_KEY"] not in repr(settings)
    begin(settings, code=code_of(tmp_path / "code", CODE))
    (settings.home / "salt").write_text("")
    collect(settings, month="2022-11", text="a month")
    tokens = stages(settings)
    given = {"corpus": "memes", "targets": ["tell"], "run": "a run", "tokens": tokens}
    publish.publish_snapshot(settings, **given, base=publish.head(settings), remember=lambda _: None)
    shutil.rmtree(settings.cache)
    folder = repository.clone(settings, folder=tmp_path / "mine")
    local = folder / ".dvc" / "config.local"
    assert local.stat().st_mode & 0o777 == 0o600 and KEYS["SECRET_ACCESS_KEY"] in local.read_text()
    assert not subprocess.check_output(["git", "status", "--porcelain"], cwd=folder)
    subprocess.run([sys.executable, "-m", "dvc", "pull", "--quiet"], cwd=folder, check=True)
    assert (folder / "data" / "memes" / "2022-11" / "records.parquet").read_text() == "a month"
    assert (folder / "snapshot" / "joined.txt").is_file()
    assert not (settings.home / "remote").exists()


@pytest.mark.faults  # a minute on a busy machine
def test_a_takedown_removes_the_objects_of_a_record_from_s3(
    apart: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
    used.begin(tmp_path / "home")
    settings = Settings.from_env()
    with used.vault_of(settings) as vault:
        ids = {vault.record_id(used.fullname("posts", 0))}
        with workspace(settings) as clone, Objects.opened(clone) as objects:
            before = objects.named(Gone(ids))
            assert before and objects.places(before)["remote"] == len(before)
            asked = Criteria(records=[used.fullname("posts", 0)])
            selection = select(asked, vault=vault, objects=objects, params=load(ROOT))
        given = {"settings": settings, "vault": vault, "now": used.NOW, "terms": Takedown(withdraw_share=0.01)}
        takedown.Deletion(**given).run(selection, reason="request-7", who="a person")
        shutil.rmtree(settings.cache)
        with workspace(settings) as clone, Objects.opened(clone) as objects:
            assert objects.named(Gone(ids)) == [] and objects.places(before) == {"cache": 0, "remote": 0}
            clone.checkout("data", "snapshot")
            assert rerun(clone) == []


def failing(settings: Settings, tmp_path: Path) -> CorpusError:
    """Initialize a corpus; return the error, which comes within half a minute and leaves nothing behind."""
    start = time.monotonic()
    with pytest.raises(CorpusError) as raised:
        repository.init(settings, checkout=ROOT, profile="sandbox")
    assert time.monotonic() - start < 30
    assert not any(path.suffix != ".sqlite" for path in settings.home.iterdir() if path.name != "scratch")
    assert not any(value in str(raised.value) for value in KEYS.values())
    return raised.value


@pytest.mark.parametrize("listens", [False, True], ids=["refuses", "is silent"])
def test_an_endpoint_that_does_not_answer_is_one_error(
    apart: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    if listens:
        assert objects.DEADLINE_SECONDS < 30
        monkeypatch.setattr(objects, "DEADLINE_SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1] if listens else free_port()
        monkeypatch.setenv("CORPUS_REMOTE_ENDPOINT", f"http://127.0.0.1:{port}")
        assert failing(Settings.from_env(), tmp_path).code == "RemoteUnavailable"


def test_wrong_credentials_are_one_error(apart: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with ExitStack() as stack:
        env = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "0"}
        server = stack.enter_context(subprocess.Popen([sys.executable, str(SERVER), str(port)], env=env, stderr=-3))
        stack.callback(server.kill)
        monkeypatch.setenv("CORPUS_REMOTE_ENDPOINT", f"http://127.0.0.1:{port}")
        for _ in range(100):
            error = failing(Settings.from_env(), tmp_path)
            if error.code != "RemoteUnavailable":
                break
            time.sleep(0.2)
    assert error.code == "RemoteRefused" and "credentials" in str(error)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("CORPUS_REMOTE", "s3://absent/prefix", "bucket does not exist"),
        ("CORPUS_REMOTE", "gs://bucket/prefix", "dvc-gs"),
        ("CORPUS_REMOTE", "nothing://bucket", "not in DVC's format"),
        ("CORPUS_REMOTE_OPTIONS", '{"no_such_option": "x"}', "not in DVC's format"),
        ("CORPUS_REMOTE_OPTIONS", '{"profile": "a\\nb"}', "line break"),
    ],
)
def test_a_wrong_remote_says_what_is_wrong(
    apart: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    error = failing(Settings.from_env(), tmp_path)
    assert error.code == "RemoteRefused" and said in str(error)


@pytest.mark.parametrize("value", ["{", "[]", '{"port": [1]}', '{"port": null}'])
def test_options_that_are_no_object_of_values_are_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CORPUS_REMOTE_OPTIONS", value)
    with pytest.raises(BadParams, match="CORPUS_REMOTE_OPTIONS"):
        Settings.from_env()


def test_options_of_another_remote_reach_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("CORPUS_REMOTE", "ssh://host/corpus")
    monkeypatch.setenv("CORPUS_REMOTE_OPTIONS", '{"user": "corpus", "port": 2222, "allow_agent": false}')
    settings = Settings.from_env()
    begin(settings, code=code_of(tmp_path / "code", CODE))
    with workspace(settings) as clone:
        assert clone.repo.config["remote"]["corpus"] == {
            "url": "ssh://host/corpus", "user": "corpus", "port": 2222, "allow_agent": False, "verify": True
        }  # fmt: skip
