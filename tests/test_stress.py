"""The graph under load, kills and freezes gives the data of an undisturbed run; see :mod:`tests.stress`."""

from __future__ import annotations

import os

import pytest

from tests import stress

SHARDS = int(os.environ.get("CORPUS_STRESS_SHARDS", "2"))


@pytest.mark.faults
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_disturbed_run_neither_fails_nor_changes_any_data(shard: int) -> None:
    assert stress.problems(stress.run_shard(shard)) == []
