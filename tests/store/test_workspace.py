"""Workspaces against real git and real DVC, on a corpus whose step is two lines long."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.settings import Settings
from pipelines.core.errors import CommitLost, StepFailed
from pipelines.workspace import publish, repository
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.git import git
from pipelines.workspace.objects import ObjectIncomplete
from pipelines.workspace.results import Token
from tests.refusals import refused
from tests.small_corpus import SHELL, begin, code_of, sign, staged
from tests.stages import reproduce, rerun

GRAPH = """
stages:
  count:
    matrix: {corpus: [memes]}
    cmd: >-
      mkdir -p snapshot/memes/count metrics/memes &&
      cat data/memes/*/records.parquet > snapshot/memes/count/count.txt &&
      echo "{\\"months\\": $(ls data/memes/*/records.parquet | wc -l)}" > metrics/memes/count.json
    deps: ["data/${item.corpus}", pipelines/__main__.py]
    outs: ["snapshot/${item.corpus}/count"]
    metrics: ["metrics/${item.corpus}/count.json": {cache: false}]
"""
head = publish.head


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """A corpus repository with one stage and nothing in it."""
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    settings = Settings.from_env()
    files = {"dvc.yaml": staged(GRAPH), "data/.gitignore": "*.parquet\n", "snapshot/.gitignore": "*\n!.gitignore\n"}
    begin(settings, code=code_of(tmp_path / "code", SHELL | files))
    yield settings
    assert not list((settings.home / "scratch").glob("*")), "a scratch clone was left behind"


def collect(settings: Settings, *, month: str, text: str) -> dict[str, str]:
    """Write a month's posts in a clone and hand over the pointers."""
    with workspace(settings) as clone:
        folder = f"data/memes/{month}"
        assert clone.step(f"mkdir -p {folder} && printf '{text}' > {folder}/records.parquet && echo done") == "done"
        return clone.add([clone.path / folder / "records.parquet"])


def publish_month(settings: Settings, pointers: dict[str, str], *, month: str = "2022-11") -> dict[str, Any]:
    given = {"month": month, "pointers": pointers, "leave_out": lambda *_: 0}
    return publish.publish_partition(settings, corpus="memes", **given)


def collect_and_publish(settings: Settings, *, month: str = "2022-11", text: str = "a") -> dict[str, Any]:
    return publish_month(settings, collect(settings, month=month, text=text), month=month)


def never(_: Workspace) -> None:
    raise AssertionError("nothing may be remembered here")


def test_a_month_is_committed_once(settings: Settings) -> None:
    first = collect_and_publish(settings)
    assert first == {"commit": head(settings), "changed": True, "left_out": 0}
    assert collect_and_publish(settings) == {"commit": first["commit"], "changed": False, "left_out": 0}
    message = git("--git-dir", settings.repo, "log", "-1", "--format=%B", "corpus")
    assert f"Code-Revision: {git('--git-dir', settings.repo, 'rev-parse', 'main')}" in message


def test_pointers_of_an_earlier_run_of_the_month_go(settings: Settings) -> None:
    pointers = collect(settings, month="2022-11", text="a")
    text = pointers["data/memes/2022-11/records.parquet"].replace("records.parquet", "003.parquet")
    publish_month(settings, pointers | {"data/memes/2022-11/images/003.parquet": text})
    publish_month(settings, pointers)
    names = git("--git-dir", settings.repo, "ls-tree", "-r", "--name-only", "corpus", "data")
    assert [n for n in names.splitlines() if n.endswith(".dvc")] == ["data/memes/2022-11/records.parquet.dvc"]


def test_an_object_missing_in_the_remote_is_never_committed(settings: Settings) -> None:
    pointers = collect(settings, month="2022-11", text="a")
    [found] = [p for p in Path(settings.remote).rglob("*") if p.is_file()]
    found.chmod(0o600)
    found.write_text("")
    before = head(settings)
    with pytest.raises(ObjectIncomplete, match="missing or damaged"):
        publish_month(settings, pointers)
    assert head(settings) == before


@pytest.mark.parametrize(("said", "delay"), [('{"error": "MonthOpen", "retry_after": 7200.5}', 7200.5), ("{", None)])
def test_a_failed_step_keeps_exit_status_and_delay(settings: Settings, said: str, delay: float | None) -> None:
    with pytest.raises(StepFailed) as caught, workspace(settings) as clone:
        clone.step(f"echo '{said}'; exit 65")
    assert (caught.value.fields["returncode"], caught.value.fields["retry_after"]) == (65, delay)


def test_a_lost_race_changes_nothing(settings: Settings) -> None:
    with workspace(settings) as slow:
        (slow.path / "note").write_text("slow")
        fast = collect_and_publish(settings)
        with pytest.raises(CommitLost):
            slow.commit("late")
    assert head(settings) == fast["commit"]


def run_stages(settings: Settings, *targets: str, base: str) -> list[Token]:
    with workspace(settings, revision=base) as clone:
        return reproduce(clone, *targets)


def publish_stages(settings: Settings, *targets: str, base: str, tokens: list[Token], **more: Any) -> dict[str, Any]:
    given = {"corpus": "memes", "targets": targets, "run": "a run", "base": base, "tokens": tokens}
    return publish.publish_snapshot(settings, **{"remember": lambda _: None, **given, **more})


def test_a_snapshot_is_what_its_tasks_handed_over_and_equals_a_laptop(settings: Settings, tmp_path: Path) -> None:
    for month in ("2022-11", "2022-12"):
        collect_and_publish(settings, month=month, text=month)
    tokens = run_stages(settings, "count@memes", base=head(settings))
    seen: list[Workspace] = []
    done = publish_stages(settings, "count@memes", base=head(settings), tokens=tokens, remember=seen.append)
    assert len(seen) == 1, "what must hold from now on is recorded before the commit"
    assert done == {"commit": head(settings), "changed": True, "superseded": False, "differing": 0}
    assert json.loads(git("--git-dir", settings.repo, "show", "corpus:metrics/memes/count.json")) == {"months": 2}
    with workspace(settings) as clone:
        assert rerun(clone) == []
        assert git("status", "--porcelain", cwd=clone.path) == ""

    laptop = tmp_path / "laptop"
    git("clone", "--quiet", "--branch", "corpus", settings.repo, str(laptop))
    lock = (laptop / "dvc.lock").read_bytes()
    (laptop / "dvc.lock").unlink()
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    for argv in (
        ["remote", "add", "--local", "-d", "corpus", settings.remote],
        ["pull", "data/memes/2022-11/records.parquet.dvc", "data/memes/2022-12/records.parquet.dvc"],
        ["repro", "--no-run-cache"],
    ):
        subprocess.run([sys.executable, "-m", "dvc", *argv], cwd=laptop, env=environment, check=True)
    assert (laptop / "dvc.lock").read_bytes() == lock


def test_what_a_commit_has_below_a_folder_is_checked_out_and_nothing_else(settings: Settings) -> None:
    for month in ("2022-11", "2022-12"):
        collect_and_publish(settings, month=month, text=month)
    tokens = run_stages(settings, "count@memes", base=head(settings))
    publish_stages(settings, "count@memes", base=head(settings), tokens=tokens)
    for folders, there in {
        ("data/memes/2022-11",): {"data/memes/2022-11/records.parquet"},
        ("snapshot/memes",): {"snapshot/memes/count/count.txt"},
        ("snapshot/posts", "data/mem"): set(),
    }.items():
        with workspace(settings) as clone:
            clone.checkout(*folders)
            files = [path for top in ("data", "snapshot") for path in (clone.path / top).rglob("*") if path.is_file()]
            apart = {".dvc", ".gitignore"}
            found = {str(p.relative_to(clone.path)) for p in files if p.suffix not in apart and p.name not in apart}
            assert found == there


def test_a_clone_of_some_folders_commits_these_and_keeps_the_others(settings: Settings) -> None:
    with workspace(settings) as whole:
        every = set(git("ls-files", cwd=whole.path).splitlines())
    with workspace(settings, folders=["notes"]) as clone:
        there = {str(path.relative_to(clone.path)) for path in clone.path.rglob("*") if path.is_file()}
        assert {path for path in every if "/" not in path or path.startswith(".dvc/")} == every & there
        assert clone.objects.cache.path
        (clone.path / "notes").mkdir()
        (clone.path / "notes" / "a.txt").write_text("a note")
        assert clone.commit("a note", paths=["notes"])
    with workspace(settings) as whole:
        assert set(git("ls-files", cwd=whole.path).splitlines()) == every | {"notes/a.txt"}
        assert all((whole.path / path).exists() for path in every)


def test_champions_are_committed_once_and_supersede_nothing(settings: Settings) -> None:
    def write(root: Path) -> None:
        (root / "models" / "memes").mkdir(parents=True, exist_ok=True)
        (root / "models" / "memes" / "meme-severity.json").write_text('{"version": 2}')

    first = publish.publish_champions(settings, corpus="memes", write=write)
    assert (first["changed"], first["commit"]) == (True, head(settings))
    assert publish.publish_champions(settings, corpus="memes", write=write) == {**first, "changed": False}
    told = git("--git-dir", settings.repo, "show", "corpus:models/memes/meme-severity.json")
    assert json.loads(told) == {"version": 2}


def test_a_month_that_came_meanwhile_supersedes_the_snapshot(settings: Settings) -> None:
    base = collect_and_publish(settings)["commit"]
    collect_and_publish(settings, month="2022-12", text="b")
    tokens = run_stages(settings, "count@memes", base=base)
    done = publish_stages(settings, "count@memes", base=base, tokens=tokens, remember=never)
    assert done == {"commit": head(settings), "changed": False, "superseded": True, "differing": 0}


def test_only_a_later_month_of_the_corpus_makes_an_earlier_run_needless(settings: Settings) -> None:
    def published(month: str) -> str:
        return str(collect_and_publish(settings, month=month, text=month)["commit"])

    def later(*commits: str, corpus: str = "memes") -> bool:
        return publish.later_month(settings, corpus=corpus, commits=commits)

    first = published("2022-11")
    with workspace(settings) as clone:
        (clone.path / "data" / "memes" / "imported.txt").write_text("an import triggers no run")
        clone.commit("import(memes): pictures", paths=["data"])
    assert not later(first)
    second = published("2022-10")
    assert later(first)
    assert not later(second) and not later(first, second), "the newest month's run is never left out"
    assert not later(first, corpus="posts")
    assert not later("0" * 40), "a commit that the branch has lost"


AGREE = """
  agree:
    cmd: mkdir -p snapshot/memes && cp annotations/memes/said snapshot/memes/agree
    deps: [annotations/memes]
    outs: [snapshot/memes/agree]
"""


def say(settings: Settings, text: str) -> str:
    """Commit what annotators said, beside a stage that reads it; return the commit."""
    with workspace(settings) as clone:
        (clone.path / "annotations" / "memes").mkdir(parents=True, exist_ok=True)
        (clone.path / "annotations" / "memes" / "said").write_text(text)
        (clone.path / "dvc.yaml").write_text(staged(GRAPH + AGREE))
        commit = str(clone.commit(text))
    sign(settings)
    return commit


def agree(settings: Settings, *, base: str) -> list[Token]:
    return run_stages(settings, "agree", base=base)


def test_a_pull_that_came_meanwhile_does_not_stop_a_publish(settings: Settings) -> None:
    base = say(settings, "early")
    tokens = agree(settings, base=base)
    say(settings, "late")
    done = publish_stages(settings, "agree", base=base, tokens=tokens)
    assert done["changed"] and not done["superseded"]
    assert git("--git-dir", settings.repo, "show", "corpus:annotations/memes/said") == "late"
    with workspace(settings) as clone:
        clone.checkout("snapshot/memes/agree")
        assert (clone.path / "snapshot" / "memes" / "agree").read_text() == "early"


def test_a_publish_never_puts_back_what_a_later_run_published(settings: Settings) -> None:
    early = say(settings, "early")
    first = agree(settings, base=early)
    late = say(settings, "late")
    publish_stages(settings, "agree", base=late, tokens=agree(settings, base=late))
    before = head(settings)
    with refused("Overtaken", match="agree"):
        publish_stages(settings, "agree", base=early, tokens=first, remember=never)
    assert head(settings) == before


def test_a_round_is_committed_once_and_its_tables_are_whole(settings: Settings) -> None:
    def work(text: str) -> dict[str, object]:
        with workspace(settings) as clone:
            folder = clone.path / "annotations" / "memes" / "pilot-1"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "manifest.yaml").write_text("status: open\n")
            table = folder / "annotations.parquet"
            table.write_text(text)
            return publish.publish_round(clone, corpus="memes", name="pilot-1", event="pulled", written=[table])

    first = work("a")
    assert first == {"commit": head(settings), "changed": True}
    assert work("a") == {"commit": first["commit"], "changed": False}
    assert git("--git-dir", settings.repo, "log", "-1", "--format=%s", "corpus") == "round(memes): pilot-1 pulled"
    names = git("--git-dir", settings.repo, "ls-tree", "-r", "--name-only", "corpus", "annotations").splitlines()
    assert {Path(name).name for name in names} - {".gitignore"} == {"manifest.yaml", "annotations.parquet.dvc"}
    [found] = [p for p in Path(settings.remote).rglob("*") if p.is_file()]
    found.chmod(0o600)
    found.write_text("")
    assert work("a") == {"commit": first["commit"], "changed": False}
    assert found.read_text() == "a", "what was damaged in the remote is whole again before anything is committed"


def test_who_writes_into_a_clone_does_not_alter_the_cache(settings: Settings, tmp_path: Path) -> None:
    collect_and_publish(settings, text="a month")
    lab = repository.clone(settings, folder=tmp_path / "lab")
    subprocess.run([sys.executable, "-m", "dvc", "pull", "--quiet", "--allow-missing"], cwd=lab, check=True)
    path = lab / "data" / "memes" / "2022-11" / "records.parquet"
    with path.open("r+") as file:
        file.write("another")
    assert path.read_text() == "another"
    assert [p.read_text() for p in settings.cache.rglob("*") if p.is_file()] == ["a month"]
