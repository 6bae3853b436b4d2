"""Refreshed months lose nothing: one commit when a month closes, one when its gap is filled, over a whole month."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crisis_corpus_sandbox.server import SandboxServer
from pipelines.cli import task as command
from pipelines.collect import collect, partition, texts
from pipelines.collect.refresh_store import RefreshStore
from pipelines.core.config.settings import Settings
from pipelines.operate import status
from pipelines.operate import tasks as operate_tasks
from pipelines.store import tables
from pipelines.workspace import repository
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from pipelines.workspace.inventory import hand_over
from tests.collect import refreshed_reddit as reddit
from tests.collect.refreshed_reddit import CORPUS, END, HOUR, MONTH, ROOT, START, Deployment

POSTS = 200
FILES = ("params.yaml", "catalogue.yaml", "dvc.yaml", "pipelines/libraries.yaml", ".dvc/config", ".dvc/.gitignore",
         "profiles/sandbox.yaml")  # fmt: skip


@pytest.fixture
def deployment(tmp_path: Path, server: SandboxServer, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CORPUS_SECRET", (b"s" * 64).hex())
    checkout = tmp_path / "checkout"
    for name in FILES:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    params = checkout / "params.yaml"
    params.write_text(params.read_text().replace("    source: dump\n", "    source: [reddit, arctic_shift]\n"))
    git("init", "--quiet", "-b", "main", cwd=checkout)
    git("add", "--all", cwd=checkout)
    git("commit", "--quiet", "-m", "code", cwd=checkout)
    repository.init(Settings.from_env(), checkout=checkout, profile="sandbox")
    made = Deployment.of(str(tmp_path / "home"), server.address, "40")
    server.catalogue.clock = lambda: END + 49 * HOUR
    return made


def publish_month(
    deployment: Deployment, moment: int, *, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Run the tasks of a month, each in a clone of its own, with the files of the tasks before."""
    settings, now = deployment.settings, datetime.fromtimestamp(moment, tz=UTC)
    patch.setattr(operate_tasks, "now", lambda: now)
    given: dict[str, Any] = {"window": MONTH, "params": deployment.params}

    def task(run: Any, *patterns: str, pointers: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
        with workspace(settings) as clone, deployment.vault() as vault:
            clone.place(pointers)
            clone.checkout(*pointers)
            done = run(CORPUS, vault=vault, root=clone.path, **given)
            found = [p for pattern in patterns for p in clone.path.glob(pattern.format(CORPUS, MONTH.key))]
            return done, clone.add([path for path in found if path.is_file()])

    done, handed = task(partial(collect.run, settings=settings, now=now), "work/{}/{}/*.parquet", pointers={})
    every = dict(handed)
    for shard in range(done["first"], done["first"] + done["shards"]):
        outs = ("data/{}/{}/texts/*.parquet", "work/{}/{}/drops/*.parquet")
        every |= task(partial(texts.run, shard=shard), *outs, pointers=handed)[1]
    joined, tables_of_month = task(partition.run, "data/{}/{}/*.parquet", pointers=every)
    every |= tables_of_month
    empty = joined["adds"] and not joined["items"]
    data = {p: text for p, text in every.items() if p.startswith("data/") and not (empty and "/texts/" in p)}
    # the command of the task `publish`
    command.publish_partition(CORPUS, MONTH.key, json.dumps(hand_over(data, secret=settings.secret())))
    return json.loads(capsys.readouterr().out)


def test_a_gap_that_is_filled_makes_one_revision(
    deployment: Deployment,
    server: SandboxServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {"capsys": capsys, "patch": monkeypatch}
    # only the end of the month is still in the listing, and Arctic Shift does not answer
    real, server.catalogue.search = server.catalogue.search, reddit.down  # type: ignore[method-assign]
    first = publish_month(deployment, END + 49 * HOUR, **given)
    assert first["changed"] and first["gaps"] == 1
    found = status.gather(deployment.settings)["corpora"][CORPUS]["coverage"]
    assert found["months"] == 1
    assert found["month_gap_hours"] == {MONTH.key: first["gap_hours"]}
    # the days since the month's end wait for the next one
    assert (found["stored"] > 0, found["gaps"], found["revise"]) == (True, 0, "none")
    # collected again without anything new: the same commit
    again = publish_month(deployment, END + 50 * HOUR, **given)
    assert (again["changed"], again["commit"]) == (False, first["commit"])

    server.catalogue.search = real  # type: ignore[method-assign]
    filled = deployment.refresh_at(END + 80 * HOUR)
    assert (filled["revise"], filled["gaps"]) == ([MONTH.key], 0)
    second = publish_month(deployment, END + 80 * HOUR, **given)
    assert (second["changed"], second["gaps"]) == (True, 0)
    assert deployment.refresh_at(END + 81 * HOUR)["revise"] == []
    with deployment.vault() as vault, workspace(deployment.settings) as clone:
        truth = reddit.expected(vault, tmp_path / "world")
        clone.checkout(f"data/{CORPUS}/{MONTH.key}")
        month = clone.path / "data" / CORPUS / MONTH.key
        rows = tables.read(month / "records.parquet", name="records").to_pylist()
        items = tables.concat(sorted((month / "texts").glob("*.parquet")), name="texts")["record_id"].to_pylist()
        assert not list(tables.read(month / "gaps.parquet", name="gaps").to_pylist())
    assert sorted(row["record_id"] for row in rows) == sorted(items) == sorted(truth)
    assert {row["source"] for row in rows} == {"reddit", "arctic_shift"}
    log = git("--git-dir", deployment.settings.repo, "log", "--format=%s", "corpus")
    assert log.count(f"data({CORPUS}): {MONTH.key}") == 2
    with RefreshStore.open(deployment.settings.refresh_url) as store:
        assert store.count_waiting(CORPUS, (START, END)) == 0


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


@pytest.mark.parametrize("simulated", [40, pytest.param(1000, marks=pytest.mark.faults)], indirect=True)
def test_every_post_is_collected_or_in_a_gap_filled_later(
    simulated: tuple[Deployment, SandboxServer], tmp_path: Path
) -> None:
    deployment, server = simulated
    small = deployment.params.sources["reddit"].listing.limit < 1000
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
    assert len(truth) > 38 * deployment.params.sources["reddit"].listing.limit
    assert requests < BUDGET
