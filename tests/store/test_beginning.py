"""`corpus init` creates or adopts a corpus at a path or a git address, or leaves nothing behind."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.workspace import publish, repository, trust
from pipelines.workspace.clone import history, workspace
from pipelines.workspace.git import branches, git, local_path
from tests.commands import output
from tests.refusals import refused
from tests.store import git_servers

ROOT = Path(__file__).resolve().parents[2]
PROFILE = "sample:\n  memes: {size: 77}\n"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    return Settings.from_env()


def at(settings: Settings, repo: str) -> Settings:
    return settings.model_copy(update={"repo": repo})


def commit(checkout: Path, path: str, text: str) -> None:
    (checkout / path).write_text(text)
    git("add", "--all", cwd=checkout)
    git("commit", "--quiet", "-m", f"change {path}", cwd=checkout)


@pytest.mark.parametrize(
    ("repo", "local"),
    [("var/corpus.git", True), ("/srv/a:b", True), ("git@host:team/corpus.git", False), ("host:corpus", False),
     ("https://host/corpus.git", False), ("ssh://git@host/corpus", False), ("file:///srv/corpus.git", False)],
)  # fmt: skip
def test_an_address_is_told_from_a_path_as_git_does(repo: str, local: bool) -> None:
    assert (local_path(repo) is not None) == local


def test_a_profile_is_written_where_dvc_sees_it(settings: Settings, checkout: Path, tmp_path: Path) -> None:
    first = repository.init(settings, checkout=checkout, profile="sandbox")
    assert repository.init(settings, checkout=checkout, profile="sandbox") == first, "beginning twice is one beginning"
    clone = repository.clone(settings, folder=tmp_path / "laptop")
    assert load(clone) == load(checkout, profile="sandbox").model_copy(update={"profile": "sandbox"})
    text = git("--git-dir", settings.repo, "show", "corpus:params.yaml")
    assert "# FigSIM 3.1" in text, "the source of a value stays beside it"
    message = git("--git-dir", settings.repo, "log", "-1", "--format=%B", "corpus")
    assert f"Code-Revision: {git('rev-parse', 'HEAD', cwd=checkout)}" in message


def test_a_killed_beginning_leaves_no_repository(
    settings: Settings, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository without its profile would be taken for a finished one."""

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(trust, "sign", killed)
        repository.init(settings, checkout=checkout, profile="sandbox")
    assert not Path(settings.repo).exists()
    repository.init(settings, checkout=checkout, profile="sandbox")
    assert load(repository.clone(settings, folder=checkout.parent / "laptop")).profile == "sandbox"


def test_a_folder_without_commits_is_refused(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with refused("NotARepository", match="git checkout"):
        repository.init(settings, checkout=tmp_path / "empty", profile=None)
    assert not Path(settings.repo).exists()


@pytest.mark.parametrize("kind", ["file", pytest.param("daemon", marks=pytest.mark.faults), "ssh"])
def test_an_empty_repository_at_a_git_address_is_filled_used_and_adopted(
    kind: str, settings: Settings, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = git_servers.bare(tmp_path / "served" / "corpus.git")
    monkeypatch.setenv("GIT_SSH_COMMAND", git_servers.fake_ssh(tmp_path))
    monkeypatch.chdir(tmp_path)
    with git_servers.daemon(served.parent) as server:
        address = {"file": served.as_uri(), "daemon": f"{server}/corpus.git", "ssh": f"git@host:{served}"}[kind]
        there = at(settings, address)
        assert repository.plan(there, checkout=checkout, profile="sandbox") == "fill"
        first = repository.init(there, checkout=checkout, profile="sandbox")
        assert set(branches(address) or {}) == {"code", "corpus"}
        assert not Path("git@host:").exists() and not (tmp_path / "var" / "scratch" / "corpus.partial").exists()
        assert repository.init(there, checkout=checkout, profile="sandbox") == first == publish.head(there)
        assert repository.init(there, checkout=tmp_path, profile=None) == first, "adopted without a checkout"
        commit(checkout, "params.yaml", (checkout / "params.yaml").read_text().replace("seed: 20180401", "seed: 5"))
        upgraded = repository.upgrade(there, checkout=checkout)
        assert upgraded is not None and upgraded.commit == publish.head(there)
        assert branches(address) == {"code": git("rev-parse", "HEAD", cwd=checkout), "corpus": upgraded.commit}
        with history(there) as folder:
            assert git("--git-dir", str(folder), "log", "-1", "--format=%s", "corpus").startswith("corpus: upgrade")
        with workspace(there) as clone:
            assert load(clone.path).sample["memes"].seed == 5
            (clone.path / "models").mkdir(exist_ok=True)
            (clone.path / "models" / "note").write_text("x")
            assert clone.commit("note") == publish.head(there)
        assert load(repository.clone(there, folder=tmp_path / "laptop")).profile == "sandbox"


def test_an_unreadable_address_is_one_sentence_and_leaves_nothing(
    settings: Settings, checkout: Path, tmp_path: Path
) -> None:
    for address in ((tmp_path / "none.git").as_uri(), "ssh://127.0.0.1:1/none.git"):
        with refused("RepositoryUnreachable", match="cannot be read"):
            repository.init(at(settings, address), checkout=checkout, profile="sandbox")
    assert not settings.home.exists()


def test_a_password_in_an_address_is_refused_and_not_repeated(settings: Settings, checkout: Path) -> None:
    with pytest.raises(BadParams, match="credential helper") as caught:
        repository.init(at(settings, "https://me:hunter2@127.0.0.1/x.git"), checkout=checkout, profile=None)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("profile", "code", "words"),
    [
        ("nosuch", "UnknownProfile", "this checkout has cradle, draft, sandbox"),
        ("draft", "UncommittedProfile", "last commit"),
        ("missing.yaml", "UnknownProfile", "missing.yaml"),
        ("bad", "BadParams", r"profiles/bad.yaml: .*sample\.memes\.size"),
    ],
)
def test_a_profile_that_cannot_be_used_makes_no_repository(
    profile: str, code: str, words: str, settings: Settings, checkout: Path
) -> None:
    if profile == "bad":
        commit(checkout, "profiles/bad.yaml", "sample: {memes: {size: many}}\n")
    (checkout / "profiles" / "draft.yaml").write_text(PROFILE)
    with refused(code, match=words):
        repository.init(settings, checkout=checkout, profile=profile)
    assert not settings.home.exists()
    repository.init(settings, checkout=checkout, profile="sandbox")
    assert load(repository.clone(settings, folder=checkout.parent / "laptop")).profile == "sandbox"


def test_a_profile_from_a_file_is_kept_and_survives_upgrades(
    settings: Settings, checkout: Path, tmp_path: Path
) -> None:
    (tmp_path / "team.yaml").write_text(PROFILE)
    repository.init(settings, checkout=checkout, profile=str(tmp_path / "team.yaml"))
    commit(checkout, "params.yaml", (checkout / "params.yaml").read_text().replace("size: 1050", "size: 900"))
    assert repository.upgrade(settings, checkout=checkout) is not None
    assert repository.upgrade(settings, checkout=checkout) is None, "nothing new"
    laptop = repository.clone(settings, folder=tmp_path / "laptop")
    assert (laptop / "profiles" / "team.yaml").read_text() == PROFILE
    assert (load(laptop).profile, load(laptop).sample["memes"].size) == ("team", 77)


def test_the_folder_of_a_corpus_is_committed_alone_and_its_profile_is_followed(
    settings: Settings, checkout: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = checkout / "corpora" / "team"
    folder.mkdir(parents=True)
    (folder / "profile.yaml").write_text(PROFILE)
    (checkout / "notes.txt").write_text("mine")
    git("add", "notes.txt", cwd=checkout)
    first = repository.prepare(settings, checkout=checkout, profile="team")
    assert first == publish.head(settings) and "Committed corpora/team" in capfd.readouterr().err
    assert git("status", "--porcelain", cwd=checkout) == "A  notes.txt", "what else is staged is not committed"
    assert repository.prepare(settings, checkout=checkout, profile="team") == first
    (folder / "profile.yaml").write_text(PROFILE.replace("77", "78"))
    second = repository.prepare(settings, checkout=checkout, profile="team")
    laptop = repository.clone(settings, folder=tmp_path / "laptop")
    assert second != first and (laptop / "corpora" / "team" / "profile.yaml").read_text().endswith("{size: 78}\n")
    assert (load(laptop).profile, load(laptop).sample["memes"].size) == ("team", 78)
    assert load(checkout, profile="team").sample["memes"].size == 78
    with refused("AnotherProfile", match="CORPUS_HOME"):
        repository.prepare(settings, checkout=checkout, profile="sandbox")


def test_another_profile_and_another_repository_are_refused(settings: Settings, checkout: Path, tmp_path: Path) -> None:
    first = repository.init(settings, checkout=checkout, profile="sandbox")
    with refused("AnotherProfile", match="profile 'sandbox', not with 'cradle'"):
        repository.init(settings, checkout=checkout, profile="cradle")
    assert publish.head(settings) == first
    other = git_servers.bare(tmp_path / "other.git")
    git("push", "--quiet", str(other), "HEAD:main", cwd=checkout)
    with refused("NotACorpus", match=r"branches \(main\)"):
        repository.init(at(settings, str(other)), checkout=checkout, profile="sandbox")
    git_servers.bare(tmp_path / "empty.git")
    repository.init(at(settings, str(tmp_path / "empty.git")), checkout=checkout, profile="sandbox")
    assert set(branches(str(tmp_path / "empty.git")) or {}) == {"code", "corpus"}


class TestCommand:
    """The command itself, in the checkout."""

    @pytest.fixture(autouse=True)
    def there(self, settings: Settings, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(checkout)

    def test_addresses_are_noted_in_the_home(
        self, settings: Settings, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CORPUS_ANSWERS_URL", "postgresql+psycopg2://me:hunter2@host/answers")
        refreshed = "postgresql+psycopg2://host/refresh"
        argv = ("init", "--profile", "sandbox", "--remote", str(tmp_path / "remote"), "--refresh-url", refreshed)
        shown = output(*argv, "--dry-run")
        assert '"would": "create"' in shown and "hunter2" not in shown and not settings.home.exists()
        told = output(*argv)
        assert "corpus doctor" in told and "corpus try --corpus memes" in told
        env = settings.home / "corpus.env"
        assert stat.S_IMODE(env.stat().st_mode) == 0o600
        assert env.read_text() == f"CORPUS_REMOTE={tmp_path / 'remote'}\nCORPUS_REFRESH_URL={refreshed}\n"
        assert Settings.from_env().remote == str(tmp_path / "remote")
        assert repository.without_ethics(settings) == []
        git("commit", "--quiet", "--allow-empty", "-m", "newer code", cwd=checkout)
        output("params", "set", "sources.dump.ethics", "null", "--reason", "a test")
        assert "  corpus params set sources.dump.ethics " in output("upgrade")

    @pytest.mark.faults
    def test_it_ends_with_the_findings_of_the_doctor(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CORPUS_ANSWERS_URL", "postgresql+psycopg2://me:hunter2@host/answers")
        told = output("init", "--profile", "cradle")
        findings, _, steps = told.partition("Findings of `corpus doctor`")[2].partition("Next:")
        # neither keys nor servers exist yet, and the corpus is created all the same
        for line in ("failure labeller gpt: no key is set. Set CORPUS_OPENAI_KEY.", "warning airflow: no address",
                     "failure labeller qwen3-8b: no address is set. Set CORPUS_LOCAL_URL.",
                     "failure approval dump: ", "warning backup: "):  # fmt: skip
            assert f"\n  {line}" in findings
        assert "repository" not in findings and "vault" not in findings.replace("vault's", "").replace("VAULT", "")
        assert "corpus try --corpus memes" in steps and "hunter2" not in told

    def test_a_choice_that_cannot_be_writes_nothing(self, settings: Settings) -> None:
        for argv, words in (
            (("init", "--profile", "nosuch"), "no profile"),
            (("init", "--vault-url", "postgresql://me:hunter2@host/v"), "CORPUS_VAULT_URL"),
            (("init", "--refresh-url", "postgresql://me:hunter2@host/r"), "CORPUS_REFRESH_URL"),
        ):
            with pytest.raises(Exception, match=words) as caught:
                output(*argv)
            assert "hunter2" not in str(caught.value)
        assert not settings.home.exists()
