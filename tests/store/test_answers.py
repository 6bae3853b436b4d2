"""Answers are sealed, money adds up between processes, and a batch is paid once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.errors import BadParams, SealBroken
from pipelines.store.answers import AnswerStore, AnswersUnavailable, BatchJob, LedgerChange, cache_key, sealed
from pipelines.store.vault.vault import Vault
from tests.postgres import BOTH, address, postgres
from tests.refusals import refused

__all__ = ["postgres"]

NOW = datetime(2022, 12, 1, tzinfo=UTC)
TEXT = b'{"labels": ["no_crisis"], "aside": "a word that must not lie open"}'
ASKED = {"api": "openai", "model": "m", "prompt": "p", "schema": {"a": 1}, "content": "c"}
ASKED |= {"sampling": {"temperature": 0.0}}


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return address(request, "answers", folder=tmp_path)


@pytest.fixture
def answers(url: str) -> Iterator[AnswerStore]:
    with AnswerStore.open(url) as answers:
        yield answers


def admit(vault: Vault, *names: str) -> list[str]:
    ids = [vault.record_id(f"t3_{name}") for name in names]
    vault.admit([(i, f"t3_{n}") for i, n in zip(ids, names, strict=True)], corpus="posts", month="2022-12", now=NOW)
    return ids


def change(key: str, record_id: str, *, vault: Vault, data: bytes = TEXT, pay: int = 0) -> LedgerChange:
    answer = sealed(key, record_id=record_id, under=vault.keys([record_id])[record_id], data=data)
    return LedgerChange(pay=pay, answer=answer)


def test_answer_comes_back_and_lies_sealed(answers: AnswerStore, vault: Vault, url: str, tmp_path: Path) -> None:
    (record_id,) = admit(vault, "a")
    answers.write([change("k1", record_id, vault=vault, pay=7)])
    found = answers.get(["k1", "k2"], vault=vault)
    assert {k: (v.record_id, v.data, v.cost) for k, v in found.items()} == {"k1": (record_id, TEXT, 7)}
    assert answers.spent() == (7, 0)
    with sa.create_engine(url).begin() as raw:
        [stored] = raw.exec_driver_sql("SELECT answer FROM answers").scalars()
    assert b"must not lie open" not in bytes(stored)
    for file in tmp_path.glob("answers.sqlite*"):
        assert b"must not lie open" not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0


def test_takedown_closes_the_answer(answers: AnswerStore, vault: Vault) -> None:
    gone, stays = admit(vault, "a", "b")
    for key, record_id in (("k1", gone), ("k2", stays)):
        answers.write([change(key, record_id, vault=vault)])
    vault.destroy([gone], reason="test", now=NOW)
    assert answers.get(["k1", "k2"], vault=vault).keys() == {"k2"}
    answers.write([change("k1", stays, vault=vault)])
    assert answers.get(["k1"], vault=vault)["k1"].record_id == stays


def test_moved_answer_does_not_open(answers: AnswerStore, vault: Vault, url: str) -> None:
    (record_id,) = admit(vault, "a")
    for key in ("k1", "k2"):
        answers.write([change(key, record_id, vault=vault, data=key.encode())])
    with sa.create_engine(url).begin() as raw:
        moved = "UPDATE answers SET answer = (SELECT answer FROM answers WHERE key = 'k1') WHERE key = 'k2'"
        raw.exec_driver_sql(moved)
    with pytest.raises(SealBroken):
        answers.get(["k2"], vault=vault)


def test_foreign_vault_is_refused(answers: AnswerStore, vault: Vault, tmp_path: Path) -> None:
    (record_id,) = admit(vault, "a")
    answers.write([change("k1", record_id, vault=vault)])
    other = Vault.open(f"sqlite:///{tmp_path}/other.sqlite", secret=bytes(range(1, 33)))
    with other, refused("UnknownRecord"):
        answers.get(["k1"], vault=other)


@pytest.mark.parametrize("url", ["mysql://x/y", "nonsense", "sqlite+nothing:///x"])
def test_bad_address(url: str) -> None:
    with pytest.raises(BadParams, match="CORPUS_ANSWERS_URL"):
        AnswerStore.open(url)


def test_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").write_bytes(b"x" * 5000)
    with pytest.raises(AnswersUnavailable):
        AnswerStore.open(f"sqlite:///{tmp_path}/a.sqlite")


AMOUNTS = {"hold": st.integers(-20, 50), "pay": st.integers(0, 50), "limit": st.none() | st.integers(0, 200)}


@given(st.lists(st.builds(LedgerChange, **AMOUNTS), max_size=30))
@settings(max_examples=60, deadline=None)
def test_ledger_adds_up_and_no_limit_is_passed(changes: list[LedgerChange]) -> None:
    with AnswerStore.open("sqlite://") as answers:
        made = answers.write(changes)
        done = [c for c, m in zip(changes, made, strict=True) if m]
        assert answers.spent()[1] == sum(c.hold for c in done)
        assert all(m for c, m in zip(changes, made, strict=True) if c.limit is None)
        free = sum(c.hold + c.pay for c in changes if c.limit is None)
        limited = [c for c in done if c.limit is not None]
        for at, change in enumerate(limited):
            # a change that reserves nothing exceeds no limit
            assert change.limit is not None
            assert not change.hold or free + sum(c.hold for c in limited[: at + 1]) <= change.limit


def test_processes_share_one_ledger(url: str) -> None:
    code = (
        "import sys; from pipelines.store.answers import AnswerStore, LedgerChange\n"
        "a = AnswerStore.open(sys.argv[1])\n"
        "print(sum(a.write([LedgerChange(hold=1, limit=100)])[0] for _ in range(80)))"
    )

    def run(_: int) -> int:
        done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=True)
        return int(done.stdout)

    with ThreadPoolExecutor(2) as pool:
        granted = sum(pool.map(run, range(2)))
    with AnswerStore.open(url) as answers:
        assert (granted, answers.spent()) == (100, (0, 100))


def test_batch_is_noted_collected_and_paid_once(answers: AnswerStore, vault: Vault) -> None:
    (record_id,) = admit(vault, "a")
    job = BatchJob("job-1", {"k1": record_id}, 50)
    answers.write([LedgerChange(hold=50)])
    answers.begin(job, labeller="gpt")
    assert answers.jobs(labeller="gpt") == [job]
    assert answers.jobs(labeller="claude") == []
    paid = [change("k1", record_id, vault=vault, pay=20)]
    assert answers.finish(job, changes=paid)
    assert not answers.finish(job, changes=paid)
    assert answers.spent() == (20, 0)
    assert answers.jobs(labeller="gpt") == []
    assert answers.get(["k1"], vault=vault)["k1"].cost == 20


@pytest.mark.parametrize("part", sorted(ASKED))
def test_every_part_of_the_question_makes_another_key(part: str) -> None:
    changed = {**ASKED, part: {"b": 2} if isinstance(ASKED[part], dict) else "other"}
    assert cache_key(**changed) != cache_key(**ASKED)  # type: ignore[arg-type]
    assert cache_key(**ASKED) == cache_key(**dict(reversed(ASKED.items())))  # type: ignore[arg-type]
    assert len(cache_key(**ASKED)) == 64  # type: ignore[arg-type]
