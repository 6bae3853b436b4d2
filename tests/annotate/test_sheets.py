"""Queues as workbooks and CSV files: the backend contract, what Excel does to them, formulas, and a whole round."""

import csv
import io
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openpyxl
import pytest
import yaml
from openpyxl.worksheet.worksheet import Worksheet

from pipelines.annotate.backends import AnnotationTask, Item, Queue, name_of
from pipelines.annotate.backends.csv import Csv
from pipelines.annotate.backends.files import Files
from pipelines.annotate.backends.xlsx import Xlsx
from pipelines.annotate.rounds import round as rounds
from pipelines.annotate.rounds import store
from pipelines.core.process import now
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import workspace
from tests.annotate import backend_contract as contract
from tests.annotate import round_corpus as small
from tests.annotate.test_round import Lab, at_home, gold_of, plain
from tests.refusals import refused

QUEUE = Queue("memes/calibration", "a1")
KINDS = {"xlsx": Xlsx, "csv": Csv}


@pytest.fixture(params=KINDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return KINDS[request.param](tmp_path / "annotation", clock=now)


def tables(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".xlsx", ".csv"))


def read(path: Path) -> list[list[str]]:
    if path.suffix == ".csv":
        return list(csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")))
    return [
        [str(cell or "") for cell in row] for row in openpyxl.load_workbook(path)["Items"].iter_rows(values_only=True)
    ]


def test_a_list_that_names_a_table_elsewhere_writes_none(backend: Files, tmp_path: Path) -> None:
    queue = Queue("memes/first", "a1")
    backend.prepare(queue, form=contract.form())
    backend.add(queue, tasks=contract.texts(2))
    path = Path(backend.address(queue)).parent / "tasks.jsonl"
    changed = [json.loads(line) | {"table": str(tmp_path / "planted-1.csv")} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in changed))
    with refused("BadAnswers", match="changed after it was written"):
        backend.answers(queue)
    assert not (tmp_path / "planted-1.csv").exists()


@contextmanager
def opened(path: Path) -> Iterator[list[list[str]]]:
    """The rows of a table, saved as a spreadsheet program saves them: only what changed, formats and lists kept."""
    rows = read(path)
    yield rows
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            csv.writer(file).writerows(rows)
        return
    book = openpyxl.load_workbook(path)
    sheet: Worksheet = book["Items"]
    for line, row in enumerate(rows, start=1):
        for column, text in enumerate(row, start=1):
            if str(sheet.cell(line, column).value or "") != text:
                sheet.cell(line, column).value = text
    book.save(path)


def fill(folder: Path, item: Item, cells: Mapping[str, str]) -> None:
    """Fill in the row of an item."""
    for path in tables(folder):
        with opened(path) as rows:
            for row in rows[1:]:
                if row[0] == name_of(item):
                    for name, text in cells.items():
                        row[rows[0].index(name)] = text


def cells(values: Mapping[str, Sequence[str]], *, note: str = "") -> dict[str, str]:
    return {key: "|".join(labels) for key, labels in values.items()} | {"note": note}


class Person:
    """An annotator who fills in the rows of the tables."""

    def __init__(self, backend: Files) -> None:
        self.backend = backend

    def answer(self, queue: Queue, item: Item, *, values: Mapping[str, tuple[str, ...]], note: str = "") -> None:
        fill(Path(self.backend.address(queue)).parent, item, cells(values, note=note))

    def skip(self, queue: Queue, item: Item) -> None:
        fill(Path(self.backend.address(queue)).parent, item, {"skip": "x"})


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: str(check.__name__))
def test_contract(check: Callable[..., None], backend: Files) -> None:
    check(backend, hands=Person(backend), name="memes/contract")


ATTACKS = (
    "=HYPERLINK(1)",
    "+1+1",
    "-1",
    "@SUM(1)",
    "\t=1",
    "text;=cmd()",
    'a","=1',
    "one\n=two",
    "＝1",
    "#REF!",
    "\x0bbell",
)


def test_content_is_never_a_formula(backend: Files) -> None:
    backend.prepare(QUEUE, form=contract.form())
    tasks = [
        AnnotationTask((f"r{n:03}", 0), n, {"title": text, "body": "b" * 40_000}) for n, text in enumerate(ATTACKS)
    ]
    backend.add(QUEUE, tasks=tasks)
    [path] = tables(Path(backend.address(QUEUE)).parent)
    header, *rows = read(path)
    assert header[:4] == ["item", "title", "body", "body 2"]
    assert all(len(row[2]) + len(row[3]) == 40_000 for row in rows)
    if path.suffix == ".csv":
        # whichever separator and quote another program takes, no cell begins like a formula
        content = path.read_text(encoding="utf-8-sig")
        assert not [c for c in "=+-@＝" for before in ',;\t\n"' if f"{before}{c}" in content]
        return
    for sheet in openpyxl.load_workbook(path).worksheets:
        for row in sheet.iter_rows():
            for cell in row:
                assert cell.value is None or (cell.data_type == "s" and cell.quotePrefix), cell.coordinate


def test_a_workbook_has_the_guideline_and_lists_to_choose_from(tmp_path: Path) -> None:
    backend = Xlsx(tmp_path / "annotation", clock=now)
    backend.prepare(QUEUE, form=contract.form())
    backend.add(QUEUE, tasks=contract.texts(2))
    backend.add(QUEUE, tasks=contract.texts(3))
    first, second = tables(Path(backend.address(QUEUE)).parent)
    assert (first.name, second.name) == ("memes-calibration-a1-1.xlsx", "memes-calibration-a1-2.xlsx")
    assert [row[0] for row in read(second)] == ["item", "r002/0"], "a table that a person has is not changed"
    book = openpyxl.load_workbook(first)
    guideline = "\n".join(str(row[0].value) for row in book["Guideline"].iter_rows())
    assert contract.form().warning in guideline and "# Guideline" in guideline and "put it back" in guideline
    lists = {
        str(each.sqref): (each.formula1, bool(each.showErrorMessage))
        for each in book["Items"].data_validations.dataValidation
    }
    assert lists == {"D2:D3 E2:E3 F2:F3": ("Labels!$A$1:$C$1", False), "G2:G3": ("Labels!$A$2:$B$2", True)}
    assert [cell.value for cell in book["Labels"][2]][:2] == ["no-context-required", "context-required"]


DIRT: dict[str, Callable[[str], bytes]] = {
    "semicolons": lambda text: text.replace(",", ";").encode("utf-8-sig"),
    "tabs of Unicode text": lambda text: text.replace(",", "\t").encode("utf-16"),
    "a separator line": lambda text: b"sep=;\r\n" + text.replace(",", ";").encode(),
    "Windows letters": lambda text: text.replace("Notes", "Größe").encode("cp1252"),
}
TABLE = """Notes,context,kind 2,NOTE,Kind,item,Skip
more, CONTEXT-required , irony/SARCASM,,Pun/double meaning ,r000/0,
,,,,,,

,no-context-required,,,2026-01-02 00:00:00,r001/0,
,context-required,,,None|Pun/Double meaning,r002/0,
,,,,,r003/0,
,,,,,r004/0,too much
,context-required,,,None,r00O,no
"""


@pytest.mark.parametrize("dirt", DIRT)
def test_what_a_spreadsheet_does_to_a_file_is_read(dirt: str, tmp_path: Path) -> None:
    backend = Csv(tmp_path / "annotation", clock=now)
    backend.prepare(QUEUE, form=contract.form())
    backend.add(QUEUE, tasks=contract.texts(5))
    [path] = tables(Path(backend.address(QUEUE)).parent)
    path.write_bytes(DIRT[dirt](TABLE))
    answers = {answer.item[0]: answer for answer in backend.answers(QUEUE)}
    assert answers.keys() == {"r000", "r001", "r002", "r004", ""}, "an empty row is no answer"
    assert answers["r000"].values == {"kind": ("Pun/Double meaning", "Irony/sarcasm"), "context": ("context-required",)}
    assert answers["r001"].values["kind"] == ("2026-01-02 00:00:00",) and answers["r001"].place.endswith("row 5")
    assert answers["r004"].skipped and not answers[""].skipped


@pytest.mark.parametrize(
    ("content", "detail"),
    [(b"item,kind\n", "one column context"), (b"", "one column item"), (b'item,kind,context\n"', "never ends")],
)
def test_a_table_that_cannot_be_read_is_named(content: bytes, detail: str, tmp_path: Path) -> None:
    backend = Csv(tmp_path / "annotation", clock=now)
    backend.prepare(QUEUE, form=contract.form())
    backend.add(QUEUE, tasks=contract.texts(2))
    [path] = tables(Path(backend.address(QUEUE)).parent)
    path.write_bytes(content)
    with refused("BadAnswers", match=detail):
        backend.answers(QUEUE)
    path.write_bytes(content + b"secret r000/0")
    backend.remove(QUEUE, items=[("r000", 0)])
    assert not path.exists() or b"secret" not in path.read_bytes(), "what cannot be read keeps no content"
    other = path.with_suffix(".xlsx")
    other.write_bytes(b"no workbook")
    path.write_bytes(content)
    with refused("BadAnswers", match="exists too"):
        backend.answers(QUEUE)


ANNA, BEN = "anna", "ben"


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a corpus of 60 items whose rounds are those of a corpus of a team's own."""
    home = tmp_path_factory.mktemp("begun")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small, "MEMES", 60)
        with at_home(home / "var") as settings, Vault.open(settings.vault_url, secret=settings.secret()) as vault:
            small.begin(home, settings=settings, vault=vault)
            with workspace(settings) as clone:
                values = yaml.safe_load((clone.path / "params.yaml").read_text())
                values["round"]["protocol"]["memes"] = "own"
                (clone.path / "params.yaml").write_text(yaml.safe_dump(values))
                clone.commit("rounds of a corpus of our own")
    return home


@pytest.mark.parametrize("kind", KINDS)
def test_two_people_label_sixty_items_and_gold_follows(kind: str, begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun / "var", tmp_path / "var")
    with at_home(tmp_path / "var") as settings, Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        lab = Lab(settings, vault)
        site = store.RoundSite(settings, vault, small.NOW)

        def do(command: Callable[..., dict[str, Any]], **options: Any) -> dict[str, Any]:
            return command(site, "memes", "round-1", **options)

        with refused("UnknownName", match="ods"):
            do(rounds.open_round, backend="ods")
        with refused("BadParams", match="needs 2 people"):
            do(rounds.open_round, annotators=[ANNA])
        given = do(rounds.open_round, backend=kind, annotators=[ANNA, BEN])
        assert given["released"] == {ANNA: 60, BEN: 60}
        assert given["address"][BEN].endswith(f"ben/memes-round-1-ben-1.{kind}")
        with refused("RoundState", match="other annotators"):
            do(rounds.open_round, backend=kind, annotators=[BEN, ANNA])

        folders = {person: Path(path).parent for person, path in given["address"].items()}
        asked = small.items(folders[ANNA])
        right = small.truth(asked)
        values = {i: right[i] if n >= 6 else small.other(right[i], key="severity") for n, i in enumerate(asked)}
        label(folders[ANNA], right)
        label(folders[BEN], values | {asked[-1]: values[asked[-1]] | {"severity": ["SAD"]}}, dirty=True)
        pulled = do(rounds.pull)
        assert pulled["answered"] == {ANNA: 60, BEN: 60}
        assert pulled["problems"] == {BEN: {"outside_scheme": 1, "not_assigned": 1}}
        [line, other] = sorted(pulled["rejected"][BEN], key=lambda each: "severity" not in each)
        assert re.fullmatch(rf"memes-round-1-ben-1.{kind}, row \d+, severity: no label of the list", line)
        assert other.endswith("item: not in this person's queue") and "SAD" not in line
        label(folders[BEN], values)
        assert do(rounds.pull)["rejected"].keys() == {BEN}, "the strange row is there"
        again = do(rounds.pull)
        assert again["changed"] is False

        # of a table, of a copy, and of what a spreadsheet program left beside it
        [table] = tables(folders[BEN])
        shutil.copy(table, table.with_name(f"copy{table.suffix}"))
        table.with_name(f"~${table.name}").write_bytes(b"locked by a person")
        gone, *asked = asked
        vault.destroy([gone[0]], reason="request-1", now=small.NOW)
        assert do(rounds.pull)["removed"] == 2
        for path in settings.annotation_files.rglob("*"):
            assert path.is_dir() or gone[0] not in str([read(path) if path.suffix[1:] in KINDS else path.read_bytes()])
        table.with_name(f"copy{table.suffix}").unlink()

        begun_ = do(rounds.adjudicate)
        assert (begun_["cases"], begun_["released"]) == (5, {"adjudicator-1": 5})
        [third] = tables(lab.adjudication(name="round-1"))
        assert third.name == f"memes-round-1-adjudication-adjudicator-1-1.{kind}"
        assert not {ANNA, BEN} & set(str(read(third)).split("'")), "sides have no names"
        label(third.parent, {i: {"severity": right[i]["severity"]} for i in asked[:5]})
        assert do(rounds.pull)["rejected"]["adjudicator-1"][0].endswith("note: empty; a decision needs a reason")
        label(third.parent, {i: {"severity": right[i]["severity"]} for i in asked[:5]}, note="by the guideline")
        closed = do(rounds.close, go_on=True, reason="agreement-sufficient")
        assert (closed["cases"], closed["problems"], closed["rejected"]) == (0, {}, {})
        assert not list(settings.annotation_files.rglob("*"))
        gold = gold_of(lab)
        assert all(labels == plain(right[r, i], key) for (r, i, key), (labels, _) in gold.items())
        assert {(r, i) for r, i, _ in gold} == {*asked}
        assert Counter(how for _, how in gold.values()) == {"agreed": 59 * len(right[asked[0]]) - 5, "adjudicated": 5}


def label(
    folder: Path, values: Mapping[Item, Mapping[str, Sequence[str]]], *, note: str = "", dirty: bool = False
) -> None:
    """Fill in all rows; ``dirty`` leaves behind what people do to tables."""
    for path in tables(folder):
        with opened(path) as rows:
            header = rows[0]
            for row in (row for row in rows[1:] if row[0] in map(name_of, values)):
                for name, text in cells(values[small.item(row[0])], note=note).items():
                    row[header.index(name)] = f" {text.upper()} " if dirty else text
            if dirty:
                strange = ["t3_abc", *rows[-1][1:]]
                rows[:] = [[*row, "extra"] for row in (header, *reversed(rows[1:]), ["" for _ in header], strange)]
