"""Hand out annotation queues as tables that people fill in with a spreadsheet program, and read what comes back.

A queue is a folder as in the backend ``files``; each time items are added, it gets one more table with these items, so
that no table changes that a person has. Excel may do to it what it usually does: another separator or encoding, rows
and columns moved or added, spaces, other case. The text of a cell is never interpreted: content that a spreadsheet
program would take for a formula gets an apostrophe before it, and in a workbook every cell is a string.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from pipelines.annotate.backends import AnnotationTask, AnnotatorAnswer, Item, Queue, item_of, name_of
from pipelines.annotate.backends.files import Files, usable, write
from pipelines.annotate.form import Form
from pipelines.annotate.imports.grid import Fault, Layout, grid_of
from pipelines.annotate.imports.published_files import content_of
from pipelines.core import spreadsheet, untrusted
from pipelines.core.errors import DataError
from pipelines.core.taxonomy.scheme import normal

Table = list[list[str]]
# Ours: a column of several labels is there this many times, each with a list to choose one label from.
TIMES = 3
# Excel: a cell has at most 32,767 characters, and a post at most 40,000 (Reddit).
LONGEST = 32_000
NOT_SKIPPED = {"", "0", "no", "n", "false"}
HOW = """How to fill in the table
Write labels into the columns {keys}; each has a list to choose from. Several labels of one column: use its further
columns, or write | between them. You may leave a row empty and come back to it.
Skip whatever you like: write x into the column skip. It needs no reason and never counts against you.
Column note: {note}
Keep the name of the file and the column item, save it in its own format, and put it back into this folder.
It is for one person and holds plain content: keep it on this machine. `corpus round close` deletes the folder."""


class Sheets(Files):
    """A backend that hands out tables in the format of ``suffix``; it reads them in either format."""

    suffix: ClassVar[str]

    def readme(self, form: Form) -> str:
        """Return warning, contacts, what to do and the guideline, which a workbook has as a sheet of its own."""
        keys = ", ".join(question.key for question in form.questions)
        how = HOW.format(keys=keys, note=form.note)
        return "\n".join([form.title, "", form.warning, *form.contacts, "", how, "", form.guideline])

    def add(self, queue: Queue, *, tasks: Sequence[AnnotationTask]) -> None:
        """Append tasks to the queue's list, and write them to a new table."""
        super().add(queue, tasks=tasks)
        with usable():
            self._write_missing(queue)

    def answers(self, queue: Queue) -> list[AnnotatorAnswer]:
        """Return the rows of the queue's tables in which something is filled in; a table that is missing is rewritten.

        A row was answered when its table was last saved.
        """
        with usable():
            if not (self._folder(queue) / "form.json").exists():
                return []
            answers = [
                answer
                for number, path in enumerate(self._write_missing(queue))
                for answer in _answers(path, form=self._form(queue), annotator=queue.annotator, table=number)
            ]
        return sorted(answers, key=lambda answer: (answer.item, answer.answered, answer.id))

    def remove(self, queue: Queue, *, items: Iterable[Item]) -> None:
        """Remove the items as in ``files``, and from every table in the folder, also a copy, what is of no other item.

        A table that cannot be read is deleted; the next call of :meth:`answers` writes it again, empty.
        """
        folder = self._folder(queue)
        super().remove(queue, items=[*items])
        with usable():
            left = set(map(name_of, self.present(queue)))
            for path in (path for path in folder.rglob("*") if path.suffix in WRITE):
                try:
                    rows = [row for _, row in _rows(path)]
                    at = [normal(name) for name in rows[0]].index("item") if rows else 0
                except (_UnreadableTable, ValueError):
                    path.unlink()
                    continue
                kept = rows[:1] + [row for row in rows[1:] if not left.isdisjoint(row[at : at + 1])]
                if len(kept) < len(rows):
                    saved = path.stat()
                    write(path, WRITE[path.suffix](kept, self._form(queue), self.readme(self._form(queue))))
                    os.utime(path, ns=(saved.st_atime_ns, saved.st_mtime_ns))

    def address(self, queue: Queue) -> str:
        """Return the path of the queue's last table, or of its folder."""
        folder = self._folder(queue)
        return str(max(self._tables(folder), key=lambda path: _number(path.name), default=folder))

    def placed(self, queue: Queue, *, rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
        """Name the table of new tasks: a person's tables have different names, so that none is mistaken for another."""
        number = 1 + max((_number(str(row["table"])) for row in rows), default=0)
        return {"table": f"{queue.name.replace('/', '-')}-{queue.annotator}-{number}{self.suffix}"}

    def _form(self, queue: Queue) -> Form:
        return Form.of_json(untrusted.read(self._folder(queue) / "form.json"))

    def _tables(self, folder: Path) -> dict[Path, list[dict[str, Any]]]:
        tables: dict[Path, list[dict[str, Any]]] = {}
        for row, _ in self._tasks(folder):
            tables.setdefault(folder / str(row["table"]), []).append(row)
        return tables

    def _write_missing(self, queue: Queue) -> list[Path]:
        """Return the queue's tables as they are, in either format, after writing those of which there is none."""
        found = []
        for path, rows in self._tables(self._folder(queue)).items():
            paths = [each for each in (path.with_suffix(suffix) for suffix in WRITE) if each.exists()]
            if len(paths) > 1:
                detail = f"{paths[1].name} exists too; keep the one that is filled in"
                raise DataError("BadAnswers", file=str(paths[0]), line=1, detail=detail)
            if not paths:
                form = self._form(queue)
                write(path, WRITE[path.suffix](_table(rows, form=form), form, self.readme(form)))
            found.append(paths[0] if paths else path)
        return found


class _UnreadableTable(Exception):
    """A table cannot be read, for a reason that quotes none of it."""


def _number(name: str) -> int:
    return int(Path(name).stem.rpartition("-")[2])


def _columns(form: Form) -> dict[str, list[str]]:
    """Return the names of each question's columns."""
    times = {question.key: range(2, min(TIMES, len(question.choices)) + 1) for question in form.questions}
    return {
        question.key: [question.key, *(f"{question.key} {n}" for n in times[question.key] if question.kind == "multi")]
        for question in form.questions
    }


def _table(rows: Sequence[Mapping[str, Any]], *, form: Form) -> Table:
    """Return the header and an empty row for each task."""
    shown = [_shown(row) for row in rows]
    content = list(dict.fromkeys(name for cells in shown for name in cells))
    answered = [column for columns in _columns(form).values() for column in columns]
    header = ["item", *content, *answered, "note", "skip"]
    shown = [{**cells, "item": str(row["item"])} for row, cells in zip(rows, shown, strict=True)]
    return [header, *([cells.get(name, "") for name in header] for cells in shown)]


def _shown(row: Mapping[str, Any]) -> dict[str, str]:
    """Return what an annotator sees of a task, by column."""
    cells = {}
    for name, text in row["text"].items():
        for at in range(0, len(text), LONGEST):
            cells[f"{name} {at // LONGEST + 1}" if at else name] = text[at : at + LONGEST]
    cells |= {"picture": row["image"]} if row["image"] else {}
    cells |= {"to decide": ", ".join(row["disputed"])} if row["disputed"] else {}
    for number, side in enumerate(row["sides"], start=1):
        cells[f"answer {number}"] = "; ".join(f"{key}: {', '.join(labels)}" for key, labels in side.items())
    return {name: spreadsheet.cell(text) for name, text in cells.items()}


def _answers(path: Path, *, form: Form, annotator: str, table: int) -> Iterator[AnnotatorAnswer]:
    saved = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    try:
        (_, header), *lines = _rows(path) or [(1, [])]
        names = [normal(name) for name in header]
        columns = {key: [normal(name) for name in named] for key, named in _columns(form).items()}
        if missing := [name for name in ("item", *columns) if names.count(normal(name)) != 1]:
            raise _UnreadableTable(f"it needs one column {', one '.join(missing)}")
    except _UnreadableTable as fault:
        raise DataError("BadAnswers", file=str(path), line=1, detail=fault) from None
    for line, row in lines:
        cells = {name: text for name, text in zip(names, row, strict=False) if name}
        values = {
            question.key: labels
            for question in form.questions
            if (labels := _labels([cells.get(name, "") for name in columns[question.key]], question.choices))
        }
        skipped = cells.get("skip", "").casefold() not in NOT_SKIPPED
        if values or skipped:
            yield AnnotatorAnswer(
                item=_item(cells["item"]),
                by=annotator,
                id=f"{table}{line:07d}",
                answered=saved,
                values=values,
                note=cells.get("note", ""),
                skipped=skipped,
                place=f"{path.name}, row {line}",
            )


def _labels(cells: Iterable[str], choices: Iterable[Any]) -> tuple[str, ...]:
    """Return the labels in the cells of a question, spelled as the form spells them; others are unchanged."""
    known = {normal(choice.value): choice.value for choice in choices}
    parts = (
        part.strip() for cell in cells for part in ([cell] if normal(cell) in known else re.split(r"[|;\n]", cell))
    )
    return tuple(dict.fromkeys(known.get(normal(part), part) for part in parts if part))


def _item(name: str) -> Item:
    try:
        return item_of(name)
    except ValueError:
        return "", 0  # no round has it


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Return number and cells of each row that is not empty, as text without surrounding spaces and our apostrophe.

    Of a workbook, these are the rows of the sheet that has a column ``item``; a formula is its text.
    """
    try:
        grid = grid_of(
            content_of(path, links=False),
            layout=Layout(format="xlsx" if path.suffix == ".xlsx" else "csv"),
            needs="item",
        )
    except Fault as fault:
        raise _UnreadableTable(str(fault)) from None
    rows = [(1, [*grid.header]), *grid.rows]
    plain = [(n, ["" if c is None else str(c).strip().removeprefix("'") for c in cells]) for n, cells in rows]
    return [(number, cells) for number, cells in plain if any(cells)]


def _csv(rows: Table, form: Form, readme: str) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue().encode("utf-8-sig")


def _xlsx(rows: Table, form: Form, readme: str) -> bytes:
    from openpyxl import Workbook
    from openpyxl.styles import Alignment
    from openpyxl.utils import get_column_letter
    from openpyxl.worksheet.datavalidation import DataValidation

    book = Workbook()
    choices = [[choice.value for choice in question.choices] for question in form.questions]
    tables = {"Items": rows, "Guideline": [[line] for line in readme.splitlines()], "Labels": choices}
    for name, lines in tables.items():
        sheet = book.active if name == "Items" else book.create_sheet(name)
        sheet.title = name
        for line, texts in enumerate(lines, start=1):
            for column, text in enumerate(texts, start=1):
                cell = sheet.cell(line, column, text or None)
                # text also where it begins like a formula, is typed over, or looks like a date
                cell.quotePrefix, cell.number_format = bool(text), "@"
                cell.data_type = "s" if text else "n"
                cell.alignment = Alignment(wrap_text=True, vertical="top")
    items, guide = book["Items"], book["Guideline"]
    items.freeze_panes, book["Labels"].sheet_state = "B2", "hidden"
    guide.column_dimensions["A"].width = 100
    for at, name in enumerate(rows[0], start=1):
        items.column_dimensions[get_column_letter(at)].width = 60 if name.startswith(("title", "body")) else 20
    for number, (question, columns) in enumerate(zip(form.questions, _columns(form).values(), strict=True), start=1):
        last = get_column_letter(len(question.choices))
        chooser = DataValidation("list", formula1=f"Labels!$A${number}:${last}${number}", allow_blank=True)
        chooser.showErrorMessage = question.kind == "single"
        items.add_data_validation(chooser)
        for key in columns:
            letter = get_column_letter(rows[0].index(key) + 1)
            chooser.add(f"{letter}2:{letter}{max(2, len(rows))}")
    content = io.BytesIO()
    book.save(content)
    return content.getvalue()


WRITE = {".csv": _csv, ".xlsx": _xlsx}
