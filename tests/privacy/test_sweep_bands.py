"""Select the records that are due for a re-check, over any ages and any history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pipelines.core.config.operate import Band, Sweep
from pipelines.store.vault.checks import MISSING, SEEN, Known
from pipelines.takedown import sweep

NOW = datetime(2023, 2, 1, 6, tzinfo=UTC)
BANDS = (Band(until_days=7, every_days=1), Band(until_days=30, every_days=3), Band(until_days=None, every_days=60))
TERMS = Sweep(bands=BANDS, requests=9, remain=0.5, recheck_hours=12, max_missing=0.05, max_gone=0.5, few=20)
MONTHS = st.dates(datetime(2015, 1, 1).date(), datetime(2023, 1, 31).date()).map(lambda day: f"{day:%Y-%m}")
TIMES = st.timedeltas(timedelta(0), timedelta(days=200)).map(lambda ago: NOW - ago)


@st.composite
def records(draw: st.DrawFn) -> list[Known]:
    count = draw(st.integers(0, 25))
    return [
        Known(
            f"{n:032x}", draw(MONTHS), first_seen=draw(TIMES), missed=draw(st.sampled_from([0, 0, 1, 2])),
            checked_at=draw(st.none() | TIMES), outcome=draw(st.sampled_from([SEEN, MISSING, "deleted"])),
        )
        for n in range(count)
    ]  # fmt: skip


@given(MONTHS, TIMES)
def test_older_records_are_never_asked_about_more_often(month: str, now: datetime) -> None:
    later = now + timedelta(days=40)
    assert sweep.band_of(month, bands=BANDS, now=now).every_days <= (
        sweep.band_of(month, bands=BANDS, now=later).every_days
    )


@given(records())
def test_the_queue_holds_exactly_the_due_records_in_one_order(known: list[Known]) -> None:
    queue = sweep.due_records(known, terms=TERMS, now=NOW)
    assert set(queue) == {k for k in known if sweep.due_at(k, terms=TERMS, now=NOW) <= NOW}
    assert queue == sweep.due_records(reversed(known), terms=TERMS, now=NOW)
    assert [k.quarantined for k in queue] == sorted((k.quarantined for k in queue), reverse=True)
    for group in ([k for k in queue if k.quarantined is which] for which in (True, False)):
        times = [sweep.due_at(k, terms=TERMS, now=NOW) for k in group]
        assert times == sorted(times)


@given(records())
def test_a_record_that_was_just_checked_is_not_due(known: list[Known]) -> None:
    asked = [Known(k.record_id, k.month, k.first_seen, k.missed, NOW, k.outcome) for k in known]
    assert sweep.due_records(asked, terms=TERMS, now=NOW) == []
    soon = sweep.due_records(asked, terms=TERMS, now=NOW + timedelta(hours=12))
    assert set(soon) == {k for k in asked if k.quarantined}
    assert set(sweep.due_records(asked, terms=TERMS, now=NOW + timedelta(days=60))) == set(asked)


def test_names_of_bands() -> None:
    of = {"2023-01": "under 7 days", "2022-12": "older", "2010-01": "older"}
    for month, name in of.items():
        known = Known("0" * 32, month, NOW, 0, None, None)
        assert sweep.name_of(known, bands=BANDS, now=NOW) == name
    assert sweep.name_of(Known("0" * 32, "2023-01", NOW, 1, NOW, MISSING), bands=BANDS, now=NOW) == "quarantined"
