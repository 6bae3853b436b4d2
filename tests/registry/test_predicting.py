"""``corpus predict`` and ``mlflow models serve``: the same answers to the same posts, a clear no to anything else."""

from __future__ import annotations

import io
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from mlflow.pyfunc import scoring_server

from crisis_corpus.versions import CHAMPION
from crisis_corpus_sandbox.reddit import label_quotas, narratives
from pipelines.core.config.params import load as load_params
from pipelines.core.config.settings import Settings
from pipelines.packaging.register import put
from pipelines.predict import predict
from pipelines.registry.candidate import Context
from pipelines.registry.journal import Journal
from pipelines.registry.versions import Registry
from pipelines.store.vault.vault import Vault
from tests.ports import free_port
from tests.refusals import refused
from tests.registry import small_registry
from tests.registry.packs import NAME, Made

REPO = Path(__file__).resolve().parents[2]
PATIENCE = 60  # seconds for a server to begin on a busy machine


@pytest.fixture(scope="module")
def home(made: Made, made_registry: small_registry.Made, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A registry whose champion is the small model."""
    home = tmp_path_factory.mktemp("home")
    shutil.copy(made_registry.database, home / "mlflow.sqlite")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(home))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlflow.sqlite")
        patch.chdir(home)
        settings, params = Settings.from_env(), load_params(REPO)
        vault = Vault.open(settings.vault_url, secret=small_registry.SECRET)
        with vault, Journal.of(settings) as journal:
            registry = Registry.open(settings)
            context = Context(registry, journal, params, small_registry.TERMS, settings, vault, made.corpus.root)
            version, _ = put(NAME, made.saved, context=context, who="tester", why="a test")
            moved: dict[str, Any] = {"who": "tester", "why": "a test", "to_version": version.version}
            journal.append(NAME, event="intended", files=version.digest, **moved)
            registry.point(NAME, CHAMPION, version.version)
            journal.append(NAME, event="promoted", files=version.digest, **moved)
        yield home


def sandbox_posts(count: int) -> list[dict[str, str]]:
    rng = random.Random(5)
    told = [narratives.write(chosen, rng=rng, words=40) for chosen in label_quotas.cradle(count, rng=rng)]
    return [{"title": post.title, "body": post.body} for post in told]


def predicted(reference: str, rows: list[dict[str, Any]], *, folder: Path = Path()) -> list[dict[str, Any]]:
    out = io.StringIO()
    predict.run(reference, lines=[json.dumps(row) + "\n" for row in rows], out=out, folder=folder)
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(found) == len(rows)
    return found


class Server:
    """What ``mlflow models serve`` starts, on a port of its own, without the 3 seconds that its own import takes."""

    def __init__(self, home: Path, *, model: str) -> None:
        self.address = f"http://127.0.0.1:{(port := free_port())}"
        local = mlflow.artifacts.download_artifacts(model, dst_path=str(home / "served"))
        command, variables = scoring_server.get_cmd(local, port, "127.0.0.1", PATIENCE, 1)
        environment = {name: value for name, value in variables.items() if name != "PYTHONPATH"} | {
            "MLFLOW_TRACKING_URI": f"sqlite:///{home}/mlflow.sqlite", "MLFLOW_DISABLE_TELEMETRY": "true",
            # MLflow's own setter leaves it in the environment of whatever test called it before
            "MLFLOW_REGISTRY_URI": f"sqlite:///{home}/mlflow.sqlite",
            "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false", "HF_HUB_OFFLINE": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }  # fmt: skip
        self.log = home / "serve.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                shlex.split(command), cwd=home, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self._process.poll() is None:
            try:
                if self.ask("/ping", None)[0] == 200:
                    return
            except OSError:
                time.sleep(0.1)
        self.stop()
        raise AssertionError(self.log.read_text()[-2000:])

    def ask(self, path: str, body: Any) -> tuple[int, Any]:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                said = reply.read()
                return reply.status, json.loads(said) if said.strip() else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def test_a_server_answers_as_predict_does_and_refuses_what_is_no_post(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(home))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlflow.sqlite")
    posts = [*sandbox_posts(200), {"title": "", "body": ""}]
    server = Server(home, model=f"models:/{NAME}@champion")
    try:
        status, said = server.ask("/invocations", {"dataframe_records": posts})
        assert status == 200
        expected = predicted(NAME, posts)
        assert len(said["predictions"]) == len(expected) == 201
        for one, other in zip(said["predictions"], expected, strict=True):
            assert (one["labels"], one["abstain"]) == (other["labels"], other["abstain"])
            np.testing.assert_allclose(one["probabilities"], other["probabilities"], atol=1e-5)
        assert len({tuple(row["probabilities"]) for row in expected}) > 100
        assert expected[-1] == {"labels": [], "probabilities": [], "abstain": True, "alerts": []}
        for body in (
            b"{", {"dataframe_records": [{"body": "a"}]}, {"dataframe_records": [{"title": 3}]}, {"posts": []},
            {"dataframe_records": [{"title": ["a"], "body": "b"}]},
        ):  # fmt: skip
            status, said = server.ask("/invocations", body)
            assert status == 400, body
            assert said["error_code"] in ("BAD_REQUEST", "INVALID_PARAMETER_VALUE")
            assert said["message"]
        assert server.ask("/invocations", {"dataframe_records": posts[:1]})[0] == 200
    finally:
        server.stop()
    written = server.log.read_text()
    assert not any(row["body"][:40] in written for row in posts[:200])


def test_answers_come_in_the_order_of_the_lines_with_their_ids(made: Made) -> None:
    posts = sandbox_posts(70)
    rows = [{"id": n, "subreddit": "x", **post} for n, post in enumerate(posts)]
    found = predicted(str(made.saved), rows)
    assert [row["id"] for row in found] == list(range(70))
    assert found[3] == {"id": 3} | predicted(str(made.saved), [posts[3]])[0] | {
        "probabilities": pytest.approx(found[3]["probabilities"], abs=1e-5)
    }
    alone = predicted(str(made.saved), [{"title": posts[0]["title"]}, {"title": None, "body": None}])
    assert [row["abstain"] for row in alone] == [False, True]
    assert "id" not in alone[0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("secret", "it is not JSON"),
        ('["secret"]', "it is not a JSON object"),
        ('{"text": "secret"}', "neither a title nor an image"),
        ('{"title": 3, "body": "secret"}', "its title is not a string"),
        ('{"title": "secret", "body": ["secret"]}', "its body is not a string"),
        ('{"image": "secret.png"}', "it has image, but earlier lines have title"),
    ],
)
def test_a_bad_line_is_named_by_its_number_alone(made: Made, line: str, said: str) -> None:
    with refused("BadLine", match=said) as caught:
        predict.run(str(made.saved), lines=['{"title": "a"}\n', "\n", line], out=io.StringIO())
    assert str(caught.value).startswith("Line 3:")
    assert "secret" not in str(caught.value)


def test_a_picture_that_is_not_there_and_a_model_of_something_else(made: Made, tmp_path: Path) -> None:
    with refused("BadLine", match="its picture cannot be read"):
        predicted(str(made.saved), [{"image": "secret.png"}], folder=tmp_path)
    (tmp_path / "a.png").write_bytes(b"secret")
    with refused("NoAnswer", match="an error for the input lines 1 to 1") as caught:
        predicted(str(made.saved), [{"image": "a.png"}], folder=tmp_path)
    assert "secret" not in str(caught.value)
