"""A decision has the name of the user who made it, whatever a command line or a task's hand-over says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli.shared import Decider
from pipelines.core.errors import BadParams
from pipelines.registry.journal import ApprovalRecord, signed
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
RUN, SUBJECT = "promote/manual__1", "promote crisis-posts 2"
SECRET = bytes.fromhex("5e" * 64)


def answer(user: str | None = "ada", *, asked_by: str | None = "bob", yes: bool = True) -> dict[str, Any]:
    given: dict[str, Any] = {"run": RUN, "subject": SUBJECT, "yes": yes, "why": "better"}
    return ApprovalRecord.answered(user=user, asked_by=asked_by, **given).token(SECRET)


def verified(token: Any, **other: Any) -> ApprovalRecord:
    text = token if isinstance(token, str) else json.dumps(token)
    return ApprovalRecord.verified(text, SECRET, **({"run": RUN, "subject": SUBJECT, "yes": True} | other))


def test_an_answer_names_the_user_who_is_logged_in() -> None:
    found = verified(answer())
    assert (found.who, found.why, found.asked_by) == ("airflow:ada", "better", "airflow:bob")


@pytest.mark.parametrize(
    "change",
    [
        {"who": "airflow:eve"}, {"why": "other"}, {"subject": "promote crisis-posts 3"}, {"run": "promote/manual__2"},
        {"yes": False}, {"asked_by": "airflow:eve"}, {"mac": "0" * 64}, {"mac": "é"}, {"mac": None}, {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_decision_that_was_changed_in_airflow_is_refused(change: dict[str, Any]) -> None:
    with refused("DecisionRefused"):
        verified(answer() | change)


@pytest.mark.parametrize(
    "other", [{"run": "promote/manual__2"}, {"subject": "promote crisis-posts 3"}, {"yes": False}], ids=str
)
def test_a_decision_is_not_used_for_another_run_subject_or_answer(other: dict[str, Any]) -> None:
    with refused("DecisionRefused"):
        verified(answer(), **other)


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '"x"', '{"who": "airflow:ada", "why": "x"}'])
def test_what_is_no_decision_is_refused(text: str) -> None:
    with refused("DecisionRefused"):
        verified(text)


def test_no_answer_in_time_is_a_rejection_and_never_an_approval() -> None:
    assert verified(answer(None, yes=False), yes=False).who == "no answer"
    with refused("DecisionRefused"):
        answer(None, yes=True)


@pytest.mark.parametrize("user", ["Anonymous", "anonymous", "unknown", "", " "])
def test_an_anonymous_user_decides_nothing(user: str) -> None:
    for yes in (True, False):
        with refused("DecisionRefused", match="not logged in"):
            answer(user, yes=yes)
    for who in (user, f"{user} (os:eve)"):
        with pytest.raises(BadParams, match="who"):
            signed(who, "a reason")


def test_the_command_records_the_login_beside_any_name(tmp_path: Path) -> None:
    done = authenticated("approve", SUBJECT, "--run", RUN, given={"user": "ada", "asked_by": None, "yes": True,
                                                                   "why": "better"})  # fmt: skip
    token = json.loads(done.stdout)["token"]
    decided = Decider.from_options(None, None, approval=json.dumps(token), run=RUN, subject=SUBJECT)
    assert (decided.who, decided.asked_by) == ("airflow:ada", "")
    refused = authenticated("approve", SUBJECT, "--run", RUN, given={"user": "Anonymous", "asked_by": None,
                                                                     "yes": True, "why": "better"})  # fmt: skip
    assert refused.returncode == 77 and "token" not in refused.stdout


def authenticated(*argv: str, given: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pipelines", "task", *argv]
    return subprocess.run(
        command, cwd=ROOT, env=env, input=json.dumps(given), capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_host_cannot_claim_a_login() -> None:
    # imported first, because the interpreter may be in a folder of root
    inside = (
        "import os\nfrom pipelines.cli.shared import _person\n"
        "os.setgroups([]); os.setgid(65533); os.setuid(65533)\n"
        "print(_person('ada (os:root)'))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "USER": "root", "LOGNAME": "root"}
    done = subprocess.run(
        [sys.executable, "-c", inside], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    # a user without a name in this host's list
    assert done.stdout == "ada (os:root) (os:65533)\n", done.stderr
