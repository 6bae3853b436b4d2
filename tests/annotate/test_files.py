"""The backend contract over plain folders, and what a team's own tool may get wrong."""

import csv
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.annotate.backends import Item, Queue, item_of, name_of
from pipelines.annotate.backends.files import Files
from pipelines.annotate.rounds import store
from pipelines.cli.parts import check_parts
from pipelines.core.config.base import Distribution
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.core.process import now
from tests import small_distribution
from tests.annotate import backend_contract as contract
from tests.refusals import refused

QUEUE = Queue("memes/calibration", "a1")
START = datetime(2026, 1, 31, 12, tzinfo=UTC)
GOOD = '{"item": "r000/0", "values": {"kind": ["None"]}, "answered": "2026-01-31T12:00:00Z"}'


@pytest.fixture
def backend(tmp_path: Path) -> Files:
    return Files(tmp_path / "annotation", clock=now)


class JsonTool:
    """A team's tool that writes answers below each other; what it answers last comes a minute later."""

    def __init__(self, backend: Files) -> None:
        self.backend, self.count = backend, 0

    def answer(self, queue: Queue, item: Item, *, values: Mapping[str, tuple[str, ...]], note: str = "") -> None:
        self.count += 1
        row = {"item": name_of(item), "note": note, "answered": (START + timedelta(minutes=self.count)).isoformat()}
        self.write(Path(self.backend.address(queue)), row, {key: list(labels) for key, labels in values.items()})

    def skip(self, queue: Queue, item: Item) -> None:
        self.answer(queue, item, values={})

    def write(self, folder: Path, row: dict[str, str], values: dict[str, list[str]]) -> None:
        with (folder / "answers.jsonl").open("a") as file:
            file.write(json.dumps({**row, "values": values, "skipped": not values}) + "\n")


class CsvTool(JsonTool):
    def write(self, folder: Path, row: dict[str, str], values: dict[str, list[str]]) -> None:
        path = folder / "answers.csv"
        cells = row | {key: "|".join(values.get(key, [])) for key in ("kind", "context")}
        cells |= {"seconds": "1.5", "skipped": str(not values).lower(), "by": "tool-account"}
        fresh = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([cells, cells.values()] if fresh else [cells.values()])


@pytest.mark.parametrize("tool", [JsonTool, CsvTool])
@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: str(check.__name__))
def test_contract(check: Callable[..., None], tool: type[JsonTool], backend: Files) -> None:
    check(backend, hands=tool(backend), name="memes/contract")


def ready(backend: Files, *, tasks: int = 3) -> Path:
    backend.prepare(QUEUE, form=contract.form())
    backend.add(QUEUE, tasks=contract.texts(tasks))
    return Path(backend.address(QUEUE))


def test_a_tool_finds_everything_it_needs_and_no_other_user_can_read_it(backend: Files, tmp_path: Path) -> None:
    backend.prepare(QUEUE, form=contract.form(content="images"))
    backend.add(QUEUE, tasks=contract.images(2))
    folder = Path(backend.address(QUEUE))
    form = json.loads((folder / "form.json").read_bytes())
    assert form["warning"] == contract.form().warning and form["contacts"] and form["guideline"]
    assert [question["key"] for question in form["questions"]] == ["kind", "context"]
    tasks = [json.loads(line) for line in (folder / "tasks.jsonl").read_text().splitlines()]
    assert [task["item"] for task in tasks] == ["m000/0", "m000/1"]
    assert (folder / tasks[1]["image"]).read_bytes() == contract.picture(9)
    readme = (folder / "README.txt").read_text()
    assert "item, kind, context, note, seconds, answered, skipped, by" in readme
    assert "blurred" in readme
    for path in (tmp_path / "annotation", *(tmp_path / "annotation").rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_a_purge_leaves_no_file_and_no_folder_but_other_rounds(backend: Files, tmp_path: Path) -> None:
    folder = ready(backend)
    (folder / "answers.jsonl").write_text(f"{GOOD}\n")
    (folder / "their own.sqlite").write_text("what the tool kept")
    other = Queue("memes/round-2", "a1")
    backend.prepare(other, form=contract.form())
    backend.purge([QUEUE])
    assert [path.name for path in (tmp_path / "annotation" / "memes").iterdir()] == ["round-2"]
    backend.purge([other])
    assert list((tmp_path / "annotation").iterdir()) == []


def test_accounts_times_seconds_and_unknown_labels_come_through(backend: Files) -> None:
    rows = ["item,kind,answered,seconds,by", "r001/0,Sarcasm?,2026-01-31T12:00:00Z,,"]
    rows.append("r000/0,Irony/sarcasm|Pun/Double meaning,2026-01-31T13:00:00+01:00,2.5,ann")
    # a spreadsheet's byte order mark and line ends are no fault
    (ready(backend) / "answers.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(rows).encode() + b"\r\n")
    first, second = backend.answers(QUEUE)
    assert first.values == {"kind": ("Irony/sarcasm", "Pun/Double meaning")}
    assert (first.by, first.seconds, first.answered) == ("ann", 2.5, START)
    assert (second.by, second.seconds, second.answered) == ("a1", None, START)
    assert second.values == {"kind": ("Sarcasm?",)}


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "fields of an answer"),
        (GOOD.replace("values", "labels"), "fields of an answer"),
        (GOOD.replace("kind", "kin"), "other categories"),
        (GOOD.replace('["None"]', "[1]"), "list of strings"),
        (GOOD.replace('["None"]', "null"), "list of strings"),
        (GOOD.replace("r000/0", "r000"), "record_id/image"),
        (GOOD.replace("12:00:00Z", "12:00:00"), "zone"),
        (GOOD.replace("2026-01-31T12:00:00Z", "yesterday"), "zone"),
        (GOOD.replace("2026-01-31T12:00:00Z", "0001-01-01T00:00:00+01:00"), "zone"),  # a tool's empty date
        (GOOD[:-1] + ', "seconds": -1}', "seconds"),
        (GOOD[:-1] + ', "seconds": "NaN"}', "seconds"),
        (GOOD[:-1] + ', "skipped": "perhaps"}', "skipped"),
    ],
)
def test_a_bad_line_is_named_and_not_quoted(line: str, detail: str, backend: Files) -> None:
    folder = ready(backend)
    (folder / "answers.jsonl").write_text(f"{GOOD}\n\n{line}\n")
    with refused("BadAnswers", match=rf"answers\.jsonl, line 3: .*({detail})") as error:
        backend.answers(QUEUE)
    assert "r000" not in str(error.value) and "yesterday" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "line", "detail"),
    [
        (b"item;kind\nr000/0;None\n", 1, "header"),
        (b"item,kind,other\n", 1, "header"),
        (b"item,kind,kind\n", 1, "header"),
        (b"", 1, "header"),
        (b"item,kind,answered\nr000/0,None\n", 2, "not 3 cells"),
        (b"item,kind,answered\nr000/0,None,\n", 2, "zone"),
        (b'item,note,answered\nr000/0,"one\ntwo",2026-01-31T12:00Z\nr001/0,x,\n', 4, "zone"),
        (b"item,kind,answered\nr000/0,\xff,2026-01-31T12:00Z\n", 2, "UTF-8"),
        (b'item,kind,answered\nr000/0,"None', 2, "CSV"),
    ],
)
def test_a_bad_row_is_named(content: bytes, line: int, detail: str, backend: Files) -> None:
    (ready(backend) / "answers.csv").write_bytes(content)
    with refused("BadAnswers", match=rf"answers\.csv, line {line}: .*{detail}"):
        backend.answers(QUEUE)


@pytest.mark.parametrize(
    ("files", "detail"),
    [
        ({"answers.jsonl": f"{GOOD}\n{GOOD[:40]}"}, "line 2: the last line has no line break"),
        ({"answers.csv": "item,kind,answered\n", "answers.jsonl": ""}, "leave one of the two"),
        ({"tasks.jsonl": '{"item": "r000/0"}\n'}, r"tasks\.jsonl, line 1"),
    ],
)
def test_a_half_written_line_two_formats_and_an_altered_task_are_refused(
    files: dict[str, str], detail: str, backend: Files
) -> None:
    folder = ready(backend)
    for name, text in files.items():
        (folder / name).write_text(text)
    with refused("BadAnswers", match=detail):
        backend.present(QUEUE) if "tasks.jsonl" in files else backend.answers(QUEUE)


@pytest.mark.parametrize("bad", ["", '{"item": "r000/0", "note": "of the one', '{"item": "r001/0", "note'])
def test_a_taken_down_record_leaves_even_where_a_line_is_broken(bad: str, backend: Files) -> None:
    backend.prepare(QUEUE, form=contract.form(content="images"))
    backend.add(QUEUE, tasks=contract.images(3))
    folder = Path(backend.address(QUEUE))
    lines = [GOOD.replace("r000", "m000"), GOOD.replace("r000", "m001"), GOOD.replace("r000/0", "m000/01"), bad]
    (folder / "answers.jsonl").write_text("\n".join(lines).replace("r000", "m000") + "\n")
    backend.remove(QUEUE, items=[("m000", 0)])
    assert set(backend.present(QUEUE)) == {("m000", 1), ("m001", 0)}
    assert len(list((folder / "images").iterdir())) == 2
    left = (folder / "answers.jsonl").read_text()
    assert '"m000/0"' not in left and "m001/0" in left and "m000/01" in left
    assert ("r001" in left) == ("r001" in bad)


def test_a_taken_down_record_leaves_even_where_a_quote_is_never_closed(backend: Files) -> None:
    folder = ready(backend)
    rows = ["item,kind,note,answered", "r001/0,None,kept,", 'r000/01,None,"begun', "r000/0,None,of the one,"]
    (folder / "answers.csv").write_text("\n".join(rows) + "\n" + "filler " * 30_000)
    backend.remove(QUEUE, items=[("r000", 0)])
    left = (folder / "answers.csv").read_text()
    assert "of the one" not in left and "r001/0,None,kept" in left


def test_pictures_come_before_the_list_so_a_kill_between_is_mended(
    backend: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.prepare(QUEUE, form=contract.form(content="images"))
    replace = os.replace

    def killed(new: Any, target: Any, **places: Any) -> None:
        if Path(target).name == "tasks.jsonl":
            raise KeyboardInterrupt
        replace(new, target, **places)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        backend.add(QUEUE, tasks=contract.images(2))
    monkeypatch.undo()
    assert backend.present(QUEUE) == {}
    backend.add(QUEUE, tasks=contract.images(2))
    assert len(backend.present(QUEUE)) == 2


@pytest.mark.parametrize("queue", [Queue("../memes", "a1"), Queue("memes/x", ".."), Queue("memes//x", "a1")])
def test_a_queue_stays_below_its_root(queue: Queue, backend: Files) -> None:
    with refused("BackendUnavailable"):
        backend.prepare(queue, form=contract.form())


@contextmanager
def at_once() -> Iterator[None]:
    """Interrupt what waits for a writer that never comes."""

    def stop(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(5)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("place", ["absolute", "above", "of another item"])
def test_a_list_that_names_another_file_deletes_nothing(place: str, backend: Files, tmp_path: Path) -> None:
    folder, victim = ready(backend), tmp_path / "victim.png"
    victim.write_text("the operator's")
    named = {"absolute": str(victim), "above": f"images/../{'../' * 4}victim.png", "of another item": "answers.csv"}
    rows = [json.loads(line) | {"image": named[place]} for line in (folder / "tasks.jsonl").read_text().splitlines()]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "answers.csv").write_text("item\n")
    with refused("BadAnswers", match="changed after it was written"):
        backend.remove(QUEUE, items=[item_of(rows[0]["item"])])
    assert victim.exists() and (folder / "answers.csv").exists()


def test_a_folder_of_pictures_that_leads_elsewhere_is_neither_emptied_nor_filled(
    backend: Files, tmp_path: Path
) -> None:
    backend.prepare(QUEUE, form=contract.form(content="images"))
    backend.add(QUEUE, tasks=contract.images(2))
    folder = Path(backend.address(QUEUE))
    (folder / "images").rename(tmp_path / "elsewhere")
    (folder / "images").symlink_to(tmp_path / "elsewhere")
    before = sorted(path.name for path in (tmp_path / "elsewhere").iterdir())
    with refused("BackendUnavailable", match="images"):
        backend.remove(QUEUE, items=[("m000", 0)])
    with refused("BackendUnavailable", match="images"):
        backend.add(QUEUE, tasks=contract.images(3))
    assert before == sorted(path.name for path in (tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("name", ["answers.csv", "answers.jsonl", "tasks.jsonl", "form.json"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_is_no_regular_file_is_named_and_not_opened(kind: str, name: str, backend: Files, tmp_path: Path) -> None:
    folder, erased = ready(backend), partial(backend.remove, items=[("r000", 0)])
    if kind == "link":
        (tmp_path / "other").write_bytes(
            (folder / name).read_bytes() if (folder / name).exists() else b"item\nr000/0\n"
        )
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "other") if kind == "link" else os.mkfifo(folder / name)
    reading = {"form.json": [backend.answers], "tasks.jsonl": [backend.present]}.get(name, [backend.answers, erased])
    for call in reading:
        with at_once(), refused("BackendUnavailable", match=name):
            call(QUEUE)


def test_a_place_that_cannot_be_used_is_named(backend: Files, tmp_path: Path) -> None:
    with refused("BackendUnavailable", match="not prepared"):
        backend.add(QUEUE, tasks=contract.texts(1))
    (tmp_path / "annotation").write_text("a file")
    with refused("BackendUnavailable"):
        backend.prepare(QUEUE, form=contract.form())
    settings = Settings.from_env().model_copy(update={"annotation_files": tmp_path / "here"})
    assert Files.open(settings, params=None, pseudonyms=()).address(QUEUE) == str(
        tmp_path / "here/memes/calibration/a1"
    )


@pytest.mark.parametrize("name", ["", "r/", "/1", "r/x", "r/-1", "r/²"])
def test_names_of_items(name: str) -> None:
    assert item_of(name_of(("r", 2))) == ("r", 2)
    with pytest.raises(ValueError, match="record_id/image"):
        item_of(name)


TOOL = """
from pathlib import Path
from pipelines.annotate.backends import Backend
from pipelines.core.config.base import Section

class ToolEntry(Section):
    folder: str

class Tool(Backend):
    Parameters = ToolEntry

    @classmethod
    def open(cls, settings, *, params, pseudonyms):
        tool = cls()
        tool.accounts, tool.folder = dict.fromkeys(pseudonyms, ""), params.folder
        return tool

    def address(self, queue):
        return f"{self.folder}/{queue.annotator}"

    prepare = present = add = answers = remove = purge = None  # not called here
"""


def test_a_backend_of_another_distribution_is_opened_with_its_own_parameters(tmp_path, monkeypatch):
    manifest = SimpleNamespace(backend="tool")
    given = load(Path(__file__).parents[2])

    def opened(allowed, **entry):
        round_ = given.round.model_copy(update={"backend": "tool", "backends": {"tool": entry}})
        params = given.model_copy(update={"round": round_, "distributions": allowed})
        if faults := check_parts(params):
            raise BadParams(where="params.yaml", detail="; ".join(faults))
        settings = Settings.from_env()
        return store.open_backend(manifest, params=params, settings=settings, pseudonyms=["a1"])

    files, points = {"tool_part.py": TOOL}, "[crisis_corpus.backends]\ntool = tool_part:Tool\n"
    with small_distribution.installed(tmp_path, monkeypatch, files=files, points=points):
        allowed = {"foreign": Distribution(**small_distribution.entry())}
        assert opened(allowed, folder="there").address(QUEUE) == "there/a1"
        with pytest.raises(BadParams, match=r"round\.backends\.tool\.port") as refused:
            opened(allowed, folder="there", port=8123)
        assert "8123" not in str(refused.value)
    with pytest.raises(BadParams, match=r"round\.backends\.tool: .*known: .*files, .*label_studio"):
        opened({}, folder="there")
