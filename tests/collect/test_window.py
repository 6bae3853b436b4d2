from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.collect.month import Window
from pipelines.errors import BadWindow, MissingPartitionKey


@dataclass
class Run:
    partition_key: str | None = None
    logical_date: datetime | None = None


@given(st.datetimes(min_value=datetime(2005, 6, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)))
def test_every_instant_is_in_its_own_month_only(moment: datetime) -> None:
    window = Window.from_key(f"{moment:%Y-%m}")
    assert moment in window
    assert moment not in Window.from_key(f"{window.end:%Y-%m}")
    assert window.end not in window
    assert window.end - timedelta(microseconds=1) in window


def test_december_ends_with_the_year() -> None:
    window = Window.from_key("2022-12")
    assert window == Window(datetime(2022, 12, 1, tzinfo=UTC), datetime(2023, 1, 1, tzinfo=UTC))
    assert window.key == "2022-12"


@pytest.mark.parametrize("key", ["", "2022-13", "2022-00", "2022-1", "2022-12-01", "december", "2022/12", "2022-12\n"])
def test_what_is_no_month_is_refused_with_the_form_wanted(key: str) -> None:
    with pytest.raises(BadWindow, match="YYYY-MM"):
        Window.from_key(key)


def test_a_run_of_either_kind_gives_its_month() -> None:
    assert Window.from_dag_run(Run(partition_key="2022-11"), dag_id="memes_collect").key == "2022-11"
    plus_two = timezone(timedelta(hours=2))
    late = Run(logical_date=datetime(2022, 12, 1, 1, tzinfo=plus_two))
    assert Window.from_dag_run(late, dag_id="memes_collect").key == "2022-11"


def test_a_run_without_a_month_says_what_to_pass() -> None:
    with pytest.raises(MissingPartitionKey, match="backfill create --dag-id memes_collect"):
        Window.from_dag_run(Run(), dag_id="memes_collect")
