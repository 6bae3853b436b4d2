"""The registry of stores is whole: a new setting, folder below the home, or out must be one's of them.

What code writes or connects to is held to the registry while it runs: ``crisis_corpus_sandbox/audit``.
"""

from __future__ import annotations

import ast
import functools
import gzip
import re
import sqlite3
from contextlib import closing
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from pipelines.annotate import manifest as manifests
from pipelines.annotate.manifest import RoundDecision
from pipelines.core.config.settings import Settings
from pipelines.takedown import receipts, takedown
from pipelines.takedown import stores as package
from pipelines.takedown.stores import Store, stores
from pipelines.takedown.stores.corpus import StoredObjects
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from tests.privacy import used_corpus as used
from tests.privacy.place_search import counted

REPO = Path(__file__).resolve().parents[2]
# Settings that are no place where something is kept.
NO_PLACE = {
    "home", "reddit_client_id", "reddit_client_secret", "reddit_url", "reddit_oauth_url", "arctic_shift_url", "contact",
    "sandbox_port", "label_studio_port", "label_studio_key", "label_studio_env",
    "hub_token", "finetune_processes", "traces", "user",
}  # fmt: skip


@functools.cache
def modules() -> dict[str, ast.Module]:
    found = {}
    for root, below in (("pipelines", "pipelines"), ("plugins", "."), ("crisis_corpus", "."), ("sandbox", "sandbox")):
        for path in sorted((REPO / root).rglob("*.py")):
            found[str(path.relative_to(REPO / below).with_suffix(""))] = ast.parse(path.read_text())
    return found


def test_every_setting_that_says_where_something_is_has_a_store() -> None:
    named = {field for store in stores() for field in store.settings}
    assert set(Settings.model_fields) - NO_PLACE - named == set(), "takedown/stores: which store is kept there?"
    assert named | NO_PLACE <= set(Settings.model_fields), "a store names a setting that is gone"


def test_every_out_goes_to_a_store_that_is_rewritten() -> None:
    stages = yaml.safe_load((REPO / "dvc.yaml").read_text())["stages"]
    for stage in stages.values():
        for out in [*stage.get("outs", []), *stage.get("metrics", []), *stage.get("plots", [])]:
            path, options = next(iter(out.items())) if isinstance(out, dict) else (out, {})
            # the most specific pattern tells what a deletion does there
            found = {pattern: store for store in stores() for pattern in store.outs if fnmatch(path, pattern)}
            store = found[max(found, key=len)]
            of_weights = path.startswith("snapshot/${item.corpus}/fits")
            kind = "weights" if of_weights else "objects"
            assert store.name == ("repository" if options.get("cache") is False else kind), path


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
    constants = {
        "CACHE": "models",
        "LOCK": "rounds.lock",
        "MAP": "takedowns",
        "FOLDER": "takedowns",
        "KEY_FILE": "journal.pub",
        "HOME_ENV": "corpus.env",
        "MLFLOW_FILE": "mlflow.sqlite",
    }
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        return constants.get(node.id, f"unknown name {node.id}")
    return "" if isinstance(node, ast.Call) else f"unknown {ast.dump(node)}"


def test_every_folder_below_home_has_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path))
    settings, names = Settings.from_env(), names_below_home()
    assert {"scratch", "resume", "train", "registry", "takedowns", "vault.sqlite", "cache"} <= names
    for name in names:
        (tmp_path / name).mkdir()
    claimed = {path.resolve() for store in stores() for path in store.paths(settings)}
    orphans = {name for name in names if not any(p.is_relative_to(tmp_path / name) for p in claimed)}
    assert orphans == set(), "takedown/stores: which store is kept there?"
    elsewhere = settings.model_copy(update={"remote": "s3://bucket/corpus"})
    assert StoredObjects().paths(elsewhere) == [settings.cache]


def test_every_file_of_a_used_home_has_a_store(tmp_path: Path) -> None:
    settings = used.copy(tmp_path / "home")
    with used.opened(settings) as house:
        house.take_down(house.select(authors=["author-1"]))
    claimed = [path.resolve() for store in stores() for path in store.paths(settings)]
    files = [path for path in settings.home.rglob("*") if path.is_file()]
    assert len(files) > 100
    assert [p for p in files if not any(p == c or p.is_relative_to(c) for c in claimed)] == []


def test_every_store_says_what_a_takedown_does_or_what_stays() -> None:
    names = {store.name for store in stores()}
    for store in stores():
        assert store.holds == "nothing" or store.erased or store.keeps, store.name
        erases = type(store).erase is not Store.erase
        assert erases == (type(store).count is not Store.count) == bool(store.erased and not store.by), store.name
        assert not store.by or store.by in names | {"deletion_sweep", "corpus takedown"}, store.name
        assert store.home or store.settings or store.outs or store.holds == "content", store.name


def test_vault_and_commits_come_first() -> None:
    names = [store.name for store in stores()]
    assert names[:2] == ["vault", "repository"] and len(names) == len(set(names))


def test_a_module_is_all_that_a_store_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notebook_pages.py").write_text(NEW)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    stores.cache_clear()
    try:
        settings = used.copy(tmp_path / "home")
        (page := settings.home / "notebook_pages" / "a page").parent.mkdir()
        page.touch()
        with used.opened(settings) as house:
            told = takedown.dry_run(house.posts(), settings=settings, vault=house.vault, now=used.NOW)
            assert told["stores"]["notebook pages"] == {"pages": 1} and page.exists()
            receipt = house.take_down(house.posts())
        assert receipt.steps["notebook pages"] == {"pages": 1} and "notebook pages" in receipt.done
        assert not page.exists()
    finally:
        stores.cache_clear()


NEW = """
from pipelines.takedown.stores import Case, Store


class NotebookPages(Store):
    name, holds, erased, home = "notebook pages", "content", "emptied", ("notebook_pages",)

    def count(self, case: Case) -> dict[str, int]:
        return {"pages": len([*(case.settings.home / "notebook_pages").iterdir()])}

    def erase(self, case: Case) -> None:
        for path in (case.settings.home / "notebook_pages").iterdir():
            path.unlink()
"""


@pytest.mark.parametrize("store", [store.name for store in stores() if store.erased and not store.by])
def test_a_fault_in_one_store_leaves_the_takedown_to_be_resumed(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [faulty] = [each for each in stores() if each.name == store]
    with used.opened(used.copy(tmp_path / "home")) as house, monkeypatch.context() as patch:
        patch.setattr(type(faulty), "count", lambda self, case: 1 / 0)
        with pytest.raises(ZeroDivisionError if store == "vault" else takedown.TakedownUnfinished):
            house.take_down(house.posts())
        [waiting] = receipts.opened(house.settings)
        later = {each.name for each in stores() if store in (each.name, *each.needs)}
        assert {each.name for each in stores()} - set(waiting.done) == later
        patch.undo()
        receipt = house.take_down(house.posts())
        assert receipt.ended and receipt.pending == {} and house.left() == []
        assert len(receipts.receipts(house.settings)) == 1


@pytest.mark.parametrize("status", ["open", "closed"])
def test_a_round_of_a_backend_that_is_gone_stops_a_takedown_only_while_it_is_open(status: str, tmp_path: Path) -> None:
    settings = used.copy(tmp_path / "home")
    with workspace(settings) as clone:
        path = manifests.folder(clone.path, "memes", "calibration") / manifests.FILE
        changed: dict[str, object] = {"status": status, "backend": "gone"}
        if status == "closed":
            changed |= {"closed": used.NOW, "decision": RoundDecision(go_on=True, reason="done", at=used.NOW)}
        manifests.write(manifests.read(path).model_copy(update=changed), path)
        clone.commit("round", paths=["annotations"])
    with used.opened(settings) as house:
        if status == "open":
            with pytest.raises(takedown.TakedownUnfinished):
                house.take_down(house.posts())
            [waiting] = receipts.opened(settings)
            assert "annotation" not in waiting.done
        else:
            takedown.dry_run(house.posts(), settings=settings, vault=house.vault, now=used.NOW)
            assert house.take_down(house.posts()).ended


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
