"""A fresh home against another user of the host: nothing below it can be read, whatever umask its owner has."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.core.errors import BadParams
from pipelines.core.process import private_home, umask
from tests.attacks.other_user import attack, needs_another_user, reachable_folder
from tests.small_corpus import BASIC, code_of

ROOT = Path(__file__).resolve().parents[2]


def corpus(*argv: str, home: Path, where: Path, **more: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CORPUS_")}
    subprocess.run(
        [sys.executable, "-m", "pipelines", *argv], cwd=where, check=True, capture_output=True, umask=0o022,
        env={**kept, "CORPUS_HOME": str(home), "PYTHONPATH": str(ROOT), **more},
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder with a checkout."""
    names = ("params.yaml", "catalogue.yaml", "dvc.yaml", "profiles/sandbox.yaml")
    with reachable_folder() as folder:
        code_of(folder / "checkout", BASIC | {name: (ROOT / name).read_text() for name in names})
        yield folder


@pytest.fixture(scope="module")
def home(folder: Path) -> Path:
    home = folder / "home"
    # a folder that a person or an earlier version made
    home.mkdir(mode=0o755)
    corpus("init", "--profile", "sandbox", home=home, where=folder / "checkout")
    return home


def open_to_others(home: Path, denied: int = 0o077) -> list[str]:
    """Return what others may enter or read; git and DVC set a mode of their own on objects, in private folders."""
    entries = [path for path in (home, *home.rglob("*")) if not path.is_symlink()]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in entries}
    return [str(path) for path, mode in modes.items() if mode & denied and (path.is_dir() or mode != 0o444)]


def test_every_file_and_folder_is_private(home: Path) -> None:
    assert {path.name for path in home.iterdir()} >= {"cache", "corpus.git", "remote", "secret", "vault.sqlite"}
    assert open_to_others(home) == []


@needs_another_user
def test_another_user_reads_nothing(home: Path) -> None:
    assert attack("ls", str(home.parent)).returncode == 0, "the attack itself works"
    assert attack("ls", str(home)).returncode != 0
    for path in ("secret", "vault.sqlite", "corpus.git/HEAD"):
        assert attack("cat", str(home / path)).stdout == ""


@needs_another_user
def test_stores_are_private_without_the_home(home: Path) -> None:
    """Each store is private itself: the home's mode is not the only protection."""
    home.chmod(0o755)
    try:
        for name in ("cache", "corpus.git", "remote"):
            assert attack("ls", str(home / name)).returncode != 0, name
    finally:
        home.chmod(0o700)


@pytest.mark.faults
def test_a_group_may_share_a_home(folder: Path) -> None:
    shared = folder / "shared"
    corpus("init", "--profile", "sandbox", home=shared, where=folder / "checkout", CORPUS_UMASK="007")
    assert stat.S_IMODE((shared / "corpus.git").stat().st_mode) == 0o770
    assert open_to_others(shared, denied=0o007) == []


@pytest.mark.parametrize("text", ["8", "-1", "7777", "u=rwx"])
def test_a_wrong_umask_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("CORPUS_UMASK", text)
    with pytest.raises(BadParams, match="CORPUS_UMASK: needs an octal number"):
        umask()


def test_a_home_that_is_private_enough_is_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    private_home(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o500
