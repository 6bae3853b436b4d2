"""Nothing faked once (SPEC 2.2): a model tuned here, served here, asked as all others are."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from pipelines.datasets.post import Post
from pipelines.llm.outcome import Outcome, Raw
from pipelines.llm.response_parser import interpret
from pipelines.models.fitting import instruct
from tests.label import small_settings
from tests.ports import free_port
from tests.train.small_tuning import SCHEME, TASK, a_run, answers, posts

PROMPT = instruct.instruction(SCHEME, category=TASK.key)


@contextmanager
def served(home: Path) -> Iterator[str]:
    """Run ``transformers serve`` on a free loopback port and yield the address that clients take."""
    (home / "hub").mkdir(parents=True)
    environ = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    port = str(free_port())
    command = [str(Path(sys.executable).with_name("transformers")), "serve", "--host", "127.0.0.1", "--port", port]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--device", "cpu"], env=os.environ | environ, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(url: str) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            with urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            assert time.monotonic() < end, "the model's server did not start"
            time.sleep(0.2)


async def ask(asked: list[Post], *, model: str, url: str) -> list[Raw]:
    # `transformers serve` loads a model at its first request
    async with small_settings.client(f"{url}/v1", model=model, key="", timeout_seconds=120) as client:
        raws = []
        for post in asked:
            system, parts = PROMPT.render(post, delimiter=instruct.DELIMITER)
            raws.append(await client.send(system, parts, schema=PROMPT.schema, key=post.record_id))
        return raws


@pytest.mark.faults
def test_a_model_tuned_and_served_here_labels_through_the_client(tmp_path: Path) -> None:
    test = posts(24, split="test")
    with served(tmp_path / "home") as url:
        learning = {"epochs": 14, "learning_rate": 0.006, "checkpoint_steps": 1000}
        a_run(tmp_path, train=posts(64, split="train"), validation=posts(16, split="validation"), **learning)
        wait_for(url)
        parts = [example.text.removeprefix("Title: ").split(" Text: ") for example in test]
        asked = [Post(example.item[0], *part) for example, part in zip(test, parts, strict=True)]
        raws = asyncio.run(ask(asked, model=str(tmp_path / "out"), url=url))
    rows = {"labeller": "tiny", "prompt": PROMPT, "scheme": SCHEME, "mode": "improved", "cost": 0.0}
    found = [interpret(raw, record_id=p.record_id, **rows)[0] for p, raw in zip(asked, raws, strict=True)]
    assert [answer.outcome for answer in found] == [Outcome.VOTE] * len(test)
    assert all(raw.input_tokens and raw.output_tokens and raw.effective["temperature"] == 0 for raw in raws)
    said = [frozenset(answer.labels) for answer in found]
    assert said == answers(tmp_path / "out", test), "as read without a server"
    right = sum(labels == example.labels for labels, example in zip(said, test, strict=True))
    assert right >= 16, "of 24, half of which have one label"
