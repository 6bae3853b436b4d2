"""Tables as researchers publish them: each layout gives its items and labels, or one sentence on what to do."""

import gzip
import io
import json
import os
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import yaml
from openpyxl import Workbook

from pipelines.annotate.imports import grid, published_files
from pipelines.annotate.imports.grid import Layout
from pipelines.annotate.imports.imports import read_all
from pipelines.annotate.imports.mapping import DatasetMapping, read
from pipelines.annotate.imports.propose import mapping_text
from pipelines.annotate.imports.published_files import UnreadableFile, read_files
from pipelines.core.taxonomy import Scheme, load_file
from tests.refusals import refused

MOODS = ["calm", "merry", "tired"]
TOPICS = ["garden", "kitchen"]
NAMES = [*MOODS, *TOPICS]


@pytest.fixture
def scheme(tmp_path: Path) -> Scheme:
    categories = {"mood": ("single", MOODS), "topic": ("multi", TOPICS)}
    values = {
        "name": "small",
        "version": 1,
        "title": "s",
        "item": "text",
        "items": "texts",
        "role": "r",
        "purpose": "p",
        "categories": {
            key: {
                "kind": kind,
                "task": "t",
                "labels": [{"name": n, "code": f"{key[0]}{i}", "definition": n} for i, n in enumerate(names)],
            }
            for key, (kind, names) in categories.items()
        },
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(values))
    return load_file(tmp_path / "small.yaml")


def mapped(**changes: object) -> DatasetMapping:
    base = {
        "dataset": "small",
        "title": "t",
        "source": "s",
        "rights": "ours",
        "scheme": "small",
        "level": "item",
        "month": "2017-12",
        "columns": {"own": ["id"], "body": ["text"]},
        "labels": {"mood": {"columns": ["mood"]}},
    }
    return DatasetMapping.model_validate(base | changes)


ROWS = [[f"n{i}", f"We sat in the garden, café {i}; it was late.", MOODS[i % 3]] for i in range(9)]
HEAD = ["id", "text", "mood"]
JSON_ROWS = [dict(zip(HEAD, row, strict=True)) for row in ROWS]


def delimited(mark: str = ",", *, rows: list[list[str]] = ROWS, head: list[str] = HEAD, quoted: bool = True) -> str:
    cell = (lambda text: '"' + text.replace('"', '""') + '"') if quoted else str
    return "".join(mark.join(map(cell, row)) + "\r\n" for row in [head, *rows] if row)


def book(rows: list[list[object]], *, sheet: str = "Sheet") -> bytes:
    made, out = Workbook(), io.BytesIO()
    made.active.title = "About"
    page = made.create_sheet(sheet)
    for row in rows:
        page.append(row)
    made.save(out)
    return out.getvalue()


def packed(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def arrow(kind: str) -> bytes:
    out, table = io.BytesIO(), pa.Table.from_pylist(JSON_ROWS)
    pq.write_table(table, out) if kind == "parquet" else pyarrow.feather.write_feather(table, out)
    return out.getvalue()


LAYOUTS = {
    "comma": ("a.csv", delimited().encode()),
    "byte order mark": ("a.csv", delimited().encode("utf-8-sig")),
    "semicolons, Latin-1": ("a.csv", delimited(";").encode("latin-1")),
    "bars without quotes": ("a.txt", delimited("|", quoted=False).encode()),
    "tabs, UTF-16": ("a.csv", delimited("\t").encode("utf-16")),
    "UTF-16 without a mark": ("a.csv", delimited(quoted=True).encode("utf-16-le")),
    "a separator line": ("a.csv", b"sep=;\r\n" + delimited(";").encode()),
    "blank lines and empty rows": ("a.csv", b"\n\n" + delimited().encode() + b'\n"","",""\n'),
    "JSON list": ("a.txt", json.dumps(JSON_ROWS).encode()),
    "JSON Lines named .json": ("a.json", "\n".join(map(json.dumps, JSON_ROWS)).encode()),
    "JSON within an object": ("a.json", json.dumps({"data": JSON_ROWS, "version": 1}).encode()),
    "JSON by key": ("a.json", json.dumps({row["id"]: row for row in JSON_ROWS}).encode()),
    "JSON by column": ("a.json", json.dumps({n: [row[n] for row in JSON_ROWS] for n in HEAD}).encode()),
    "pandas' JSON": ("a.json", json.dumps({n: {str(i): r[n] for i, r in enumerate(JSON_ROWS)} for n in HEAD}).encode()),
    "Parquet under any name": ("a.data", arrow("parquet")),
    "Feather": ("a.feather", arrow("feather")),
    "workbook": ("a.xlsx", book([HEAD, *ROWS])),
    "gz": ("a.csv.gz", gzip.compress(delimited().encode())),
    "zip": ("a.zip", packed({"data/a.csv": delimited().encode(), "README": b"x", "__MACOSX/a.csv": b"\0"})),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_gives_the_same_items(layout: str, tmp_path: Path, scheme: Scheme) -> None:
    name, content = LAYOUTS[layout]
    (tmp_path / name).write_bytes(content)
    found = read_all([tmp_path / name], mapping=mapped(), scheme=scheme)
    assert (found.gathered.bad, found.refusal) == ({}, None)
    said = {e.name: (e.text.body, *e.answers["mood"]) for e in found.gathered.entries if e.text}
    assert said == {f"small/{row[0]}": (row[1], row[2]) for row in ROWS}


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_goemotions_layout_has_no_header_lists_of_numbers_and_quotes_that_quote_nothing(tmp_path, scheme):
    rows = [['"Well, we began', "0", "a1"], ['that is "odd', "1,3", "a2"], ['"whole"', "4,2", "a3"], ["end", "0", "a4"]]
    path = write(tmp_path / "train.tsv", "".join("\t".join(row) + "\n" for row in rows))
    own = {"columns": ["labels"], "separator": ","}
    moods, topics = ({str(NAMES.index(name)): name for name in names} for names in (MOODS, TOPICS))
    labels = {"mood": {**own, "values": moods}, "topic": {**own, "values": topics}}
    mapping = mapped(header=["text", "labels", "id"], labels=labels)
    found = read_all([path], mapping=mapping, scheme=scheme)
    assert not found.gathered.bad
    assert [(e.text.body[:5], *map(sorted, e.answers.values())) for e in found.gathered.entries] == [
        ('"Well', ["calm"], []),
        ("that ", ["merry"], ["garden"]),
        ('"whol', ["tired"], ["kitchen"]),
        ("end", ["calm"], []),
    ]


def test_rows_of_one_post_follow_the_rule_that_the_mapping_states(tmp_path, scheme):
    rows = [["p1", "x y", m, t] for m, t in (("calm", "garden"), ("calm", "kitchen"), ("merry", "garden"))]
    rows += [["p2", "z", "calm", "garden"], ["p2", "z", "merry", "garden"], ["p3", "w", "tired", ""]]
    path = write(tmp_path / "a.csv", delimited(rows=rows, head=["id", "text", "mood", "topic"]))
    labels = {"mood": {"columns": ["mood"]}, "topic": {"columns": ["topic"], "blank": "none"}}

    def answers(**changes: object) -> dict[str, list[list[str]]]:
        found = read_all([path], mapping=mapped(**{"labels": labels, **changes}), scheme=scheme, allow_bad=1)
        return {e.name[-2:]: [sorted(labels) for labels in e.answers.values()] for e in found.gathered.entries}

    third = {"p3": [["tired"], []]}
    assert answers() == third
    assert answers(conflict="majority") == {"p1": [["calm"], ["garden"]], **third}, "p2 is a tie"
    assert answers(conflict="first") == {"p1": [["calm"], ["garden"]], "p2": [["calm"], ["garden"]], **third}
    only = {"topic": labels["topic"]}
    assert answers(conflict="all", labels=only)["p1"] == [["garden", "kitchen"]]


def test_posts_and_labels_of_two_files_are_joined(tmp_path, scheme):
    posts = write(tmp_path / "posts.csv", delimited(rows=[r[:2] for r in ROWS] + [["n1", "another"]], head=HEAD[:2]))
    rows = [[r[0], r[2]] for r in ROWS] + [["n99", "calm"]]
    labels = write(tmp_path / "labels.csv", delimited(";", rows=rows, head=["post", "mood"]))
    mapping = mapped(join=["post", "id"], columns={"own": ["post"], "body": ["text"]})
    found = read_all([labels, posts], mapping=mapping, scheme=scheme, allow_bad=1)
    assert (len(found.gathered.entries), found.gathered.rows) == (8, 10)
    assert found.gathered.bad == {"joined_twice": [("labels.csv", 3)], "not_joined": [("labels.csv", 11)]}


def test_placeholders_are_empty_cells_and_decimal_commas_are_numbers(tmp_path, scheme):
    rows = [["n1", "A walk", "EmptyPost", "1,0"], ["n2", "emptypost", "nan", "0,0"], ["n3", "A talk", "We spoke.", "1"]]
    path = write(tmp_path / "a.csv", delimited(";", rows=rows, head=["id", "title", "text", "happy"]))
    mapping = mapped(
        empty=["emptypost", "nan"],
        columns={"own": ["id"], "title": ["title"], "body": ["text"]},
        labels={"mood": {"columns": ["happy"], "values": {"1": "merry", "0": "tired"}}},
    )
    found = read_all([path], mapping=mapping, scheme=scheme, allow_bad=1)
    assert found.gathered.bad == {"no_text": [("a.csv", 3)]}
    assert [(e.text.title, e.text.body, *e.answers["mood"]) for e in found.gathered.entries if e.text] == [
        ("A walk", "", "merry"),
        ("A talk", "We spoke.", "merry"),
    ]


def test_pictures_are_named_by_a_column_and_never_from_outside_their_folder(tmp_path, scheme):
    names = ["img/1.png", "img\\2.png", "/etc/hosts", "img/../../x.png", ""]
    rows = [{"img": name, "text": "we sat", "mood": "calm"} for name in names]
    path = write(tmp_path / "a.json", "\n".join(map(json.dumps, rows)))
    columns = {"picture": ["img"], "body": ["text"]}
    found = read_all([path], mapping=mapped(columns=columns), scheme=scheme, allow_bad=1)
    assert [e.picture.name for e in found.gathered.entries if e.picture] == ["img/1.png", "img/2.png"]
    assert {why: len(at) for why, at in found.gathered.bad.items()} == {"picture_outside": 2, "no_picture": 1}


def test_folders_of_pictures_as_the_hub_has_them(tmp_path, scheme):
    for name in ("train/calm/1.png", "train/merry/2.png", "test/calm/3.jpg"):
        (tmp_path / "memes" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "memes" / name).write_bytes(b"x")
    parts = {s: {"split": s, "columns": ["split"], "values": [s], "files": [f"{s}/*"]} for s in ("train", "test")}
    mapping = mapped(columns={"picture": ["file_name"]}, labels={"mood": {"columns": ["label"]}}, parts=parts)
    wanted = {("train/calm/1.png", "train", "calm"), ("train/merry/2.png", "train", "merry")}
    wanted |= {("test/calm/3.jpg", "test", "calm")}

    def said() -> set[tuple[object, ...]]:
        entries = read_all([tmp_path / "memes"], mapping=mapping, scheme=scheme).gathered.entries
        return {(e.picture.name, e.split, *e.answers["mood"]) for e in entries if e.picture}

    assert said() == wanted
    for split in ("train", "test"):
        rows = [[name.partition("/")[2], mood] for name, place, mood in sorted(wanted) if place == split]
        write(tmp_path / "memes" / split / "metadata.csv", delimited(rows=rows, head=["file_name", "label"]))
    assert said() == wanted
    inside = [{"image": {"bytes": b"png", "path": None}, "label": "calm"}]
    pq.write_table(pa.Table.from_pylist(inside), tmp_path / "train-0.parquet")
    by = mapped(columns={"picture": ["image"]}, labels={"mood": {"columns": ["label"]}})
    [entry] = read_all([tmp_path / "train-0.parquet"], mapping=by, scheme=scheme).gathered.entries
    assert entry.picture and entry.picture.data == b"png"


BOMB = gzip.compress(b"a,b\n" * 2**18)
FAULTS = {
    "two columns of one name": ("a.csv", b"id,text,mood,Mood\n1,a,calm,calm\n", "several columns mood: rename"),
    "an archive in an archive": ("a.zip", packed({"a.csv": BOMB}), "archive within an archive: unpack"),
    "a bomb": ("a.gz", BOMB, "expands to more than"),
    "NUL characters": ("a.csv", b"id,text,mood\n" + b"1,a\0b,calm\n" * 50, "NUL characters.*tr -d"),
    "a quote that never ends": ("a.csv", b'id,text,mood\n1,"a,calm\n2,b\n', "never ends, at row 2"),
    "a pickle": ("a.pkl", b"\x80\x04\x95abc", "pickle, which would run code"),
    "an old workbook": ("a.xls", b"\xd0\xcf\x11\xe0abc", r"save it as \.xlsx"),
    "no table in a zip": ("a.zip", packed({"README": b"x"}), "none of its 1 files is a table"),
    "a cut Parquet file": ("a.parquet", arrow("parquet")[:-9], "not whole"),
    "no JSON": ("a.json", b"[1", "not JSON"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_cannot_be_read_says_what_to_do(fault, tmp_path, scheme, monkeypatch) -> None:
    for module in (grid, published_files):
        monkeypatch.setattr(module, "MAX_BYTES", 2**19)
    name, content, says = FAULTS[fault]
    (tmp_path / name).write_bytes(content)
    if "columns" in fault:
        with refused("BadImport", match=says):
            read_all([tmp_path / name], mapping=mapped(), scheme=scheme)
    else:
        with pytest.raises(UnreadableFile, match=says):
            read_files([tmp_path / name])


def test_what_is_no_file_is_not_opened_and_rows_that_are_not_as_the_others_are_counted(tmp_path, scheme):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(UnreadableFile, match="no regular file"):
        read_files([tmp_path / "pipe.csv"])
    path = write(tmp_path / "a.csv", 'id,text,mood\n1,"a\nb",calm\n\n2,b\n3,c,calm,d\n4,d,calm\n')
    found = read_all([path], mapping=mapped(), scheme=scheme)
    assert found.gathered.bad == {"fields": [("a.csv", 4), ("a.csv", 5)]} and len(found.gathered.entries) == 2
    (tmp_path / "a.xlsx").write_bytes(book([HEAD, ["n1", "a", "=1+1"], ["n2", "=b", "calm"], ["n3", "c", "calm"]]))
    found = read_all([tmp_path / "a.xlsx"], mapping=mapped(), scheme=scheme)
    assert found.gathered.bad == {"formula": [("a.xlsx", 2), ("a.xlsx", 3)]}
    forced = Layout(format="jsonl", encoding="cp1252")
    assert read_files([write(tmp_path / "b.csv", '{"id": 1}\n{"id": 2}\n')], layout=forced)[0].column("id") == [1, 2]


@pytest.mark.parametrize("layout", ["comma", "JSON Lines named .json", "workbook", "zip"])
def test_a_mapping_that_is_proposed_imports_the_file(layout: str, tmp_path: Path, scheme: Scheme, capsys) -> None:
    name, content = LAYOUTS[layout]
    (tmp_path / name).write_bytes(content)
    alone = load_file(_without_topics(tmp_path))
    text = mapping_text([tmp_path / name], scheme=alone, content="texts", month="2017-12")
    mapping = DatasetMapping.model_validate(yaml.safe_load(text))
    found = read_all([tmp_path / name], mapping=mapping, scheme=alone)
    assert Counter(label for e in found.gathered.entries for label in e.answers["mood"]) == dict.fromkeys(MOODS, 3)
    assert "garden, caf" not in text and not capsys.readouterr().out


def _without_topics(folder: Path) -> Path:
    values = yaml.safe_load((folder / "small.yaml").read_text())
    del values["categories"]["topic"]
    (folder / "alone.yaml").write_text(yaml.safe_dump(values | {"name": "alone"}))
    return folder / "alone.yaml"


def test_a_proposal_sees_that_there_is_no_header_and_what_must_be_edited(tmp_path, scheme):
    rows = [[f"a text of some words, number {i}", str(i % 3), f"e{i}"] for i in range(12)]
    path = write(tmp_path / "train.tsv", "".join("\t".join(row) + "\n" for row in rows))
    made = yaml.safe_load(
        mapping_text([path], scheme=load_file(_without_topics(tmp_path)), content="texts", month="2017-12")
    )
    assert made["header"] == ["column 1", "column 2", "column 3"] and made["parts"]["train"]["files"] == ["*train*"]
    assert made["labels"]["mood"]["values"].keys() == {"0", "1", "2"}
    with refused("BadMapping", match="no label EDIT"):
        (tmp_path / "schemes").mkdir()
        (tmp_path / "alone.yaml").rename(tmp_path / "schemes/alone.yaml")
        made["columns"] = {"own": ["column 3"], "body": ["column 1"]}
        write(tmp_path / "made.yaml", yaml.safe_dump(made))
        read(str(tmp_path / "made.yaml"), root=tmp_path)
