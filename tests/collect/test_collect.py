"""The step ``collect`` on a real sandbox: what comes in, what stays out, and what a bad file leaves behind."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from crisis_corpus_sandbox.server import SandboxServer
from pipelines.collect import collect, partition
from pipelines.collect.month import Window
from pipelines.collect.read import confined_child
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import SourceError
from pipelines.curate import quality
from pipelines.store import tables
from pipelines.store.exclusions import write_exclusions
from pipelines.store.seal import open_column, write_rows
from pipelines.store.vault.vault import Vault
from pipelines.workspace import publish, repository
from tests import small_sandbox
from tests.contexts import context_of
from tests.refusals import refused
from tests.small_corpus import code_of, full, write_table

ROOT = Path(__file__).resolve().parents[2]
MONTH = "2022-12"
NOW = datetime(2023, 1, 2, tzinfo=UTC)
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def sandbox() -> Path:
    return small_sandbox.folder()


@pytest.fixture
def settings(tmp_path: Path, sandbox: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name, value in {
        "HOME": tmp_path / "var",
        "DUMPS": sandbox / "dumps",
        "REDDIT_CLIENT_ID": "sandbox",
        "REDDIT_CLIENT_SECRET": "sandbox",
        "CONTACT": "sandbox@localhost",
    }.items():
        monkeypatch.setenv(f"CORPUS_{name}", str(value))
    return Settings.from_env()


@pytest.fixture
def params() -> Params:
    return load(ROOT, profile="sandbox")


@pytest.fixture
def vault(settings: Settings) -> Iterator[Vault]:
    with Vault.open(settings.vault_url, secret=settings.secret()) as opened:
        yield opened


@pytest.fixture
def run(params: Params, settings: Settings, vault: Vault) -> Run:
    """Collect the month into a folder, with other parameters, settings or vault if given."""

    def run(root: Path, **changes: Any) -> dict[str, Any]:
        given = {"params": params, "settings": settings, "vault": vault} | changes
        return collect.run("memes", window=Window.from_key(MONTH), now=NOW, root=root, **given)

    return run


def from_reddit(params: Params, **changes: Any) -> Params:
    described = params.corpora["memes"].model_copy(update={"source": "reddit", **changes})
    return params.model_copy(update={"corpora": {"memes": described}})


def at(server: SandboxServer, settings: Settings) -> Settings:
    return settings.model_copy(update={"reddit_url": server.address, "reddit_oauth_url": server.address})


def posts(root: Path) -> Any:
    return tables.read(collect.work(root, corpus="memes", month=MONTH) / "records.parquet", name="records")


def test_only_what_the_truth_keeps_comes_in(tmp_path: Path, sandbox: Path, vault: Vault, run: Run) -> None:
    truth = json.loads((sandbox / "truth_images.json").read_text())
    out = {"deleted", "removed", "deleted_later", "crosspost", "other_subreddit", "outside_window", "no_image"}
    allowed = {
        vault.record_id(s["fullname"])
        for s in truth["submissions"]
        if s["month"] == MONTH and s["expected"] not in out and not s["deleted"]
    }
    done = run(tmp_path)
    assert set(posts(tmp_path)["record_id"].to_pylist()) <= allowed
    assert done["kept"] == posts(tmp_path).num_rows > 0
    assert done["submissions"] == done["kept"] + sum(done["dropped"].values())
    assert {"removed", "crosspost"} <= set(done["dropped"])


def test_the_same_month_again_gives_the_same_bytes(tmp_path: Path, run: Run) -> None:
    for name in ("first", "second"):
        run(tmp_path / name)
    first, second = (collect.work(tmp_path / n, corpus="memes", month=MONTH) for n in ("first", "second"))
    for path in first.rglob("*.parquet"):
        assert path.read_bytes() == (second / path.relative_to(first)).read_bytes()


def test_reddit_and_the_dump_fill_the_same_table(
    tmp_path: Path, sandbox: Path, params: Params, settings: Settings, vault: Vault, run: Run
) -> None:
    run(tmp_path / "dump")
    with SandboxServer(sandbox) as server:
        run(tmp_path / "reddit", params=from_reddit(params), settings=at(server, settings))
    first, second = posts(tmp_path / "dump"), posts(tmp_path / "reddit")
    # sealed bytes are bound to the digest of the source
    sealed = tables.sealed_columns(tables.SCHEMAS["records"])
    apart = ["source", "source_digest", *sealed]
    assert first.drop_columns(apart).equals(second.drop_columns(apart))
    for column in sealed:
        one, two = (open_column(table, name="records", column=column, vault=vault) for table in (first, second))
        assert one == two


def test_a_live_source_of_pictures_is_refused_without_a_sandbox_before_any_request(
    tmp_path: Path, params: Params, settings: Settings, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr(confined_child, "START", "raise SystemExit('this system confines nothing')")
    nowhere = settings.model_copy(update={"reddit_url": "http://127.0.0.1:9", "reddit_oauth_url": "http://127.0.0.1:9"})
    with refused("SandboxMissing"):
        run(tmp_path, params=from_reddit(params), settings=nowhere)
    assert not collect.work(tmp_path, corpus="memes", month=MONTH).exists()


def drops_below(root: Path) -> list[dict[str, Any]]:
    return tables.concat(list(root.rglob("drops.parquet")), name="drops").to_pylist()


def test_records_that_were_taken_down_stay_out_and_are_not_named(tmp_path: Path, vault: Vault, run: Run) -> None:
    run(tmp_path / "before")
    before = posts(tmp_path / "before")
    kept, dropped = before["record_id"].to_pylist(), {row["record_id"] for row in drops_below(tmp_path / "before")}
    gone = {kept[0], *sorted(dropped)[:2]}
    vault.destroy(sorted(gone), reason="request", now=NOW)
    done = run(tmp_path / "after")
    drops = drops_below(tmp_path / "after")
    assert done["dropped"]["tombstoned"] == Counter(row["reason"] for row in drops)["tombstoned"] == 3
    assert not gone & {*posts(tmp_path / "after")["record_id"].to_pylist(), *(row["record_id"] for row in drops)}
    assert dropped - {row["record_id"] for row in drops} == dropped & gone
    assert open_column(before.slice(0, 1), name="records", column="title", vault=vault) == [None]


def test_a_record_that_came_in_under_another_month_is_not_taken_twice(
    tmp_path: Path, settings: Settings, vault: Vault, run: Run
) -> None:
    with Vault.open(f"sqlite:///{tmp_path}/other.sqlite", secret=settings.secret()) as other:
        before = run(tmp_path / "before", vault=other)
        [fullname] = other.fullnames([posts(tmp_path / "before")["record_id"].to_pylist()[0]]).values()
    vault.admit([(vault.record_id(fullname), fullname)], corpus="memes", month="2017-12", now=NOW)
    done = run(tmp_path / "after")
    assert done["dropped"]["other_month"] == 1
    assert done["kept"] == before["kept"] - 1
    assert done["submissions"] == before["submissions"]
    assert vault.record_id(fullname) not in posts(tmp_path / "after")["record_id"].to_pylist()


@pytest.mark.parametrize("seed", range(50))
def test_a_damaged_dump_leaves_nothing_behind(
    seed: int, tmp_path: Path, sandbox: Path, settings: Settings, vault: Vault, run: Run
) -> None:
    """Cut at a random byte, half of the cuts with a checksum to match, or one bit flipped."""
    draw = random.Random(seed)
    shutil.copytree(sandbox / "dumps", tmp_path / "dumps")
    path = draw.choice(sorted((tmp_path / "dumps").glob("SuicideMeme_*.zst")))
    data = bytearray(path.read_bytes())
    at = draw.randrange(1, len(data))
    if seed % 2:
        data[at] ^= 1 << draw.randrange(8)
    else:
        del data[at:]
        if seed % 4:
            path.with_name(f"{path.name}.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  {path.name}\n")
    path.write_bytes(data)
    damaged = settings.model_copy(update={"dumps": tmp_path / "dumps"})
    try:
        run(tmp_path, settings=damaged)
    except SourceError as error:
        assert error.code == "CorruptDump"
        assert path.name in str(error) and "Nothing was committed" in str(error)
        assert 0 <= error.fields["offset"] <= len(data)
    else:
        pytest.fail("a damaged dump was read to its end")
    assert not collect.work(tmp_path, corpus="memes", month=MONTH).exists()
    assert vault.counts()["records"] == 0


def test_a_closed_subreddit_is_named_in_the_result_the_drops_and_the_metrics(
    tmp_path: Path, sandbox: Path, params: Params, settings: Settings, vault: Vault, run: Run
) -> None:
    without_truth = params.model_copy(update={"quality": params.quality.model_copy(update={"truth": False})})
    live = from_reddit(without_truth, subreddits=("SuicideMeme", "Hidden"))
    with SandboxServer(sandbox, private=["hidden"]) as server:
        there = at(server, settings)
        done = run(tmp_path, params=live, settings=there)
    assert done["closed"] == {"r/Hidden": "subreddit_private"}
    assert done["submissions"] == done["kept"] + sum(done["dropped"].values())
    pictures = tmp_path / "data" / "memes" / MONTH / "images" / "000.parquet"
    tables.write(tables.SCHEMAS["images"].empty_table(), pictures, name="images")
    work = collect.work(tmp_path, corpus="memes", month=MONTH)
    ids = tables.read(work / "records.parquet", name="records")["record_id"].to_pylist()
    write_exclusions({(record_id, 0): "http_404" for record_id in ids}, work / "drops" / "000.parquet", step="images")
    partition.run("memes", window=Window.from_key(MONTH), params=live, vault=vault, root=tmp_path)
    numbers = quality.run(context_of("memes", params=live, settings=there, vault=vault, root=tmp_path))["collect"]
    assert numbers["closed"] == {f"{MONTH}/r/Hidden": "subreddit_private"}
    assert numbers["dropped"] == done["dropped"] | {"http_404": done["kept"]}
    assert numbers["submissions"] == done["submissions"]


def test_records_taken_down_during_an_addition_are_counted_beside_earlier_ones(
    tmp_path: Path, params: Params, vault: Vault
) -> None:
    gone, kept = (vault.record_id(f"t3_{name}") for name in ("gone", "kept"))
    vault.admit([(gone, "t3_gone"), (kept, "t3_kept")], corpus="posts", month=MONTH, now=NOW)
    work = collect.work(tmp_path, corpus="posts", month=MONTH)
    posts = [full("records", record_id=record_id) for record_id in (gone, kept)]
    write_rows(posts, work / "records.parquet", name="records", vault=vault)
    items = [full("texts", record_id=record_id) for record_id in (gone, kept)]
    write_rows(items, tmp_path / "data" / "posts" / MONTH / "texts" / "1000.parquet", name="texts", vault=vault)
    write_table(work / "published_records.parquet", [], name="records")
    earlier = f"tombstoned/{MONTH}/partition/0"
    for name, ids in (("drops", []), ("published_drops", [earlier])):
        write_exclusions({(i, -1): "tombstoned" for i in ids}, work / f"{name}.parquet", step="partition")
    vault.destroy([gone], reason="takedown", now=NOW)
    done = partition.run("posts", window=Window.from_key(MONTH), params=params, vault=vault, root=tmp_path)
    assert done["records"] == 1 and done["dropped"] == {"tombstoned": 2}


def test_a_trial_day_counts_and_leaves_nothing(tmp_path: Path, settings: Settings, params: Params) -> None:
    files = ("params.yaml", "catalogue.yaml", "dvc.yaml")
    code = code_of(tmp_path / "code", {name: (ROOT / name).read_text() for name in files})
    profile = tmp_path / "collect.yaml"
    profile.write_text((ROOT / "profiles" / "sandbox.yaml").read_text())
    head = repository.init(settings, checkout=code, profile=str(profile))
    before = sorted(settings.home.rglob("*"))
    days = [collect.try_day(settings, corpus="memes", day=date(2022, 12, day), now=NOW) for day in range(1, 32)]
    assert sorted(settings.home.rglob("*")) == before, "no vault, no secret, no object, no scratch"
    assert publish.head(settings) == head
    month = collect.run(
        "memes", window=Window.from_key(MONTH), params=params, settings=settings, root=tmp_path, now=NOW,
        vault=Vault.open(settings.vault_url, secret=settings.secret()),
    )  # fmt: skip
    assert sum(day["kept"] for day in days) == month["kept"] > 0
    assert {reason for day in days for reason in day["dropped"]} == set(month["dropped"])
    with refused("UnknownName", match="memes, posts"):
        collect.try_day(settings, corpus="films", day=date(2022, 12, 1), now=NOW)
