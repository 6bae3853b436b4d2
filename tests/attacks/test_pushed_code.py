"""A person who may push to the corpus repository, but lacks the secret, gets no code run by a task."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pipelines.core.config.settings import Settings
from pipelines.core.errors import StepFailed
from pipelines.store.vault.keyring import Signer
from pipelines.store.vault.vault import Vault
from pipelines.workspace import publish, repository, trust
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.git import git, write_signed_tag
from pipelines.workspace.inventory import check_handed_over, hand_over, pointer_text, received
from tests.refusals import refused
from tests.small_corpus import SHELL, begin, code_of, sign

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("params.yaml", "catalogue.yaml", "rows.yaml", "dvc.yaml", "pipelines/libraries.yaml", "profiles/sandbox.yaml")
CODE = SHELL | {name: (ROOT / name).read_text() for name in NAMES}
POINTER = pointer_text("records.parquet", md5="0" * 32, size=1)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    settings = Settings.from_env()
    begin(settings, code=code_of(tmp_path / "code", CODE))
    yield settings


def push(settings: Settings, change: Callable[[Path], object], folder: Path) -> str:
    """Commit a change to branch corpus as someone without the secret does; return the commit."""
    git("clone", "--quiet", "--branch", "corpus", settings.repo, str(folder))
    change(folder)
    git("add", "--all", "--force", cwd=folder)
    git("commit", "--quiet", "--allow-empty", "-m", "data(memes): 2022-11", cwd=folder)
    git("push", "--quiet", "origin", "corpus", cwd=folder)
    return git("rev-parse", "HEAD", cwd=folder)


def attempt(clone: Workspace, victim: Path) -> None:
    clone.step(f"touch {victim}")


def write(name: str, text: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return change


def link(name: str, to: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(to)

    return change


CHANGES: dict[str, Callable[[Path], object]] = {
    "changed": write("pipelines/__main__.py", "import pathlib\npathlib.Path('pwned').touch()\n"),
    "data of the package": write("pipelines/core/taxonomy/scheme.yaml", "name: other\n"),
    # the folder of a command is the first in which Python looks for any module
    "shadowed module": write("subprocess.py", "raise SystemExit\n"),
    "package in data": write("data/__init__.py", ""),
    "bytecode": write("pipelines/__pycache__/__main__.cpython-311.pyc", "x"),
    "extension": write("numpy.cpython-311-x86_64-linux-gnu.so", "x"),
    "graph": write("dvc.yaml", "stages: {}\n"),
    "graph below": write("data/dvc.yaml", "stages: {}\n"),
    "remote": write(".dvc/config", "['remote \"corpus\"']\n    endpointurl = http://127.0.0.1:9\n"),
    "filter": write(".gitattributes", "* filter=x\n"),
    "link": link("data/memes", "/etc"),
    "removed": lambda folder: (folder / "pipelines" / "__init__.py").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_pushed_code_is_not_run(settings: Settings, change: str, tmp_path: Path) -> None:
    commit, victim = push(settings, CHANGES[change], tmp_path / "attacker"), tmp_path / "victim"
    with workspace(settings, signed=False) as clone:
        with refused("CodeNotSigned", match=commit[:12]):
            clone.step(f"touch {victim}")
        with refused("CodeNotSigned"):
            clone.command(f"python -m pipelines 'touch {victim}'", name="stage")
    assert not victim.exists()


def test_a_commit_of_data_runs_the_signed_code(settings: Settings, tmp_path: Path) -> None:
    push(settings, write("data/memes/2022-11/records.parquet.dvc", POINTER), tmp_path / "publisher")
    with workspace(settings, signed=False) as clone:
        clone.step(f"touch {tmp_path}/ran")
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("how", ["another key", "copied tag", "unsigned tag", "branch"])
def test_a_forged_signature_is_refused(settings: Settings, tmp_path: Path, how: str) -> None:
    commit = push(settings, write("pipelines/__main__.py", "print('pwned')\n"), tmp_path / "attacker")
    folder = tmp_path / "attacker"
    tag = trust.TAGS + trust._fingerprint(trust._code(commit, cwd=folder))
    [signed] = git("tag", "--list", f"{trust.TAGS}*", cwd=folder).splitlines()
    match how:
        case "another key":
            signer = Signer(b"7" * 32, purpose="code")
            made = write_signed_tag(tag, commit=commit, message="x", signer=signer, cwd=folder)
        case "copied tag":
            made = git("rev-parse", signed, cwd=folder)
        case "unsigned tag":
            git("tag", "--annotate", tag, "-m", "x", cwd=folder)
            made = git("rev-parse", tag, cwd=folder)
        case _:
            made = commit
    git("push", "--quiet", "--force", "origin", f"{made}:refs/tags/{tag}", cwd=folder)
    with workspace(settings, signed=False) as clone, refused("CodeNotSigned"):
        clone.step("true")


def test_git_itself_verifies_the_tag(settings: Settings, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    key = Ed25519PublicKey.from_public_bytes(Signer(settings.secret(), purpose="code").public)
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    allowed.write_text(f"corpus@localhost {line}\n")
    [tag] = git("--git-dir", settings.repo, "tag", "--list", f"{trust.TAGS}*").splitlines()
    ssh = ["-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={allowed}"]
    if shutil.which("ssh-keygen"):
        git("--git-dir", settings.repo, *ssh, "verify-tag", tag)


def test_an_operator_who_reviewed_a_commit_signs_it(settings: Settings, tmp_path: Path) -> None:
    commit = push(settings, write("pipelines/extra.py", "x = 1\n"), tmp_path / "colleague")
    done = corpus("trust", commit, "--who", "ada", "--why", "reviewed")
    assert done.returncode == 0, done.stderr
    with workspace(settings) as clone:
        clone.step("true")


def test_an_upgrade_signs_no_code_that_was_pushed(settings: Settings, tmp_path: Path) -> None:
    commit = push(settings, write("subprocess.py", "raise SystemExit\n"), tmp_path / "attacker")
    code, before = tmp_path / "code", publish.head(settings)
    write("pipelines/newer.py", "x = 1\n")(code)
    git("add", "--all", cwd=code)
    git("commit", "--quiet", "-m", "newer", cwd=code)
    with refused("CommitNotSigned", match=commit[:12]):
        repository.upgrade(settings, checkout=code)
    # somebody vouches for the commit alone
    tag = f"{trust.COMMITS}{commit}"
    made = write_signed_tag(tag, commit=commit, message="x", signer=trust._signer(settings), cwd=tmp_path / "attacker")
    git("push", "--quiet", "origin", f"{made}:refs/tags/{tag}", cwd=tmp_path / "attacker")
    with refused("CodeAltered", match=r"subprocess\.py"):
        repository.upgrade(settings, checkout=code)
    assert publish.head(settings) == before


def test_an_upgrade_signs_a_corpus_that_was_made_without_signatures(settings: Settings, tmp_path: Path) -> None:
    for tag in git("--git-dir", settings.repo, "tag", "--list", f"{trust.TAGS}*").splitlines():
        git("--git-dir", settings.repo, "tag", "--delete", tag)
    with workspace(settings) as clone, refused("CodeNotSigned", match="corpus upgrade"):
        clone.step("true")
    assert repository.upgrade(settings, checkout=tmp_path / "code") is None
    with workspace(settings) as clone:
        clone.step("true")


def test_a_clone_for_a_person_has_signed_code(settings: Settings, tmp_path: Path) -> None:
    assert (repository.clone(settings, folder=tmp_path / "lab") / "dvc.yaml").is_file()
    push(settings, write("subprocess.py", ""), tmp_path / "attacker")
    with refused("CodeNotSigned"):
        repository.clone(settings, folder=tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "text", ["cmd: touch victim\n" + POINTER, '{"cmd": "touch victim"}\n', POINTER.replace("path: r", "path: ../r"), ""]
)
def test_a_clone_for_a_person_has_no_command_in_a_pointer(settings: Settings, tmp_path: Path, text: str) -> None:
    push(settings, write("data/memes/2022-11/records.parquet.dvc", text), tmp_path / "attacker")
    sign(settings)
    with refused("StageInPointer", match="data/memes"):
        repository.clone(settings, folder=tmp_path / "lab")
    assert not (tmp_path / "lab").exists()


def _params(values: dict[str, Any], given: str) -> None:
    values["train"]["rows"]["posts"]["models"] = [given]


def _row(**changed: str) -> Callable[[dict[str, Any], str], None]:
    def change(values: dict[str, Any], given: str) -> None:
        row = values["rows"]["fits"]["posts-labels-knn-consensus-20251001"]
        row.update({key: value.format(given) for key, value in changed.items()})

    return change


ROWS = {
    "command": _row(name="{}"),
    "option": _row(name="--help"),
    "out above": _row(name="../../../../x"),
    "dependency above": _row(reads="snapshot/../../x"),
    "dependency elsewhere": _row(code="/etc"),
}


@pytest.mark.parametrize(
    ("name", "break_it"),
    [("params.yaml", _params), *(("rows.yaml", each) for each in ROWS.values())],
    ids=["params", *ROWS],
)
def test_a_value_of_params_or_of_a_row_starts_no_shell(
    settings: Settings, tmp_path: Path, name: str, break_it: Callable[[dict[str, Any], str], None]
) -> None:
    victim = tmp_path / "victim"

    def change(folder: Path) -> None:
        values = yaml.safe_load((folder / name).read_text())
        break_it(values, f"x; touch {victim} #")
        (folder / name).write_text(yaml.safe_dump(values))

    base = push(settings, change, tmp_path / "attacker")
    sign(settings)
    for stage in ("train@posts-labels-knn-consensus-20251001", f"train@posts-x; touch {victim} #"):
        done = corpus("task", "stage", stage, "--base", base, "--run", "r")
        assert done.returncode == 78 and name in done.stderr, done.stderr
    if name == "rows.yaml":
        with refused("BadParams", match=r"rows\.yaml"):
            repository.clone(settings, folder=tmp_path / "lab")
        assert not (tmp_path / "lab").exists()
    with workspace(settings) as clone:
        # as if the parameters had been valid
        with pytest.raises(StepFailed):
            clone.command(f"python -m pipelines false; touch {victim}", name="stage")
        for line in (f"touch {victim}", f'python -c \'open("{victim}", "w")\'', f"sh -c 'touch {victim}'"):
            with refused("NotACommand"):
                clone.command(line, name="stage")
    assert not victim.exists()


@pytest.mark.parametrize("base", ["corpus", "--orphan=x", "HEAD~1", "a" * 39, "A" * 40, ""])
def test_a_run_works_on_a_full_commit_only(settings: Settings, base: str) -> None:
    done = corpus("task", "stage", "split@memes", f"--base={base}", "--run", "r")
    assert done.returncode == 78 and "--base" in done.stderr, done.stderr


def test_a_link_in_the_branch_leads_no_write_out_of_the_clone(settings: Settings, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    push(settings, link("data/memes", str(outside)), tmp_path / "attacker")
    pointers = {"data/memes/2022-11/records.parquet": POINTER}
    with pytest.raises(OSError), workspace(settings, signed=False) as clone:
        clone.place(pointers)
    assert not list(outside.iterdir())


@pytest.mark.parametrize("folder", ["data/memes/2022-12", "data/posts/2022-11", "work", "data/memes/2022-11x"])
def test_a_publish_takes_pointers_of_its_own_month_only(settings: Settings, folder: str) -> None:
    given = {"corpus": "memes", "month": "2022-11", "pointers": {f"{folder}/records.parquet": POINTER}}
    before = publish.head(settings)
    with refused("BadPointer", match="2022-11/"):
        publish.publish_partition(settings, **given, leave_out=lambda *_: 0)
    assert publish.head(settings) == before


@pytest.mark.parametrize(
    ("path", "text"),
    [
        *((path, POINTER) for path in ("data//x", "data/./x", "data/.git/x", "data/memes/")),
        ("data/memes/records.parquet", POINTER.replace("size: 1", "size: ٣")),
    ],
)
def test_a_pointer_has_one_spelling(path: str, text: str) -> None:
    with refused("BadPointer"):
        check_handed_over({path: text.replace("records.parquet", path.rpartition("/")[2])})


OTHER = {"data/memes/2022-11/records.parquet": pointer_text("records.parquet", md5="1" * 32, size=1)}
HANDED = {"data/memes/2022-11/records.parquet": POINTER}


FORGED: dict[str, Callable[[Any], Any]] = {
    "without a code": lambda _: HANDED,
    "another object": lambda given: {path: text.replace("0" * 32, "1" * 32) for path, text in given.items()},
    "another path": lambda given: {"data/memes/2022-12/records.parquet": next(iter(given.values()))},
    "another secret": lambda _: hand_over(HANDED, secret=b"7" * 64),
    "more": lambda given: {path: f"{text}deps: []\n" for path, text in given.items()},
    "nothing": dict.fromkeys,
}


@pytest.mark.parametrize("change", FORGED)
def test_a_pointer_that_no_task_wrote_is_refused(change: str) -> None:
    secret = b"5" * 64
    given = hand_over(HANDED, secret=secret)
    assert received(given, secret=secret) == HANDED
    with refused("BadPointer", match="no task of this corpus"):
        received(FORGED[change](given), secret=secret)


def test_a_publish_refuses_pointers_without_a_code(settings: Settings) -> None:
    Vault.create(settings).close()
    argv = ("task", "publish-partition", "memes", "--month", "2022-11", "--pointers", json.dumps(OTHER))
    done = corpus(*argv)
    assert done.returncode == 65 and "no task of this corpus" in done.stderr, done.stderr


def corpus(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this package in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "pipelines", *argv], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
