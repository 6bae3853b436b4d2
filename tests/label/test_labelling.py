"""Posts of the sandbox through all of labelling: its vendors err, refuse, stammer and stall, and nothing is faked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.annotate import gold
from pipelines.collect import collect, partition, texts
from pipelines.collect.month import Window
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.curate import sample, split
from pipelines.curate.dedupe import dedupe
from pipelines.datasets.example import NoGold
from pipelines.label import few_shot, injection_test, silver, votes, votes_report
from pipelines.operate.plan import cost
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from tests import small_sandbox
from tests.contexts import context_of

ROOT = Path(__file__).resolve().parents[2]
MONTHS = ("2022-11", "2022-12")
NOW = datetime(2023, 1, 2, tzinfo=UTC)
SIZES = {"train": 80, "dev": 70, "test": 50}
VENDORS = ("gpt", "claude", "gemini")
# One secret, so that ids, and with them samples and splits, are the same in every run: rates below are not luck.
SECRET = "5e" * 64


@dataclass
class Lab:
    """A small corpus of posts that is split and has gold, and everything that labelling needs."""

    root: Path
    params: Params
    settings: Settings
    vault: Vault

    def votes(self, labeller: str, *, params: Params | None = None) -> dict[str, Any]:
        return votes.run(context_of("posts", row=labeller, **{**self.places, "params": params or self.params}))

    @property
    def places(self) -> dict[str, Any]:
        return {"params": self.params, "settings": self.settings, "vault": self.vault, "root": self.root}

    def file(self, labeller: str) -> Path:
        return self.root / "snapshot" / "posts" / "votes" / labeller / "votes.parquet"


def small(values: Params) -> Params:
    section = values.split["posts"]
    sized = section.model_copy(update={"proposals": 20_000, "ratios": SIZES, "sizes": SIZES})
    return values.model_copy(
        update={
            "matrix": values.matrix.model_copy(update={"corpora": ("posts",)}),
            "sample": {"posts": values.sample["posts"].model_copy(update={"size": sum(SIZES.values())})},
            "split": {**values.split, "posts": sized},
            "votes": values.votes.model_copy(update={"shard_size": 100, "min_positives": 3}),
            "silver": values.silver.model_copy(update={"resamples": 200, "min_probability": 0.0}),
            "injection_test": values.injection_test.model_copy(update={"size": 120}),
        }
    )


@pytest.fixture(scope="module")
def curated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a home with a sandbox, a vault and a clone whose posts are split and have gold."""
    home = tmp_path_factory.mktemp("labelling")
    (home / "sandbox").symlink_to(small_sandbox.folder(small_sandbox.MORE_POSTS))
    params = small(load(ROOT, profile="sandbox"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(home))
        patch.setenv("CORPUS_SECRET", SECRET)
        settings = Settings.from_env()
        with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
            for month in MONTHS:
                window, root = Window.from_key(month), home / "clone"
                collect.run("posts", window=window, params=params, settings=settings, vault=vault, now=NOW, root=root)
                texts.run("posts", window=window, shard=0, params=params, vault=vault, root=root)
                texts.run("posts", window=window, shard=1, params=params, vault=vault, root=root)
                partition.run("posts", window=window, params=params, vault=vault, root=root)
            for stage in (dedupe, sample):
                stage.run(context_of("posts", params=params, vault=vault, root=root))
            gold.run(context_of("posts", params=params, settings=settings, vault=vault, root=root))
            split.run(context_of("posts", params=params, vault=vault, root=root))
            few_shot.run(context_of("posts", params=params, root=root))
    return home


@pytest.fixture
def lab(curated: Path, vendors: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Labelling over a store of answers of its own."""
    for name, value in vendors.environ().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CORPUS_HOME", str(curated))
    monkeypatch.setenv("CORPUS_SECRET", SECRET)
    monkeypatch.setenv("CORPUS_ANSWERS_URL", f"sqlite:///{tmp_path}/answers.sqlite")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    settings = Settings.from_env()
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        yield Lab(curated / "clone", small(load(ROOT, profile="sandbox")), settings, vault)


@pytest.mark.faults
def test_from_estimate_to_the_queue_for_people(lab: Lab, vendors: Any) -> None:
    estimated = cost.run(context_of("posts", **lab.places))
    assert {job["labeller"] for job in estimated["jobs"]} == set(VENDORS)
    assert len(estimated["jobs"]) == 3 * 2
    assert all(vendors.counts(p)["received"] == 0 for p in ("openai", "anthropic", "google")), "nothing is sent"

    for job in estimated["jobs"]:
        votes.ask(context_of("posts", row=job["labeller"], **lab.places), shard=job["shard"])
    asked = {p: vendors.counts(p)["keys"] for p in ("openai", "anthropic", "google")}
    assert set(asked.values()) == {sum(SIZES.values())}
    counted = {labeller: lab.votes(labeller) for labeller in lab.params.votes.labellers["posts"]}
    assert asked == {p: vendors.counts(p)["keys"] for p in asked}, "the stage found every answer"
    assert sum(counted[v]["cost"] for v in VENDORS) <= estimated["usd_at_most"]
    assert all(counted[v]["outcomes"].get("refused", 0) for v in VENDORS)
    assert sum(counted[v]["outcomes"].get("malformed", 0) for v in VENDORS)
    assert sum(counted[v]["repaired"] for v in VENDORS)

    for ensemble in ("cradle", "offline"):
        numbers = silver.run(context_of("posts", row=ensemble, params=lab.params, vault=lab.vault, root=lab.root))
        assert numbers["records"] == sum(SIZES.values())
        assert numbers["queue"]["unread"] == 0
        assert sum(sum(split.values()) for split in numbers["agreement"].values()) == sum(SIZES.values())
        folder = lab.root / "snapshot/posts/silver" / ensemble
        rows = tables.read(folder / "silver.parquet", name="silver").to_pylist()
        assert {row["ensemble"] for row in rows} == {ensemble}
        best = max(numbers["categories"]["labels"]["test"][m]["all"]["exact"] for m in numbers["members"])
        assert numbers["categories"]["labels"]["test"]["ensemble"]["all"]["exact"] >= best - 0.05

    whole = injection_test.run(context_of("posts", row="cradle", **lab.places))
    flipped = whole["categories"]["labels"]
    assert flipped["asked"] == 120
    left = cost.run(context_of("posts", **lab.places), steps=["injection_test"])["estimates"]["injection_test"]
    assert {name: one["cached"] for name, one in left.items()} == dict.fromkeys(VENDORS, 120), "what was estimated"
    assert sum(family["asked"] for family in flipped["families"].values()) == 120
    assert sum(family["detected"] for family in flipped["families"].values()) == whole["detected"] < 120
    swayed = [family for family in flipped["families"].values() if family["lost_severity"]]
    assert sum(family["lost_severity_not_queued"] for family in swayed) == 0
    assert flipped["flip_rate"] < 0.05
    assert flipped["lost_severity_not_queued"] == flipped["lost_labels_not_queued"] == 0
    members = flipped["members"].values()
    assert any(m["flipped"] for m in members), "a vendor that never obeys would prove nothing"
    swayed = flipped["swayed"]
    assert swayed["something"] > 50 and swayed["majority"] <= swayed["all"] <= 0.02 * swayed["something"]
    assert swayed["reviewed"] <= 0.15 * (swayed["something"] + swayed["nothing"])
    assert "Members that obey every attack" in [
        s.title for s in votes_report.sheets(votes_report.gather(lab.root, "posts"))
    ]
    assert set(votes_report.gather(lab.root, "posts")["silver"]) == {"cradle", "offline"}


def test_an_injection_test_is_estimated_before_it_asks(lab: Lab, vendors: Any) -> None:
    def estimated() -> dict[str, Any]:
        told = cost.run(context_of("posts", **lab.places), steps=["injection_test"])
        assert sum(row["requests"] for row in told["leaves"]) == sum(
            one["to_ask"] for one in told["estimates"]["injection_test"].values()
        )
        assert not told["jobs"], "no task of its own asks for the copies"
        found: dict[str, Any] = told["estimates"]["injection_test"]
        return found

    before = estimated()
    assert {name: one["to_ask"] for name, one in before.items()} == dict.fromkeys(VENDORS, 120)
    assert all(one["usd_expected"] > 0 for one in before.values())
    assert vendors.counts("openai")["received"] == 0, "nothing is sent"
    with ExitStack() as stack:
        desk = votes.Desk.of(context_of("posts", **lab.places), stack=stack)
        desk.label(desk.open("gpt"), [*injection_test._copies(desk).items()], progress="copies")
    after = estimated()
    assert (after["gpt"]["to_ask"], after["gpt"]["cached"]) == (0, 120), "the estimate is of what the stage asks"
    assert after["claude"] == before["claude"]


def test_no_answer_but_a_vote_has_labels(lab: Lab, vendors: Any) -> None:
    vendors.change("openai", refuses_any=0.3, malformed=0.3)
    lab.votes("gpt")
    rows = tables.read(lab.file("gpt"), name="votes").to_pylist()
    outcomes = {row["outcome"] for row in rows}
    assert {"vote", "refused", "malformed"} <= outcomes
    assert all(bool(row["labels"]) == (row["outcome"] == "vote") for row in rows)
    assert all(row["reason"] for row in rows if row["outcome"] != "vote")


def test_a_vendor_that_obeys_known_attacks_has_no_vote(lab: Lab, vendors: Any) -> None:
    section = lab.params.votes.model_copy(update={"canaries": 5})
    values = lab.params.model_copy(update={"votes": section})
    planned = cost.run(context_of("posts", **{**lab.places, "params": values}), steps=["votes"])["estimates"]["votes"]
    assert planned["gpt, canaries"]["to_ask"] == planned["claude, canaries"]["to_ask"] == 2 * 5
    assert planned["gpt, canaries"]["usd_expected"] > 0
    vendors.change("openai", obeys_inside=1.0)
    swayed, honest = (lab.votes(name, params=values) for name in ("gpt", "claude"))
    assert swayed["canaries"].pop("cost") > 0
    lost = swayed["canaries"].pop("lost")
    assert swayed["canaries"] == {"asked": 10, "shards": 2, "refused": 2} and lost >= 8
    assert (honest["canaries"]["refused"], honest["canaries"]["asked"]) == (0, 10)
    assert (
        swayed["outcomes"]["refused"] >= 180 and "vote" not in swayed["outcomes"] and honest["outcomes"]["vote"] > 150
    )
    rows = tables.read(lab.file("gpt"), name="votes").to_pylist()
    assert len(rows) == swayed["records"] == sum(SIZES.values()), "canaries are in no table"
    assert {row["reason"] for row in rows if row["outcome"] == "refused"} >= {"canaries"}
    assert not any(row["labels"] or row["scores"] for row in rows)
    asked, first = vendors.counts("openai")["keys"], lab.file("gpt").read_bytes()
    vendors.calm()
    lab.votes("gpt", params=values)
    assert (vendors.counts("openai")["keys"], lab.file("gpt").read_bytes()) == (asked, first), "no second chance"


def test_a_sample_is_asked_again_in_the_opposite_order(lab: Lab, vendors: Any) -> None:
    turned = lab.params.labellers["gpt"].model_copy(update={"order": "reversed", "sample": 30})
    section = lab.params.votes.model_copy(update={"labellers": {"posts": (*VENDORS, "turned")}})
    changed = {"labellers": {**lab.params.labellers, "turned": turned}, "votes": section}
    lab.params = lab.params.model_copy(update=changed)
    with ExitStack() as stack:
        desk = votes.Desk.of(context_of("posts", **lab.places), stack=stack)
        enums = [desk.remote(n).schema["properties"]["labels"]["items"]["enum"] for n in ("gpt", "turned")]
        assert enums[0] == enums[1][::-1]
    for name in VENDORS:
        lab.votes(name)
    vendors.change("openai", wrong=0.8)
    assert lab.votes("turned")["records"] == 30 and vendors.counts("openai")["keys"] == 30 + sum(SIZES.values())
    numbers = silver.run(context_of("posts", row="cradle", params=lab.params, vault=lab.vault, root=lab.root))
    assert 0 < numbers["queue"]["reasons"]["order_dissent"] < 30


@pytest.mark.faults
def test_killed_at_any_moment_it_asks_nothing_twice(lab: Lab, vendors: Any, tmp_path: Path) -> None:
    vendors.change(latency=0.02)
    lab.votes("gpt")
    undisturbed, wanted = lab.file("gpt").read_bytes(), vendors.counts("openai")["keys"]
    lab.file("gpt").unlink()
    answers = tmp_path / "killed.sqlite"
    own = {"CORPUS_ANSWERS_URL": f"sqlite:///{answers}", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment = os.environ | own
    (lab.root / "params.yaml").write_text(lab.params.model_dump_json())
    argv = [sys.executable, "-m", "pipelines", "votes", "posts", "--row", "gpt"]
    before = len(vendors.log())
    kills = 0
    for answered in (30, 75, 130):
        with subprocess.Popen(
            argv, cwd=lab.root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            while process.poll() is None and len(asked(vendors, since=before)) < answered:
                time.sleep(0.002)
            kills += process.poll() is None
            process.send_signal(signal.SIGKILL)
    last = subprocess.run(argv, cwd=lab.root, env=environment, check=False, capture_output=True)
    assert last.returncode == 0
    assert kills == 3, "a run ended before it could be killed"
    assert lab.file("gpt").read_bytes() == undisturbed
    assert len(asked(vendors, since=before)) == wanted, "the vendor's own log: as many questions as without a kill"


def asked(vendors: Any, *, since: int) -> set[str]:
    """Return the questions in the vendors' log after its first ``since`` lines."""
    return {line["key"] for line in vendors.log()[since:] if line["vendor"] == "openai"}


def test_where_nothing_is_curated_it_says_where_to_go(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(NoGold, match="corpus clone"):
        cost.run(context_of("posts", **{**lab.places, "root": tmp_path}))
