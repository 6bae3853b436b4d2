"""Requests in a real MLflow: counts, tokens and times of each, and nothing of a post, a prompt or an answer."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.telemetry import ADDRESSES
from pipelines.llm.traces import EXPERIMENT, Trace
from tests import mlflow_database
from tests.label import small_vendor as small
from tests.otlp_receiver import Receiver, receiving

COUNT = 6


def labelled(folder: Path, *, model: str, trace: Trace) -> list[Any]:
    (folder / "log.jsonl").touch()
    with small.vendor(folder / "log.jsonl") as url, small.opened(folder) as (vault, answers):
        asked = small.remote(url, answers=answers, vault=vault, model=model)
        asked.trace = trace
        posts = small.posts(COUNT, vault=vault)
        asked.label(posts)
        # answers that are stored are no requests
        return asked.label(posts)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def test_a_trace_has_each_request_without_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    import mlflow

    address = mlflow_database.place(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ADDRESSES:
        monkeypatch.setenv(name, receiver.address)
    about = {"labeller": "small", "prompt": "0123456789ab"}
    answers = labelled(tmp_path, model="throttle", trace=Trace(address, about))
    assert [answer.outcome for answer in answers] == ["vote"] * COUNT
    place = mlflow.MlflowClient(address).get_experiment_by_name(EXPERIMENT)
    [trace] = mlflow.search_traces(locations=[place.experiment_id], return_type="list")
    root, *spans = trace.data.spans
    assert len(spans) == COUNT and {span.parent_id for span in spans} == {root.span_id}
    assert root.attributes["outcome.answered"] == root.attributes["requests"] == COUNT
    # the vendor turns every request away once
    assert root.attributes["tries"] == 2 * COUNT and root.attributes["usd"] == pytest.approx(COUNT * small.COST)
    assert trace.info.token_usage["input_tokens"] == COUNT * small.TOKENS[0]
    assert all(0 < span.attributes["seconds"] < 60 and span.end_time_ns > span.start_time_ns for span in spans)
    assert trace.info.tags["labeller"] == "small"
    assert not receiver.bodies, "MLflow sends neither traces nor metrics to the address of this project's metrics"
    assert set(map(os.environ.get, ADDRESSES)) == {receiver.address}
    whole = json.dumps([trace.info.to_dict(), *(span.to_dict() for span in trace.data.spans)])
    assert not any(word in whole for word in ("quiet", "A long week", "crisis", *(a.record_id for a in answers)))


def test_an_mlflow_that_does_not_answer_costs_no_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="pipelines.llm.traces"):
        answers = labelled(tmp_path, model="refuse", trace=Trace("nowhere://mlflow", {}))
    assert [answer.outcome for answer in answers] == ["refused"] * COUNT
    assert f"trace of {COUNT} requests was not written" in caplog.text
