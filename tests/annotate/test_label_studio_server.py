"""Starting the embedded server where it cannot be started; the running one is in ``test_label_studio.py``."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pipelines.annotate.backends.backend import Queue
from pipelines.annotate.backends.label_studio.label_studio import LONGEST_TITLE, open_label_studio, title
from pipelines.config.settings import Settings
from pipelines.deployment.components import ServiceFailed
from pipelines.deployment.label_studio_server import address, environment, start
from pipelines.errors import BackendUnavailable


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in ("CORPUS_LABEL_STUDIO", "CORPUS_LABEL_STUDIO_URL", "CORPUS_LABEL_STUDIO_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CORPUS_LABEL_STUDIO_ENV", str(tmp_path / "env"))
    return Settings.from_env()


def _program(settings: Settings, *, text: str) -> None:
    program = settings.label_studio_env / "bin" / "label-studio"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_without_its_environment_the_remedy_says_how_to_install_it(settings: Settings) -> None:
    with pytest.raises(ServiceFailed) as failed:
        start(settings, port=_free_port())
    assert "make annotate" in failed.value.remedy


def test_a_taken_port_is_no_other_port(settings: Settings) -> None:
    _program(settings, text="exit 0")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ServiceFailed, match="is taken"):
            start(settings, port=other.getsockname()[1])


def test_a_server_that_ends_is_reported_with_its_log(settings: Settings) -> None:
    _program(settings, text="echo broken >&2; exit 3")
    with pytest.raises(ServiceFailed, match="its process ended"):
        start(settings, port=_free_port())
    assert "broken" in (settings.home / "logs" / "label-studio.log").read_text()


def test_without_a_server_the_backend_is_unavailable(settings: Settings) -> None:
    with pytest.raises(BackendUnavailable, match="does not run"):
        address(settings)
    with pytest.raises(BackendUnavailable, match="does not run"):
        open_label_studio(settings, pseudonyms=["a1"])


def test_an_outside_server_needs_its_key(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_LABEL_STUDIO_URL", "https://annotate.example.org/")
    outside = Settings.from_env()
    assert address(outside) == "https://annotate.example.org"
    with pytest.raises(BackendUnavailable, match="CORPUS_LABEL_STUDIO_KEY"):
        open_label_studio(outside, pseudonyms=["a1"])


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
