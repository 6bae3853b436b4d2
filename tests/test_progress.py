"""Progress: about twenty lines in a log, with the remaining time."""

from __future__ import annotations

import pytest

from pipelines.core.progress import duration, reporter


def test_a_log_gets_some_lines_with_the_remaining_time(capsys: pytest.CaptureFixture[str]) -> None:
    report = reporter("images", total=1000)
    for done in range(1, 1001):
        report(done)
    lines = capsys.readouterr().err.splitlines()
    assert 15 <= len(lines) <= 25 and lines[-1] == "images: 1000/1000"
    assert all(line.endswith("left") for line in lines[:-1])


def test_durations_are_rounded_for_people() -> None:
    assert [duration(seconds) for seconds in (12.3, 300, 12600)] == ["12 s", "5 min", "3.5 h"]
