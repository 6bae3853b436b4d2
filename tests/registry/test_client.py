"""What a consumer gets is what was decided on and registered, or an error that says why not."""

from __future__ import annotations

import compileall
import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from crisis_corpus import client, integrity, last_seen
from crisis_corpus.client import NotInstalled, NotLoaded, changed, download, load, token
from crisis_corpus.integrity import digest
from crisis_corpus.items import BadItems, frame_of
from crisis_corpus.journal import BEGINNING, JournalBroken, NoJournal
from crisis_corpus.trusted import (
    AliasUntrusted,
    BadReference,
    FilesChanged,
    NoChampion,
    NotOnRecord,
    Withdrawn,
)
from crisis_corpus.versions import BARS, CHAMPION, NoRegistry, UnknownModel, UnknownVersion
from pipelines.registry.candidate import Context
from pipelines.registry.packaging.register import put
from pipelines.registry.promotion.promote import rollback, withdraw
from tests.registry.small_registry import GRAVEST, NAME, WHO, add, altered, champion, promoted, saved

ASKED = pd.DataFrame({"text": ["the week door", "we go"]})


def two(context: Context) -> None:
    """Register two versions, of which the first is champion."""
    add(context, knows=4)
    add(context, knows=6)
    champion(context, 1)


def begin(context: Context) -> None:
    """Begin to promote the second version."""
    metrics = {"leads_to": "promoted"}
    context.journal.append(NAME, event="intended", from_version=1, to_version=2, metrics=metrics, **WHO)


def test_the_champion_loads_in_one_line_and_describes_itself(
    context: Context, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(BARS, raising=False)
    two(context)
    capfd.readouterr()
    before = dict(os.environ)
    model = load(f"{NAME}@champion")
    assert (model.name, model.version, model.token) == (NAME, 1, context.journal.last(NAME).digest)
    assert model.files == context.registry.version(NAME, 1).digest
    assert GRAVEST in model.labels and model.card["intended"] == "tests"
    answer = model.predict(ASKED)
    assert answer["labels"].tolist() == [[GRAVEST], ["Suicide planning"]]
    assert (load(NAME).version, load(f"models:/{NAME}/2").version) == (1, 2)
    assert dict(os.environ) == before and "Downloading" not in capfd.readouterr().err


def test_what_was_downloaded_serves_until_it_is_altered(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    version = add(context, knows=6)
    cache = tmp_path / "new" / "cache"
    load(f"{NAME}/1", cache=cache)
    assert not list(cache.rglob("*.pyc"))
    source = Path(version.source)
    source.rename(source.with_name("away"))
    load(f"{NAME}/1", cache=cache)
    # a server that was started on the folder compiles there
    assert compileall.compile_dir(cache, quiet=1)
    load(f"{NAME}/1", cache=cache)
    assert not list(cache.rglob("*.pyc"))
    (integrity.place(cache / version.digest) / "words.json").write_text("{}")
    source.with_name("away").rename(source)
    assert load(f"{NAME}/1", cache=cache).predict(ASKED)["labels"][0] == [GRAVEST]
    assert sorted(path.suffix for path in cache.iterdir() if path.name != last_seen.FILE) == ["", ".lock"]


def test_who_serves_gets_a_verified_folder_and_nothing_is_run(context: Context, tmp_path: Path) -> None:
    folder = saved(context, to=tmp_path / "model", knows=6)
    next(folder.glob("*.py")).write_text("raise SystemExit\n")
    version = put(NAME, folder, context=context, **WHO)[0]
    assert digest(download(f"{NAME}/1")) == version.digest
    words(Path(version.source.removeprefix("file://")))
    with pytest.raises(FilesChanged):
        download(f"{NAME}/1", cache=tmp_path / "empty")


def test_a_download_that_was_killed_is_begun_again(context: Context, tmp_path: Path) -> None:
    version = add(context, knows=6)
    half = tmp_path / f"{version.digest}.half"
    half.mkdir()
    (half / "stale").touch()
    load(f"{NAME}/1", cache=tmp_path)
    assert not half.exists()


def words(folder: Path) -> None:
    (integrity.place(folder) / "words.json").write_text("{}")


DAMAGES: dict[str, Callable[[Path], object]] = {
    r"words\.json": words,
    "MLmodel is altered": lambda folder: (folder / "MLmodel").open("a").write("\n"),
    r"more\.py was added": lambda folder: (folder / "more.py").write_text("raise SystemExit\n"),
    r"card\.json": lambda folder: (integrity.place(folder) / integrity.CARD).unlink(),
}


@pytest.mark.parametrize(("named", "damage"), DAMAGES.items(), ids=DAMAGES)
def test_a_file_that_was_changed_is_named_and_nothing_runs(
    context: Context, tmp_path: Path, damage: Callable[[Path], object], named: str
) -> None:
    folder = saved(context, to=tmp_path / "model", knows=6)
    ran = tmp_path / "ran"
    script = next(folder.glob("*.py"))
    script.write_text(script.read_text() + f"\nPath({str(ran)!r}).touch()\n")
    version = put(NAME, folder, context=context, **WHO)[0]
    load(f"{NAME}/1", cache=tmp_path / "good")
    ran.unlink()
    damage(Path(version.source.removeprefix("file://")))
    with pytest.raises(FilesChanged, match=named):
        load(f"{NAME}/1")
    assert not ran.exists()
    assert not [path for path in (context.settings.home / "models").iterdir() if path.is_dir()]


def test_an_alias_moved_outside_the_registry_is_not_followed(context: Context) -> None:
    two(context)
    context.registry.point(NAME, CHAMPION, 2)
    with pytest.raises(AliasUntrusted, match="points to 2, but 1 is champion in the journal"):
        load(f"{NAME}@champion")
    context.registry.point(NAME, CHAMPION, None)
    with pytest.raises(AliasUntrusted, match="no version"):
        load(f"{NAME}@champion")


@pytest.mark.parametrize("moved", [False, True])
def test_while_a_move_is_under_way_the_champion_is_who_was(context: Context, moved: bool) -> None:
    two(context)
    begin(context)
    if moved:
        context.registry.point(NAME, CHAMPION, 2)
    assert load(f"{NAME}@champion").version == 1


def test_a_move_between_journal_and_alias_is_looked_at_again(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    two(context)
    asked = client.RegistryReader.alias
    done = threading.Event()

    def late(self: Any, name: str, alias: str = CHAMPION) -> int | None:
        if not done.is_set():
            done.set()
            champion(context, 2, before=1)
        return asked(self, name, alias)

    monkeypatch.setattr(client.RegistryReader, "alias", late)
    assert load(f"{NAME}@champion").version == 2


def test_without_a_champion_or_after_a_withdrawal_nothing_is_loaded(context: Context) -> None:
    add(context, knows=4)
    with pytest.raises(NoChampion):
        load(f"{NAME}@champion")
    champion(context, 1)
    withdraw(NAME, 1, who="ada", why="it misses too much", context=context)
    with pytest.raises(NoChampion):
        load(f"{NAME}@champion")
    with pytest.raises(Withdrawn, match="it misses too much"):
        load(f"{NAME}/1")


def test_what_the_journal_does_not_know_is_not_loaded(context: Context) -> None:
    add(context, knows=4, journal=False)
    with pytest.raises(NotOnRecord):
        load(f"{NAME}/1")
    with pytest.raises(UnknownVersion):
        load(f"{NAME}/2")


@pytest.mark.parametrize("reference", [f"{NAME}@", f"{NAME}@challenger", f"{NAME}/0", f"{NAME}/1/2", ""])
def test_a_reference_is_a_name_and_a_version_or_champion(reference: str) -> None:
    with pytest.raises(BadReference):
        load(reference)


def test_addresses_that_are_missing(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(context, knows=4)
    missing = tmp_path / "none.sqlite"
    for url in (f"sqlite:///{missing}", "nonsense"):
        with pytest.raises(NoJournal):
            load(f"{NAME}/1", journal_url=url)
    assert not missing.exists()
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "none"))
    with pytest.raises(NoRegistry, match="CORPUS_HOME"):
        load(f"{NAME}/1")
    uri = f"sqlite:///{context.root}/mlflow.sqlite"
    assert load(f"{NAME}/1", tracking_uri=uri, journal_url=context.settings.journal_url).version == 1


def test_on_the_registry_s_machine_one_variable_is_enough(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    two(context)
    home, elsewhere = context.settings.home, context.root / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    for variable, value in {"CORPUS_HOME": str(home), "MLFLOW_TRACKING_URI": f"sqlite:///{home}/mlflow.sqlite"}.items():
        monkeypatch.delenv("CORPUS_HOME", raising=False)
        monkeypatch.setenv(variable, value)
        assert load(NAME, cache=elsewhere / variable).version == 1
    withdraw(NAME, 1, who="ada", why="it misses too much", context=context)
    with pytest.raises(Withdrawn):
        load(f"{NAME}/1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(NoJournal, match=r"CORPUS_HOME .* CORPUS_JOURNAL_URL"):
        load(NAME)
    assert not list(elsewhere.rglob("*.sqlite"))


def test_a_model_is_called_with_items_and_gives_a_row_for_each(context: Context, tmp_path: Path) -> None:
    two(context)
    picture = tmp_path / "one.png"
    picture.write_bytes(b"pixels")
    model = load(NAME)
    assert model([]) == []
    given: list[Any] = [
        {"text": "the week door"},
        picture,
        str(picture),
        b"pixels",
        {"image": picture, "text": "we go"},
    ]
    for items, count in ((given[:1], 1), (ASKED, 2)):
        rows = model(items)
        assert len(rows) == count and rows[0] == {"labels": [GRAVEST], "abstain": False, "scores": {}}
    frame = frame_of(given, inputs=model.inputs)
    assert frame["image"].tolist() == [None, *[b"pixels"] * 4]
    assert frame["text"].tolist() == ["the week door", None, None, None, "we go"]
    words = frame_of(["some words", {"title": "a title"}], inputs=("title", "body"))
    assert words.to_dict("records") == [{"title": "", "body": "some words"}, {"title": "a title", "body": None}]
    for wrong in ("secret", [3], [tmp_path / "secret"], [{"secret": 1}], {"text": "secret"}):
        with pytest.raises(BadItems) as raised:
            model(wrong)
        assert "secret" not in str(raised.value) and "image, text" in str(raised.value)


def test_a_missing_module_is_named_with_the_line_that_installs_it(context: Context, tmp_path: Path) -> None:
    for module in ("no_such_module", "no such; module"):
        folder = saved(context, to=tmp_path / module[:3] / "model", knows=6)
        script = next(folder.glob("*.py"))
        script.write_text(f"raise ModuleNotFoundError('quoted', name={module!r})\n")
        version = put(NAME, folder, context=context, **WHO)[0]
        with pytest.raises(NotLoaded) as raised:
            load(f"{NAME}/{version.version}")
        assert (module in str(raised.value)) == isinstance(raised.value, NotInstalled)
        assert "quoted" not in str(raised.value)
        if isinstance(raised.value, NotInstalled):
            [installed] = re.findall(r"-m pip install (.*)`", str(raised.value))
            needed = (folder / "requirements.txt").read_text().split()
            assert ["mlflow", *(pin.split("==")[0] for pin in installed.split())] == [p.split("==")[0] for p in needed]
    assert not isinstance(raised.value, NotInstalled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "RegistryReader", lambda uri: import_module("no_such_module"))
        with pytest.raises(NotInstalled, match=rf"no_such_module.*{client.MLFLOW}"):
            load(NAME)
    wanted = tomllib.loads((Path(__file__).parents[2] / "client" / "pyproject.toml").read_text())["project"]
    assert client.MLFLOW.replace("mlflow", "mlflow-skinny") in wanted["dependencies"]


def test_a_model_that_fails_while_it_loads_is_not_quoted(context: Context, tmp_path: Path) -> None:
    folder = saved(context, to=tmp_path / "model", knows=6)
    script = next(folder.glob("*.py"))
    script.write_text("raise ValueError('quoted')\n")
    put(NAME, folder, context=context, **WHO)
    with pytest.raises(NotLoaded) as raised:
        load(f"{NAME}/1")
    assert "quoted" not in str(raised.value)


def test_the_token_changes_with_the_champion_and_with_nothing_else(context: Context) -> None:
    assert token(NAME) == BEGINNING
    add(context, knows=4)
    context.journal.append(NAME, event="gated", to_version=1, **WHO)
    assert changed(NAME, BEGINNING) is None
    champion(context, 1)
    first = changed(NAME, BEGINNING)
    assert first == token(NAME) == load(f"{NAME}@champion").token
    add(context, knows=6)
    context.journal.append(NAME, event="refused", from_version=1, to_version=2, **WHO)
    begin(context)
    assert changed(NAME, first) is None
    assert changed(NAME, BEGINNING) == first
    for unknown in (lambda: token("other"), lambda: load("other@champion"), lambda: load("other/1")):
        with pytest.raises(UnknownModel, match=NAME):
            unknown()


def test_a_journal_that_was_cut_is_noticed(context: Context) -> None:
    add(context, knows=4)
    champion(context, 1)
    held = token(NAME)
    altered(context.journal, "DELETE FROM journal WHERE number > 1")
    with pytest.raises(JournalBroken):
        changed(NAME, held)
    context.registry.point(NAME, CHAMPION, None)
    # its own tag says that it was champion
    with pytest.raises(JournalBroken):
        load(f"{NAME}/1")


def test_a_row_that_was_altered_is_noticed(context: Context) -> None:
    add(context, knows=4)
    altered(context.journal, f"UPDATE journal SET files = '{'0' * 64}'")
    with pytest.raises(JournalBroken):
        load(f"{NAME}/1")


def test_through_gate_promotion_and_rollback(context: Context) -> None:
    promoted(context, knows=4)
    promoted(context, knows=6)
    second = load(f"{NAME}@champion")
    assert second.version == 2
    rollback(NAME, **WHO, context=context)
    assert changed(NAME, second.token) == load(f"{NAME}@champion").token
    assert load(f"{NAME}@champion").version == 1


def test_a_consumer_imports_nothing_heavy() -> None:
    script = (
        "import json, sys, crisis_corpus.client\n"
        "print(json.dumps([m for m in ('airflow', 'dvc', 'mlflow', 'torch', 'pandas') if m in sys.modules]))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == []
