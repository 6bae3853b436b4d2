"""The list of places is whole: a new setting, folder, out or module that writes must be named by one of them."""

from __future__ import annotations

import ast
import functools
import gzip
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from pipelines.core.config.settings import Settings
from pipelines.takedown.storage_locations import SINKS, Sink
from pipelines.workspace.git import git
from tests.privacy import used_corpus as used
from tests.privacy.place_search import counted

REPO = Path(__file__).resolve().parents[2]
# Settings that are no place where something is kept.
NO_PLACE = {
    "reddit_client_id", "reddit_client_secret", "reddit_url", "reddit_oauth_url", "arctic_shift_url", "contact",
    "sandbox_port", "label_studio_port", "label_studio_key",
    "hub_token", "finetune_processes", "traces",
}  # fmt: skip
# What puts bytes somewhere, whatever it is called on; `open` counts with a mode that writes.
WRITES = {
    "write_text", "write_bytes", "touch", "mkdtemp", "mkstemp", "TemporaryDirectory", "NamedTemporaryFile",
    "write_table", "ParquetWriter", "write_rows", "write_metrics", "write_whole", "save", "save_model", "save_file",
    "savefig", "dump_yaml", "connect", "create_engine", "Engine", "copyfile", "copytree", "copy2", "move", "link",
    "symlink", "log_artifact", "log_figure", "put_file",
}  # fmt: skip


def written(tree: ast.AST) -> Iterator[str]:
    """The calls in a module that put bytes somewhere."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        on = called.value.id if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) else ""
        given = [a.value for a in [*node.args, *(k.value for k in node.keywords)] if isinstance(a, ast.Constant)]
        mode = any(isinstance(v, str) and set(v) <= set("rwaxbt+") and set(v) & set("wax+") for v in given)
        if name in WRITES or (name == "open" and mode) or (on, name) == ("tables", "write"):
            yield name


@functools.cache
def modules() -> dict[str, ast.Module]:
    found = {}
    for root, below in (("pipelines", "pipelines"), ("plugins", "."), ("crisis_corpus", "."), ("sandbox", "sandbox")):
        for path in sorted((REPO / root).rglob("*.py")):
            found[str(path.relative_to(REPO / below).with_suffix(""))] = ast.parse(path.read_text())
    return found


def test_every_setting_that_says_where_something_is_has_a_sink() -> None:
    named = {field for sink in SINKS for field in sink.settings}
    assert set(Settings.model_fields) - NO_PLACE - named == set(), "say in storage_locations.py what is kept there"
    assert named | NO_PLACE <= set(Settings.model_fields), "takedown/storage_locations.py names a setting that is gone"


def test_every_module_that_writes_is_named_by_a_sink() -> None:
    writers = {name for name, tree in modules().items() if any(written(tree))}
    named = {name for sink in SINKS for name in sink.writers}
    assert writers - named == set(), "say in storage_locations.py where these write, and how a deletion gets there"
    assert named - set(modules()) == set(), "takedown/storage_locations.py names modules that are gone"


def test_a_module_that_writes_is_noticed() -> None:
    for text in (
        "Path('x').write_text('')", "open('x', 'w')", "path.open('ab')", "path.open(mode='r+b')", "sa.create_engine(u)",
        "pq.write_table(t, p)", "tempfile.mkdtemp()", "client.log_artifact(run, p)", "tables.write(t, p, name='n')",
    ):  # fmt: skip
        assert any(written(ast.parse(text))), text
    assert not any(written(ast.parse("path.open()\nopen('name')\nfile.open('rb')\nPath('w').read_text()")))


def test_every_out_goes_to_a_sink_that_is_rewritten() -> None:
    stages = yaml.safe_load((REPO / "dvc.yaml").read_text())["stages"]
    for stage in stages.values():
        for out in [*stage.get("outs", []), *stage.get("metrics", []), *stage.get("plots", [])]:
            path, options = next(iter(out.items())) if isinstance(out, dict) else (out, {})
            # the most specific pattern tells what a deletion does there
            found = {pattern: sink for sink in SINKS for pattern in sink.outs if fnmatch(path, pattern)}
            sink = found[max(found, key=len)]
            of_weights = path.startswith("snapshot/${item.corpus}/finetuned")
            kind = "weights" if of_weights else "objects"
            assert sink.name == ("repository" if options.get("cache") is False else kind), path


def names_below_home() -> set[str]:
    """The first names that any module joins to ``CORPUS_HOME``."""
    found = set()
    for tree in modules().values():
        nodes = list(ast.walk(tree))
        # the same, under a name of its own
        texts = [ast.unparse(node) for node in nodes if isinstance(node, ast.Assign)]
        own = any("home" in text.partition(" = ")[0].split(", ") and " / " not in text for text in texts)
        for node in nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _is_home(node.left, own=own):
                found.add(_constant(node.right))
            elif isinstance(node, ast.JoinedStr):
                for part, rest in pairwise(node.values):
                    if isinstance(part, ast.FormattedValue) and _is_home(part.value, own=own):
                        found.add(str(getattr(rest, "value", "")).removeprefix("/"))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(re.findall(r"\{home\}/([\w.]+)", node.value))  # a default in `Settings`
    return {name.partition("/")[0] for name in found} - {""}


def _is_home(node: ast.AST, *, own: bool) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "home"
    return own and isinstance(node, ast.Name) and node.id == "home"


def _constant(node: ast.AST) -> str:
    # a name is looked up where it is a constant of a module
    constants = {"LOCK": "rounds.lock", "MAP": "takedowns", "FOLDER": "takedowns", "KEY_FILE": "journal.pub"}
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        return constants.get(node.id, f"unknown name {node.id}")
    return "" if isinstance(node, ast.Call) else f"unknown {ast.dump(node)}"


def test_every_folder_below_home_has_a_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path))
    settings, names = Settings.from_env(), names_below_home()
    assert {"scratch", "resume", "train", "registry", "takedowns", "vault.sqlite", "cache"} <= names
    for name in names:
        (tmp_path / name).mkdir()
    claimed = {path.resolve() for sink in SINKS for path in sink.paths(settings)}
    orphans = {name for name in names if not any(p.is_relative_to(tmp_path / name) for p in claimed)}
    assert orphans == set(), "say in storage_locations.py what is kept there"
    elsewhere = settings.model_copy(update={"remote": "s3://bucket/corpus"})
    assert SINKS[0].name == "objects" and SINKS[0].paths(elsewhere) == [settings.cache]


def test_every_file_of_a_used_home_has_a_sink(tmp_path: Path) -> None:
    settings = used.copy(tmp_path / "home")
    with used.opened(settings) as house:
        house.take_down(house.select(authors=["author-1"]))
    claimed = [path.resolve() for sink in SINKS for path in sink.paths(settings)]
    files = [path for path in settings.home.rglob("*") if path.is_file()]
    assert len(files) > 100
    assert [p for p in files if not any(p == c or p.is_relative_to(c) for c in claimed)] == []


def test_every_sink_says_what_a_takedown_does_or_what_stays() -> None:
    for sink in SINKS:
        assert sink.holds == "nothing" or sink.purged or sink.keeps, sink.name
        assert sink.paths is not Sink.paths or not sink.purged or "server" in sink.name, sink.name


def test_the_page_has_this_very_list() -> None:
    page = (REPO / "docs" / "takedown.md").read_text()
    rows = [f"| {s.name} | {s.holds} | {s.purged or 'nothing'} | {s.keeps or 'nothing'} |\n" for s in SINKS]
    assert page.partition("## Every place")[2].partition("|---|---|---|---|\n")[2] == "".join(rows)


@pytest.mark.parametrize("kind", ["text", "table", "gz", "sqlite", "git"])
def test_a_needle_is_found_however_it_is_packed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path))
    settings, needle = Settings.from_env(), b"a-needle-in-it"
    name = {"text": "logs", "gz": "logs", "table": "train", "sqlite": "mlflow", "git": "repository"}[kind]
    folder = tmp_path / {"git": "corpus.git"}.get(kind, name)
    folder.mkdir()
    if kind == "text":
        (folder / "a.log").write_bytes(b"x" + needle + b"y")
    elif kind == "gz":
        (folder / "a.log.gz").write_bytes(gzip.compress(needle))
    elif kind == "table":
        packed = pa.table({"bytes": [needle, b"z"], "text": ["x", "y"]})
        pq.write_table(packed, folder / "a.parquet", compression="zstd")
    elif kind == "sqlite":
        with closing(sqlite3.connect(folder / "a.db", isolation_level=None)) as connection:
            connection.execute("CREATE TABLE t AS SELECT ? AS v", [needle.decode()])
    else:
        git("init", "--quiet", "--bare", str(folder))
        (tmp_path / "file").write_bytes(needle)
        git("--git-dir", str(folder), "hash-object", "-w", str(tmp_path / "file"))
    found = {name: n for name, n in counted(settings, needle).items() if n}
    place = {"logs": "Airflow and logs", "mlflow": "models"}.get(name, name)
    assert found == {place: 1}
    assert counted(settings, b"another").get(place) == 0
