"""The corpus repository: begun from a checkout with a profile, upgraded without losing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.workspace import repository
from pipelines.workspace.git import git
from tests.refusals import refused


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    return Settings.from_env()


def shown(settings: Settings, path: str) -> str:
    return git("--git-dir", settings.repo, "show", f"corpus:{path}")


def test_a_profile_is_written_where_dvc_sees_it(settings: Settings, checkout: Path, tmp_path: Path) -> None:
    first = repository.init(settings, checkout=checkout, profile="sandbox")
    assert repository.init(settings, checkout=checkout, profile="sandbox") == first, "beginning twice is one beginning"
    clone = repository.clone(settings, folder=tmp_path / "laptop")
    assert load(clone) == load(checkout, profile="sandbox").model_copy(update={"profile": "sandbox"})
    assert "# FigSIM 3.1" in shown(settings, "params.yaml"), "the source of a value stays beside it"
    assert f"Code-Revision: {git('rev-parse', 'HEAD', cwd=checkout)}" in git(
        "--git-dir", settings.repo, "log", "-1", "--format=%B", "corpus"
    )


def test_a_beginning_that_was_killed_leaves_no_repository(
    settings: Settings, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository without its profile would be taken for a finished one."""

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(repository, "_apply", killed)
        repository.init(settings, checkout=checkout, profile="sandbox")
    assert not Path(settings.repo).exists()
    repository.init(settings, checkout=checkout, profile="sandbox")
    assert load(repository.clone(settings, folder=checkout.parent / "laptop")).profile == "sandbox"


def test_an_upgrade_brings_the_code_and_keeps_the_profile(settings: Settings, checkout: Path) -> None:
    repository.init(settings, checkout=checkout, profile="sandbox")
    assert repository.upgrade(settings, checkout=checkout) is None, "nothing new"
    params = checkout / "params.yaml"
    params.write_text(params.read_text().replace("seed: 20180401", "seed: 5").replace("size: 1050", "size: 900"))
    git("commit", "--quiet", "--all", "-m", "another seed and size", cwd=checkout)
    upgraded = repository.upgrade(settings, checkout=checkout)
    assert upgraded is not None
    assert upgraded.commit == git("--git-dir", settings.repo, "rev-parse", "corpus")
    text = shown(settings, "params.yaml")
    assert "seed: 5" in text
    size = load(checkout, profile="sandbox").sample["memes"].size
    assert f"size: {size}" in text and size != 900, "the value of the profile wins over the new one"
    merged = git("--git-dir", settings.repo, "merge-base", "--is-ancestor", "code", "corpus")
    assert merged == ""


def test_a_folder_without_commits_is_refused(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with refused("NotARepository", match="git checkout"):
        repository.init(settings, checkout=tmp_path / "empty", profile=None)
    assert not Path(settings.repo).exists()
