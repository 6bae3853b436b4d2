"""Two writers and one reader of one key: the reader sees nothing or one whole result, and one writer is first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WRITER = HERE / "writer.py"


class Process:
    """One process of a round, which answers every line with a line."""

    def __init__(self, stack: ExitStack, role: str, root: str) -> None:
        argv = [sys.executable, str(WRITER), role, root]
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
        self._child = stack.enter_context(
            subprocess.Popen(argv, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        stack.callback(self._child.kill)

    def tell(self, line: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n")
        self._child.stdin.flush()

    def answer(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline().strip()


def play(root: str, *, rounds: int) -> Counter[str]:
    """Let both writers create the key of each round at once; count who was first and what was read."""
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        writers, reader = [Process(stack, role, root) for role in ("one", "two")], Process(stack, "reader", root)
        assert [process.answer() for process in [*writers, reader]] == ["ready"] * 3
        for number in range(rounds):
            key = f"{number:064x}"
            reader.tell(key)
            for writer in writers if number % 2 else writers[::-1]:
                writer.tell(key)
            answers = [writer.answer() for writer in writers]
            reader.tell("end")
            counts.update({f"read {what}": times for what, times in json.loads(reader.answer()).items()})
            counts[f"{answers.count('first')} first"] += 1
            counts["rounds that writer one won"] += answers[0] == "first"
    return counts


ROUNDS = [30, pytest.param(1000, marks=pytest.mark.faults)]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_on_a_folder_every_read_is_whole_and_one_writer_is_first(tmp_path: Path, rounds: int) -> None:
    check(play(str(tmp_path), rounds=rounds), rounds=rounds)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_on_s3_every_read_is_whole_and_one_writer_is_first(s3: str, rounds: int) -> None:
    check(play(f"{s3}/{rounds}", rounds=rounds), rounds=rounds)


def check(counts: Counter[str], *, rounds: int) -> None:
    assert counts["read bad"] == 0
    assert counts["1 first"] == rounds
    assert counts["read whole"] >= rounds
    assert 0 < counts["rounds that writer one won"] < rounds, "both writers win, else they do not meet"
