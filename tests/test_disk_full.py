"""The file system of the home is full at any point of a step: a plain error, intact data, and it resumes with space."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli.main import disk_full
from pipelines.collect import collect
from pipelines.collect.month import Window
from pipelines.core.config.operate import Takedown
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import CorpusError
from pipelines.promotion.promote import promote
from pipelines.release import removal
from pipelines.store.vault.vault import Vault
from pipelines.takedown import receipts, takedown
from pipelines.takedown.object_versions import Objects
from pipelines.takedown.selection import Criteria, select
from pipelines.workspace import publish
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from tests import small_corpus, small_sandbox
from tests.built_once import built_once
from tests.commands import process
from tests.privacy import used_corpus as used
from tests.registry import small_registry
from tests.registry.small_registry import NAME
from tests.release import small_release

pytestmark = pytest.mark.faults

REPO = Path(__file__).resolve().parents[1]
NOW = datetime(2023, 2, 1, 9, tzinfo=UTC)
MIB = 2**20
# Free space in KiB at each attempt; more than any of these steps writes comes last.
LEFT = (0, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True)
class Disk:
    """A small file system, and a file that fills it."""

    path: Path

    @property
    def _ballast(self) -> Path:
        return self.path / "ballast"

    def leave(self, kib: int) -> None:
        """Fill the file system, except for so many KiB."""
        self.empty()
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(64 * 1024))
        os.truncate(self._ballast, max(0, self._ballast.stat().st_size - kib * 1024))

    def empty(self) -> None:
        self._ballast.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Mount a file system of 128 MiB for one test."""
    place = tmp_path / "disk"
    place.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", f"size={128 * MIB}", "tmpfs", str(place)]
    if subprocess.run(argv, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a file system")
    yield Disk(place)
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def plain(error: Exception) -> bool:
    """Tell whether a command would print the error as one line: the system's, or one of ours."""
    return isinstance(error, CorpusError) or disk_full(error)


def until_it_fits(disk: Disk, act: Callable[[], object], *, intact: Callable[[], None]) -> list[str]:
    """Repeat an action with more and more free space; return the errors. ``intact`` checks the data after each."""
    said: list[str] = []
    for kib in LEFT:
        disk.leave(kib)
        try:
            act()
        except Exception as error:
            assert plain(error), f"{type(error).__module__}.{type(error).__name__}: {error}"
            assert getattr(error, "code", "") != "UnknownName", "nothing was named wrongly"
            said.append(f"{type(error).__name__}: {error}")
        else:
            disk.empty()
            assert said, "it never failed"
            return said
        disk.empty()
        intact()
    raise AssertionError(f"it failed with {LEFT[-1]} KiB free: {said[-1]}")


def digests(*folders: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_collect(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"DUMPS": small_sandbox.folder() / "dumps", "CONTACT": "sandbox@localhost"}

    def settings_of(home: Path) -> Settings:
        for name, value in {**given, "HOME": home}.items():
            monkeypatch.setenv(f"CORPUS_{name}", str(value))
        return Settings.from_env()

    def run(home: Path) -> dict[str, str]:
        settings = settings_of(home)
        with Vault.open(settings.vault_url, secret=bytes(64)) as vault:
            month: dict[str, Any] = {"params": load(REPO, profile="sandbox"), "settings": settings, "vault": vault}
            collect.run("memes", window=Window.from_key("2022-12"), now=NOW, root=home / "clone", **month)
        return digests(home / "clone")

    home = disk.path / "home"
    home.mkdir()

    def no_half_table() -> None:
        # what has the name of a table is one
        for path in (home / "clone").rglob("*.parquet"):
            assert path.read_bytes()[-4:] == b"PAR1", path.name

    until_it_fits(disk, lambda: run(home), intact=no_half_table)
    with Vault.open(settings_of(home).vault_url, secret=bytes(64)) as vault:
        assert vault.counts()["records"] > 0
    # the keys are random: the same content under other keys has other bytes, but the same rows
    assert run(home) == run(home)


def test_publish(disk: Disk) -> None:
    settings = used.copy(disk.path / "home")
    month = "2023-02"

    def publish_month() -> dict[str, Any]:
        with used.vault_of(settings) as vault:
            ids = {vault.record_id(f"t3_new{n}"): f"t3_new{n}" for n in range(40)}
            small_corpus.admit(vault, ids, corpus="posts", month=month)
            rows = [
                {"record_id": r, "author_id": r, "subreddit": "Quiet", "created": NOW, "kind": "text", "title": "a",
                 "body": "b" * 2000, "source": "dump"} for r in ids
            ]  # fmt: skip
            with workspace(settings) as clone:
                path = small_corpus.write_posts(clone.path, rows, corpus="posts", month=month, vault=vault)
                pointers = clone.add([path])
        given: dict[str, Any] = {"corpus": "posts", "month": month, "leave_out": lambda *_: 0}
        return publish.publish_partition(settings, pointers=pointers, **given)

    def head() -> str:
        return git("--git-dir", settings.repo, "rev-parse", "corpus")

    before, files = head(), used.live(settings)

    def unchanged() -> None:
        assert head() == before
        assert used.live(settings) == files
        git("--git-dir", settings.repo, "fsck", "--no-dangling")

    until_it_fits(disk, publish_month, intact=unchanged)
    after = head()
    assert after != before
    assert files.items() <= used.live(settings).items()
    assert publish_month() == {"commit": after, "changed": False, "left_out": 0}


def test_takedown(disk: Disk, tmp_path: Path) -> None:
    taken = [used.fullname("memes", 0), used.fullname("memes", 3), used.fullname("posts", 5)]

    def take(settings: Settings) -> None:
        with used.vault_of(settings) as vault:
            with workspace(settings) as clone, Objects.opened(clone) as objects:
                selection = select(Criteria(records=taken), vault=vault, objects=objects, params=load(REPO))
            terms = Takedown.model_validate({**load(REPO).takedown.model_dump(), "withdraw_share": 0.01})
            deletion = takedown.Deletion(settings=settings, vault=vault, terms=terms, now=NOW)
            deletion.run(selection, reason="request-7", who="a person")

    def state(settings: Settings) -> dict[str, Any]:
        with used.vault_of(settings) as vault:
            return {
                "tip": used.live(settings),
                "objects": {str(path.relative_to(settings.home)) for path in used.stored(settings)},
                "tombstones": vault.tombstones(),
                "receipts": [(r.reason, r.records, r.ended is not None) for r in receipts.receipts(settings)],
                "tree": git("--git-dir", settings.repo, "rev-parse", "corpus^{tree}"),
            }

    whole = used.copy(tmp_path / "whole")
    take(whole)
    settings = used.copy(disk.path / "home")
    kept = {path: digest for path, digest in used.live(settings).items() if "posts" in path}

    def every_file_is_there() -> None:
        assert used.live(settings).keys() >= kept.keys()
        git("--git-dir", settings.repo, "fsck", "--no-dangling")

    until_it_fits(disk, lambda: take(settings), intact=every_file_is_there)
    found, expected = state(settings), state(whole)
    assert found == expected, {name for name in expected if found[name] != expected[name]}
    with used.vault_of(settings) as vault:
        assert not used.naming(settings, {vault.record_id(name) for name in taken})


def test_promote(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    home = disk.path / "home"
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    small_registry.begin(home)
    # both are restored after the test
    monkeypatch.setenv("CORPUS_HOME", str(home))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlflow.sqlite")
    monkeypatch.chdir(home)
    with small_registry.opened(home) as context:
        small_registry.add(context, knows=4)
        promote(NAME, 1, who="tester", why="a test", context=context)
        small_registry.add(context, knows=6)

    def act() -> int | None:
        with small_registry.opened(home) as context:
            return promote(NAME, 2, who="tester", why="a test", context=context).champion

    def chain_holds() -> None:
        with small_registry.opened(home) as context:
            context.journal.verify()
            assert context.registry.alias(NAME, "champion") in ("1", "2", 1, 2)

    until_it_fits(disk, act, intact=chain_holds)
    with small_registry.opened(home) as context:
        assert [e for e in small_registry.events(context) if e[0] == "promoted"] == [
            ("promoted", None, 1), ("promoted", 1, 2)
        ]  # fmt: skip
        context.journal.verify()


def test_release(disk: Disk, tmp_path: Path) -> None:
    made = built_once("release", lambda folder: (folder / "port").write_text(str(small_release.make(folder / "home"))))
    port = int((made / "port").read_text())
    taken = [f"t3_m{number:03d}" for number in range(5)]

    def steps(world: small_release.World) -> list[Callable[[], object]]:
        def withdraw() -> object:
            return removal.refresh(settings=world.settings, vault=world.vault, now=NOW, at_once=True)

        return [lambda: world.release("memes", "m1"), lambda: world.approve("m1"), withdraw]

    def approved(world: small_release.World) -> bool:
        path = world.folder("m1") / "release.json"
        return path.exists() and '"APPROVED"' in path.read_text()

    def take(world: small_release.World) -> None:
        world.vault.destroy([world.record(name) for name in taken], reason="test", now=NOW)

    with small_release.opened(made / "home", to=disk.path / "home", port=port) as world:
        folder = world.folder("m1")

        def no_half_package() -> None:
            # a package has all of its files, or there is none
            if (folder / "package").exists():
                assert (folder / "package" / "manifest.json").stat().st_size
            assert all((folder / name).stat().st_size for name in ("release.json",) if (folder / name).exists())

        for step in steps(world):
            if approved(world):
                take(world)
            until_it_fits(disk, step, intact=no_half_package)
        found = digests(folder / "package")
        place = world.key("m1")
        code, _, wrong = world.fetched(folder / "package", key=place, out=tmp_path / "out", REDDIT_CLIENT_ID="")
        assert (code, "REDDIT_CLIENT_ID" in wrong) == (78, True), "the package is whole"
        key = place.read_text()
    with small_release.opened(made / "home", to=tmp_path / "whole", port=port) as world:
        world.folder("m1").mkdir(parents=True)
        world.key("m1").write_text(key)
        for step in steps(world):
            if approved(world):
                take(world)
            step()
        assert digests(world.folder("m1") / "package") == found
    shutil.rmtree(tmp_path / "whole")


def test_a_command_says_so_at_once(disk: Disk) -> None:
    home = used.copy(disk.path / "home").home
    run = partial(process, "takedown", "--post", "t3_p00003", "--dry-run", cwd=REPO, CORPUS_SECRET=used.SECRET)
    for kib in (0, 32, 256):
        disk.leave(kib)
        began = time.monotonic()
        done = run(CORPUS_HOME=str(home))
        assert done.returncode in (74, 75), done.stderr
        assert "Traceback" not in done.stderr
        # a full disk is not taken for a database that is busy, which is tried for a minute
        assert time.monotonic() - began < 30
    disk.empty()
    # with space, it gets as far as this corpus allows, which has no parameters
    assert run(CORPUS_HOME=str(home)).returncode == 78
