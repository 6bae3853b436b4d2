"""Wrong inputs: each gets one line of explanation and its exit status within ten seconds, and leaves no file."""

from __future__ import annotations

import gc
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipelines.cli.main import main
from pipelines.core.config.settings import Settings
from pipelines.workspace import repository
from pipelines.workspace.git import git
from tests.commands import process

ROOT = Path(__file__).resolve().parents[2]
CODE = (
    "params.yaml",
    "catalogue.yaml",
    "rows.yaml",
    "dvc.yaml",
    ".dvc/config",
    ".dvc/.gitignore",
    "profiles/sandbox.yaml",
    "data/.gitignore",
)
SECONDS = 60  # far above what a command takes on a busy machine, and below what a hang does
RAW = ("Traceback", "fatal:", "HTTPConnectionPool", "mlflow.", "sqlalchemy", "urllib3")
WHO = "--who A --why B"
TAKEDOWN = "takedown --reason r-1"
# Placeholders: {dead} a port at which nothing listens, {hung} one that accepts and never answers, {tmp} a folder.
MLFLOW_DOWN = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:{dead}"}
MLFLOW_HUNG = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:{hung}"}
NO_HOME = {"CORPUS_HOME": "{tmp}/none", "CORPUS_SECRET": ""}
NO_SECRET = {"CORPUS_SECRET": ""}
NO_VAULT = {"CORPUS_VAULT_URL": "sqlite:///{tmp}/none/vault.sqlite"}
NO_REPO = {"CORPUS_REPO": "{tmp}/none/corpus.git"}
GIT_DOWN = {"CORPUS_REPO": "http://127.0.0.1:{dead}/corpus.git"}
GIT_PASSWORD = {"CORPUS_REPO": "http://a:pa55word@127.0.0.1:{dead}/corpus.git"}
POSTGRES_DOWN = {"CORPUS_VAULT_URL": "postgresql+psycopg2://a:pa55word@127.0.0.1:{dead}/vault"}


@dataclass(frozen=True)
class Wrong:
    """A command line, its exit status, a part of the message, the environment, and the place it is run in."""

    line: str
    status: int
    says: str
    environment: dict[str, str] = field(default_factory=dict)
    place: str = "checkout"


WRONG = [
    # names
    Wrong("plan cost meme", 64, "no corpus 'meme'; known: memes, posts"),
    Wrong("dedupe meme", 64, "known: memes, posts"),
    Wrong("votes-report Posts", 64, "known: memes, posts"),
    Wrong("agreement-report crises", 64, "known: memes, posts"),
    Wrong("sweep reddit", 64, "known: memes, posts"),
    Wrong("release make tweets tweets-1", 64, "known: memes, posts"),
    Wrong("round open meme calibration", 64, "known: memes, posts"),
    Wrong("round open memes calibrations", 78, "Known rounds: "),
    Wrong("track nothing", 64, "known: memes, posts"),
    Wrong("task champions nothing", 64, "known: memes, posts"),
    Wrong("votes posts --row gpd", 64, "no labeller 'gpd'; known: gpt"),
    Wrong("label posts --labeller gpd --shard 0", 64, "known: gpt"),
    Wrong("silver posts --row cradel", 64, "no ensemble 'cradel'; known: cradle"),
    Wrong("injection_test posts --row cradel", 64, "known: cradle"),
    Wrong("train memes --row humour-bert-gold-1", 64, "no row of memes 'humour-bert-gold-1'; known: figurative-"),
    Wrong("train posts --row labels-bert-gold-1", 64, "no row of posts"),
    Wrong("predict posts --row labels-gpt9", 64, "no row of posts 'labels-gpt9'; known: "),
    Wrong(f"promote crisis-post 1 {WHO}", 64, "known: crisis-posts"),
    Wrong("gate severity 1", 64, "known: crisis-posts"),
    Wrong("register severity", 64, "known: crisis-posts"),
    Wrong("register --corpus tweets", 64, "known: memes, posts"),
    Wrong("sandbox build --profile sandbx", 64, "no profile 'sandbx'; known: sandbox"),
    Wrong("statsu", 64, "No such command 'statsu'"),
    Wrong("vault tombstone", 64, "No such command 'tombstone'"),
    Wrong("status --jsn", 64, "--json"),
    Wrong("clone lab --revision 0000000", 64, "no commit '0000000'"),
    # values
    Wrong("collect memes --month 2022-13", 64, "'2022-13' is not a month"),
    Wrong("texts posts --month 22-12", 64, "Use YYYY-MM"),
    Wrong("images memes --month 2022-12 --shard -1", 64, "--shard"),
    Wrong("train memes", 64, "--row"),
    Wrong(f"withdraw meme-severity 0 {WHO}", 64, "VERSION"),
    Wrong("withdraw meme-severity 1 --who A", 64, "--why"),
    Wrong("rollback meme-severity --who A --why=", 64, "is empty"),
    Wrong("annotate --port 99999", 64, "--port"),
    Wrong("registry --records-of 1", 64, "needs the NAME"),
    Wrong("register", 64, "--corpus"),
    Wrong("subscribe ftp://example.org", 64, "must be an https address"),
    Wrong("takedown --post t3_abc", 64, "--reason"),
    Wrong("takedown --post t3_abc --reason=because-they-asked-us-to,really", 64, "needs a code"),
    Wrong(TAKEDOWN, 64, "has no criterion"),
    Wrong(f"{TAKEDOWN} --post https://example.org/1", 64, "neither a Reddit id"),
    Wrong(f"{TAKEDOWN} --post t3_abc", 64, "destroys the keys of 1 record and"),
    Wrong("vault rotate new-secret", 64, "not confirmed"),
    Wrong("vault replay params.yaml --yes", 64, "is not a tombstones.json"),
    # files and folders
    Wrong("import posts none.csv --mapping cradle", 64, "'none.csv' does not exist"),
    Wrong("import posts params.yaml --mapping none --dry-run", 78, "mapping"),
    Wrong("vault replay none.json --yes", 64, "'none.json' does not exist"),
    Wrong("takedown run-pending --tombstones none.json", 64, "'none.json' does not exist"),
    Wrong(f"{TAKEDOWN} --file none.txt", 64, "no file none.txt"),
    Wrong("clone profiles", 64, "profiles exists already"),
    Wrong("report memes --to profiles", 64, "profiles exists already"),
    Wrong("report memes --format md", 64, "need it"),
    Wrong("report memes --to out --format pdf", 64, "'html', 'md', 'latex'"),
    Wrong("dedupe memes", 78, "run the command in the project's checkout", place="elsewhere"),
    # a home that lacks something
    Wrong("status", 78, "corpus init", NO_HOME),
    Wrong("clone lab", 78, "corpus init", NO_HOME),
    Wrong("report memes --to out", 78, "corpus init", NO_HOME),
    Wrong("quality memes", 78, "no project secret", NO_HOME),
    Wrong("dedupe memes", 78, "no project secret", NO_SECRET),
    Wrong("vault tombstones", 78, "no vault at", NO_VAULT),
    Wrong("retention", 78, "no vault at", NO_VAULT),
    Wrong("dedupe memes", 78, "64 hexadecimal digits", {"CORPUS_SECRET": "abc"}),
    Wrong("dedupe memes", 78, "differs from the secret", {"CORPUS_SECRET": "6f" * 64}),
    Wrong("status", 78, "no corpus repository", NO_REPO),
    Wrong("votes-report posts", 78, "no corpus repository", NO_REPO),
    Wrong("agreement-report memes", 78, "no corpus repository", NO_REPO),
    Wrong("sweep memes --dry-run", 78, "no corpus repository", NO_REPO),
    Wrong("upgrade", 78, "no corpus repository", NO_REPO),
    Wrong("task pin", 78, "no corpus repository", NO_REPO),
    Wrong("release make memes memes-1", 78, "no corpus repository", NO_REPO),
    Wrong(f"reject meme-severity 1 {WHO}", 78, "no corpus repository", NO_REPO | MLFLOW_DOWN),
    # services
    Wrong("registry", 78, "MLFLOW_TRACKING_URI is not set"),
    Wrong("registry", 75, "cannot be used now", MLFLOW_DOWN),
    Wrong("registry --json", 75, "cannot be used now", MLFLOW_HUNG),
    Wrong(f"promote crisis-posts 1 {WHO}", 75, "cannot be used now", MLFLOW_DOWN),
    Wrong("track memes", 75, "cannot be used now", MLFLOW_DOWN),
    Wrong("status", 69, "cannot be read", GIT_DOWN),
    Wrong("task pin", 69, "cannot be read", GIT_DOWN),
    Wrong("status", 78, "contains a password", GIT_PASSWORD),
    Wrong("vault tombstones", 75, "The vault cannot be used now", POSTGRES_DOWN),
    Wrong("annotate", 78, "make annotate", {"CORPUS_LABEL_STUDIO_ENV": "{tmp}/none"}),
    Wrong("up", 78, "no corpus repository", NO_REPO),
    Wrong("up forun", 64, "There is no corpus 'forun'"),
    Wrong("run forun", 64, "There is no corpus 'forun'", NO_REPO),
    Wrong("sandbox build", 78, "export CORPUS_SANDBOX_PORT=", {"CORPUS_SANDBOX_PORT": "{hung}"}),
    Wrong("sandbox serve", 78, "corpus sandbox build", {"CORPUS_SANDBOX": "{tmp}/none"}),
]


@dataclass(frozen=True)
class World:
    """A checkout, and the home of a corpus that was created from it."""

    checkout: Path
    home: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    made = World(folder / "checkout", folder / "home")
    for name in CODE:
        (made.checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, made.checkout / name)
    shutil.copytree(ROOT / "annotations", made.checkout / "annotations")
    git("init", "--quiet", "-b", "main", cwd=made.checkout)
    git("add", "--all", cwd=made.checkout)
    git("commit", "--quiet", "-m", "code", cwd=made.checkout)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(made.home))
        repository.init(Settings.from_env(), checkout=made.checkout, profile="sandbox")
    return made


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    with socket.socket() as dead, socket.socket() as hung:
        for listener in (dead, hung):
            listener.bind(("127.0.0.1", 0))
        hung.listen()
        yield {"dead": dead.getsockname()[1], "hung": hung.getsockname()[1]}


def files(*folders: Path) -> set[Path]:
    """Return all files, without git's own and without locks, which are empty."""
    found = {path for folder in folders for path in folder.rglob("*") if path.is_file()}
    return {path for path in found if not {".git", "locks"} & set(path.parts) and path.suffix != ".lock"}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong.line} {' '.join(wrong.environment)}".strip())
def test_a_wrong_input_is_explained_and_changes_nothing(
    wrong: Wrong,
    world: World,
    ports: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    given = {"CORPUS_HOME": str(world.home), "MLFLOW_TRACKING_URI": ""} | wrong.environment
    for name, value in given.items():
        monkeypatch.setenv(name, value.format(**ports, tmp=tmp_path))
    monkeypatch.chdir(world.checkout if wrong.place == "checkout" else tmp_path)
    monkeypatch.setattr(sys, "argv", ["corpus", *wrong.line.split()])
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: PTH123, SIM115
    before, threshold, began = files(world.home, world.checkout, tmp_path), gc.get_threshold(), time.monotonic()
    with pytest.raises(SystemExit) as ended:
        main()
    took = time.monotonic() - began
    gc.set_threshold(*threshold)
    said = capfd.readouterr().err
    assert wrong.says in said, said
    assert ended.value.code == wrong.status, said
    assert len(said.splitlines()) == 1, said
    assert not any(word in said for word in RAW) and "pa55word" not in said
    assert took < SECONDS
    assert files(world.home, world.checkout, tmp_path) == before


@pytest.mark.parametrize("line", ["dedupe meme", "status --jsn", "registry", "vault tombstones"])
def test_a_process_ends_in_the_same_way(line: str, world: World, ports: dict[str, int], tmp_path: Path) -> None:
    given = {"CORPUS_HOME": str(tmp_path / "none"), "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{ports['dead']}"}
    done = process(*line.split(), cwd=world.checkout, timeout=SECONDS + 10, CORPUS_SECRET="", **given)
    assert done.returncode == {"registry": 75, "vault tombstones": 78}.get(line, 64), done.stderr
    assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr
    assert done.stdout.startswith('{"error": ') and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", ["dedupe posts", "sample posts", "gold posts", "split posts", "quality posts"])
@pytest.mark.parametrize("there", [None, b"", b"half"], ids=["pointer", "empty", "cut"])
def test_a_stage_whose_input_is_not_checked_out_whole_writes_no_table(
    line: str,
    there: bytes | None,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """`dvc repro --single-item` runs the command where only pointers are."""
    for name in CODE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    month = tmp_path / "data" / "posts" / "2022-12"
    month.mkdir(parents=True)
    pointer = "outs:\n- md5: 0123456789abcdef0123456789abcdef\n  size: 1234\n  hash: md5\n  path: records.parquet\n"
    (month / "records.parquet.dvc").write_text(pointer)
    if there is not None:
        (month / "records.parquet").write_bytes(there)
    monkeypatch.setenv("CORPUS_HOME", str(world.home))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["corpus", *line.split()])
    before = files(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main()
    said = capfd.readouterr().err
    assert ended.value.code == 65 and "data/posts/2022-12/records.parquet" in said, said
    assert "dvc pull" in said and files(tmp_path) == before
