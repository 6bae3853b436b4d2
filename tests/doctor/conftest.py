"""A healthy deployment on loopback: sandbox server, MLflow, Airflow's API, a bare repository, a vault with a backup."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from crisis_corpus_sandbox.server import CLIENT_ID, CLIENT_SECRET, SandboxServer
from pipelines.core.config.params import by_file, parse_all
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.operate.doctor import machine
from pipelines.operate.doctor.deployment import Finding, ok
from pipelines.operate.doctor.doctor import examine
from pipelines.store.vault.keyring import Signer
from pipelines.store.vault.vault import Vault
from pipelines.workspace import dag_graph, repository
from pipelines.workspace.git import git, sign_commit
from pipelines.workspace.profile import texts_at
from tests import mlflow_server, small_sandbox
from tests.built_once import built_once
from tests.doctor.small_airflow import SmallAirflow, small_airflow
from tests.small_checkout import checkout

SECRET = "5e" * 64
SECONDS = 10.0
# Object names are MD5; this is one of "whole".
WHOLE = b"whole"


def make(folder: Path) -> None:
    """Fill a folder with a checkout and the home of a new deployment."""
    code = checkout(folder / "code", smaller=lambda profile: profile.update(doctor={"free_gb": 0, "memory_gb": 0}))
    home = folder / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(home))
        repository.init(Settings.from_env(), checkout=code, profile="sandbox")
    (home / "secret").write_text(SECRET)
    (home / "secret").chmod(0o600)
    Vault.open(f"sqlite:///{home}/vault.sqlite", secret=bytes.fromhex(SECRET)).close()
    name = hashlib.md5(WHOLE).hexdigest()
    stored = home / "cache" / "files" / "md5" / name[:2] / name[2:]
    stored.parent.mkdir(parents=True)
    stored.write_bytes(WHOLE)
    dump = home / "dumps" / "RS_2022-12.zst"
    dump.parent.mkdir()
    dump.write_bytes(b"")
    dump.with_name(f"{dump.name}.sha256").write_text(f"{hashlib.sha256(b'').hexdigest()}  {dump.name}\n")
    (home / "backup").mkdir(mode=0o700)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: yaml.dump(sections, Dumper=yaml.CSafeDumper) for name, sections in by_file(values).items()}


@dataclass
class Place:
    """One test's copy of the deployment, in which the test plants a fault."""

    home: Path
    root: Path
    patch: pytest.MonkeyPatch
    sandbox: SandboxServer
    airflow: SmallAirflow
    stop: list[Callable[[], object]] = field(default_factory=list)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    outdated: bool = False
    held: dict[str, Any] | None = None

    @classmethod
    def copied(cls, made: Path, folder: Path, *, patch: pytest.MonkeyPatch, mlflow: str, **servers: Any) -> Place:
        home, root = folder / "home", folder / "code"
        shutil.copytree(made / "home", home)
        shutil.copytree(made / "code", root, ignore=shutil.ignore_patterns(".git"))
        place = cls(home, root, patch, **servers)
        patch.delenv("CORPUS_SECRET")
        sandbox = place.sandbox.address
        place.set(
            CORPUS_HOME=home, CORPUS_DUMPS=home / "dumps", CORPUS_VAULT_BACKUP=home / "backup",
            CORPUS_PROFILE="sandbox", CORPUS_CONTACT="a@example.org",
            CORPUS_REDDIT_CLIENT_ID=CLIENT_ID, CORPUS_REDDIT_CLIENT_SECRET=CLIENT_SECRET,
            CORPUS_REDDIT_URL=sandbox, CORPUS_REDDIT_OAUTH_URL=sandbox, CORPUS_ARCTIC_SHIFT_URL=sandbox,
            CORPUS_OPENAI_URL=f"{sandbox}/openai/v1", CORPUS_OPENAI_KEY="key",
            CORPUS_ANTHROPIC_URL=f"{sandbox}/anthropic", CORPUS_ANTHROPIC_KEY="key",
            CORPUS_GOOGLE_URL=f"{sandbox}/google", CORPUS_GOOGLE_KEY="key",
            CORPUS_AZURE_URL=f"{sandbox}/azure", CORPUS_GUARD_URL=f"{sandbox}/guard/v1",
            MLFLOW_TRACKING_URI=mlflow, CORPUS_AIRFLOW_URL=place.airflow.address,
        )  # fmt: skip
        place.backup()
        return place

    def day(self, days: int) -> str:
        return f"{self.now + timedelta(days=days):%Y-%m-%d}"

    def set(self, **variables: object) -> None:
        for name, value in variables.items():
            self.patch.setenv(name, str(value))

    def params(self, *keys: str, to: object) -> None:
        """Commit another value of a parameter to the corpus branch; the next examination refreshes the Dags' graph."""
        section = values = self.held or self._values()
        for key in keys[:-1]:
            section = section[key]
        section[keys[-1]] = to
        if self.held is None:
            self.write_all(_texts(values))
        self.outdated = True

    @contextmanager
    def one_commit(self) -> Iterator[None]:
        """Commit the parameters that are changed within at its end, together."""
        self.held, outdated = self._values(), self.outdated
        self.outdated = False
        yield
        if self.outdated:
            self.write_all(_texts(self.held))
        self.held, self.outdated = None, self.outdated or outdated

    def _values(self) -> dict[str, Any]:
        return parse_all(texts_at("corpus", cwd=self.home / "corpus.git"))

    def publish(self, *paths: str) -> None:
        """Commit pointers to the corpus branch, as published months have them."""
        for path in paths:
            self.write(path, "outs:\n- {md5: a, size: 1000000, hash: md5, path: records.parquet}\n")

    def write(self, path: str, text: str) -> None:
        self.write_all({path: text})

    def write_all(self, files: Mapping[str, str]) -> None:
        """Commit files to the corpus branch."""
        clone = self.home.parent / "edit"
        shutil.rmtree(clone, ignore_errors=True)
        # without the other files, which nothing reads
        git("clone", "--quiet", "--shared", "--sparse", "--branch", "corpus", str(self.home / "corpus.git"), str(clone))
        for path, text in files.items():
            (clone / path).parent.mkdir(parents=True, exist_ok=True)
            (clone / path).write_text(text)
        git("add", "--force", "--sparse", *files, cwd=clone)
        git("commit", "--quiet", "--message", "write a file", cwd=clone)
        signer = Signer(bytes.fromhex(SECRET), purpose="commit")
        git("update-ref", "HEAD", sign_commit("HEAD", signer=signer, cwd=clone), cwd=clone)
        git("push", "--quiet", "origin", "corpus", cwd=clone)

    def vault(self) -> Vault:
        return Vault.open(f"sqlite:///{self.home}/vault.sqlite", secret=bytes.fromhex(SECRET))

    def backup(self) -> Path:
        copy = self.home / "backup" / "copy.sqlite"
        with sqlite3.connect(self.home / "vault.sqlite") as source, sqlite3.connect(copy) as target:
            source.backup(target)
        copy.chmod(0o600)
        return copy

    def examine(self, *, seconds: float = SECONDS, deep: bool = False, ocr: bool = False) -> dict[str, Finding]:
        """Run every check; that of the OCR engine costs twenty times what the others do, so tests ask for it."""
        if self.outdated:
            with suppress(BadParams):
                dag_graph.refresh(Settings.from_env())
        with pytest.MonkeyPatch.context() as patch:
            if not ocr:
                patch.setattr(machine, "ocr", lambda deployment: ok("not examined"))
            return dict(examine(Settings.from_env(), root=self.root, now=self.now, seconds=seconds, deep=deep))


@pytest.fixture(scope="session")
def mlflow() -> str:
    """Return the address of a real MLflow server."""
    return mlflow_server.shared()


@pytest.fixture
def place(mlflow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Give a healthy deployment, for a test to do with as it likes."""
    made, served = built_once("deployment", make), tmp_path / "sandbox"
    shutil.copytree(small_sandbox.folder(), served, ignore=shutil.ignore_patterns("images", "dumps"))
    (served / "images").mkdir(exist_ok=True)
    with SandboxServer(served) as sandbox, small_airflow() as airflow:
        yield Place.copied(made, tmp_path, patch=monkeypatch, mlflow=mlflow, sandbox=sandbox, airflow=airflow)
