"""A backfill of months whose scheduler and API server are killed loses nothing; see :mod:`tests.backfill_months`."""

from __future__ import annotations

import os

import pytest

from tests import backfill_months

MONTHS = int(os.environ.get("CORPUS_BACKFILL_MONTHS", "4"))


@pytest.mark.faults
@pytest.mark.airflow
def test_a_backfill_of_months_survives_kills_of_scheduler_and_api_server() -> None:
    assert backfill_months.log_line(MONTHS, patience=3600.0)["wrong"] == []
