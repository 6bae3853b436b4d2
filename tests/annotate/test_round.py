"""Whole rounds on a real corpus repository (git and DVC), with people who answer through the files backend."""

import csv
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from pipelines.annotate import gold, manifest
from pipelines.annotate.backends import AnnotationTask, AnnotatorAnswer, Queue
from pipelines.annotate.backends.files import Files
from pipelines.annotate.rounds import descriptions, desk, store
from pipelines.annotate.rounds import round as rounds
from pipelines.cli.annotate import app as commands
from pipelines.cli.annotate import rounds as app
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import AnnotationError, CommitLost
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.guideline import offered
from pipelines.store import tables
from pipelines.store.vault import locks
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from tests.annotate import round_corpus as small
from tests.annotate.round_corpus import NOW, answer, items, other, tasks, truth
from tests.contexts import context_of
from tests.refusals import refused
from tests.small_corpus import own_scheme
from tests.stages import reproduce

DAY = timedelta(days=1)
ONE, TWO = "annotator-1", "annotator-2"
ROUND = "calibration"


@dataclass
class Lab:
    """A corpus, and a clock that the backend reads."""

    settings: Settings
    vault: Vault
    now: datetime = NOW
    kind: type[Files] = Files

    def do(self, command: Callable[..., dict[str, Any]], name: str = ROUND, corpus: str = "memes", **more: Any) -> Any:
        return command(self.site, corpus, name, **more)

    @property
    def site(self) -> store.RoundSite:
        backend = self.kind(self.settings.annotation_files, clock=lambda: self.now)
        return store.RoundSite(self.settings, self.vault, self.now, backend)

    def opened(self, *people: str, count: int | None = None) -> tuple[list[small.Item], small.Truth]:
        """Open the calibration; return its items, and their truth, which these people answer for the first items."""
        self.do(rounds.open_round)
        asked = items(self.folder(ONE))
        right = truth(asked)
        for person in people:
            answer(self.folder(person), [(i, right[i]) for i in asked[:count]])
        return asked, right

    def folder(self, person: str, *, name: str = ROUND, corpus: str = "memes") -> Path:
        return self.settings.annotation_files / corpus / name / person

    def adjudication(self, *, name: str = ROUND, corpus: str = "memes") -> Path:
        return self.folder("adjudication", name=name, corpus=corpus) / "adjudicator-1"

    def head(self) -> str:
        return git("--git-dir", self.settings.repo, "rev-parse", "corpus")

    def shown(self, path: str) -> str:
        return git("--git-dir", self.settings.repo, "show", f"corpus:{path}")

    def manifest(self, name: str = ROUND, corpus: str = "memes") -> dict[str, Any]:
        return yaml.safe_load(self.shown(f"annotations/{corpus}/{name}/manifest.yaml"))

    def rows(self, table: str, *, name: str = ROUND, corpus: str = "memes") -> list[dict[str, Any]]:
        with workspace(self.settings) as clone:
            found = store.read(clone, corpus=corpus, name=name, vault=self.vault)
            assert found.folder.is_dir()
            return tables.read(found.folder / f"{table}.parquet", name=table).to_pylist()


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a corpus in which no round was opened."""
    home = tmp_path_factory.mktemp("begun")
    with at_home(home / "var") as settings, Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        small.begin(home, settings=settings, vault=vault)
    return home


@pytest.fixture
def lab(begun: Path, tmp_path: Path) -> Iterator[Lab]:
    shutil.copytree(begun / "var", tmp_path / "var")
    with at_home(tmp_path / "var") as settings, Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        yield Lab(settings, vault)
        assert not list((settings.home / "scratch").glob("*")), "a scratch clone was left behind"
        for path in (path for path in settings.cache.glob("files/md5/*/*") if path.suffix != ".dir"):
            digest = hashlib.md5(path.read_bytes()).hexdigest()
            assert digest == path.parent.name + path.name, "writing a table wrote into the cache that clones share"


@contextmanager
def at_home(var: Path) -> Iterator[Settings]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(var))
        patch.setenv("CORPUS_SECRET", small.SECRET)
        yield Settings.from_env()


def gold_of(lab: Lab) -> dict[tuple[str, int, str], tuple[list[str], str]]:
    """Make gold in a clone of the tip."""
    with workspace(lab.settings) as clone:
        store.fetch_stages(clone, "sample@memes", "split@memes")
        clone.checkout("annotations/memes")
        params = load(clone.path)
        gold.run(context_of("memes", params=params, settings=lab.settings, vault=lab.vault, root=clone.path))
        rows = tables.read(clone.path / "snapshot/memes/gold/gold.parquet", name="gold").to_pylist()
    return {(r["record_id"], r["image"], r["category"]): (r["labels"], r["how"]) for r in rows}


def plain(values: dict[str, list[str]], key: str) -> list[str]:
    """A set as tables hold it: "None" of a category with many labels is the empty set."""
    category = load_scheme("figsim").categories[key]
    empty = category.kind == "multi" and category.none not in category.names
    return [] if empty and values[key] == [category.none] else sorted(values[key])


def test_a_team_s_scheme_is_read_from_the_corpus_branch(lab: Lab) -> None:
    with workspace(lab.settings) as clone:
        values = yaml.safe_load((clone.path / "params.yaml").read_text())
        values["corpora"]["memes"]["scheme"] = own_scheme(clone.path, like="figsim")
        (clone.path / "params.yaml").write_text(yaml.safe_dump(values))
        clone.commit("a scheme of our own")
    lab.do(rounds.open_round)
    assert lab.manifest()["scheme"] == "own"
    assert lab.do(rounds.pull)["status"] == "open"


def test_a_round_from_the_draw_to_gold(lab: Lab) -> None:
    opened = lab.do(rounds.open_round)
    assert (opened["status"], opened["size"], opened["planned"]) == ("open", 50, 50)
    assert opened["released"] == {ONE: 50, TWO: 50}
    assert "round(memes): calibration opened" in git(
        "--git-dir", lab.settings.repo, "log", "-1", "--format=%s", "corpus"
    )
    asked = items(lab.folder(ONE))
    assert sorted(asked) == sorted(items(lab.folder(TWO)))
    assert asked != items(lab.folder(TWO)), "two annotators do not tire over the same items"
    again = lab.do(rounds.open_round)
    assert (again["commit"], again["changed"], again["released"]) == (opened["commit"], False, {})

    # one is always right; two errs, answers twice, leaves much, skips, and says what the scheme does not know
    right = truth(asked)
    answer(lab.folder(ONE), [(i, right[i]) for i in asked])
    wrong, twice, outside, skipped, left = asked[:6], asked[6], asked[7], asked[8], asked[9:30]
    answer(lab.folder(TWO), [(i, other(right[i], key="severity")) for i in wrong])
    answer(lab.folder(TWO), [(twice, other(right[twice], key="severity")), (twice, right[twice])])
    answer(lab.folder(TWO), [(outside, right[outside] | {"severity": ["sad"]}), (skipped, None)])
    answer(lab.folder(TWO), [(i, right[i]) for i in asked if i not in {*wrong, twice, outside, skipped, *left}])
    pulled = lab.do(rounds.pull)
    assert pulled["answered"] == {ONE: 50, TWO: 29}
    assert pulled["skipped"] == 1
    assert pulled["problems"] == {TWO: {"answered_twice": 1, "outside_scheme": 1, "unanswered": 21}}
    assert pulled["changed"]
    before = lab.shown("annotations/memes/calibration/annotations.parquet.dvc")
    again = lab.do(rounds.pull)
    assert (again["commit"], again["changed"], again["problems"]) == (pulled["commit"], False, pulled["problems"])
    assert lab.shown("annotations/memes/calibration/annotations.parquet.dvc") == before

    begun = lab.do(rounds.adjudicate)
    disputed = {*wrong, outside, skipped, *left}
    assert (begun["status"], begun["cases"], begun["released"]) == ("adjudicating", 29, {"adjudicator-1": 29})
    assert len(disputed) == 29
    assert lab.do(rounds.adjudicate)["changed"] is False
    shown = tasks(lab.adjudication())
    assert {small.item(str(t["item"])) for t in shown} == disputed
    assert not any(person in json.dumps(shown) for person in (ONE, TWO)), "sides have no names"
    assert set(items(lab.folder(TWO))).isdisjoint(left), "closed items are in no queue"
    with refused("RoundState", match="29 items wait"):
        lab.do(rounds.close, go_on=True, reason="agreement-sufficient")

    decisions = [
        (small.item(str(t["item"])), {k: right[small.item(str(t["item"]))][k] for k in t["disputed"]}) for t in shown
    ]
    answer(lab.adjudication(), decisions, note="the guideline says so")
    closed = lab.do(rounds.close, go_on=True, reason="agreement-sufficient")
    assert (closed["status"], closed["cases"], closed["problems"]) == ("closed", 0, {})
    decision = lab.manifest()["decision"]
    assert (decision["go_on"], decision["reason"]) == (True, "agreement-sufficient")
    assert not list(lab.settings.annotation_files.rglob("*")), "nothing is left in the backend"

    found = gold_of(lab)
    assert {(r, i) for r, i, _ in found} == set(asked)
    assert all(labels == plain(right[r, i], key) for (r, i, key), (labels, _) in found.items())
    how = {key: how for (r, i, key), (_, how) in found.items() if (r, i) == wrong[0]}
    assert how["severity"] == "adjudicated"
    assert set(how.values()) == {"agreed", "adjudicated"}
    assert not holds(lab.settings.home, small.NOTE, "the guideline says so"), "notes and rationales are sealed"

    # closed is closed; repeating it purges whatever came back
    lab.folder(ONE).mkdir(parents=True)
    assert lab.do(rounds.close, go_on=True, reason="agreement-sufficient")["changed"] is False
    assert not list(lab.settings.annotation_files.rglob("*"))
    for command in (rounds.open_round, rounds.pull, rounds.adjudicate):
        with refused("RoundState", match="is closed"):
            lab.do(command, "calibration")
    with refused("RoundState", match="opposite of this"):
        lab.do(rounds.close, go_on=False, reason="guideline-changes")


def holds(home: Path, *words: str) -> list[Path]:
    """Return the files that hold any of the words."""
    return [p for p in home.rglob("*") if p.is_file() and any(word.encode() in p.read_bytes() for word in words)]


def test_a_pilot_is_described_and_a_second_annotator_approves(lab: Lab, tmp_path: Path) -> None:
    lab.do(rounds.open_round, "pilot-2")
    file = tmp_path / "described.csv"
    assert lab.do(descriptions.export, "pilot-2", to=file)["described"] == 0
    assert file.stat().st_mode & 0o077 == 0
    lines = list(csv.DictReader(file.open()))
    assert len(lines) == 50

    def write(note: str, *, rows: Sequence[dict[str, str]] = lines) -> Path:
        with file.open("w", newline="") as out:
            table = csv.writer(out)
            table.writerow(["item", "description", "note"])
            table.writerows([line["item"], "a plain field of one colour", note] for line in rows)
        return file

    def close() -> None:
        lab.do(rounds.close, "pilot-2", go_on=True, reason="scheme-stable")

    with refused("RoundState", match="50 items have no description"):
        close()
    with refused("BadDescriptions", match="takes no part"):
        lab.do(descriptions.describe, "pilot-2", file=write("read as calm"), by="annotator-9")
    said = lab.do(descriptions.describe, "pilot-2", file=write("read as calm"), by=ONE)
    assert (said["described"], said["approved"], said["changed_items"]) == (50, 0, 50)
    assert not holds(lab.settings.home, "read as calm", "a plain field"), "descriptions and notes are sealed"
    with refused("BadDescriptions", match=r"nothing of another annotator waits.*50 of your own"):
        lab.do(descriptions.approve, "pilot-2", by=ONE)
    assert lab.do(descriptions.approve, "pilot-2", by=TWO)["approved"] == 50
    changed = lab.do(descriptions.describe, "pilot-2", file=write("read as sad", rows=lines[:3]), by=TWO)
    assert (changed["described"], changed["approved"], changed["changed_items"]) == (50, 47, 3)
    with refused("RoundState", match="3 items have no description"):
        close()
    lab.do(descriptions.approve, "pilot-2", by=ONE)
    with refused("RoundState", match="items wait for the adjudicator"):
        close()
    bad = write("x", rows=[{"item": "r/0"}])
    with refused("BadDescriptions", match="line 2 is of no item"):
        lab.do(descriptions.describe, "pilot-2", file=bad, by=ONE)


def test_rounds_never_draw_the_same_item_and_take_what_there_is(lab: Lab) -> None:
    sizes = {}
    for name in ("calibration", "pilot-1", "pilot-2"):
        sizes[name] = lab.do(rounds.open_round, name, dry_run=True)["size"]
        assert lab.head() == (before := lab.head())
        assert lab.do(rounds.open_round, name)["size"] == sizes[name]
        assert lab.head() != before
    assert sizes == {"calibration": 50, "pilot-1": 50, "pilot-2": 10}
    drawn = [{(r["record_id"], r["image"]) for r in lab.rows("assignments", name=name)} for name in sizes]
    assert sum(map(len, drawn)) == len(set.union(*drawn)) == small.MEMES
    with refused("NothingToDraw", match="other rounds already contain 110"):
        lab.do(rounds.open_round, "large-scale")
    with refused("UnknownRound", match="pilot-1"):
        lab.do(rounds.open_round, "nonsense")
    with refused("UnknownRound", match="calibration"):
        lab.do(rounds.pull, "large-scale")


def test_a_day_has_a_cap_over_all_rounds(lab: Lab) -> None:
    assert lab.do(rounds.open_round)["released"] == {ONE: 50, TWO: 50}
    first = lab.do(rounds.open_round, "pilot-1")["released"]
    assert first == {ONE: 10, TWO: 10, "annotator-3": 50, "annotator-4": 50}, "sixty a day, wherever they come from"
    assert lab.do(rounds.pull, "pilot-1")["released"] == {ONE: 0, TWO: 0}, "pulling again is no way around it"
    lab.now += DAY
    assert lab.do(rounds.pull, "pilot-1")["released"] == {ONE: 0, TWO: 0}, "what waits from yesterday is for today"
    for person in (ONE, TWO):
        asked = items(lab.folder(person))
        answer(lab.folder(person), [(i, truth(asked)[i]) for i in asked[:30]], at=NOW)
        answer(lab.folder(person), [(i, truth(asked)[i]) for i in asked[30:]], at=lab.now)
    assert lab.do(rounds.pull, "pilot-1")["released"] == {ONE: 30, TWO: 30}, "what was answered today is of today"
    lab.now += DAY
    assert lab.do(rounds.pull, "pilot-1")["released"] == {ONE: 10, TWO: 10}
    order = [int(str(task["position"])) for task in tasks(lab.folder(ONE, name="pilot-1"))]
    assert order == list(range(50)), "each day goes on where the last one ended"


def test_a_takedown_reaches_an_open_round(lab: Lab) -> None:
    asked, right = lab.opened(ONE)
    answer(lab.folder(TWO), [(i, other(right[i], key="severity")) for i in asked])
    lab.do(rounds.pull)
    lab.vault.destroy([asked[0][0]], reason="request-1", now=lab.now)
    pulled = lab.do(rounds.pull)
    assert (pulled["removed"], pulled["changed"], pulled["answered"]) == (2, True, {ONE: 49, TWO: 49})
    assert pulled["problems"] == {}
    assert asked[0] not in items(lab.folder(ONE))
    assert not holds(lab.settings.annotation_files, asked[0][0]), "neither task nor answer nor picture is left"

    lab.do(rounds.adjudicate)
    answer(lab.adjudication(), [(asked[1], right[asked[1]])], note="so")
    lab.vault.destroy([asked[1][0]], reason="request-2", now=lab.now)
    pulled = lab.do(rounds.pull)
    assert (pulled["removed"], pulled["cases"], pulled["decided"]) == (3, 48, 0)
    assert not holds(lab.settings.annotation_files, asked[1][0])
    assert {r["record_id"] for r in lab.rows("annotations")} == {record for record, _ in asked[2:]}


class Dying(Files):
    """Dies when the first tasks come in."""

    def add(self, queue: Queue, *, tasks: Sequence[AnnotationTask]) -> None:
        raise AnnotationError("BackendUnavailable", backend="files", detail="it died")


def test_what_dies_after_the_commit_is_made_good(lab: Lab) -> None:
    lab.kind = Dying
    with refused("BackendUnavailable"):
        lab.do(rounds.open_round)
    committed, manifest = lab.head(), lab.manifest()
    assert not items(lab.folder(ONE))
    lab.kind, lab.now = Files, lab.now + DAY
    again = lab.do(rounds.open_round)
    assert (again["released"], again["changed"], lab.head()) == ({ONE: 50, TWO: 50}, False, committed)
    assert lab.manifest() == manifest

    lab.kind = Dying
    with refused("BackendUnavailable"):
        lab.do(rounds.adjudicate)
    assert lab.manifest()["status"] == "adjudicating"
    lab.kind = Files
    assert lab.do(rounds.pull)["released"] == {"adjudicator-1": 50}


def test_a_backend_that_lost_its_data_takes_no_answer_away(lab: Lab) -> None:
    asked, _ = lab.opened(ONE, count=20)
    pulled = lab.do(rounds.pull)
    rows = lab.rows("annotations")
    shutil.rmtree(lab.settings.annotation_files)
    lab.now += DAY
    again = lab.do(rounds.pull)
    assert again["changed"] is False
    assert again["answered"] == pulled["answered"]
    assert lab.rows("annotations") == rows
    assert items(lab.folder(ONE)) == asked[20:], "only what was not answered is asked again"


def test_answers_that_come_after_the_sides_were_shown_change_nothing(lab: Lab) -> None:
    asked, right = lab.opened(ONE, TWO, count=49)
    lab.do(rounds.adjudicate)
    answer(lab.folder(TWO), [(asked[0], other(right[asked[0]], key="severity"))], at=NOW + DAY)
    pulled = lab.do(rounds.pull)
    assert (pulled["cases"], pulled["changed"]) == (1, False)
    with refused("RoundState", match="1 items wait"):
        lab.do(rounds.close, go_on=True, reason="discussed")
    assert lab.do(rounds.close, go_on=True, reason="discussed", dry_run=True)["cases"] == 1
    assert lab.manifest()["status"] == "adjudicating"
    assert lab.do(rounds.close, go_on=True, reason="discussed", abandon=True)["cases"] == 1
    assert {(r, i) for r, i, _ in gold_of(lab)} == set(asked[:49])


def test_a_round_that_ends_without_gold_needs_no_adjudicator(lab: Lab) -> None:
    lab.opened(ONE, TWO)
    lab.do(rounds.close, go_on=False, reason="guideline-changes")
    assert len({(r["record_id"], r["image"]) for r in lab.rows("annotations")}) == 50, "what was answered is kept"
    assert gold_of(lab) == {}
    assert not list(lab.settings.annotation_files.rglob("*"))


class Racing(Files):
    """Moves the corpus branch while the answers are read, as often as ``times`` says."""

    times = 1
    settings: Settings

    def answers(self, queue: Queue) -> list[AnnotatorAnswer]:
        if Racing.times:
            Racing.times -= 1
            with workspace(self.settings) as clone:
                (clone.path / "data" / "note").write_text(str(Racing.times))
                clone.commit("another publisher")
        return super().answers(queue)


class Knocking(Files):
    """Tries whether another command could begin while the answers are read."""

    settings: Settings
    shut = False

    def answers(self, queue: Queue) -> list[AnnotatorAnswer]:
        with locks.alone(self.settings, "rounds", wait=False) as held:
            Knocking.shut = not held
        return super().answers(queue)


def test_commands_wait_for_each_other(lab: Lab) -> None:
    """A pull that read an open round must not fill queues that a close has emptied meanwhile."""
    lab.do(rounds.open_round)
    lab.kind, Knocking.settings = Knocking, lab.settings
    lab.do(rounds.pull)
    assert Knocking.shut


def test_a_lost_race_is_run_again(lab: Lab) -> None:
    asked, right = lab.opened(ONE)
    lab.kind, Racing.settings, Racing.times = Racing, lab.settings, 1
    assert lab.do(rounds.pull)["commit"] == lab.head()
    assert lab.rows("annotations")
    answer(lab.folder(ONE), [(asked[0], other(right[asked[0]], key="severity"))], at=NOW + DAY)
    Racing.times = 10**6
    with pytest.raises(CommitLost):
        lab.do(rounds.pull)


def test_a_review_asks_the_adjudicator_at_once(lab: Lab) -> None:
    review = {"name": "review", "corpus": "posts"}
    opened = lab.do(rounds.open_round, **review)
    assert (opened["status"], opened["size"], opened["released"]) == ("adjudicating", 3, {"adjudicator-1": 3})
    folder = lab.adjudication(**review)
    shown = tasks(folder)
    assert {small.item(str(t["item"])) for t in shown} == set(small.posts(lab.vault)[:3])
    assert all(t["text"]["title"].startswith("Title ") for t in shown)  # type: ignore[index]
    sides = [[side["labels"] for side in t["sides"]] for t in shown]  # type: ignore[attr-defined]
    assert all(sorted(s) == [["no_crisis"], ["selfharm_past"]] for s in sides)
    assert not any(name in json.dumps(shown) for name in ("gpt", "claude", "gold"))
    # gold moves on meanwhile; what was asked is held against the gold of then
    with workspace(lab.settings) as clone:
        small.write_gold(clone.path / "made", vault=lab.vault, labels=["selfharm_past"])
        reproduce(clone, "gold@posts")
        clone.commit("gold follows", paths=["made", "dvc.lock"])
    answer(folder, [(small.item(str(t["item"])), {"labels": ["selfharm_past"]}) for t in shown], note="so")
    pulled = lab.do(rounds.pull, **review)
    assert (pulled["decided"], pulled["cases"], pulled["problems"]) == (3, 0, {})
    assert lab.do(rounds.pull, **review)["changed"] is False
    log = lab.rows("adjudications", **review)
    answer(folder, [(small.item(str(shown[0]["item"])), {"labels": ["no_crisis"]})], at=NOW + DAY, note="I erred")
    lab.do(rounds.close, **review, go_on=True, reason="reviewed")
    after = lab.rows("adjudications", **review)
    assert [row for row in after if row in log] == log, "the log only grows"
    assert len(after) == 4


def test_another_seed_does_not_go_on_with_an_open_round(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.do(rounds.open_round)
    planned = manifest.load_protocol("figsim")
    moved = tuple(p.model_copy(update={"seed": p.seed + 1}) for p in planned.rounds)
    monkeypatch.setattr(manifest, "load_protocol", lambda _: planned.model_copy(update={"rounds": moved}))
    with refused("RoundState", match="another protocol or seed"):
        lab.do(rounds.open_round)


def test_another_guideline_reads_no_answer(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.opened(ONE)
    before = lab.head()
    with monkeypatch.context() as later:
        later.setattr(desk, "guideline", lambda *_, **__: "another")
        for command in (rounds.open_round, rounds.pull, rounds.adjudicate):
            with refused("RoundState", match="guideline changed"):
                lab.do(command, "calibration")
        assert lab.head() == before, "nothing was committed on the way"
    assert lab.do(rounds.pull)["answered"] == {ONE: 50, TWO: 0}


def test_without_a_sample_it_says_which_stage_to_run(lab: Lab) -> None:
    with workspace(lab.settings) as clone:
        (clone.path / "dvc.lock").unlink()
        clone.commit("no stage ever ran")
    with refused("NotMade", match="stage sample@memes"):
        lab.do(rounds.open_round)


def test_status_says_where_people_go_and_changes_nothing(lab: Lab) -> None:
    assert rounds.status(lab.site, "memes", None)["rounds"] == []
    lab.opened(ONE, count=5)
    before = lab.head()
    found = lab.do(rounds.status)
    assert found["assigned"] == found["given"] == {ONE: 50, TWO: 50}
    assert (found["answered"], found["problems"][ONE]) == ({ONE: 5, TWO: 0}, {"unanswered": 45})
    assert found["address"][ONE] == str(lab.folder(ONE))
    everything = rounds.status(lab.site, "memes", None)
    assert [(r["round"], r["status"]) for r in everything["rounds"]] == [("calibration", "open")]  # type: ignore[attr-defined]
    assert everything["planned"] == ["pilot-1", "pilot-2", "large-scale"]
    assert lab.head() == before


def test_commands_print_one_line_of_counts(lab: Lab) -> None:
    def run(*argv: str) -> dict[str, Any]:
        done = CliRunner().invoke(app, list(argv), catch_exceptions=False)
        assert done.exit_code == 0
        return json.loads(done.stdout.splitlines()[-1])

    assert run("open", "memes", "calibration", "--dry-run")["assigned"] == {ONE: 50, TWO: 50}
    assert run("open", "memes", "calibration")["released"] == {ONE: 50, TWO: 50}
    assert run("pull", "memes", "calibration")["answered"] == {ONE: 0, TWO: 0}
    assert run("status", "memes")["rounds"][0]["status"] == "open"
    assert run("adjudicate", "memes", "calibration")["cases"] == 50
    closed = run("close", "memes", "calibration", "--no-gold", "--reason", "guideline-changes")
    assert (closed["status"], closed["go_on"]) == ("closed", False)
    assert run("status", "memes", "calibration")["decision"] == {"go_on": False, "reason": "guideline-changes"}


def test_labels_of_our_own_are_imported_from_any_folder(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapping = {
        "dataset": "ours",
        "title": "Ours",
        "source": "ours",
        "scheme": "figsim",
        "level": "item",
        "format": "csv",
    }
    mapping |= {"columns": {"reddit": ["post"]}, "labels": {"severity": {"columns": ["severity"]}}}
    with workspace(lab.settings) as clone:
        path = clone.path / "corpora/memes/mapping.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(yaml.safe_dump(mapping))
        clone.commit("a mapping of our own")
    name = offered(load_scheme("figsim").categories["severity"])[0].name
    names = ["t3_m0", "t3_m1", "t3_zzzzz"]
    file = tmp_path / "elsewhere" / "labels.csv"
    file.parent.mkdir()
    file.write_text(
        "post,severity\n" + "".join(f"https://redd.it/{n[3:]},{name}\n" for n in names) + f"t3_bad,{'x' * 9}\n"
    )
    monkeypatch.chdir(file.parent)
    before = lab.head()

    def said(*options: str) -> str:
        done = CliRunner().invoke(commands, ["import", "memes", file.name, "--allow-bad", "0.5", *options])
        assert done.exit_code == 0, done.output
        return " ".join(done.stderr.split())

    dry = said("--dry-run")
    assert "4 rows: 3 items" in dry and "2 match posts of the corpus, 1 are of other posts" in dry
    assert "left out, severity: unknown_label: 1 rows (labels.csv:5)" in dry
    assert "Next: the same command without --dry-run" in dry and lab.head() == before
    assert "corpus params set gold.memes.published annotations/memes/ours/gold.csv" in said()
    assert lab.head() != before and "xxx" not in dry
    file.write_text(f"post,severity\nt3_zzzzz,{name}\n")
    assert "Next: corpus run memes --months FIRST..LAST collects them" in said()
