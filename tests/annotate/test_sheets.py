"""Queues as workbooks and CSV files: the backend contract, what Excel does to them, formulas, and a whole round."""

import csv
import io
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
from pipelines.core.process import now
from tests.annotate import backend_contract as contract
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
    return [[str(cell or "") for cell in row] for row in openpyxl.load_workbook(path)["Items"].iter_rows(values_only=True)]


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
