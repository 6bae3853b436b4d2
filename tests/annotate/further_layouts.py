"""Published tables as an independent author would write them: no word here depends on the reader."""

import io
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from openpyxl import Workbook
from PIL import Image

MOODS, TOPICS = ["calm", "merry", "tired"], ["garden", "kitchen"]
ITEMS = [
    (
        f"p{i:03d}",
        f"We sat outside, the café was “open” – day {i}; it rained.",
        MOODS[i % 3],
        TOPICS[: (0, 1, 2)[i % 3]],
    )
    for i in range(12)
]


def one_hot(folder: Path) -> None:
    """Spreadsheet of words: a column per label, x where it holds."""
    head = ["Post ID", "Text", *(f"Mood: {m.title()}" for m in MOODS), *(f"Topic: {t.title()}" for t in TOPICS)]
    rows = [[k, f'"{x}"', *("x" * (m == n) for n in MOODS), *("x" * (n in t) for n in TOPICS)] for k, x, m, t in ITEMS]
    (folder / "labels.csv").write_text("\n".join(",".join(row) for row in [head, *rows]))


def json_cell(folder: Path) -> None:
    quoted = [json.dumps({"mood": m, "topic": t}).replace('"', '""') for _, _, m, t in ITEMS]
    lines = [f'{k},"{x}","{cell}"' for (k, x, *_), cell in zip(ITEMS, quoted, strict=True)]
    (folder / "annotations.csv").write_text("\n".join(["id,text,annotation", *lines]))


def two_archives(folder: Path) -> None:
    """Posts in an archive of text files, labels in another."""
    with zipfile.ZipFile(folder / "posts.zip", "w") as archive:
        lines = [json.dumps({"post_id": k, "selftext": x}) for k, x, *_ in ITEMS]
        archive.writestr("posts/posts.jsonl", "\n".join(lines))
    with zipfile.ZipFile(folder / "labels.zip", "w") as archive:
        lines = [f"{k}\t{m}\t{'|'.join(t)}" for k, _, m, t in reversed(ITEMS)]
        archive.writestr("labels/labels.tsv", "\n".join(["id\tmood\ttopic", *lines]))


def titled_book(folder: Path) -> None:
    """Workbook with a title, a blank row, and a note below the table."""
    book = Workbook()
    page = book.active
    page.append(["Moods of posts, version 1.0 (2017)"])
    page.merge_cells("A1:D1")
    page.append([])
    for row in [["id", "text", "mood", "topic"], *([k, x, m, ", ".join(t)] for k, x, m, t in ITEMS)]:
        page.append(row)
    book.save(folder / "moods.xlsx")


def commented(folder: Path) -> None:
    """Tab-separated, with lines of # above the header."""
    lines = ["# Moods of posts 1.0", "# licence: CC BY 4.0", "id\ttext\tmood\ttopic"]
    (folder / "moods.tsv").write_text("\n".join([*lines, *(f"{k}\t{x}\t{m}\t{';'.join(t)}" for k, x, m, t in ITEMS)]))


def splits_as_keys(folder: Path) -> None:
    """One JSON object with a list for each split."""
    rows = [{"id": k, "text": x, "mood": m, "topic": t} for k, x, m, t in ITEMS]
    (folder / "moods.json").write_text(json.dumps({"train": rows[:8], "validation": rows[8:10], "test": rows[10:]}))


def list_parquet(folder: Path) -> None:
    """Parquet with a list of all labels in one column, and a split per file, as the Hub converts data sets."""
    for part, rows in (("train", ITEMS[:8]), ("test", ITEMS[8:])):
        values = {"id": [r[0] for r in rows], "text": [r[1] for r in rows], "labels": [[r[2], *r[3]] for r in rows]}
        pq.write_table(pa.table(values), folder / f"{part}-00000-of-00001.parquet")


def annotators(folder: Path) -> None:
    """A column for each annotator; two of three agree."""
    other = {m: MOODS[(i + 1) % 3] for i, m in enumerate(MOODS)}
    lines = [f'{k},"{x}",{m},{other[m] if i % 2 else m},{m}' for i, (k, x, m, _) in enumerate(ITEMS)]
    (folder / "raw.csv").write_text("\n".join(["id,text,annotator_1,annotator_2,annotator_3", *lines]))


def windows_csv(folder: Path) -> None:
    """Exported by a German Excel: semicolons, Windows-1252, no final newline, labels in capitals."""
    lines = [f'{k};"{x}";{m.upper()};{" / ".join(t).upper()}' for k, x, m, t in ITEMS]
    (folder / "moods.csv").write_bytes("\r\n".join(["ID;Text;Mood;Topic", *lines]).encode("cp1252"))


def label_tool(folder: Path) -> None:
    """Export of an annotation tool: text and choices lie deep."""
    rows = [
        {
            "id": i + 1,
            "data": {"post_id": k, "text": x},
            "annotations": [{"id": i, "result": [{"from_name": "mood", "value": {"choices": [m]}}]}],
        }
        for i, (k, x, m, _) in enumerate(ITEMS)
    ]
    (folder / "project-3-at-2017.json").write_text(json.dumps(rows, indent=1))


def fasttext(folder: Path) -> None:
    lines = [" ".join([f"__label__{n}" for n in (m, *t)] + [x]) for _, x, m, t in ITEMS]
    (folder / "moods.train.txt").write_text("\n".join(lines) + "\n")


def picture(number: int, *, form: str = "JPEG", side: int = 96) -> bytes:
    out = io.BytesIO()
    image = Image.new("RGB", (side, side), (number * 37 % 256, number * 71 % 256, 90))
    image.paste((255 - number * 5 % 256, 200, number * 19 % 256), (number % 40, 10, number % 40 + 30, 70))
    image.save(out, form)
    return out.getvalue()


def picture_archive(folder: Path) -> None:
    """An archive of a folder for each class: a suffix that lies, a folder without files, a system's leftover."""
    with zipfile.ZipFile(folder / "memes.zip", "w") as archive:
        archive.mkdir("memes/tired")
        archive.writestr("memes/.DS_Store", b"\0")
        for i in range(6):
            kind = MOODS[i % 2]
            archive.writestr(f"memes/{kind}/meme {i}.jpg", picture(i, form="PNG" if i % 3 else "JPEG"))


def harm_c(folder: Path) -> None:
    """Replica of the layout of Harm-C (Pramanick et al. 2021): JSON Lines per split, pictures beside; own text."""
    (folder / "images").mkdir()
    levels, targets = ["not harmful", "somewhat harmful", "very harmful"], ["individual", "organization", "society"]
    for part, numbers in (("train", range(8)), ("val", range(8, 10)), ("test", range(10, 12))):
        lines = []
        for i in numbers:
            level = levels[i % 3]
            labels = [level] if level == levels[0] else [level, targets[i % 2]]
            name = f"covid_memes_{i}.png"
            (folder / "images" / name).write_bytes(picture(i, form="PNG"))
            lines.append(json.dumps({"id": f"covid_memes_{i}", "image": name, "labels": labels, "text": ITEMS[i][1]}))
        (folder / f"{part}.jsonl").write_text("\n".join(lines) + "\n")


def cssrs_posts(folder: Path) -> None:
    """Replica of post-level C-SSRS files: numbered people, several posts each, a label per post; own text."""
    names = ["Supportive", "Indicator", "Ideation", "Behavior", "Attempt"]
    lines = [f'user-{i // 3},{i % 3 + 1},"{ITEMS[i][1]}",{names[i % 5]}' for i in range(12)]
    (folder / "posts.csv").write_text("\n".join(["User,PostNo,Post,Label", *lines]))
