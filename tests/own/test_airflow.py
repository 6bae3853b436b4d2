"""The page by Airflow gives what it gives by `corpus run`: stage by stage, and byte by byte where nothing is sealed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden import frozen
from tests.own.equal import differing
from tests.own.page import Desk

pytestmark = pytest.mark.faults  # ten minutes each
# Two runs seal under other keys of records, take other times, and have other runs of MLflow, which the digests of files
# with any of these repeat; all other files are equal byte by byte.
OWN_BYTES = re.compile(
    r"^data/forum/[^/]+/(records|(texts|images)/\d+)\.parquet$|/(neighbours\.parquet|model\.json|spent\.json)$"
    r"|^metrics/forum/(evaluate|(train|predict)-[^/]+)\.json$|/report/"
)


@pytest.fixture(scope="module")
def by_airflow(ran: Desk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Another checkout and home of the team, whose corpus the Dags have made."""
    desk = ran.again(tmp_path_factory.mktemp("airflow") / "team")
    try:
        desk.type("own", "airflow", without="corpus run")
        yield desk
    finally:
        desk.corpus("down")


def test_the_dags_give_the_corpus_that_corpus_run_gives(ran: Desk, by_airflow: Desk) -> None:
    lines, paths = differing(ran, by_airflow)
    assert lines == []
    assert [path for path in sorted(paths) if not OWN_BYTES.search(path)] == []


def test_the_models_are_registered_and_promoted_alike(ran: Desk, by_airflow: Desk) -> None:
    first, second = (frozen.values_of(journal(desk)) for desk in (ran, by_airflow))
    assert first == second


def journal(desk: Desk) -> dict[str, Any]:
    return dict(json.loads(desk.corpus("registry", "forum-labels", "--json")))
