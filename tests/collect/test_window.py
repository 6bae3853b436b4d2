from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.collect.month import Window
from tests.refusals import refused


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
    with refused("BadWindow", match="YYYY-MM"):
        Window.from_key(key)
