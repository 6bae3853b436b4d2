"""Counts that commands send to an OpenTelemetry receiver: their names and sums, no id and no content."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.core import telemetry
from pipelines.store.exclusions import CLOSED, WHOLE, write_exclusions
from pipelines.workspace import publish
from tests.commands import process
from tests.otlp_receiver import Receiver, receiving
from tests.privacy import used_corpus as used

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.address)
        yield made


def of(**attributes: str) -> frozenset[tuple[str, str]]:
    return frozenset(attributes.items())


def example(name: str) -> None:
    telemetry.count(name, 3, **dict.fromkeys(telemetry.METRICS[name].attributes, "memes"))


def test_every_metric_arrives_under_its_name_and_kind(receiver: Receiver) -> None:
    for _ in range(2):
        with telemetry.sent():
            for name in telemetry.METRICS:
                example(name)
    assert len(receiver.bodies) == 2, "one request for a command"
    assert {name: value for (name, _), value in receiver.sums().items()} == {
        name: 6 if metric.counter else 3 for name, metric in telemetry.METRICS.items()
    }
    for resource, metric in receiver.metrics():
        assert [(one.key, one.value.string_value) for one in resource.attributes] == [("service.name", "crisis-corpus")]
        declared = telemetry.METRICS[metric.name]
        assert metric.description == declared.about and not metric.unit
        if declared.counter:
            # 1: delta; short processes would otherwise each begin at zero
            assert metric.sum.aggregation_temporality == 1 and metric.sum.is_monotonic
        assert len(metric.description) < 80


def test_no_id_and_no_content_is_sent(receiver: Receiver) -> None:
    canaries = ["5e" * 32, "a4f09c2e11d34b7a", "t3_abc lantern", "Lantern", "I was here", "x" * 90, "https://a.org/a"]
    with telemetry.sent():
        for canary in canaries:
            telemetry.count("corpus.stage.tasks", stage=canary, outcome="success")
    assert receiver.sums() == {("corpus.stage.tasks", of(stage="other", outcome="success")): len(canaries)}
    assert not [canary for canary in canaries for _, body in receiver.bodies if canary.encode() in body]


def test_an_undeclared_metric_or_attribute_is_refused(receiver: Receiver) -> None:
    with pytest.raises(KeyError):
        telemetry.count("corpus.names")
    with pytest.raises(KeyError):
        telemetry.count("corpus.records.collected", corpus="memes", record="a")
    with telemetry.sent():
        pass
    assert not receiver.bodies


def test_exclusions_are_counted_by_step_and_reason(receiver: Receiver, tmp_path: Path) -> None:
    reasons = {("a" * 64, WHOLE): "too_short", ("b" * 64, 0): "too_short", ("c" * 64, 1): "not_english"}
    reasons[f"{CLOSED}2022-12/r/example", WHOLE] = "private"
    with telemetry.sent():
        write_exclusions(reasons, tmp_path / "drops.parquet", step="texts")
    assert receiver.sums() == {
        ("corpus.items.dropped", of(step="texts", reason="too_short")): 2,
        ("corpus.items.dropped", of(step="texts", reason="not_english")): 1,
    }


def test_a_stage_that_fails_is_counted_as_failed(receiver: Receiver) -> None:
    with telemetry.sent():
        with telemetry.outcome("dedupe@memes"):
            pass
        with pytest.raises(ZeroDivisionError), telemetry.outcome("split@posts"):
            raise ZeroDivisionError
    assert set(receiver.sums()) == {
        ("corpus.stage.tasks", of(stage="dedupe", outcome="success")),
        ("corpus.stage.tasks", of(stage="split", outcome="failed")),
    }


def test_a_receiver_that_is_down_or_hangs_costs_seconds_and_one_line(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    receiver.status = 400
    with telemetry.sent():
        example("corpus.records.collected")
    assert capfd.readouterr().err.count("were not sent") == 1
    with socket.socket() as hangs:
        hangs.bind(("127.0.0.1", 0))
        hangs.listen()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://user:secret@127.0.0.1:{hangs.getsockname()[1]}")
        began = time.monotonic()
        with telemetry.sent():
            example("corpus.records.collected")
        assert time.monotonic() - began < 3 * telemetry.SECONDS
    told = capfd.readouterr().err
    assert told.count("were not sent") == 1 and "secret" not in told and len(told.splitlines()) == 1


RUN = """
import sys
from pipelines.core import telemetry
with telemetry.sent(), telemetry.outcome("dedupe@memes"):
    pass
print(sorted(name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))))
"""


def test_without_an_address_nothing_is_imported() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run([sys.executable, "-c", RUN], cwd=ROOT, env=env, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]" and not done.stderr


def test_commands_send_what_a_stage_and_the_summary_count(receiver: Receiver, tmp_path: Path) -> None:
    settings = used.copy_with_params(tmp_path / "home")
    head = publish.head(settings)
    env = {"CORPUS_HOME": str(settings.home), "CORPUS_SECRET": used.SECRET}
    run = ["--base", head, "--run", "posts_dataset/manual__1"]
    for argv in (["status", "--write"], ["task", "stage", "split@posts", *run]):
        assert process(*argv, cwd=tmp_path, **env).returncode == 0
    found = receiver.sums()
    assert found["corpus.stage.tasks", of(stage="split", outcome="success")] == 1
    assert {name for name, _ in found} == {
        "corpus.stage.tasks", "corpus.takedowns.open", "corpus.takedowns.done", "corpus.budget.spent_usd",
        "corpus.budget.limit_usd",
    }  # fmt: skip
    assert {value for _, attributes in found for _, value in attributes} == {"split", "success"}
