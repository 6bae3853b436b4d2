"""A parameter that a person sets stays set: no upgrade and no profile reverts it silently."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.core.config.params import FILES, find_key, leaves, load, rewrite
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, ConfigError
from pipelines.workspace import parameters, publish, repository
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from pipelines.workspace.parameters import merge
from tests.refusals import refused

WHO = {"reason": "a larger sample", "who": "Ann Example <ann@example.org>"}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkout: Path) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    monkeypatch.chdir(checkout)
    settings = Settings.from_env()
    repository.init(settings, checkout=checkout, profile="sandbox")
    return settings


def newer(checkout: Path, **replaced: str) -> None:
    """Commit newer code: ``replaced`` maps a text of ``params.yaml`` to its replacement, `` -> `` between them."""
    path = checkout / "params.yaml"
    text = path.read_text()
    for old, _, new in (change.partition(" -> ") for change in replaced.values()):
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    path.write_text(text)
    git("commit", "--quiet", "--all", "--allow-empty", "-m", "newer", cwd=checkout)


def present(settings: Settings) -> Any:
    with workspace(settings) as clone:
        return load(clone.path)


def text(settings: Settings, name: str = "params.yaml") -> str:
    return git("--git-dir", settings.repo, "show", f"corpus:{name}")


def run(*argv: str) -> Any:
    done = CliRunner().invoke(app, argv, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout.splitlines()[-1]), done.output


def test_a_value_is_set_with_who_when_and_why_and_its_comment_stays(settings: Settings) -> None:
    before = text(settings)
    found, output = run("params", "set", "sample.memes.size", "900", "--reason", "a larger\nsample", "--by", "Ann")
    assert found["commit"] == publish.head(settings)
    assert found["changed"] == ["sample.memes.size"]
    assert found["to_run"] == ["sample@memes"] and "split@memes" in found["below"]
    assert "sample.memes.size: 210 -> 900" in output
    changed = [line for line in text(settings).splitlines() if line not in before.splitlines()]
    assert changed == ["  memes: {size: 900, seed: 20180401}   # FigSIM 3.1"]
    [row] = [row for row in run("params", "diff", "--json")[0] if row["by_person"]]
    assert (row["key"], row["default"], row["profile"], row["present"]) == ("sample.memes.size", 1050, 210, 900)
    assert (row["record"]["who"], row["record"]["reason"]) == ("Ann", "a larger sample")
    assert row["record"]["when"].startswith("20")
    log = git("--git-dir", settings.repo, "log", "-1", "--format=%(trailers:key=Code-Revision,valueonly)", "corpus")
    assert len(log.strip()) == 40, "the block of trailers is one"


def test_a_value_of_the_catalogue_is_set_in_its_file(settings: Settings) -> None:
    before = {name: text(settings, name) for name in FILES}
    found, _ = run("params", "set", "models.knn.votes", "gpt", "--reason", "blended")
    assert "train@posts-labels-knn-consensus-20251001" in found["to_run"]
    assert "train@memes-figurative-tiny-text-gold-1" not in found["to_run"]
    assert text(settings) == before["params.yaml"]
    [line] = set(text(settings, "catalogue.yaml").splitlines()) - set(before["catalogue.yaml"].splitlines())
    assert "votes: gpt}" in line and line.endswith("# ours; dev chooses")


def test_a_dry_run_and_an_invalid_value_commit_nothing(settings: Settings) -> None:
    head = publish.head(settings)
    assert run("params", "set", "sample.memes.size", "900", "--reason", "r", "--dry-run")[0]["commit"] is None
    for key, value, words in (
        ("sample.memes.size", "many", r"sample\.memes\.size"),
        ("sample.memes.sise", "3", r"sample\.memes\.sise"),
        ("votes.labellers.posts", "[oracle]", "section labellers has no entry oracle"),
        ("profile", "cradle", "corpus init"),
        ("dedupe.radius", "{", "not YAML"),
        ("providers.openai.api", "oracle", r"providers\.openai\.api: is none of anthropic, .*openai"),
        ("providers.openai.radius", "3", r"providers\.openai\.radius: Extra inputs"),
        ("moderators.azure.flag_from", "9", r"moderators\.azure\.flag_from"),
    ):
        with pytest.raises(BadParams, match=words):
            run("params", "set", key, value, "--reason", "r")
    with refused("UnknownParameter", match=r"sample\.films"):
        run("params", "show", "sample.films")
    assert publish.head(settings) == head


@pytest.mark.faults
def test_a_date_is_written_as_text_and_a_new_entry_is_added(settings: Settings, tmp_path: Path) -> None:
    run("params", "set", "sources.dump.ethics", "none needed: a test", "--reason", "a text with a colon")
    assert present(settings).sources["dump"].ethics == "none needed: a test"
    run("params", "set", "sources.dump.expires", "2031-06-30", "--reason", "renewed")
    assert 'expires: "2031-06-30"' in text(settings) or "expires: '2031-06-30'" in text(settings)
    entry = "{kind: remote, provider: openai, model: m, system: commercial}"
    (tmp_path / "more.yaml").write_text(f"labellers:\n  gpt-5.1: {entry}\n")
    run("params", "apply", str(tmp_path / "more.yaml"), "--reason", "r")
    run("params", "set", "labellers.mine", entry, "--reason", "whole")
    run("params", "set", "labellers.gpt-5.1.model", "gpt-5.1", "--reason", "r")
    assert present(settings).labellers["gpt-5.1"].model == "gpt-5.1"
    found, _ = run("params", "show", "labellers.gpt-5.1", "--json")
    assert found["model"] == "gpt-5.1"
    rows = {row["key"]: row for row in run("params", "diff", "--json")[0]}
    assert rows["labellers.mine.kind"]["record"]["reason"] == "whole"
    assert rows["labellers.gpt-5.1.kind"]["record"]["reason"] == "r"


@pytest.mark.faults
def test_a_file_is_applied_in_one_commit(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("sample:\n  memes: {size: 500}\nround: {daily_cap: 10}\n")
    found, _ = run("params", "apply", str(tmp_path / "ours.yaml"), "--reason", "our team")
    assert found["changed"] == ["sample.memes.size", "round.daily_cap"]
    assert (present(settings).sample["memes"].size, present(settings).round.daily_cap) == (500, 10)
    assert run("params", "apply", str(tmp_path / "ours.yaml"), "--reason", "again")[0]["commit"] is None
    with pytest.raises(BadParams, match="cannot be read"):
        run("params", "apply", str(tmp_path / "none.yaml"), "--reason", "r")


def test_a_file_is_read_to_the_last_of_its_keys(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("sample:\n  memes: {size: 500}\nlabellers:\n  gpt-5.1: {model: m, price: null}")
    of = ("labellers", "gpt-5.1")
    found = parameters.from_file(tmp_path / "ours.yaml")
    assert found == {("sample", "memes", "size"): 500, (*of, "model"): "m", (*of, "price"): None}
    with pytest.raises(BadParams, match="cannot be read"):
        parameters.from_file(tmp_path / "none.yaml")


def test_without_a_corpus_it_is_one_sentence(settings: Settings) -> None:
    shutil.rmtree(settings.repo)
    for argv in (("show",), ("diff",), ("set", "dedupe.radius", "9", "--reason", "r")):
        with refused("NoCorpus"):
            run("params", *argv)


def test_an_upgrade_keeps_what_a_person_set_and_says_so(settings: Settings, checkout: Path) -> None:
    run("params", "set", "dedupe.radius", "9", "--reason", "r")
    newer(checkout, one="radius: 12 -> radius: 12  # newer comment\n#", two="k: 5   -> k: 7   ")
    found, output = run("upgrade")
    assert found["params_changed"] == ["release.k"] and "changed: release.k: 5 -> 7" in output
    assert found["params_kept"] == ["dedupe.radius"] and "kept, set by a person: dedupe.radius: 9" in output
    assert (present(settings).dedupe.radius, present(settings).release.k) == (9, 7)
    assert "newer comment" in text(settings)
    newer(checkout, two="k: 7   -> k: 8   ")
    run("upgrade")
    assert (present(settings).dedupe.radius, present(settings).release.k) == (9, 8), "a second time, too"


def test_a_commit_without_a_command_is_kept_too(settings: Settings, checkout: Path) -> None:
    with workspace(settings) as clone:
        path = clone.path / "params.yaml"
        path.write_text(path.read_text().replace("radius: 12 ", "radius: 9 "))
        clone.commit("edited in a clone")
    newer(checkout, two="k: 5   -> k: 7   ")
    assert run("upgrade")[0]["params_kept"] == ["dedupe.radius"]
    [row] = [row for row in run("params", "diff", "--json")[0] if row["by_person"]]
    assert (row["key"], row["record"]) == ("dedupe.radius", None)


def test_a_conflict_names_the_keys_and_is_decided_by_options(settings: Settings, checkout: Path) -> None:
    for key, value in (("dedupe.radius", "9"), ("release.k", "6")):
        run("params", "set", key, value, "--reason", "r")
    newer(checkout, one="radius: 12 -> radius: 10", two="k: 5   -> k: 7   ")
    head, code = publish.head(settings), git("--git-dir", settings.repo, "rev-parse", "code")
    with refused("ParameterConflict", match=r"dedupe\.radius, release\.k.*--keep KEY"):
        run("upgrade")
    with refused("ParameterConflict", match=r"changed release\.k\."):
        run("upgrade", "--keep", "dedupe.radius")
    assert (publish.head(settings), git("--git-dir", settings.repo, "rev-parse", "code")) == (head, code)
    found, _ = run("upgrade", "--keep", "dedupe", "--take", "release.k")
    assert (found["params_kept"], found["params_changed"]) == (["dedupe.radius"], ["release.k"])
    assert (present(settings).dedupe.radius, present(settings).release.k) == (9, 7)


def test_a_corpus_that_a_person_added_survives_an_upgrade(settings: Settings, checkout: Path) -> None:
    like = present(settings).corpora["posts"].model_dump_json()
    run("params", "set", "corpora.forum", like, "--reason", "a third one")
    newer(checkout, two="k: 5   -> k: 7   ")
    found, _ = run("upgrade")
    assert found["params_changed"] == ["release.k"]
    assert present(settings).matrix.corpora == ("memes", "posts", "forum")


def test_approvals_and_budgets_are_never_changed_by_an_upgrade(settings: Settings, checkout: Path) -> None:
    run("params", "set", "sources.reddit.approval", "IRB-7", "--reason", "granted")
    profile = checkout / "profiles" / "sandbox.yaml"
    profile.write_text(
        profile.read_text()
        .replace("approval: sandbox", "approval: other")
        .replace("budget_usd: 20", "budget_usd: 9000")
    )
    newer(checkout, live="live: true -> live: false")
    found, output = run("upgrade")
    assert "sources.reddit.approval" in found["params_protected"] and "votes.budget_usd" in found["params_protected"]
    assert "never changes approvals and budgets: votes.budget_usd: 20 -> 9000" in output
    params = present(settings)
    assert (params.sources["reddit"].approval, params.sources["dump"].approval) == ("IRB-7", "sandbox")
    assert (params.votes.budget_usd, params.sources["reddit"].live) == (20, True)


def test_edits_that_an_upgrade_would_ignore_are_refused(settings: Settings, checkout: Path) -> None:
    newer(checkout, two="k: 5   -> k: 7   ")
    (checkout / "pipelines" / "new module.py").write_text("# edited\n")
    with refused("Uncommitted", match="uncommitted edits of pipelines/new module.py, which"):
        run("upgrade")
    git("add", "pipelines", cwd=checkout)
    with refused("Uncommitted"):
        run("upgrade")
    git("commit", "--quiet", "-m", "now", cwd=checkout)
    (checkout / "README.md").write_text("a note that no upgrade reads\n")
    assert run("upgrade")[0]["commit"]


def test_edits_of_all_that_an_upgrade_reads_are_found(checkout: Path) -> None:
    read = {"params.yaml", "catalogue.yaml", "dvc.yaml", "profiles/sandbox.yaml"}
    read |= {"schemes/figsim.yaml", "pipelines/core/config/params.py", "corpora/own/scheme.yaml"}
    for path in (*read, "README.md", "corpora/other/scheme.yaml"):
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        with (checkout / path).open("a") as file:
            file.write("# edited\n")
    assert set(repository.uncommitted(checkout, profile="own")) == read


def test_older_code_and_other_code_are_not_merged(settings: Settings, checkout: Path) -> None:
    newer(checkout, two="k: 5   -> k: 7   ")
    run("upgrade")
    git("checkout", "--quiet", "HEAD~1", cwd=checkout)
    assert run("upgrade")[0]["commit"] is None, "older"
    newer(checkout, two="k: 5   -> k: 9   ")
    with refused("UnknownCode", match="git fetch"):
        run("upgrade")


def test_the_profile_must_stay_in_the_code(settings: Settings, checkout: Path) -> None:
    git("rm", "--quiet", "profiles/sandbox.yaml", cwd=checkout)
    newer(checkout)
    with refused("ProfileMissing", match="sandbox"):
        run("upgrade")


names = st.sampled_from(["a", "b", "c", "gpt-5.1"])
inner = st.recursive(st.integers(0, 2), lambda below: st.dictionaries(names, below, max_size=3), max_leaves=6)
trees = st.dictionaries(names, inner)


@given(base=trees, ours=trees, theirs=trees)
def test_a_merge_loses_no_change(base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert merge(base, base, theirs).values == theirs
    assert merge(base, ours, base).values == ours
    assert merge(base, ours, ours).values == ours
    try:
        merged = merge(base, ours, theirs).values
    except ConfigError as error:
        assert error.code == "ParameterConflict"
        return
    known, mine, new = dict(leaves(base)), dict(leaves(ours)), dict(leaves(theirs))
    for key, value in leaves(merged):
        assert value in ({}, mine.get(key), new.get(key))
    for key in set(mine) & set(new) & set(known):
        if mine[key] != known[key] and not isinstance(mine[key], dict):
            assert dict(leaves(merged))[key] == mine[key]


@given(tree=trees, other=trees)
def test_a_text_is_rewritten_to_exactly_the_values(tree: dict[str, Any], other: dict[str, Any]) -> None:
    from ruamel.yaml import YAML

    assert YAML(typ="safe").load(rewrite({"params.yaml": json.dumps(tree)}, other)["params.yaml"]) == other
    for key, _ in leaves(tree):
        if key:
            assert tree and find_key(tree, ".".join(key))
