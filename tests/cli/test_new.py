"""`corpus new` writes a valid corpus of one's own at once or nothing, from flags or answers, and says what is next."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
import zstandard

from pipelines.annotate.imports.mapping import read as read_mapping
from pipelines.core import taxonomy
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.rows import resolve
from pipelines.operate import status
from pipelines.workspace import repository
from pipelines.workspace.git import git
from tests.commands import answered, output
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
FLAGS = {"content": "texts", "subreddits": "ADHD,r/Focus", "dump": "../dumps", "ethics": "board, 12"}
TWO = ("--label", "asks=The writer asks for advice.", "--label", "tells=The writer tells.")
LABELS = "id,label,mood,asks,tells,note\n" + "".join(
    f"zz{n:04d},{('asks', 'tells')[n % 2]},{('calm', 'sad|tense', 'sad')[n % 3]},{n % 2},1,words {n}\n"
    for n in range(40)
)
SCHEME = """\
name: elsewhere
version: 3
title: Two questions
item: post
role: You read posts.
purpose: Research.
categories:
  aim:
    kind: single
    task: What is the aim?
    labels:
      - {name: asks, code: A, definition: The writer asks.}  # as agreed
      - {name: tells, code: T, definition: The writer tells.}
  mood:
    kind: multi
    predicted: false
    task: What is the mood?
    labels:
      - {name: calm, code: C, definition: The writer is calm.}
      - {name: sad, code: S, definition: The writer is sad.}
      - {name: tense, code: E, definition: The writer is tense.}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout, beside it a dump, labels and a scheme; and a home of its own."""
    folder = tmp_path / "checkout"
    for name in ("params.yaml", "catalogue.yaml", "dvc.yaml", "rows.yaml", ".dvc/config", ".dvc/.gitignore",
                 "corpora/.gitkeep", "pipelines/libraries.yaml", "pipelines/stages.yaml"):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text((ROOT / name).read_text())
    git("init", "--quiet", "-b", "main", cwd=folder)
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "-m", "code", cwd=folder)
    (tmp_path / "labels.csv").write_text(LABELS)
    (tmp_path / "scheme.yaml").write_text(SCHEME)
    months = (datetime(2022, month, 5, tzinfo=UTC).timestamp() for month in (11, 12, 11))
    lines = [json.dumps({"id": "zz0000", "subreddit": "ADHD", "created_utc": int(at)}) for at in months]
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "ADHD_submissions.zst").write_bytes(zstandard.compress("\n".join(lines).encode()))
    (tmp_path / "dumps" / "RS_2023-01.zst").write_bytes(b"")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    monkeypatch.delenv("CORPUS_DUMPS", raising=False)
    return folder


def argv(*more: str, name: str = "adhd", **flags: str | None) -> list[str]:
    given = {flag: value for flag, value in (FLAGS | flags).items() if value is not None}
    return [
        "new",
        name,
        *(part for flag, value in given.items() for part in (f"--{flag.replace('_', '-')}", value)),
        *more,
    ]


BLANK = {"blank": "unlabelled"}
MADE = {
    "labels as options": (
        argv(*TWO),
        {"labels": ("single", ["asks", "tells"])},
        {"labels": {"columns": ["labels"], **BLANK}},
    ),
    "several of them": (
        argv(*TWO, "--several"),
        {"labels": ("multi", ["asks", "tells"])},
        {"labels": {"columns": ["labels"], "separator": "|", "blank": "none"}},
    ),
    "a file": (
        argv(labels="../labels.csv"),
        {"labels": ("single", ["asks", "tells"])},
        {"labels": {"columns": ["label"], **BLANK}},
    ),
    "two columns of it": (
        argv("--label-column", "Label", "--label-column", "mood", labels="../labels.csv"),
        {"label": ("single", ["asks", "tells"]), "mood": ("multi", ["calm", "sad", "tense"])},
        {"label": {"columns": ["label"], **BLANK}, "mood": {"columns": ["mood"], "separator": "|", "blank": "none"}},
    ),
    "a column for each label": (
        argv("--label-column", "asks", "--label-column", "tells", labels="../labels.csv"),
        {"labels": ("multi", ["asks", "tells"])},
        {"labels": {"flags": {"asks": ["asks"], "tells": ["tells"]}}},
    ),
    "a scheme": (
        argv(scheme="../scheme.yaml"),
        {"aim": ("single", ["asks", "tells"]), "mood": ("multi", ["calm", "sad", "tense"])},
        {"aim": {"columns": ["aim"], **BLANK}, "mood": {"columns": ["mood"], **BLANK}},
    ),
    "pictures of a live source": (
        argv("--access-basis", "terms", "--approval", "7", "--expires", "2099-01-01", "--retention-days", "90",
             "--first-month", "2024-01", *TWO, content="images", source="reddit", dump=None),
        {"labels": ("single", ["asks", "tells"])},
        {"labels": {"columns": ["labels"], **BLANK}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_flags_become_a_folder_that_is_valid_as_it_is_read(name: str, here: Path) -> None:
    command, expected, mapped = MADE[name]
    assert "scheme.yaml" in output(*command, "--dry-run") and git("status", "--porcelain") == ""
    assert not Settings.from_env().home.exists()
    answer = answered(*command)
    folder = here / "corpora" / "adhd"
    assert sorted(path.name for path in folder.iterdir()) == ["mapping.yaml", "profile.yaml", "scheme.yaml"]
    assert [path.name for path in folder.parent.iterdir() if path != folder] == [".gitkeep"]
    scheme, params = taxonomy.load("adhd"), load(profile="adhd")
    assert {k: (c.kind, [*c.names]) for k, c in scheme.categories.items()} == expected
    assert answer["questions"].keys() == {key for key, c in scheme.categories.items() if c.predicted}
    mapping = read_mapping("corpora/adhd/mapping.yaml")
    labels = yaml.safe_load((folder / "mapping.yaml").read_text())["labels"]
    assert (labels, mapping.columns.reddit) == (mapped, ("id",))
    assert [*params.corpora] == ["adhd"] and params.corpora["adhd"].scheme == mapping.scheme == "adhd"
    assert params.gold["adhd"].published == "annotations/adhd/adhd/gold.csv"
    rows = resolve(params, root=Path())
    assert not rows.votes and not rows.silver
    for key in answer["questions"]:
        registered = params.registry[f"adhd-{key}"]
        assert any(row.keep for row in rows.fits.values() if row.task == registered.task), "what is registered is kept"
        assert f"adhd-{key}" in params.batch_predict["adhd"]
    for source in params.corpora["adhd"].sources:
        params.sources[source].check(source, today=datetime(2026, 1, 1, tzinfo=UTC).date())
    for line, before in zip(folder.joinpath("profile.yaml").read_text().splitlines()[1:], [""] * 99, strict=False):
        assert before or line, "no empty lines"


def test_the_dumps_give_the_months_and_are_noted(here: Path, tmp_path: Path) -> None:
    said = output(*argv(labels="../labels.csv"))
    steps = said.partition("Next:")[2]
    assert "corpus run adhd --months 2022-11..2023-01 --labels ../labels.csv" in steps
    assert "$EDITOR corpora/adhd/scheme.yaml" in steps and "sha256sum" in steps
    assert (tmp_path / "var" / "corpus.env").read_text() == f"CORPUS_DUMPS={tmp_path / 'dumps'}\n"
    assert Settings.from_env().dumps == tmp_path / "dumps"
    assert load(profile="adhd").corpora["adhd"].subreddits == ("ADHD", "Focus")
    for path in (tmp_path / "dumps").glob("*.zst"):
        path.with_name(f"{path.name}.sha256").write_text("")
    steps = output(*argv(*TWO, name="focus")).partition("Next:")[2]
    assert "sha256sum" not in steps and "$EDITOR" not in steps, "nothing is left to do"


def test_the_corpus_is_prepared_and_has_its_own_column(here: Path) -> None:
    output(*argv(*TWO))
    settings = Settings.from_env()
    repository.prepare(settings, checkout=here, profile="adhd")
    assert status.gather(settings)["corpora"] == {"adhd": {}}
    told = output("init", "--profile", "adhd")
    assert "corpus try --corpus adhd --day 2022-11-01" in told
    with refused("AnotherProfile", match="CORPUS_HOME"):
        output(*argv(*TWO, name="other"))


ITEMS = [(f"zz{n:04d}", ("asks", "tells")[n % 2]) for n in range(40)]
# What a spreadsheet or a colleague makes of a file of labels, which means the same; one row has no label yet.
WRITTEN = {
    "semicolons": ("post;label", "{0};{1}"),
    "tabs": ("post\tlabel", "{0}\t{1}"),
    "addresses": ("post,label", "https://www.reddit.com/r/ADHD/comments/{0}/title/,{1}"),
    "fullnames": ("Post , LABEL", "t3_{0},{1} "),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_of_labels_may_be_written_in_other_ways(name: str, here: Path, tmp_path: Path) -> None:
    header, row = WRITTEN[name]
    lines = [header, *(row.format(*item) for item in ITEMS), row.format("zz9999", "")]
    (tmp_path / "labels.csv").write_text("\n".join(lines), encoding="utf-8-sig")
    output(*argv(labels="../labels.csv", id_column="post", label_column="label"))
    assert [*taxonomy.load("adhd").category().names] == ["asks", "tells"]


MISTAKES: dict[str, tuple[list[str], str, str]] = {
    "name": (argv(*TWO, name="Adhd"), "NotDeclared", "lower-case"),
    "a corpus of ours": (argv(*TWO, name="memes"), "NotDeclared", "another name"),
    "no ethics": (argv(*TWO, ethics=None), "NotDeclared", "--ethics: is needed"),
    "empty ethics": (argv(*TWO, ethics=" "), "NotDeclared", "--ethics: is needed"),
    "content": (argv(*TWO, content="videos"), "NotDeclared", "images"),
    "source": (argv(*TWO, source="twitter"), "UnknownName", "arctic_shift"),
    "wrong path": (argv(*TWO, dump="../dump"), "NotDeclared", "no .*zst"),
    "no dump of it": (argv(*TWO, subreddits="ADDH"), "NotDeclared", "ADHD_submissions.zst, but"),
    "language": (argv("--languages", "de", *TWO), "NotDeclared", "only posts in en"),
    "no labels": (argv(), "NotDeclared", "--label"),
    "one label": (argv(*TWO[:2]), "NotDeclared", "two --label"),
    "two labels alike": (argv(*TWO, "--label", "Asks!=again"), "BadScheme", "more than one label"),
    "id column": (argv(labels="../labels.csv", id_column="post"), "BadLabels", "no column post, but asks, id"),
    "label column": (argv(labels="../labels.csv", label_column="lable"), "BadLabels", "no column lable, but asks"),
    "texts as labels": (argv(labels="../labels.csv", label_column="note"), "BadLabels", "no labels"),
    "texts as ids": (argv(labels="../labels.csv", id_column="note"), "BadLabels", "40 of 40 rows .*no_id"),
    "answers that the scheme refuses": (
        argv(labels="../labels.csv", scheme="../scheme.yaml"), "BadLabels", "20 of 40 rows .*aim: several"),
    "model": (argv(*TWO, model="gtp"), "BadParams", "gtp"),
    "month": (argv(*TWO, first_month="2022-13"), "BadParams", "first_month: is not a month, YYYY-MM"),
    "months in the wrong order": (
        argv(*TWO, first_month="2022-12", last_month="2022-11"), "BadParams", "2022-11 is before first_month 2022-12"),
    "a model that is not fitted": (argv("--model", "gpt", *TWO), "BadParams", "predict.rows.adhd lists such"),
    "a model of pictures": (argv("--model", "clip", *TWO), "BadParams", "clip"),
    "a model that is misspelt": (argv("--model", "knm", *TWO), "BadParams", "nearest: knn"),
    "subreddits without a comma": (argv(*TWO, subreddits="ADHD;Focus"), "NotDeclared", "'ADHD;Focus' is no subreddit"),
    "a dump for the folder": (argv(*TWO, dump="../dumps/RS_2023-01.zst"), "NotDeclared", "no folder .*RS_2023-01.zst"),
    "a label without a name": (argv(*TWO, "--label", "=Both."), "NotDeclared", "--label: needs NAME"),
    "a label that joins two": (argv(*TWO, "--label", "a|b=Both."), "BadScheme", "joins an item's labels"),
    "a label that no row has": (
        argv("--label", "aks=The writer asks.", labels="../labels.csv"), "BadLabels", "aks.*nearest: asks"),
    "one label in all rows": (argv(labels="../same.csv"), "BadLabels", "the same label"),
    "no rows": (argv(labels="../empty.csv"), "BadLabels", "no rows"),
    "a workbook": (argv(labels="../labels.xlsx"), "UnreadableFile", "is cut off"),
    "a quotation mark that is left open": (argv(labels="../open.csv"), "UnreadableFile", "row 42: .* never ends"),
    "live source": (argv(*TWO, source="reddit", first_month="2022-11"), "NotDeclared", "--access-basis: is needed"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_and_writes_nothing(name: str, here: Path, tmp_path: Path) -> None:
    command, code, words = MISTAKES[name]
    (tmp_path / "same.csv").write_text("\n".join(["id,label", *(f"{item},same" for item, _ in ITEMS)]))
    (tmp_path / "empty.csv").write_text("id,label\n")
    (tmp_path / "labels.xlsx").write_bytes(b"PK")
    (tmp_path / "open.csv").write_text(f'{LABELS}"zz0040,asks')
    if name == "no dump of it":
        (tmp_path / "dumps" / "RS_2023-01.zst").unlink()
    with refused(code, match=words):
        output(*command)
    assert git("status", "--porcelain") == "" and not (tmp_path / "var").exists()


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [("kind: single", "kind: singel", "BadScheme"), ("name: adhd", "name: adhs", "BadScheme"),
     ("name: tells", "name: no", "BadScheme"),
     ("categories:", "categoris:", "BadScheme"), ("L2", "asks", "BadScheme")],
)  # fmt: skip
def test_a_scheme_with_a_typo_is_refused_before_anything_is_collected(
    old: str, new: str, code: str, here: Path, tmp_path: Path
) -> None:
    output(*argv(*TWO))
    file, settings = here / "corpora" / "adhd" / "scheme.yaml", Settings.from_env()
    good = file.read_text().replace('"', "")
    assert old in good
    file.write_text(good.replace(old, new))
    with refused(code, match="scheme.yaml"):
        repository.prepare(settings, checkout=here, profile="adhd")
    assert not Path(settings.repo).exists()
    file.write_text(good)
    first = repository.prepare(settings, checkout=here, profile="adhd")
    file.write_text(good.replace(old, new))
    with refused(code, match="scheme.yaml"):
        repository.prepare(settings, checkout=here, profile="adhd")
    file.write_text(good)
    assert repository.prepare(settings, checkout=here, profile="adhd") == first, "what is refused is not committed"


class Terminal:
    """The command at a terminal, at which answers are typed when they are asked for."""

    def __init__(self, here: Path, *more: str) -> None:
        # a test run in the background ignores it, which a child inherits
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.ours, theirs = pty.openpty()
        self.shown = ""
        self.child = subprocess.Popen(
            [sys.executable, "-m", "pipelines", "new", "adhd", *more], cwd=here, stdin=theirs, stdout=theirs,
            stderr=theirs, env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)

    def until(self, words: str, *, seconds: float = 60) -> None:
        end, place = time.monotonic() + seconds, len(self.shown)
        while words not in self.shown[place:] and time.monotonic() < end:
            if not select.select([self.ours], [], [], 1)[0]:
                continue
            try:
                self.shown += os.read(self.ours, 4096).decode()
            except OSError:  # Linux reports the end of a terminal as an error
                break
        assert words in self.shown[place:], self.shown

    def answer(self, question: str, text: str) -> None:
        self.until(question)
        os.write(self.ours, f"{text}\n".encode())

    def interrupt(self) -> None:
        """Ctrl-C, and once more where it came between the prompt and the read of the answer, which does not hear it."""
        os.kill(self.child.pid, signal.SIGINT)
        try:
            self.until("interrupted", seconds=30)
        except AssertionError:
            os.kill(self.child.pid, signal.SIGINT)
            self.until("interrupted")

    def ended(self) -> int:
        code = self.child.wait(60)
        os.close(self.ours)
        return code


QUESTIONS: list[tuple[str, str]] = [
    ("texts or images", "texts"),
    ("Subreddits", "ADHD"),
    ("Source of posts", ""),
    ("Folder with the dumps", "../dumps"),
    ("First month", ""),
    ("Last month", "null"),
    ("Ethics approval", "board, 12"),
    ("file of labels", ""),
    ("Label", "asks"),
    ("when", "The writer asks."),
    ("Label", "tells"),
    ("when", "The writer tells."),
    ("Label", ""),
    ("several labels", "n"),
]


def test_it_asks_at_a_terminal(here: Path) -> None:
    terminal = Terminal(here)
    for question, text in QUESTIONS:
        terminal.answer(question, text)
    terminal.until("corpus run adhd")
    assert terminal.ended() == 0
    params = load(profile="adhd")
    assert params.corpora["adhd"].model_dump(mode="json") == {
        "content": "texts", "scheme": "adhd", "subreddits": ["ADHD"], "source": ["dump"], "first_month": "2022-11",
        "last_month": None,
    }  # fmt: skip
    assert params.sources["dump"].ethics == "board, 12"
    assert taxonomy.load("adhd").category().labels[0].definition == "The writer asks."


@pytest.mark.parametrize("place", range(0, len(QUESTIONS), 3))
def test_an_interrupt_at_any_question_leaves_nothing(place: int, here: Path, tmp_path: Path) -> None:
    terminal = Terminal(here)
    for question, text in QUESTIONS[:place]:
        terminal.answer(question, text)
    terminal.until(QUESTIONS[place][0])
    terminal.interrupt()
    assert terminal.ended() == 130
    assert git("status", "--porcelain") == "" and not (tmp_path / "var").exists()
