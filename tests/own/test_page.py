"""The page *Your corpus* as printed, from dumps and a file of labels to a loaded model, for texts and for pictures."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

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
