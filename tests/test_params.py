"""One place reads configuration, and refuses what it does not know."""

from __future__ import annotations

import pickle
import shutil
import stat
import sys
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipelines.cli.parts import check_parts
from pipelines.cli.stages import STAGES
from pipelines.core.config.base import Section
from pipelines.core.config.collect import SourceEntry
from pipelines.core.config.params import FILES, load, overlay, read_params, validate
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, NoSecret, SourceError, SourceNotApproved
from pipelines.models.kind import spec
from pipelines.store.stage import Stage
from tests.contexts import context_of

ROOT = Path(__file__).resolve().parents[1]
DAY = date(2026, 1, 1)


def test_the_shipped_parameters_and_profiles_are_valid() -> None:
    assert load(ROOT).sample["memes"].size == 1050
    for profile in (ROOT / "profiles").glob("*.yaml"):
        load(ROOT, profile=profile.stem)


def test_what_dvc_cannot_read_is_refused_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("a: 1\nmodels: {mine: {base: [}}\n")
    with pytest.raises(BadParams, match=r"params\.yaml line 2: is not YAML"):
        load(tmp_path)


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadParams, match=r"dedupe\.radios"):
        load(overlaid(tmp_path, {"dedupe": {"radios": 3}}))


def test_a_section_is_in_one_of_the_two_files(tmp_path: Path) -> None:
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path)
    with (tmp_path / "params.yaml").open("a") as file:
        file.write("models: {}\n")
    with pytest.raises(BadParams, match=r"catalogue\.yaml: has section models"):
        load(tmp_path)


def overlaid(folder: Path, over: dict[str, object]) -> Path:
    (folder / "params.yaml").write_text(yaml.safe_dump(overlay(read_params(ROOT), over)))
    return folder


def test_no_corpus_has_the_name_of_the_folder_that_dvc_shows(tmp_path: Path) -> None:
    values = read_params(ROOT)
    with pytest.raises(BadParams, match="all-corpora cannot be the name of a corpus"):
        load(overlaid(tmp_path, {"corpora": {"all-corpora": values["corpora"]["memes"]}}))


@pytest.mark.parametrize("name", ["gpt-5.1-few", "Bert", "-bert", "", "a/b", "bert\n", "bért"])
def test_a_model_has_a_name_that_dvc_finds(tmp_path: Path, name: str) -> None:
    bert = {"kind": "text", "base": "tiny:bert"}
    with pytest.raises(
        BadParams, match=r"models, registry: .* cannot be a model's name, which must begin with"
    ) as caught:
        load(overlaid(tmp_path, {"models": {name: bert}}))
    assert repr(name) in str(caught.value)
    with pytest.raises(BadParams, match="cannot be a model's name"):
        load(overlaid(tmp_path, {"registry": {name: {"corpus": "posts", "task": "labels", "candidates": []}}}))
    assert "tiny_2-b" in load(overlaid(tmp_path, {"models": {"tiny_2-b": bert}})).models


@pytest.mark.parametrize("kind", ["infused", "m3h", "prompted"])
def test_a_model_asks_a_labeller_that_is_described(tmp_path: Path, kind: str) -> None:
    m3h: dict[str, object] = {"text": "tiny:bart", "embedder": "tiny:bert", "open_layers": 1, "examples": 1}
    m3h |= {"words": 75, "max_tokens": 128}
    more = {"infused": {"base": "tiny:clip"}, "m3h": m3h, "prompted": {"examples": 0, "runs": 1}}[kind]
    read = "labeller" if kind == "prompted" else "rationales"
    model = {"kind": kind, read: "absent", **more}
    with pytest.raises(BadParams, match=r"models\.asks names 'absent', which section labellers does not have"):
        load(overlaid(tmp_path, {"models": {"asks": model}}))
    assert spec(load(overlaid(tmp_path, {"models": {"asks": model | {read: "gpt"}}})), "asks").kind == kind
    with pytest.raises(BadParams, match=rf"models\.asks.*votes: models of kind {kind} read none"):
        spec(load(overlaid(tmp_path, {"models": {"asks": model | {read: "gpt", "votes": "gpt"}}})), "asks")


def test_a_live_source_needs_its_approval() -> None:
    missing: dict[str, object] = dict.fromkeys(("approval", "expires", "retention_days"))
    ended = {"approval": "b", "expires": DAY, "retention_days": 1}
    for fields, words in ((missing, "approval, expires, retention_days"), (ended, "ended")):
        source = SourceEntry.model_validate({"live": True, "ethics": "HREC 1", "access_basis": "agreement"} | fields)
        with pytest.raises(SourceNotApproved, match=words):
            source.check("reddit", today=DAY)


def test_no_source_is_read_without_an_ethics_approval_on_record() -> None:
    dump: dict[str, object] = {"live": False, "access_basis": None, "approval": None, "expires": None}
    for ethics in (None, " "):
        source = SourceEntry.model_validate(dump | {"retention_days": None, "ethics": ethics})
        with pytest.raises(SourceNotApproved, match=r"ethics .* not set\. .*corpus params set sources\.dump\.ethics"):
            source.check("dump", today=DAY)
    SourceEntry.model_validate(dump | {"retention_days": None, "ethics": "HREC 29894"}).check("dump", today=DAY)
    assert load(ROOT).sources["dump"].ethics is None, "no approval is given on behalf of a team"
    assert all(source.ethics for source in load(ROOT, profile="sandbox").sources.values())


def test_the_secret_is_created_once_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORPUS_SECRET", raising=False)
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    settings = Settings.from_env()
    with pytest.raises(NoSecret):
        settings.secret()
    assert settings.create_secret() == settings.create_secret() == settings.secret()
    assert stat.S_IMODE((tmp_path / "var" / "secret").stat().st_mode) == 0o600
    monkeypatch.setenv("CORPUS_SECRET", "short")
    with pytest.raises(BadParams, match="64 hexadecimal"):
        settings.secret()


keys = st.sampled_from(["a", "b", "c"])
trees = st.recursive(st.integers(), lambda inner: st.dictionaries(keys, inner, max_size=3), max_leaves=8)


@given(base=st.dictionaries(keys, trees), over=st.dictionaries(keys, trees))
def test_an_overlay_wins_and_loses_nothing_else(base: dict[str, object], over: dict[str, object]) -> None:
    merged = overlay(base, over)
    assert overlay(merged, over) == merged
    assert set(merged) == set(base) | set(over)
    assert all(merged[k] == base[k] for k in set(base) - set(over))


def test_errors_pickle_and_say_what_to_do() -> None:
    error = SourceError("CorruptDump", name="x.zst", offset=17, detail="the frame ends early")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.fields, type(again)) == (str(error), error.fields, SourceError)
    assert "byte 17" in str(error) and "Nothing was committed" in str(error)


def test_a_stage_has_a_section_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(Section):
        size: int

    module: Any = ModuleType("foreign_stage")
    module.STAGE = Stage(reads=("gold",), params=("foreign_stage",), parameters=Own)
    monkeypatch.setitem(sys.modules, "foreign_stage", module)
    monkeypatch.setitem(STAGES, "foreign_stage", "foreign_stage")
    values = read_params(ROOT)
    params = validate(values | {"foreign_stage": {"size": 3}}, where="x")
    assert [*check_parts(params)] == []
    assert context_of("memes", params=params).section("foreign_stage", Own).size == 3
    for section, fault in (({"foreign_stage": {"size": "no"}}, "foreign_stage.size"), ({"stage": {}}, "stage: is no")):
        found = check_parts(validate(values | section, where="x", parts=False))
        assert [found[0].startswith(fault)] == [True]
