"""Cells and rows of files that strangers wrote: what is understood, what is left out and why, and that nothing runs."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.annotate.imports import mapping
from pipelines.annotate.imports.cells import complete_posts, flag_of, fullname_of, list_of, moment_of
from pipelines.annotate.imports.published_files import UnreadableFile, read_files
from pipelines.annotate.imports.rows import GatheredEntries, gather
from pipelines.core import taxonomy
from tests.annotate import published_sets as sets

CRADLE, FIGSIM, CSSRS = (mapping.read(name) for name in ("cradle", "figsim", "cssrs"))


def gathered(*paths: Path, by: mapping.DatasetMapping) -> GatheredEntries:
    return gather(read_files(paths, layout=by), mapping=by, scheme=taxonomy.load(by.scheme))


def reasons(entries: GatheredEntries) -> dict[int, str]:
    """Return why lines were left out."""
    return {line: reason for reason, places in entries.bad.items() for _, line in places}


def lines(path: Path, *rows: dict[str, object]) -> Path:
    return sets.jsonl(path, rows)


def table(path: Path, header: list[str], *rows: list[object]) -> Path:
    return sets.table(path, header, rows)


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("t3_abc123", "t3_abc123"),
        ("T3_ABC123", "t3_abc123"),
        ("abc123", "t3_abc123"),
        ("https://www.reddit.com/r/SuicideMeme/comments/abc123/some_title/?utm=1", "t3_abc123"),
        ("/r/SuicideMeme/comments/abc123", "t3_abc123"),
        ("https://redd.it/abc123", "t3_abc123"),
        ("https://i.redd.it/abcdefgh123.jpg", None),
        ("17", None),
        ("meme_0001", None),
        ("t1_abc123", None),
        (None, None),
        (12.5, None),
    ],
)
def test_a_reddit_post_is_known_by_its_name_id_or_address(cell, name):
    assert fullname_of(cell) == name


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ('["a", "b"]', ["a", "b"]),
        ("['it\\'s', \"b\"]", ["it's", "b"]),
        (["a"], ["a"]),
        ("[]", []),
        ("['\\ud800']", ["?"]),
        ("a, b", None),
        ("[1, 2]", None),
        ("['a' * 10]", None),
        ("[__import__('os').getcwd()]", None),
        ("[" * 100_000, None),
        ("['unfinished", None),
        ("['" + "a" * 2**23 + "']", None),
        ("{'a': 1}", None),
        (None, None),
    ],
)
def test_a_list_in_a_cell_is_parsed_and_never_run(cell, found):
    assert list_of(cell) == found


POSTS = ["It's ok", 'say "hi"', "both ' and \"", "tab\t, new\nline \\ \x07 caf\u00e9 ☕", "['a', 'b']", ""]


@pytest.mark.parametrize(
    "written", [repr, json.dumps, lambda posts: "[" + ", ".join("u" + repr(p) for p in posts) + "]"]
)
def test_a_list_that_was_cut_anywhere_keeps_its_complete_posts(written):
    cell = written(POSTS)
    ends = [len(written(POSTS[: k + 1])) - 1 for k in range(len(POSTS))]
    for size in range(1, len(cell)):
        assert complete_posts(cell[:size]) == [p for p, end in zip(POSTS, ends, strict=True) if end <= size]


def test_nothing_else_is_taken_for_a_cut_list():
    texts = (
        "['a']",
        "['a' * 10",
        "['a'] and",
        "[1, 2",
        "[__import__('os')",
        "['a' 'b",
        "[['a', 'b",
        "{'a",
        "words",
        "",
    )
    assert [cell for cell in (*texts, None, 7) if complete_posts(cell) is not None] == []


def test_a_persons_posts_become_one_text_and_a_short_cell_that_ends_in_a_list_is_no_cut_one(tmp_path):
    rows = [["user-0", "['One.', 'Two", "Ideation"], ["user-1", "['One.', '" + "a" * 32_749, "Attempt"]]
    rows += [["user-2", "['" + "a" * 32_757, "Attempt"], ["user-3", "['One.'] " + "a" * 32_749, "Attempt"]]
    rows += [["user-4", "['One.', ' ', 'Two.']", "Ideation"], ["", "['a']", "Attempt"]]
    found = gathered(table(tmp_path / "users.csv", ["User", "Post", "Label"], *rows), by=CSSRS)
    assert [(e.name, e.text.body, e.cut) for e in found.entries if e.text] == [
        ("cssrs/user-1", "One.", True),
        ("cssrs/user-4", "One.\n\nTwo.", False),
    ]
    assert reasons(found) == {2: "not_a_list", 4: "cut", 5: "not_a_list", 7: "no_id"}
    assert found.cut == [("users.csv", 3)]


@pytest.mark.parametrize(
    ("cell", "read", "note"),
    [
        (b"caf\xc3\xa9", "café", ""),
        (b"caf\xc3\xa9 \xe2\x98\x95 caf\xc3", "café ☕ caf\ufffd", "1 damaged"),
        (b"caf\xe9 au lait", "café au lait", "cp1252"),
        (b"\x93caf\xe9\x94", "\u201ccafé\u201d", "cp1252"),
        (b"caf\xe9 \x81", "café \x81", "latin-1"),
    ],
)
def test_text_in_another_encoding_is_read_and_said_so(tmp_path, cell, read, note):
    path = tmp_path / "dev.csv"
    path.write_bytes(b"text,labels\n" + cell + b",no_crisis\n")
    [file] = read_files([path])
    assert (file.column("text")[0], note in file.grid.note, bool(file.grid.note)) == (read, True, bool(note))


def test_flags_and_times_say_one_thing_or_nothing():
    assert [flag_of(v) for v in (1, "1", 1.0, True, "Yes", "x")] == [True] * 6
    assert [flag_of(v) for v in (0, "0", 0.0, False, None, "", "no")] == [False] * 7
    assert [flag_of(v) for v in (2, "maybe", float("nan"))] == [None] * 3
    moment = datetime(2022, 12, 1, 11, 30, tzinfo=UTC)
    assert {moment_of(v) for v in (1669894200, "1669894200.5", "2022-12-01T12:30:00+01:00", "2022-12-01 11:30")} == {
        moment
    }
    assert [moment_of(v) for v in ("yesterday", "0001-01-01T00:00:00+14:00", "1999-01-01", "", None)] == [None] * 5


def test_every_format_gives_the_same_entries_and_a_duplicate_column_is_ambiguous(tmp_path):
    twice = table(tmp_path / "twice.csv", ["text", "labels", "Labels"], ["Some words", "no_crisis", "rape_past"])
    assert "labels" not in read_files([twice])[0].columns
    rows = [{"Title": "A", "Text": f"Some words {i}", "labels": ["rape_past", "selfharm_past"]} for i in range(3)]
    (tmp_path / "dev.json").write_text(json.dumps(rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "dev.parquet")
    lines(tmp_path / "dev.jsonl", *rows)
    cells = [[r["Title"], r["Text"], "rape_past, selfharm_past"] for r in rows]
    path = table(tmp_path / "dev.csv", ["Title", "Text", "labels"], *cells)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    found = [gathered(tmp_path / f"dev.{kind}", by=CRADLE) for kind in ("json", "parquet", "jsonl", "csv")]
    assert [[(e.name, e.said) for e in g.entries] for g in found] == [[(e.name, e.said) for e in found[0].entries]] * 4
    assert len(found[0].entries) == 3


def test_a_row_that_does_not_hold_is_left_out_with_its_reason_and_line(tmp_path):
    good = {"text": "Some words", "labels": ["no_crisis"], "split": "dev", "agreement": ""}
    bad = [
        ("no_text", {"text": " "}),
        ("labels: unknown_label", {"text": "b", "labels": ["sadness", "grief"]}),
        ("labels: against_rules", {"text": "c", "labels": ["no_crisis", "rape_past"]}),
        ("labels: against_rules", {"text": "d", "labels": []}),
        ("labels: not_a_list", {"text": "e", "labels": {"a": 1}}),
        ("labels: empty", {"text": "f", "labels": None}),
        ("no_part", {"text": "g", "split": "holdout"}),
        ("two_splits", {"text": "h", "agreement": "unanimous"}),
    ]
    path = lines(tmp_path / "all.jsonl", good, *(good | change for _, change in bad))
    path.write_text(path.read_text() + '{"text": "half a li')
    found = gathered(path, by=CRADLE)
    assert (len(found.entries), found.unknown) == (1, 2)
    assert reasons(found) == dict(enumerate([*(reason for reason, _ in bad), "not_json"], start=2))


def test_rows_of_one_item_are_one_entry_or_none(tmp_path):
    same = {"text": "Some words", "labels": ["no_crisis"]}
    consensus = lines(tmp_path / "train.jsonl", same, {"text": "Other words", "labels": ["rape_past"]})
    unanimous = lines(tmp_path / "train_unanimous.jsonl", same, {"text": "Other words", "labels": ["no_crisis"]})
    found = gathered(consensus, unanimous, by=CRADLE)
    assert [e.parts for e in found.entries] == [{"train_consensus", "train_unanimous"}]
    assert found.repeated == 1
    assert found.bad == {"conflict": [("train.jsonl", 2), ("train_unanimous.jsonl", 2)]}
    both = ["selfharm_past", "selfharm_ongoing"]
    broken = gathered(lines(tmp_path / "dev.jsonl", {"text": "Some words", "labels": both}), by=CRADLE)
    assert broken.rules == {"ongoing_before_past": 1}, "rules that people may break change nothing"
    assert broken.entries[0].answers == {"labels": frozenset(both)}
    leak = lines(tmp_path / "test.jsonl", same)
    assert gathered(consensus, leak, by=CRADLE).bad == {"conflict": [("test.jsonl", 1), ("train.jsonl", 1)]}


def test_a_column_of_a_category_serves_where_there_are_no_flags(tmp_path):
    header = ["id", "split", "figurative", "severity", "related", "modality", "context"]
    rows: list[list[object]] = [
        ["abcde1", "val", "Metaphor|irony/sarcasm", "SS4", "None", "text", "C1"],
        ["abcde2", "val", "", "SS4", "None", "text", "C1"],
        ["abcde3", "val", "F4", "Suicide attempt/death", "None", "text", "C1"],
        ["abcde4", "val", "F4", "SS4", "SR6|SR1", "text", "C1"],
    ]
    found = gathered(table(tmp_path / "memes.csv", header, *rows), by=FIGSIM)
    assert found.entries[0].answers == {
        "figurative": {"Metaphor", "Irony/sarcasm"},
        "severity": {"Suicide attempts"},
        "related": frozenset(),
        "modality": {"text"},
        "context": {"no-context-required"},
    }
    assert found.entries[0].split == "validation"
    assert reasons(found) == {3: "figurative: empty", 4: "severity: merged_label", 5: "related: against_rules"}
    blank = FIGSIM.labels["figurative"].model_copy(update={"blank": "none"})
    by = FIGSIM.model_copy(update={"labels": {**FIGSIM.labels, "figurative": blank}})
    assert len(gathered(tmp_path / "memes.csv", by=by).entries) == 2


def test_flags_need_an_answer_and_a_line_needs_its_fields(tmp_path):
    codes = [code for labels in FIGSIM.labels.values() for code in labels.flags]
    answer = {"F1", "SS1", "SR6", "M1", "C1"}
    values = {
        2: [int(c in answer) for c in codes],
        3: [int(c in answer - {"F1"}) for c in codes],
        4: [int(c in answer | {"SS2"}) for c in codes],
        5: ["perhaps" if c == "C1" else int(c in answer) for c in codes],
        6: [1],
    }
    rows = [[f"t3_abcde{n}", "train", *cells] for n, cells in values.items()]
    found = gathered(table(tmp_path / "memes.csv", ["name", "split", *codes], *rows), by=FIGSIM)
    assert [e.name for e in found.entries] == ["t3_abcde2"]
    assert reasons(found) == {3: "figurative: empty", 4: "severity: several", 5: "context: not_0_or_1", 6: "fields"}


def posts(path: Path, *, by: mapping.DatasetMapping = CRADLE, **columns: list[object]) -> GatheredEntries:
    """Return the entries of posts whose texts are their numbers, with further columns of these names."""
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    written = lines(path / "dev.jsonl", *({"text": f"{i}", "labels": ["no_crisis"]} | r for i, r in enumerate(rows)))
    named = by.columns.model_copy(update={name: (name,) for name in columns})
    return gathered(written, by=by.model_copy(update={"columns": named}))


def test_a_persons_own_page_is_no_subreddit(tmp_path):
    found = posts(tmp_path, subreddit=["lonely", "r/lonely", "u_somebody", "r/U_somebody", "some words of a post", ""])
    said = {e.text.body: e.text.subreddit for e in found.entries if e.text}
    assert said == {"0": "lonely", "1": "lonely"} | dict.fromkeys("2345", "cradle")


def test_an_image_is_a_small_number_and_a_date_column_gives_the_month(tmp_path):
    found = posts(tmp_path, image=["2", "9" * 5000, "40000"])
    assert [e.image for e in found.entries] == [2]
    assert found.bad == {"image": [("dev.jsonl", 2), ("dev.jsonl", 3)]}
    found = posts(tmp_path, created=[1669894200, "some day", None])
    moments = [datetime(2017, 12, 1, tzinfo=UTC), datetime(2022, 12, 1, 11, 30, tzinfo=UTC)]
    assert sorted(e.text.created for e in found.entries if e.text) == moments
    assert found.bad == {"created": [("dev.jsonl", 2)]}


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.json", "{}"), ("a.json", "[1"), ("a.json", "[" + "1" * 5000 + "]"), ("a.parquet", "x"), ("a.zip", "PK\3\4")],
)
def test_a_file_of_another_kind_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(UnreadableFile, match=name):
        read_files([tmp_path / name])


def test_cradles_published_layout_is_read(tmp_path):
    head = ["question_id", "question_text", "final_labels"]
    form = " For any crisis present, mark whether it is Ongoing or Past."
    dev = table(
        tmp_path / "development.csv",
        head,
        ["10017", f"Title: A walk Text: It rained, and we went home.{form}", "No crisis"],
        ["10018", "Title: A talk Text: We spoke. Text: it was late.", "suicideideation(passive)_ongoing,selfharm_past"],
        ["10019", "A note without marks about the weather of today.", "childabuseendangerment_past"],
    )
    shared = "Title: A bridge Text: We crossed it on Monday."
    train = [
        table(tmp_path / f"train_{name}.csv", head, [number, shared, "rape_past, childabuse_endangerment_past"])
        for name, number in (("consensus", "1"), ("unanimous", "2"))
    ]
    found = gathered(dev, *train, by=CRADLE)
    assert not found.bad
    said = {e.text.title: (e.text.body.split(".")[0], e.split, e.parts, e.answers["labels"]) for e in found.entries}
    passive, past = "suicideideation_passive_ongoing", "childabuse_endangerment_past"
    both = {"train_consensus", "train_unanimous"}
    assert said == {
        "A walk": ("It rained, and we went home", "dev", {"dev"}, {"no_crisis"}),
        "A talk": ("We spoke", "dev", {"dev"}, {passive, "selfharm_past"}),
        "": ("A note without marks about the weather of today", "dev", {"dev"}, {past}),
        "A bridge": ("We crossed it on Monday", "train", both, {"rape_past", past}),
    }, "one record for a post of both training sets"
