"""Layouts of an independent author: the mapping that is proposed imports each, without an edit."""

from pathlib import Path

import pytest
import yaml

from pipelines.annotate.imports.imports import read_all
from pipelines.annotate.imports.mapping import DatasetMapping
from pipelines.annotate.imports.propose import mapping_text
from pipelines.core.taxonomy import Scheme, load_file
from tests.annotate import further_layouts as layouts
from tests.annotate.further_layouts import ITEMS, MOODS, TOPICS

Categories = dict[str, tuple[str, list[str]]]
MOOD: Categories = {"mood": ("single", MOODS)}
BOTH: Categories = {**MOOD, "topic": ("multi", TOPICS)}
LAYOUTS: dict[str, Categories] = {
    **dict.fromkeys(("one_hot", "json_cell", "two_archives", "titled_book", "commented", "splits_as_keys"), BOTH),
    **dict.fromkeys(("list_parquet", "windows_csv", "fasttext"), BOTH),
    **dict.fromkeys(("annotators", "label_tool"), MOOD),
}
SPLITS = {"splits_as_keys": [8, 2, 2], "list_parquet": [8, 0, 4], "fasttext": [12, 0, 0]}


def scheme_of(categories: Categories, folder: Path) -> Scheme:
    values = {
        **{"name": "small", "version": 1, "title": "s", "item": "text", "items": "texts", "role": "r", "purpose": "p"},
        "categories": {
            key: {
                **{"kind": kind, "task": "t"},
                "labels": [{"name": n, "code": f"{key[0]}{i}", "definition": n} for i, n in enumerate(names)],
            }
            for key, (kind, names) in categories.items()
        },
    }
    (folder / "small.yaml").write_text(yaml.safe_dump(values))
    return load_file(folder / "small.yaml")


def imported(layout: str, categories: Categories, folder: Path, *, content: str = "texts"):
    """Write the files of a layout, and read them with the mapping that is proposed."""
    (data := folder / "data").mkdir()
    getattr(layouts, layout)(data)
    files, scheme = sorted(path for path in data.iterdir() if path.is_file()), scheme_of(categories, folder)
    text = mapping_text(files, scheme=scheme, content=content, month="2017-12")
    found = read_all(files, mapping=DatasetMapping.model_validate(yaml.safe_load(text)), scheme=scheme)
    assert (found.gathered.bad, found.refusal) == ({}, None)
    return found.gathered.entries


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_imported_by_its_proposal(layout: str, tmp_path: Path) -> None:
    entries = imported(layout, LAYOUTS[layout], tmp_path)
    wanted = {text: ({mood}, {*topics}) for _, text, mood, topics in ITEMS}
    assert {e.text.body: tuple(map(set, e.answers.values())) for e in entries} == {
        text: labels[: len(LAYOUTS[layout])] for text, labels in wanted.items()
    }
    if layout in SPLITS:
        assert [sum(e.split == name for e in entries) for name in ("train", "dev", "test")] == SPLITS[layout]


def test_an_archive_of_a_folder_for_each_class_has_its_pictures(tmp_path: Path) -> None:
    entries = imported("picture_archive", MOOD, tmp_path, content="images")
    assert sorted(label for e in entries for label in e.answers["mood"]) == ["calm"] * 3 + ["merry"] * 3
    assert all(e.picture.data[:2] in (b"\x89P", b"\xff\xd8") for e in entries)


def test_replicas_of_harm_c_and_of_posts_by_person(tmp_path: Path) -> None:
    levels, targets = ["not harmful", "somewhat harmful", "very harmful"], ["individual", "organization", "society"]
    (tmp_path / "harm").mkdir()
    entries = imported(
        "harm_c", {"harm": ("single", levels), "target": ("multi", targets)}, tmp_path / "harm", content="images"
    )
    assert [sum(e.split == name for e in entries) for name in ("train", "dev", "test")] == [8, 2, 2]
    assert all(bool(e.answers["target"]) == (e.answers["harm"] != {"not harmful"}) for e in entries)
    names = ["supportive", "indicator", "ideation", "behavior", "attempt"]
    posts = imported("cssrs_posts", {"severity": ("single", names)}, tmp_path)
    assert len(posts) == 12 and len({e.text.author for e in posts}) == 4
