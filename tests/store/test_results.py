"""Hand-over of stage results against real git, real DVC and shell commands as stages; two writers of one key."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.settings import Settings
from pipelines.workspace import publish
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.git import git
from pipelines.workspace.inventory import check_handed_over, pointer_text, read_yaml
from pipelines.workspace.objects import ObjectIncomplete
from pipelines.workspace.results import Results, ResultUnusable, StageResult, Token
from pipelines.workspace.stages import StageRun
from tests.refusals import refused
from tests.small_corpus import SHELL, begin, code_of, sign, staged
from tests.stages import reproduce, rerun

BASE, RUN, STAGE = "a" * 40, "memes_dataset/1", "join"
# Each command notes that it ran; the file `salt` is an input that no stage declares.
GRAPH = """
stages:
  part:
    matrix: {name: [one, two]}
    cmd: >-
      echo part-${item.name} >> $CORPUS_HOME/ran && mkdir -p snapshot/parts/${item.name} metrics &&
      cat data/memes/*/records.parquet $CORPUS_HOME/salt > snapshot/parts/${item.name}/all.txt &&
      echo '{"name": "${item.name}"}' > metrics/${item.name}.json
    deps: [data/memes, code]
    outs: ["snapshot/parts/${item.name}", {"metrics/${item.name}.json": {cache: false}}]
  join:
    cmd: >-
      echo join >> $CORPUS_HOME/ran && mkdir -p metrics && cat snapshot/parts/*/all.txt > snapshot/joined.txt &&
      printf '{"café": 8e-06}' > metrics/join.json
    deps: [snapshot/parts, code/tool.txt]
    params: [rate, limits]
    outs: [snapshot/joined.txt, {metrics/join.json: {cache: false}}]
  tell:
    cmd: echo tell >> $CORPUS_HOME/ran && mkdir -p snapshot/told && wc -c snapshot/joined.txt > snapshot/told/size.txt
    deps: [snapshot/joined.txt]
    outs: [snapshot/told]
"""
PARAMS = "rate: 8e-06\nlimits: {low: 1e-3, names: [yes, no], none: null}\n"
CODE = SHELL | {
    "dvc.yaml": staged(GRAPH),
    "params.yaml": PARAMS,
    "code/tool.txt": "tool",
    "data/.gitignore": "*.parquet\n",
    "snapshot/.gitignore": "*\n!.gitignore\n",
}
ALL = ["part@one", "part@two", "join", "tell"]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a corpus with two months and four stages, none of which was run."""
    folder = tmp_path_factory.mktemp("begun")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(folder / "var"))
        settings = Settings.from_env()
        begin(settings, code=code_of(folder / "code", CODE))
        (settings.home / "salt").write_text("")
        for month in ("2022-11", "2022-12"):
            collect(settings, month=month, text=month)
    return settings.home


@pytest.fixture
def settings(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """A copy of that corpus."""
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    settings = Settings.from_env()
    shutil.copytree(begun, settings.home)
    yield settings
    assert not list((settings.home / "scratch").glob("*")), "a scratch clone was left behind"


def collect(settings: Settings, *, month: str, text: str) -> None:
    with workspace(settings) as clone:
        path = clone.path / "data" / "memes" / month / "records.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        pointers = clone.add([path])
    publish.publish_partition(settings, corpus="memes", month=month, pointers=pointers, leave_out=lambda *_: 0)


def ran(settings: Settings) -> list[str]:
    path = settings.home / "ran"
    return path.read_text().split() if path.exists() else []


def stages(settings: Settings, *targets: str, base: str = "", run: str = "a run") -> list[Token]:
    """Run target stages and those above them in a clone."""
    with workspace(settings, revision=base or publish.head(settings)) as clone:
        return reproduce(clone, *targets, run=run)


def commit(settings: Settings, tokens: list[Token], *, base: str = "", run: str = "a run") -> dict[str, Any]:
    given: dict[str, Any] = {"corpus": "memes", "targets": ["tell"], "run": run, "tokens": tokens}
    base = base or publish.head(settings)
    return publish.publish_snapshot(settings, **given, base=base, remember=lambda _: None)


def stored(settings: Settings) -> list[Path]:
    return sorted(path for path in Path(settings.remote, "results").rglob("*") if path.is_file())


def result(stage: str = STAGE, **entry: Any) -> StageResult:
    return StageResult(stage, {"cmd": "true"} | entry, {"metrics/join.json": '{"café": 1}'})


@pytest.fixture
def folder(tmp_path: Path) -> Results:
    """The results on an empty remote that is a folder."""
    return on(tmp_path)


def on(root: Path, *, secret: bytes = b"secret") -> Results:
    from dvc_objects.fs.local import localfs

    return Results(localfs, str(root), secret=secret)


def token(results: Results, *, key: str = "ab" * 32) -> Token:
    kept, differs = results.create(key, result())
    return results.token(key, kept, run=RUN, base=BASE, differs=differs)


def test_a_token_names_its_result_and_holds_none_of_it(folder: Results) -> None:
    made = token(folder)
    assert folder.receive(made, run=RUN, base=BASE) == result()
    assert len(json.dumps(made)) < 400
    assert set(made) == {"stage", "key", "digest", "differs", "mac"}


@pytest.mark.parametrize(
    "change",
    [
        *({"stage": "gold"}, {"key": "cd" * 32}, {"digest": "0" * 64}, {"differs": True}),
        *({"mac": "0" * 64}, {"mac": None}, {"mac": "é"}, {"run": "memes_dataset/2"}, {"base": "b" * 40}),
    ],
)
def test_a_changed_token_is_refused(folder: Results, change: dict[str, Any]) -> None:
    place = {"run": RUN, "base": BASE}
    made = token(folder)
    made |= {key: value for key, value in change.items() if key in made}
    with pytest.raises(ResultUnusable, match="token of the result does not belong to this run and commit"):
        folder.receive(made, **place | {key: value for key, value in change.items() if key in place})


def test_a_token_made_under_another_secret_is_refused(folder: Results, tmp_path: Path) -> None:
    forged = token(on(tmp_path / "elsewhere", secret=b"guess"))
    token(folder)
    with pytest.raises(ResultUnusable, match="token of the result does not belong to this run and commit"):
        folder.receive(forged, run=RUN, base=BASE)


def test_an_object_that_changed_on_the_remote_is_refused(folder: Results, tmp_path: Path) -> None:
    made = token(folder)
    [path] = [path for path in tmp_path.rglob("*") if path.is_file()]
    whole = path.read_bytes()
    for changed in (whole.replace(b"true", b"exit"), whole[:-1], b""):
        path.write_bytes(changed)
        with pytest.raises(ResultUnusable, match="another result is stored in its place"):
            folder.receive(made, run=RUN, base=BASE)
    # the project's own, but not the one that the token names
    path.unlink()
    folder.create(made["key"], result(cmd="exit"))
    with pytest.raises(ResultUnusable, match="another result is stored in its place"):
        folder.receive(made, run=RUN, base=BASE)
    path.unlink()
    with pytest.raises(ResultUnusable, match="no longer on the remote"):
        folder.receive(made, run=RUN, base=BASE)


def test_an_object_written_without_the_secret_is_refused(folder: Results, tmp_path: Path) -> None:
    on(tmp_path, secret=b"guess").create("ab" * 32, result())
    with pytest.raises(ResultUnusable, match="was not written by this project"):
        folder.get("ab" * 32)


def test_a_writer_that_is_overtaken_at_the_last_moment_uses_the_result_of_the_other(
    folder: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes, as below, meet at that moment only rarely."""
    first, second, came = result(cmd="one"), result(cmd="two"), list[str]()

    def overtaken(real: Callable[..., None]) -> Callable[..., None]:
        def call(*paths: Any, **options: Any) -> None:
            if not came:
                came.append("other")
                assert folder.create("ab" * 32, first) == (first, False)
            real(*paths, **options)

        return call

    for name in ("link", "rename", "replace"):
        monkeypatch.setattr(os, name, overtaken(getattr(os, name)))
    assert folder.create("ab" * 32, second) == (first, True)
    assert came and folder.get("ab" * 32) == first


def test_a_removed_object_leaves_every_result_that_names_it(folder: Results) -> None:
    folder.create("ab" * 32, result(outs=[{"path": "snapshot/x", "md5": "1" * 32}]))
    folder.create("cd" * 32, result())
    assert folder.forget(["1" * 32]) == 1
    assert folder.get("ab" * 32) is None and folder.get("cd" * 32) is not None


def test_a_result_of_another_definition_is_refused(settings: Settings) -> None:
    base = publish.head(settings)
    with workspace(settings, revision=base) as clone:
        run = StageRun(clone, RUN, base)
        good = clone.results.receive(run.reproduce("part@one"), run=RUN, base=base)
        entry = json.loads(json.dumps(good.entry))
        other_out = [{**entry["outs"][0], "path": "snapshot/parts/../../etc"}, *entry["outs"][1:]]
        changes: list[dict[str, Any]] = [
            {"cmd": "true"},
            {"params": {"params.yaml": {"rate": 1}}},
            {"outs": other_out},
            {"deps": entry["deps"][:1]},
            {"frozen": True},
        ]
        for number, change in enumerate(changes):
            other = replace(good, entry=entry | change)
            with pytest.raises(ResultUnusable, match="differ from those of this commit"):
                run.receive([handed(run, other, number)])
        changed = replace(good, metrics={"metrics/one.json": "{}"})
        with pytest.raises(ResultUnusable, match="metrics do not match its digests"):
            run.receive([handed(run, changed, len(changes))])
        assert run.receive([handed(run, good, len(changes) + 1)]) == [good]


def handed(run: StageRun, other: StageResult, number: int) -> Token:
    """Store a result under a key of its own and return its token."""
    key = f"{number:064x}"
    run.clone.results.create(key, other)
    return run.clone.results.token(key, other, run=run.name, base=run.base, differs=False)


def test_the_slower_of_two_differing_attempts_goes_on_with_the_result_of_the_first(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, real = publish.head(settings), Workspace.command

    def slow(self: Workspace, cmd: str, *, name: str) -> None:
        """Let another attempt of the stage begin and end while this one runs."""
        monkeypatch.setattr(Workspace, "command", real)
        real(self, cmd, name=name)
        (settings.home / "salt").write_text("another")
        first.extend(stages(settings, "part@one", base=base))

    first: list[Token] = []
    monkeypatch.setattr(Workspace, "command", slow)
    second = stages(settings, "part@one", base=base)
    assert ran(settings) == ["part-one", "part-one"]
    assert [made["differs"] for made in first + second] == [False, True]
    assert first[0]["digest"] == second[0]["digest"]
    assert commit(settings, second, base=base)["differing"] == 1


def test_a_result_is_taken_instead_of_a_run_and_made_again_when_its_objects_are_lost(settings: Settings) -> None:
    base = publish.head(settings)
    first = stages(settings, "part@one", base=base)
    assert stages(settings, "part@one", base=base) == first and len(ran(settings)) == 1
    with workspace(settings) as clone:
        [made] = StageRun(clone, "a run", base).receive(first)
        digest = made.entry["outs"][-1]["md5"]
        for place in (clone.objects.cache, clone.objects.remote):
            Path(place.oid_to_path(digest)).unlink()
    assert stages(settings, "part@one", base=base) == first and len(ran(settings)) == 2
    assert commit(settings, first, base=base)["changed"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole.replace(b"echo", b"exec"),
        lambda whole: b"0" * 64 + b"\n{}",
    ],
)
def test_a_damaged_or_forged_result_breaks_no_key(settings: Settings, damage: Callable[[bytes], bytes]) -> None:
    base = publish.head(settings)
    first = stages(settings, "part@one", base=base)
    [path] = stored(settings)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert stages(settings, "part@one", base=base) == first
    assert len(ran(settings)) == 2 and path.read_bytes() == whole


def test_a_result_of_other_inputs_that_was_copied_to_a_key_is_not_used(settings: Settings) -> None:
    stages(settings, "part@one")
    [old] = stored(settings)
    collect(settings, month="2023-01", text="later")
    stages(settings, "part@one")
    [new] = set(stored(settings)) - {old}
    new.write_bytes(old.read_bytes())
    tokens = stages(settings, "part@one")
    assert len(ran(settings)) == 3 and new.read_bytes() != old.read_bytes()
    assert commit(settings, tokens)["changed"]


def test_what_the_commit_has_already_is_handed_over_without_a_run(settings: Settings) -> None:
    done = commit(settings, stages(settings))
    before = ran(settings)
    for path in stored(settings):
        path.unlink()
    tokens = stages(settings)
    assert ran(settings) == before and len(tokens) == len(ALL)
    assert commit(settings, tokens) == done | {"changed": False}


def test_dvc_runs_nothing_on_the_published_commit(settings: Settings) -> None:
    commit(settings, stages(settings))
    assert sorted(ran(settings)) == sorted(["part-one", "part-two", "join", "tell"])
    with workspace(settings) as clone:
        assert list(clone.lock()) == ALL
        assert rerun(clone) == []
        assert git("status", "--porcelain", cwd=clone.path) == ""
        assert clone.lock()["join"]["params"] == {"params.yaml": {"limits": limits(), "rate": 8e-06}}
        assert (clone.path / "metrics" / "join.json").read_text() == '{"café": 8e-06}'
    assert len(ran(settings)) == len(ALL)


def limits() -> dict[str, Any]:
    """Return the section `limits` as YAML 1.2 has it: 8e-06 is a number, yes is a word."""
    found: dict[str, Any] = read_yaml(PARAMS)["limits"]
    assert found == {"low": 0.001, "names": ["yes", "no"], "none": None}
    return found


def test_a_stage_is_not_run_on_a_folder_that_lacks_an_object(settings: Settings) -> None:
    base = publish.head(settings)
    tokens = stages(settings, "part@one", "part@two", base=base)
    with workspace(settings, revision=base) as clone:
        run = StageRun(clone, "a run", base)
        clone.take(run.receive(tokens))
        [(_, lost)] = clone.inventory().files("snapshot/parts/two").items()
        for place in (clone.objects.cache, clone.objects.remote):
            Path(place.oid_to_path(lost)).unlink()
        with pytest.raises(ObjectIncomplete, match=lost):
            run.reproduce("join")
    assert "join" not in ran(settings)


def test_a_stage_is_not_run_on_a_folder_whose_stages_did_not_all_hand_over(settings: Settings) -> None:
    base = publish.head(settings)
    tokens = stages(settings, "part@one", base=base)
    with workspace(settings, revision=base) as clone:
        run = StageRun(clone, "a run", base)
        with refused("DependencyMissing", match=r"snapshot/parts is neither|snapshot/parts/"):
            run.reproduce("join")
        clone.take(run.receive(tokens))
        with refused("DependencyMissing", match=r"snapshot/parts/two"):
            run.reproduce("join")
    assert "join" not in ran(settings)


def test_what_a_removed_stage_made_is_no_part_of_a_folder_any_more(settings: Settings) -> None:
    commit(settings, stages(settings))
    with workspace(settings) as clone:
        (clone.path / "dvc.yaml").write_text(staged(GRAPH.replace("[one, two]", "[one]")))
        clone.commit("one part is enough")
    sign(settings)
    commit(settings, stages(settings))
    assert ran(settings)[len(ALL) :] == ["join", "tell"]
    with workspace(settings) as clone:
        assert rerun(clone) == []
        clone.checkout("snapshot/joined.txt")
        assert (clone.path / "snapshot" / "joined.txt").read_text() == "2022-112022-12"


def test_a_publish_is_refused_where_a_dependency_is_not_that_of_the_tip(settings: Settings) -> None:
    base = publish.head(settings)
    tokens = stages(settings, "join", base=base)
    (settings.home / "salt").write_text("another")
    for path in stored(settings):
        path.unlink()
    other = stages(settings, "part@one", "part@two", base=base, run="another run")
    commit(settings, other, base=base, run="another run")
    before = publish.head(settings)
    for path in stored(settings):
        path.unlink()
    (settings.home / "salt").write_text("")
    tokens = stages(settings, "join", base=base)
    with refused("Overtaken"):
        commit(settings, tokens, base=base)
    # its own deps are what the tip lacks: what made them was not handed over
    with refused("Overtaken", match="join"):
        commit(settings, [made for made in tokens if made["stage"] == "join"], base=base)
    assert publish.head(settings) == before


@pytest.mark.faults
def test_stage_tasks_and_a_publish_work_on_s3(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("CORPUS_REMOTE", f"{s3}/published")
    settings = Settings.from_env()
    begin(settings, code=code_of(tmp_path / "code", CODE))
    (settings.home / "salt").write_text("")
    collect(settings, month="2022-11", text="a")
    tokens = stages(settings)
    assert stages(settings) == tokens and len(ran(settings)) == len(ALL), "the second run takes what the first stored"
    shutil.rmtree(settings.cache)
    base = publish.head(settings)
    done = commit(settings, tokens)
    assert done == {"commit": publish.head(settings), "changed": True, "superseded": False, "differing": 0}
    with workspace(settings) as clone:
        assert rerun(clone) == []
        digest = clone.lock()["join"]["outs"][-1]["md5"]
        clone.objects.remote.fs.remove(clone.objects.remote.oid_to_path(digest))
    # the cache has what the remote lost: a publish brings nothing back, and refuses
    with pytest.raises(ObjectIncomplete, match=digest):
        commit(settings, tokens, base=base)
    with workspace(settings) as clone:
        assert clone.results.forget([digest]) == 2, "the result that has the object, and the one that depends on it"


GOOD = pointer_text("records.parquet", md5="0" * 32, size=1)
PATH = "data/memes/2022-11/records.parquet"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        *((f"{at}/records.parquet", GOOD) for at in ("../../x", "data/../..", "/data/memes", "snapshot/memes", ".dvc")),
        *((path, GOOD) for path in ("records.parquet", "data/memes/records.parquet\n", "data")),
        (PATH, f"deps:\n- path: x\n  repo:\n    url: https://example.org/x\n{GOOD}"),
        (PATH, f"{GOOD}deps:\n- path: https://example.org/x\n"),
        (PATH, f"wdir: ../..\n{GOOD}"),
        (PATH, f"{GOOD}- md5: {'1' * 32}\n  size: 1\n  hash: md5\n  path: other\n"),
        *((PATH, GOOD.replace("path: ", f"path: {at}")) for at in ("../", "/etc/", "https://example.org/", "other-")),
        (PATH, GOOD.replace("0" * 32, "../" + "0" * 29)),
        (PATH, GOOD.replace("0" * 32, "0" * 32 + ".dir")),
        (PATH, GOOD.replace("size: 1", "size: -1")),
        (PATH, GOOD.replace("size: 1", "size: 1\n  cache: false")),
        (PATH, GOOD.replace("size: 1", "size: 1\n  remote: other")),
        (PATH, GOOD + "#" * 1100),
        (PATH, ""),
    ],
)
def test_a_pointer_outside_the_schema_is_refused_without_its_text(path: str, text: str) -> None:
    with refused("BadPointer") as caught:
        check_handed_over({PATH: GOOD, path if path != PATH else "data/memes/2022-12/records.parquet": text})
    assert "pointer 2, " in str(caught.value) and "example.org" not in str(caught.value)
    assert check_handed_over({PATH: GOOD}) == {PATH: GOOD}


HERE = Path(__file__).parent
WRITER = HERE / "writer.py"


class Process:
    """One process of a round, which answers every line with a line."""

    def __init__(self, stack: ExitStack, role: str, root: str) -> None:
        argv = [sys.executable, str(WRITER), role, root]
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
        self._child = stack.enter_context(
            subprocess.Popen(argv, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        stack.callback(self._child.kill)

    def tell(self, line: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n")
        self._child.stdin.flush()

    def answer(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline().strip()


def play(root: str, *, rounds: int) -> Counter[str]:
    """Let both writers create the key of each round at once; count who was first and what was read."""
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        writers, reader = [Process(stack, role, root) for role in ("one", "two")], Process(stack, "reader", root)
        assert [process.answer() for process in [*writers, reader]] == ["ready"] * 3
        for number in range(rounds):
            key = f"{number:064x}"
            reader.tell(key)
            for writer in writers if number % 2 else writers[::-1]:
                writer.tell(key)
            answers = [writer.answer() for writer in writers]
            reader.tell("end")
            counts.update({f"read {what}": times for what, times in json.loads(reader.answer()).items()})
            counts[f"{answers.count('first')} first"] += 1
            counts["rounds that writer one won"] += answers[0] == "first"
    return counts


ROUNDS = [30, pytest.param(1000, marks=pytest.mark.faults)]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_on_a_folder_every_read_is_whole_and_one_writer_is_first(tmp_path: Path, rounds: int) -> None:
    check(play(str(tmp_path), rounds=rounds), rounds=rounds)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_on_s3_every_read_is_whole_and_one_writer_is_first(s3: str, rounds: int) -> None:
    check(play(f"{s3}/{rounds}", rounds=rounds), rounds=rounds)


def check(counts: Counter[str], *, rounds: int) -> None:
    assert counts["read bad"] == 0
    assert counts["1 first"] == rounds
    assert counts["read whole"] >= rounds
    assert 0 < counts["rounds that writer one won"] < rounds, "both writers win, else they do not meet"
