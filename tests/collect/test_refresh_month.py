"""Scheduled refreshes over a month at 40 times a listing's capacity lose nothing: it is stored, or a recorded gap."""

from __future__ import annotations

from pathlib import Path

import pytest

from crisis_corpus_sandbox.server import SandboxServer
from tests.collect import refreshed_reddit as reddit
from tests.collect.refreshed_reddit import END, HOUR, START, Deployment

# Reddit grants a client 100 requests a minute; a month of this subreddit must not take a quarter of an hour of them.
BUDGET = 100 * 15


@pytest.fixture
def simulated(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Deployment, SandboxServer]:
    limit = request.param
    reddit.write_world(tmp_path / "world", posts=40 * limit)
    server = SandboxServer(tmp_path / "world")
    request.addfinalizer(server.__exit__)
    server.__enter__()
    return Deployment.of(str(tmp_path / "home"), server.address, str(limit)), server


@pytest.mark.parametrize(
    "simulated", [40, pytest.param(1000, marks=pytest.mark.faults)], ids=["small", "whole"], indirect=True
)
def test_every_post_is_collected_or_in_a_gap_that_is_filled_later(
    simulated: tuple[Deployment, SandboxServer], tmp_path: Path
) -> None:
    deployment, server = simulated
    small = deployment.params.reddit.listing_limit < 1000
    moment = [0]
    server.catalogue.clock = lambda: moment[0]
    week = range(START + 16 * 24 * HOUR, START + 23 * 24 * HOUR)
    outages = {START + h * HOUR for h in ((100,) if small else (100, 205, 301, 601))}
    kills = {START + h * HOUR: page for h, page in (((60, 2),) if small else ((60, 2), (150, 7), (620, 5)))}
    failed = 0
    for now in range(START - 4 * HOUR, END + 49 * HOUR, 4 * HOUR if small else HOUR):
        moment[0] = now
        if now in week:
            continue
        if now in kills:
            deployment.killed_at(now, server, page=kills[now])
        server.outage_after = 0 if now in outages else None
        failed += not reddit.attempt(deployment, now, every=now in outages)
    with deployment.vault() as vault:
        truth = reddit.expected(vault, tmp_path / "world")
    requests = sum(server.counts[kind] for kind in ("listing", "token"))

    # the month closes while Arctic Shift is down: what is missing is on record, and nothing else is missing
    real, server.catalogue.search = server.catalogue.search, reddit.down  # type: ignore[method-assign]
    closed = deployment.publish_at(END + 49 * HOUR)
    gaps = deployment.gaps()
    ids = set(deployment.published())
    missing = {moment for record_id, moment in truth.items() if record_id not in ids}
    recorded = [(int(gap["start"].timestamp()), int(gap["end"].timestamp())) for gap in gaps]
    assert closed["gaps"] == len(gaps) == 1
    assert gaps[0]["subreddit"] == reddit.BUSY
    assert missing
    assert all(any(start <= one < end for start, end in recorded) for one in missing)
    # no wider than the pause
    assert recorded[0][0] >= week.start - 24 * HOUR
    assert recorded[0][1] <= week.stop

    # Arctic Shift is back: one revision of the month has the rest, and nothing is left to revise
    server.catalogue.search = real  # type: ignore[method-assign]
    assert deployment.refresh_at(END + 50 * HOUR)["revise"] == []
    moment[0] = END + 80 * HOUR
    assert deployment.refresh_at(moment[0])["revise"] == [reddit.MONTH.key]
    deployment.publish_at(moment[0])
    assert deployment.gaps() == []
    published = deployment.published()
    assert len(published) == len(set(published))
    assert set(published) == set(truth)
    assert deployment.refresh_at(END + 81 * HOUR)["revise"] == []
    assert deployment.revisions == 2
    assert failed == len(outages)
    capacity = deployment.params.reddit.listing_limit
    assert len(truth) > 38 * capacity
    assert requests < BUDGET
