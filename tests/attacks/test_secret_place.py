"""The secret from a file or a command, and the refusal to read real posts under a secret beside the vault."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from pipelines.collect import refresh
from pipelines.collect.admission import Admission
from pipelines.collect.refresh_store import ListingRead, RefreshStore
from pipelines.collect.sources import Monthly, open_source
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, NoSecret
from pipelines.store.vault.vault import Vault
from tests.refusals import refused
from tests.small_corpus import BASIC, code_of

ROOT = Path(__file__).resolve().parents[2]
SECRET = "6d" * 64
TODAY = date(2026, 1, 1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CORPUS_SECRET")
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CORPUS_CONTACT", "team@example.org")
    for name in ("CORPUS_REDDIT_CLIENT_ID", "CORPUS_REDDIT_CLIENT_SECRET"):
        monkeypatch.setenv(name, "team")
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def keeper(folder: Path, code: str) -> str:
    path = folder / "a secret's keeper.py"
    path.write_text(code)
    return shlex.join([sys.executable, str(path)])


def test_a_file_or_a_command_has_the_secret(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home.parent / "elsewhere").write_text(f"{SECRET}\n")
    monkeypatch.setenv("CORPUS_SECRET_FILE", str(home.parent / "elsewhere"))
    assert Settings.from_env().secret() == bytes.fromhex(SECRET)
    assert Settings.from_env().create_secret() == bytes.fromhex(SECRET)
    assert not (home / "secret").exists(), "none is generated"
    monkeypatch.delenv("CORPUS_SECRET_FILE")
    monkeypatch.setenv("CORPUS_SECRET_COMMAND", keeper(home.parent, f"print({'7f' * 64!r})"))
    assert Settings.from_env().secret() == bytes.fromhex("7f" * 64)


def test_a_command_runs_without_a_shell(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_SECRET_COMMAND", f"echo {SECRET} ; touch {home}/planted")
    with pytest.raises(BadParams, match="64 hexadecimal"):
        Settings.from_env().secret()
    assert not (home / "planted").exists()


@pytest.mark.parametrize(
    ("variable", "value", "detail"),
    [
        ("CORPUS_SECRET_FILE", "{home}/none", "FileNotFoundError"),
        ("CORPUS_SECRET_COMMAND", "false", "exit status 1"),
        ("CORPUS_SECRET_COMMAND", "{home}/none", "FileNotFoundError"),
        ("CORPUS_SECRET_COMMAND", "'unclosed", "ValueError"),
    ],
)
def test_a_secret_that_cannot_be_read_is_an_error_and_none_is_made(
    home: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, detail: str
) -> None:
    monkeypatch.setenv(variable, value.format(home=home))
    (home / "secret").write_text(SECRET)
    with refused("SecretUnreadable", match=f"{variable} says: {detail}"):
        Settings.from_env().create_secret()


def test_what_a_failed_command_prints_is_not_repeated(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys\nprint('5ecre7'); print('5ecre7', file=sys.stderr); sys.exit(3)"
    monkeypatch.setenv("CORPUS_SECRET_COMMAND", keeper(home.parent, code))
    with refused("SecretUnreadable", match="exit status 3") as caught:
        Settings.from_env().secret()
    assert "5ecre7" not in str(caught.value) + repr(caught.value.fields) and caught.value.__cause__ is None


def open_arctic_shift(*, params: Params, settings: Settings) -> None:
    open_source("arctic_shift", Monthly, params=params, settings=settings, today=TODAY)


def open_listings(*, params: Params, settings: Settings) -> None:
    url, now = f"sqlite:///{settings.home.parent}/other.sqlite", datetime(2026, 1, 1, tzinfo=UTC)
    with Vault.open(url, secret=b"s" * 64) as vault, RefreshStore.open(settings.refresh_url) as store:
        refresh.read_listings(
            "reddit", {}, admission=Admission("posts", params, vault, now), settings=settings, store=store
        )


def refresh_listings(*, params: Params, settings: Settings) -> None:
    """Refresh a corpus of which no listing is due, so that nothing is requested."""
    listed = params.corpora["posts"].model_copy(update={"source": "reddit"})
    params = params.model_copy(update={"corpora": {"posts": listed}})
    url, now = f"sqlite:///{settings.home.parent}/other.sqlite", datetime(2026, 1, 1, tzinfo=UTC)
    with Vault.open(url, secret=b"s" * 64) as vault:
        with RefreshStore.open(settings.refresh_url) as store:
            for subreddit in listed.subreddits:
                store.note_read("posts", subreddit, ListingRead(int(now.timestamp()), 0, 0.0))
        refresh.run("posts", params=params, settings=settings, vault=vault, now=now)


@pytest.mark.parametrize("open_live", [open_arctic_shift, open_listings, refresh_listings])
def test_real_posts_are_not_read_under_a_secret_beside_the_vault(
    home: Path, monkeypatch: pytest.MonkeyPatch, open_live: Callable[..., None]
) -> None:
    params = load(ROOT, profile="sandbox")
    settings = Settings.from_env()
    with pytest.raises(NoSecret):
        settings.secret()
    secret = settings.create_secret()
    with refused("SecretBesideVault", match="stored beside the vault"):
        open_live(params=params, settings=settings)
    loopback = dict.fromkeys(("reddit_url", "reddit_oauth_url", "arctic_shift_url"), "http://127.0.0.1:9")
    open_live(params=params, settings=settings.model_copy(update=loopback))

    elsewhere = home.parent / "keys" / "secret"
    elsewhere.parent.mkdir()
    (home / "secret").rename(elsewhere)
    monkeypatch.setenv("CORPUS_SECRET_FILE", str(elsewhere))
    assert Settings.from_env().secret() == secret
    open_live(params=params, settings=Settings.from_env())


def test_a_link_or_another_name_does_not_move_the_secret(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Settings.from_env().create_secret()
    link = home.parent / "linked"
    link.symlink_to(home / "secret")
    for place in (home / "secret", home.parent / "home" / ".." / "home" / "secret", link):
        monkeypatch.setenv("CORPUS_SECRET_FILE", str(place))
        assert Settings.from_env().secret_place == "generated"


def test_a_vault_on_another_server_is_apart(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_VAULT_URL", "postgresql+psycopg2://vault:p@db.example.org/vault")
    Settings.from_env().create_secret()
    assert Settings.from_env().secret_place == "home"
    Settings.from_env().require_secret_apart("reddit", address="https://oauth.reddit.com")


def test_other_sources_than_live_ones_are_read(home: Path) -> None:
    """A dump of the sandbox and one of real posts look alike: the page on privacy says what to do."""
    settings = Settings.from_env()
    settings.create_secret()
    open_source("dump", Monthly, params=load(ROOT, profile="sandbox"), settings=settings, today=TODAY)


def test_programs_that_a_command_starts_do_not_receive_the_secret(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A git that was planted on the path notes its environment; steps in a clone, which open the vault, have it."""
    names = ("params.yaml", "catalogue.yaml", "dvc.yaml", "profiles/sandbox.yaml")
    checkout = code_of(home.parent / "code", BASIC | {name: (ROOT / name).read_text() for name in names})
    planted, noted = home.parent / "bin" / "git", home.parent / "noted"
    planted.parent.mkdir()
    planted.write_text(f'#!/bin/sh\nenv >> {noted}\nexec {shutil.which("git")} "$@"\n')
    planted.chmod(0o755)
    given = {
        "PATH": f"{planted.parent}{os.pathsep}{os.environ['PATH']}",
        "CORPUS_SECRET": SECRET,
        "PYTHONPATH": str(ROOT),
    }
    argv = [sys.executable, "-m", "pipelines", "init", "--profile", "sandbox"]
    subprocess.run(argv, cwd=checkout, env=os.environ | given, check=True, capture_output=True)
    assert f"CORPUS_HOME={home}" in noted.read_text() and SECRET not in noted.read_text()
    assert not (home / "secret").exists()
    Vault.open(f"sqlite:///{home}/vault.sqlite", secret=bytes.fromhex(SECRET)).close()

    script = """
import os
from pipelines.core.config.settings import Settings, take_secret
from pipelines.workspace.scratch import step_environment
take_secret()
settings = Settings.from_env()
print(step_environment(settings)["CORPUS_SECRET"] == settings.secret().hex(), "CORPUS_SECRET" in os.environ)
"""
    argv = [sys.executable, "-c", script]
    done = subprocess.run(argv, cwd=ROOT, env=os.environ | given, check=True, capture_output=True, text=True)
    assert done.stdout == "True False\n"
