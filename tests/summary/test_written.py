"""The summary for the Corpus page: counts of the stores and of the newest commit, each with its commit."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.core.config.params import FILES
from pipelines.core.config.settings import Settings
from pipelines.operate import status
from pipelines.operate import summary as written
from pipelines.store.vault.vault import Vault
from pipelines.workspace.git import git
from tests.small_corpus import sign

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
QUALITY = {"collect": {"submissions": 9, "kept": 3, "items": 4, "dropped": {"deleted": 6}}}
RUN = "memes_collect/backfill__2022-12"


def commit(work: Path, message: str, **files: str) -> str:
    """Commit files (``path`` with ``__`` for slashes) and return the commit."""
    for name, text in files.items():
        path = work / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git("add", "--all", cwd=work)
    git("commit", "--quiet", "--message", message, cwd=work)
    return git("rev-parse", "HEAD", cwd=work)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A checkout with two months and metrics, in three commits; the last names its Dag run."""
    made = tmp_path / "work"
    made.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, made)
    git("init", "--quiet", "-b", "corpus", cwd=made)
    pointer = "outs:\n- md5: {}\n  size: 1\n  path: records.parquet\n"
    commit(made, "data(memes): 2022-11", **{"data__memes__2022-11__records.parquet.dvc": pointer.format("a" * 32)})
    commit(made, "snapshot(memes): quality", **{"metrics__memes__quality.json": json.dumps(QUALITY)})
    told = f"data(memes): 2022-12\n\nDag-Run: {RUN}\nCode-Revision: {'c' * 40}"
    commit(made, told, **{"data__memes__2022-12__records.parquet.dvc": pointer.format("b" * 32)})
    return made


@pytest.fixture
def settings(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    made = Settings.from_env()
    git("clone", "--quiet", "--bare", str(work), made.repo)
    git("--git-dir", made.repo, "config", "receive.denyCurrentBranch", "ignore")
    sign(made)
    with Vault.create(made) as vault:
        for number, month in enumerate(("2022-11", "2022-12", "2022-12")):
            vault.admit([(vault.record_id(f"t3_secret{number}"), f"t3_secret{number}")],
                        corpus="memes", month=month, now=NOW)  # fmt: skip
        vault.destroy([vault.record_id("t3_secret2")], reason="case-7", now=NOW)
    return made


def test_every_number_has_its_commit_and_its_run(settings: Settings, work: Path) -> None:
    made = written.write(settings, at=NOW)
    assert json.loads(written.place(settings).read_text()) == made
    assert written.place(settings).stat().st_mode & 0o077 == 0
    memes = made["corpora"]["memes"]
    assert memes["months"] == {
        "2022-11": {"published": True, "gap_hours": None, "records": 1, "deleted": 0},
        "2022-12": {"published": True, "gap_hours": None, "records": 1, "deleted": 1},
    }
    assert memes["funnel"]["collect"] == QUALITY["collect"]
    newest, middle, _ = git("log", "--format=%H", cwd=work).splitlines()
    assert made["commit"] == newest
    assert made["origin"]["data/memes/2022-12"] == newest and made["commits"][newest]["run"] == RUN
    assert made["origin"]["metrics/memes/quality.json"] == middle and made["commits"][middle]["run"] is None
    assert made["takedowns"]["swept"]["memes"]["last"] is None and made["takedowns"]["tombstones"] == 1
    assert made["last_run"] is None, "no takedown has ended"


def test_the_file_names_no_record(settings: Settings) -> None:
    written.write(settings, at=NOW)
    text = written.place(settings).read_text()
    with Vault.existing(settings) as vault:
        ids = [vault.record_id(f"t3_secret{number}") for number in range(3)]
    assert not [word for word in ("secret", "case-7", *ids) if word in text]


def test_the_login_of_mlflow_stays_out(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://reader:hidden@mlflow.example.org/team/")
    told = {"run": "r1", "report": "https://reader:hidden@mlflow.example.org/team/#/experiments/1/runs/r1"}
    status.remember(Settings.from_env(), corpus="memes", logged=told)
    made = written.write(Settings.from_env(), at=NOW)
    assert made["mlflow"] == "https://mlflow.example.org/team" and made["tracked"]["memes"]["run"] == "r1"
    assert "hidden" not in json.dumps(made)
