"""The home of a command: found from a checkout, a clone or the environment, and created by ``init`` only."""

from __future__ import annotations

import json
import os
import pty
import shutil
import stat
import subprocess
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.main import get_group

from pipelines.cli import deployment, main
from pipelines.core.config.settings import Settings, set_of_home
from pipelines.core.errors import BadParams, NoSecret
from pipelines.operate import status
from pipelines.store.vault.vault import Vault
from pipelines.workspace import repository
from pipelines.workspace.git import git
from tests.commands import output, process
from tests.refusals import refused
from tests.small_corpus import BASIC, code_of, sign

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2023, 1, 5, tzinfo=UTC)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CORPUS_HOME", "CORPUS_SECRET", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    names = ("params.yaml", "catalogue.yaml", "dvc.yaml", "profiles/sandbox.yaml")
    folder = code_of(tmp_path / "checkout", BASIC | {name: (ROOT / name).read_text() for name in names})
    monkeypatch.chdir(folder)
    return folder


def test_a_checkout_and_a_clone_have_the_same_home(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Settings.from_env().home == checkout / "var"
    repository.init(Settings.from_env(), checkout=checkout, profile="sandbox")
    secret = (checkout / "var" / "secret").read_bytes()
    clone = repository.clone(Settings.from_env(), folder=tmp_path / "lab")
    assert git("status", "--porcelain", cwd=clone) == ""
    for folder in (checkout / "profiles", clone, clone / "data"):
        monkeypatch.chdir(folder)
        assert Settings.from_env().home == checkout / "var"
    done = process("vault", "tombstones", cwd=clone)
    assert (done.returncode, done.stdout) == (0, '{"format": 1, "records": {}}\n'), done.stderr
    assert not (clone / "var").exists() and (checkout / "var" / "secret").read_bytes() == secret
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "other"))
    assert Settings.from_env().home == tmp_path / "other"


def test_a_deployment_may_have_other_corpora_only(checkout: Path) -> None:
    corpus = {"subreddits": ["lonely"], "source": "dump", "first_month": "2022-11", "last_month": None}
    forum, pictures = ({"content": c, "scheme": s} | corpus for c, s in (("texts", "cssrs"), ("images", "figsim")))
    corpora = {"memes": None, "posts": None, "forum": forum, "pictures": pictures}
    (checkout / "profiles" / "team.yaml").write_text(
        yaml.safe_dump({"corpora": corpora, "sources": {"dump": {"ethics": "none needed: synthetic"}}})
    )
    git("add", "--all", cwd=checkout)
    git("commit", "--quiet", "-m", "a profile", cwd=checkout)
    told = output("init", "--profile", "team")
    assert "corpus try --corpus forum --day 2022-11-01" in told and "the doctor did not end" not in told
    assert status.gather(Settings.from_env())["corpora"] == {"forum": {}, "pictures": {}}
    assert "pictures" in output("status") and "memes" not in output("status")
    assert "pictures_dataset" in output("plan", "backfill", "pictures", "--from", "2022-11", "--to", "2022-12")


def test_up_begins_the_corpus_of_the_only_folder_and_starts_no_sandbox(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = {"content": "texts", "scheme": "cssrs", "subreddits": ["lonely"], "source": "dump", "last_month": None}
    corpora = {"memes": None, "posts": None, "forum": {"first_month": "2022-11", **corpus}}
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(deployment, "start", lambda settings, **options: started.append(options))
    monkeypatch.setenv("CORPUS_ROOT", str(checkout))
    with refused("NoCorpus"):
        deployment.up()
    (checkout / "corpora" / "forum").mkdir(parents=True)
    (checkout / "corpora" / "forum" / "profile.yaml").write_text(
        yaml.safe_dump({"corpora": corpora, "sources": {"dump": {"ethics": "none needed: synthetic"}}})
    )
    for _ in range(2):
        deployment.up()  # the second time, the corpus says which profile it has
    shutil.copytree(checkout / "corpora" / "forum", checkout / "corpora" / "second")
    assert started == [{"root": checkout, "profile": "forum", "added": []}] * 2
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "another"))
    with pytest.raises(typer.BadParameter, match="forum, second"):
        deployment.up()
    assert not (tmp_path / "another").exists()
    deployment.up("second")
    assert started[-1]["profile"] == "second"


def test_the_embedded_mlflow_is_found(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.from_env().mlflow_tracking_uri is None
    (checkout / "var").mkdir()
    (checkout / "var" / "ports.json").write_text(json.dumps({"mlflow": 5123}))
    assert Settings.from_env().mlflow_tracking_uri == "http://127.0.0.1:5123"
    (checkout / "var" / "ports.json").write_text("{")
    assert Settings.from_env().mlflow_tracking_uri is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org")
    assert Settings.from_env().mlflow_tracking_uri == "https://mlflow.example.org"


def test_the_home_has_variables_that_the_environment_lacks(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = checkout / "var" / "corpus.env"
    set_of_home(file.parent, {"CORPUS_DUMPS": "/my dumps", "CORPUS_CONTACT": "me@example.org"})
    set_of_home(file.parent, {"CORPUS_DUMPS": "/other dumps"})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text(f"# addresses\n\n{file.read_text()}AWS_REGION='x y'\n")
    monkeypatch.setenv("CORPUS_CONTACT", "you@example.org")
    settings = Settings.from_env()
    assert (str(settings.dumps), settings.contact) == ("/other dumps", "you@example.org")
    assert os.environ["AWS_REGION"] == "x y"
    for line in ("PATH=hunter2", "CORPUS_DUMPS", "CORPUS_DUMPS='hunter2", "CORPUS_DUMPS=a hunter2",
                 "CORPUS_HOME=hunter2", "CORPUS_SECRET=hunter2"):  # fmt: skip
        file.write_text(f"# first\n{line}\n")
        with pytest.raises(BadParams, match=r"corpus\.env line 2") as caught:
            Settings.from_env()
        assert "hunter2" not in str(caught.value)


@pytest.mark.faults
def test_the_names_of_a_repository_at_a_git_address_are_known(checkout: Path, tmp_path: Path) -> None:
    settings = Settings.from_env()
    repository.init(settings, checkout=checkout, profile="sandbox")
    clone = repository.clone(settings, folder=tmp_path / "lab")
    values = yaml.safe_load((clone / "params.yaml").read_text())
    values["corpora"]["forum"] = values["corpora"]["posts"]
    (clone / "params.yaml").write_text(yaml.safe_dump(values))
    git("commit", "--quiet", "--all", "-m", "a corpus", cwd=clone)
    git("push", "--quiet", "origin", "HEAD:corpus", cwd=clone)
    sign(settings)
    for repo in (settings.repo, f"file://{settings.repo}"):
        done = process("votes-report", "forum", cwd=checkout, CORPUS_REPO=repo)
        assert done.returncode == 0 and "No record of forum" in done.stdout, done.stderr
        done = process("votes-report", "chat", cwd=checkout, CORPUS_REPO=repo)
        assert done.returncode == 64 and "forum" in done.stderr
    # a task is repeated later, which it would not be if the name were refused
    done = process("votes-report", "forum", cwd=checkout, CORPUS_REPO=f"file://{tmp_path}/none.git")
    assert done.returncode == 69, done.stderr
    assert not list((settings.home / "scratch").iterdir())


def test_only_init_creates_the_secret_and_the_vault(checkout: Path) -> None:
    settings = Settings.from_env()
    with pytest.raises(NoSecret):
        Vault.existing(settings)
    assert not settings.home.exists()
    repository.init(settings, checkout=checkout, profile="sandbox")
    with Vault.existing(settings) as vault:
        assert vault.counts() == {"records": 0, "tombstones": 0}
    (settings.home / "vault.sqlite").unlink()
    with refused("NoVault"):
        Vault.existing(settings)


def test_init_does_not_replace_the_lost_vault_of_a_corpus_with_data(checkout: Path, tmp_path: Path) -> None:
    settings = Settings.from_env()
    repository.init(settings, checkout=checkout, profile="sandbox")
    clone = repository.clone(settings, folder=tmp_path / "lab")
    (clone / "data" / "memes").mkdir()
    (clone / "data" / "memes" / "records.parquet.dvc").write_text("outs: []\n")
    git("add", "--all", cwd=clone)
    git("commit", "--quiet", "-m", "a month", cwd=clone)
    git("push", "--quiet", "origin", "HEAD:corpus", cwd=clone)
    for name in ("secret", "vault.sqlite"):
        (settings.home / name).unlink()
    repository.init(settings, checkout=checkout, profile="sandbox")
    assert not (settings.home / "secret").exists() and not (settings.home / "vault.sqlite").exists()


def typed(text: str, *argv: str, where: Path) -> tuple[int, str]:
    """Run a command at a terminal at which a person types ``text``; return its exit status and what it showed."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pipelines", *argv]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=where, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        os.write(ours, text.encode())
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:
            pass  # Linux reports the end of a terminal as an error
    os.close(ours)
    return child.returncode, shown.decode()


def test_keys_are_destroyed_only_after_the_count_was_typed(checkout: Path) -> None:
    settings = Settings.from_env()
    with Vault.create(settings) as vault:
        ids = [vault.record_id(f"t3_{n}") for n in range(2)]
        vault.admit([(i, "t3_x") for i in ids], corpus="memes", month="2022-12", now=NOW)
    (checkout / "gone.json").write_text(
        json.dumps({"format": 1, "records": {i: [NOW.isoformat(), "request-1"] for i in ids}})
    )
    refused = process("vault", "replay", "gone.json", cwd=checkout)
    assert refused.returncode == 64 and "destroys the keys of 2 records" in refused.stderr
    status, shown = typed("3\n", "vault", "replay", "gone.json", where=checkout)
    assert status == 64 and "Type 2 to continue" in shown and "Nothing was changed" in shown
    with Vault.existing(settings) as vault:
        assert vault.tombstoned(ids) == set()
    status, shown = typed("2\n", "vault", "replay", "gone.json", where=checkout)
    assert status == 0 and '"destroyed": 2' in shown, shown
    with Vault.existing(settings) as vault:
        assert vault.tombstoned(ids) == set(ids)


def test_every_command_of_a_module_is_offered_from_there() -> None:
    """A command imports the module that the table names; one that the table lacks would not exist."""
    listed = {module: {*names.split()} for module, names in main.MODULES.items() if module != "stages"}
    for module, names in listed.items():
        assert get_group(import_module(f"pipelines.cli.{module}").app).commands.keys() == names, module
    folder = Path(main.__file__).parent
    assert {path.stem for path in folder.glob("*.py") if "typer.Typer()" in path.read_text()} == {*main.MODULES}


def test_help_lists_the_commands_for_people_first(checkout: Path) -> None:
    shown = process("--help", cwd=checkout).stdout
    for name in ("status", "registry", "takedown"):
        assert shown.index(f"│ {name} ") < shown.index("Stages of dvc.yaml") < shown.index("│ dedupe ")
    assert process("--version", cwd=checkout).stdout.startswith("crisis-corpus ")


def test_the_shell_completes_commands_and_names(checkout: Path) -> None:
    def completed(line: str) -> set[str]:
        given = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        program = "import sys; sys.argv = ['corpus']; from pipelines.cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=checkout, text=True, capture_output=True, check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT), "_CORPUS_COMPLETE": "complete_bash"} | given,
        )  # fmt: skip
        return set(done.stdout.split())

    assert completed("corpus votes-r") == {"votes-report"}
    assert completed("corpus plan cost me") == {"memes"}
    assert {"gpt", "gpt-5-mini"} <= completed("corpus label posts --labeller gp")
