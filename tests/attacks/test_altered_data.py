"""Without the secret, a writer of cache, remote or branch alters tables and metrics: no task or clone uses them."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.core.config.settings import Settings
from pipelines.store.blind import COMMENT
from pipelines.store.vault.vault import Vault
from pipelines.takedown.object_versions import Objects
from pipelines.takedown.redaction import Gone
from pipelines.workspace import publish, repository, trust
from pipelines.workspace.clone import history, workspace
from pipelines.workspace.git import git
from pipelines.workspace.objects import ObjectIncomplete
from pipelines.workspace.stages import StageRun
from tests.refusals import refused
from tests.small_corpus import ANNOTATED, SHELL, begin, code_of, staged
from tests.stages import reproduce

RECORD, MONTH, LABELS = "ab" * 16, "data/memes/2022-11/records.parquet", "snapshot/memes/gold/labels.csv"
GRAPH = f"""
stages:
  gold:
    cmd: >-
      mkdir -p snapshot/memes/gold metrics && cat {MONTH} > {LABELS} && echo '{{"count": 20}}' > metrics/gold.json
    deps: [data/memes]
    outs: [snapshot/memes/gold, {{metrics/gold.json: {{cache: false}}}}]
  split:
    cmd: cp {LABELS} snapshot/memes/split.csv
    deps: [snapshot/memes/gold]
    outs: [snapshot/memes/split.csv]
"""
CODE = SHELL | ANNOTATED | {"dvc.yaml": staged(GRAPH), "params.yaml": "", "snapshot/memes/.gitkeep": ""}
TEXT = f"record_id,labels\n{RECORD},present\n{'cd' * 16},absent\n"
PATHS = (MONTH, LABELS, "snapshot/memes/split.csv")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A published corpus of a month and two stages."""
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    settings = Settings.from_env()
    begin(settings, code=code_of(tmp_path / "code", CODE))
    Vault.create(settings).close()
    with workspace(settings) as clone:
        (clone.path / MONTH).parent.mkdir(parents=True)
        (clone.path / MONTH).write_text(TEXT)
        pointers = clone.add([clone.path / MONTH])
    publish.publish_partition(settings, corpus="memes", month="2022-11", pointers=pointers, leave_out=lambda *_: 0)
    with workspace(settings) as clone, monkeypatch.context() as patch:
        reproduce(clone)
        for name, value in {"COUNT": "1", "KEY_0": "commit.gpgSign", "VALUE_0": "true"}.items():
            patch.setenv(f"GIT_CONFIG_{name}", value)
        assert clone.commit("snapshot(memes): split"), "an operator who signs the own commits"
    return settings


def table(path: Path) -> str:
    """The lines of a table, without those of its own bytes."""
    return path.read_bytes().partition(COMMENT)[0].decode()


def objects(settings: Settings, *, among: tuple[str, ...] = ("cache", "remote")) -> list[Path]:
    places = {"cache": settings.cache, "remote": Path(settings.remote)}
    return sorted(path for name in among for path in (places[name] / "files" / "md5").glob("??/*"))


def alter(path: Path, chance: random.Random) -> None:
    """Change a byte; size, mode and times stay, as does the object that a link leads to."""
    info, data = path.stat(), bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
    path.unlink()
    path.write_bytes(data)
    path.chmod(info.st_mode)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def named(settings: Settings, path: str) -> list[Path]:
    """The copies of an object in cache and remote."""
    with workspace(settings) as clone:
        [digest] = clone.inventory().files(path).values()
    return [each for each in objects(settings) if each.parent.name + each.name == digest]


@pytest.fixture
def kept(settings: Settings, tmp_path: Path) -> Callable[[], None]:
    """Put cache and remote back."""
    for folder in (settings.cache, Path(settings.remote)):
        shutil.copytree(folder, tmp_path / "kept" / folder.name, symlinks=True)

    def put_back() -> None:
        for folder in (settings.cache, Path(settings.remote)):
            shutil.rmtree(folder)
            shutil.copytree(tmp_path / "kept" / folder.name, folder)

    return put_back


@pytest.mark.parametrize("count", [30, pytest.param(500, marks=pytest.mark.faults)])
def test_of_altered_objects_no_task_uses_any(settings: Settings, kept: Callable[[], None], count: int) -> None:
    chance, refusals = random.Random(count), 0
    before = {path: path.read_bytes() for path in objects(settings)}
    for number in range(count):
        victim = chance.choice(sorted({path.parent.name + path.name for path in before}))
        places = [("cache",), ("remote",), ("cache", "remote")][number % 3]
        for path in objects(settings, among=places):
            if path.parent.name + path.name == victim:
                alter(path, chance)
        if number % 3 == 1:
            shutil.rmtree(settings.cache / "files")  # as on another host
        try:
            with workspace(settings) as clone:
                clone.checkout(*PATHS)
                assert {table(clone.path / path) for path in PATHS} == {TEXT}
        except ObjectIncomplete:
            refusals += 1
        kept()
    # a whole copy on the remote is used in place of an altered one of the cache
    assert count * 2 // 3 - 1 <= refusals <= count * 2 // 3


def test_a_stage_does_not_read_an_altered_input(settings: Settings) -> None:
    for path in named(settings, MONTH):
        alter(path, random.Random(1))
    shutil.rmtree(Path(settings.remote, "results"), ignore_errors=True)
    with workspace(settings) as clone:
        lock = clone.lock()
        clone.write_lock({name: entry for name, entry in lock.items() if name != "gold"})
        with pytest.raises(ObjectIncomplete):
            StageRun(clone, "a run", clone.head).reproduce("gold")


def test_a_persons_pull_refuses_altered_bytes_and_brings_none_into_the_cache(
    settings: Settings, tmp_path: Path
) -> None:
    lab, victims = repository.clone(settings, folder=tmp_path / "lab"), named(settings, MONTH)
    for path in victims:
        alter(path, random.Random(2))
    shutil.rmtree(settings.cache / "files")
    env = {**os.environ, "PYTHONPATH": str(lab)}
    pulled = subprocess.run([sys.executable, "-m", "dvc", "pull"], cwd=lab, env=env, capture_output=True, check=False)
    assert pulled.returncode and not (lab / MONTH).exists()
    assert not objects(settings, among=("cache",))


def test_a_person_who_alters_the_own_cache_reaches_no_task(settings: Settings, tmp_path: Path) -> None:
    lab = repository.clone(settings, folder=tmp_path / "lab")
    subprocess.run([sys.executable, "-m", "dvc", "pull", "--quiet"], cwd=lab, check=True)
    assert {table(lab / path) for path in PATHS} == {TEXT}
    inodes = {path.stat().st_ino for path in (lab / ".dvc" / "cache").rglob("*")}
    assert len(inodes) > 3 and inodes.isdisjoint(path.stat().st_ino for path in objects(settings))


def test_a_takedown_makes_no_new_table_of_altered_bytes(settings: Settings) -> None:
    copies = named(settings, MONTH)
    digest, gone = copies[0].parent.name + copies[0].name, Gone([RECORD])
    whole = copies[1].read_bytes()
    with workspace(settings) as clone, Objects.opened(clone) as opened:
        alter(copies[0], random.Random(3))
        change = opened.without(digest, gone)
        with opened.file(change.digest) as path:
            assert table(path) == TEXT.replace(f"{RECORD},present\n", "") and whole.startswith(TEXT.encode())
        alter(copies[1], random.Random(3))
        with refused("ObjectUnreadable", match=digest):
            opened.without(digest, gone)
        # a deletion still finds what it may have to remove
        assert digest in opened.named(gone) or not any(gone.within(path) for path in copies)


def altered_text(path: Path, chance: random.Random) -> None:
    """Change a character of a file in git to another that its format accepts."""
    text = path.read_text()
    at = chance.choice([at for at, character in enumerate(text) if character.isdigit()])
    path.write_text(text[:at] + str((int(text[at]) + chance.randrange(1, 10)) % 10) + text[at + 1 :])


@pytest.fixture
def attacker(settings: Settings, tmp_path: Path) -> Path:
    git("clone", "--quiet", "--branch", "corpus", settings.repo, str(tmp_path / "attacker"))
    return tmp_path / "attacker"


def push(attacker: Path) -> str:
    git("commit", "--quiet", "--all", "-m", "snapshot(memes): split", cwd=attacker)
    git("push", "--quiet", "--force", "origin", "HEAD:corpus", cwd=attacker)
    return git("rev-parse", "HEAD", cwd=attacker)


@pytest.mark.parametrize("name", ["dvc.lock", f"{MONTH}.dvc", "metrics/gold.json"])
@pytest.mark.parametrize("count", [3, pytest.param(170, marks=pytest.mark.faults)])
def test_of_altered_digests_and_metrics_no_task_and_no_clone_uses_any(
    settings: Settings, attacker: Path, tmp_path: Path, name: str, count: int
) -> None:
    git("config", "receive.denyNonFastForwards", "false", cwd=Path(settings.repo))
    chance, honest = random.Random(name), publish.head(settings)
    for _ in range(count):
        altered_text(attacker / name, chance)
        commit = push(attacker)
        with refused("CommitNotSigned", match=commit[:12]), workspace(settings):
            pass
        with refused("CommitNotSigned"), workspace(settings, revision=commit):
            pass
        with refused("CommitNotSigned"), history(settings):
            pass
        git("reset", "--quiet", "--hard", honest, cwd=attacker)
    with refused("CommitNotSigned"):
        repository.clone(settings, folder=tmp_path / "lab")
    assert not (tmp_path / "lab").exists()


@pytest.mark.parametrize("how", ["other tree", "other parent", "other message"])
def test_a_signature_holds_for_its_own_commit_only(settings: Settings, attacker: Path, how: str) -> None:
    text = git("cat-file", "commit", "HEAD", cwd=attacker) + "\n"
    tree, parent = (git("rev-parse", name, cwd=attacker) for name in ("HEAD^{tree}", "HEAD^"))
    other = {
        "other tree": (tree, git("rev-parse", "HEAD^^{tree}", cwd=attacker)),
        "other parent": (parent, git("rev-parse", "HEAD", cwd=attacker)),
        "other message": ("snapshot(memes)", "snapshot(posts)"),
    }[how]
    forged = text.replace(*other, 1)
    assert forged != text
    made = git("hash-object", "-t", "commit", "-w", "--stdin", cwd=attacker, given=forged)
    git("push", "--quiet", "--force", settings.repo, f"{made}:refs/heads/forged", cwd=attacker)
    with refused("CommitNotSigned"), workspace(settings, revision=made):
        pass


def test_git_itself_verifies_a_commit(settings: Settings, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = Ed25519PublicKey.from_public_bytes(trust._committer(settings).public)
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    (tmp_path / "allowed").write_text(f"corpus@localhost {line}\n")
    ssh = ["-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={tmp_path}/allowed"]
    if shutil.which("ssh-keygen"):
        git("--git-dir", settings.repo, *ssh, "verify-commit", "corpus")


def test_an_operator_vouches_for_a_commit_that_was_pushed(settings: Settings, attacker: Path) -> None:
    altered_text(attacker / "metrics" / "gold.json", random.Random(4))
    commit = push(attacker)
    with workspace(settings, signed=False) as clone:
        trust.sign(settings, commit, who="ada", why="reviewed", cwd=clone.path)
    with workspace(settings) as clone:
        assert clone.head == commit
    with history(settings.model_copy(update={"repo": f"file://{settings.repo}"}), depth=1) as copied:
        assert git("rev-parse", "corpus", cwd=copied) == commit
