"""The page *Your corpus* as printed, from dumps and a file of labels to a loaded model, for texts and for pictures."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import mlflow_server
from tests.own.page import Desk

pytestmark = pytest.mark.faults  # three minutes each
ASKED = """
import json, sys
from crisis_corpus import load
print(json.dumps([row["labels"] for row in load("forum-labels")(json.loads(sys.argv[1]))]))
"""


def test_a_model_is_trained_registered_promoted_and_loaded(ran: Desk) -> None:
    code, environment = ran.place
    scores: dict[str, Any] = json.loads((code / "lab" / "metrics" / "forum" / "evaluate.json").read_text())
    task = scores["tasks"]["labels"]
    found = task["models"][ran.team.model]["valid"]["figures"]["macro_f1"]
    assert found["low"] > task["baselines"]["majority"]["figures"]["macro_f1"], "the interval is above the majority's"
    inputs = ran.team.inputs(code.parent / "dumps")
    done = subprocess.run(
        [sys.executable, "-c", ASKED, json.dumps(inputs)], cwd=code, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-800:]
    assert [len(labels) for labels in json.loads(done.stdout)] == [1] * len(inputs)


def test_the_client_alone_asks_a_server_and_names_what_the_model_needs(ran: Desk, tmp_path: Path) -> None:
    home, python, inputs = ran.code / "var", tmp_path / "venv" / "bin" / "python", ran.team.inputs(ran.given)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", str(ran.code / "client")], check=True)
    key, journal = (home / "journal.pub").read_text().strip(), f"sqlite:///{home}/journal.sqlite"
    with mlflow_server.serving(home, files=home / "mlflow") as address:
        environment = {
            "PATH": os.environ["PATH"], "MLFLOW_TRACKING_URI": address, "CORPUS_HOME": str(tmp_path / "home"),
            "CORPUS_JOURNAL_URL": journal, "CORPUS_JOURNAL_KEY": key,
        }  # fmt: skip

        def ask() -> subprocess.CompletedProcess[str]:
            argv = [str(python), "-c", ASKED, json.dumps(inputs)]
            return subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

        [line] = re.findall(r"Run `(.*)`", ask().stderr)
        subprocess.run([*shlex.split(line), "--quiet"], check=True)
        done = ask()
    assert done.returncode == 0, done.stderr[-800:]
    assert [len(labels) for labels in json.loads(done.stdout)] == [1] * len(inputs)
    assert not [*(tmp_path / "venv" / "lib").glob("*/site-packages/mlflow-[0-9]*")], "mlflow-skinny is enough"
