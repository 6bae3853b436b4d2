"""``corpus status``: the numbers of the last publish, from the commit itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines import status
from pipelines.config.settings import Settings
from pipelines.errors import NoCorpus
from pipelines.vault.vault import Vault
from pipelines.workspace import publish
from pipelines.workspace.git import git

SPLIT = {"sizes": {"train": 6}, "excluded": 0, "max_deviation": 0.5, "mean_deviation": 0.2, "leakage": 0, "balance": []}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    return Settings.from_env()


def test_without_a_corpus_it_says_how_to_begin(settings: Settings) -> None:
    with pytest.raises(NoCorpus, match="corpus init"):
        status.gather(settings)


def published(settings: Settings, *, work: Path, **metrics: object) -> None:
    """Commit these metrics files of memes to a new corpus repository."""
    (work / "metrics" / "memes").mkdir(parents=True)
    for name, content in metrics.items():
        (work / "metrics" / "memes" / f"{name}.json").write_text(json.dumps(content))
    (work / ".dvc").mkdir()
    (work / ".dvc" / "config").touch()
    git("init", "--quiet", "-b", "corpus", cwd=work)
    git("add", "--all", cwd=work)
    git("commit", "--quiet", "-m", "snapshot", cwd=work)
    git("clone", "--quiet", "--bare", str(work), settings.repo)
    Vault.create(settings).close()


def test_each_part_appears_when_it_exists(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "work"
    published(settings, work=work, split=SPLIT)
    found = status.gather(settings)
    assert not list((settings.home / "scratch").iterdir())
    assert found["commit"] == publish.head(settings) == git("rev-parse", "HEAD", cwd=work)
    assert found["split"]["leakage"] == 0 and "balance" not in found["split"]
    assert "collect" not in found and "dedupe" not in found
    status.show(found)
    assert "leakage" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["quality", "score"])
def test_a_corpus_that_was_not_upgraded_has_the_same_parts(settings: Settings, tmp_path: Path, name: str) -> None:
    quality = {"collect": {"kept": 5}, "ocr": {"word_recall": 0.9}, "truth": {"precision": 1.0, "recall": 0.5}}
    published(settings, work=tmp_path / "work", **{name: quality, "dedupe": {"pairs": 3, "dropped": 2}})
    found = status.gather(settings)
    assert {key: found[key] for key in quality} == quality
    assert found["dedupe"] == {"pairs": 3, "dropped": 2, "precision": 1.0, "recall": 0.5}
