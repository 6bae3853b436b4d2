"""Mapping files: those that ship hold together, and one that does not is refused with what is wrong."""

import pytest
import yaml

from pipelines.annotate.imports import mapping
from tests.refusals import refused


def test_the_shipped_mappings_expect_what_adds_up():
    cradle, cssrs, figsim = (mapping.read(name) for name in ("cradle", "cssrs", "figsim"))
    # SPEC 1.5: T11's sums, T2 and T7
    labels = {"dev": 443, "test": 670, "train_consensus": 4649, "train_unanimous": 3257}
    for part, total in labels.items():
        expected = cradle.expected[part]
        assert sum(expected.by_label.values()) == expected.labels == total
        assert sum(size * n for size, n in expected.by_size.items()) == total
        assert sum(expected.by_size.values()) == expected.items
        assert sum(expected.by_attribute["time"].values()) == total
        assert not expected.by_row or sum(expected.by_row.values()) == total
    # SPEC 1.5: T8's totals
    totals = {"F": (161, 121, 833, 146), "SS": (189, 339, 163, 167, 30, 161), "SR": (266, 81, 70, 282, 21, 401)}
    totals |= {"M": (946, 74, 29), "C": (916, 133)}
    for letters, sums in totals.items():
        found = [sum(e.by_label[f"{letters}{i}"] for e in figsim.expected.values()) for i in range(1, len(sums) + 1)]
        assert tuple(found) == sums
    assert sum(cssrs.expected["all"].by_label.values()) == cssrs.expected["all"].items == 500
    for name, items in (("rsd15k", 14_613), ("swmh", 54_412)):
        expected = mapping.read(name).expected["all"]
        assert sum(expected.by_label.values()) == expected.items == items


def test_every_shipped_mapping_states_what_was_tried_and_what_is_assumed():
    assert mapping.available() == ["cradle", "cssrs", "figsim", "rsd15k", "sdcnl", "swmh"]
    for name in mapping.available():
        mine = mapping.read(name)
        assert mine.tried and mine.assumed
        assert ("with this version: " in mine.tried.lower()) == (name in ("cssrs", "sdcnl"))


def changed(folder, change, *, name="cradle"):
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load((mapping.FOLDER / f"{name}.yaml").read_text()) | change))
    return str(path)


def test_a_changed_copy_is_read_by_its_path(tmp_path):
    columns = yaml.safe_load((mapping.FOLDER / "cradle.yaml").read_text())["columns"]
    mine = mapping.read(changed(tmp_path, {"columns": columns | {"body": ["what they wrote"]}}))
    assert mine.columns.body == ("what they wrote",)
    assert mine.digest != mapping.read("cradle").digest


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"colour": 1}, "colour"),
        ({"dataset": "../up"}, "dataset"),
        ({"month": "2017"}, "month"),
        ({"month": None}, "a mapping with texts must set month"),
        ({"columns": {"body": ["text"]}}, "must name the records"),
        ({"columns": {"text": True}}, "text: true requires the columns of body"),
        ({"labels": {"severity": {"columns": ["a"]}}}, "no category severity"),
        ({"labels": {"labels": {}}}, "flags or columns"),
        ({"labels": {"labels": {"flags": {"sadness": ["a"]}}}}, "no label sadness"),
        ({"labels": {"labels": {"columns": ["a"], "values": {"1": "sadness"}}}}, "no label sadness"),
        ({"expected": {"holdout": {"source": "x"}}}, "that `parts` lacks: holdout"),
        ({"expected": {"dev": {"source": "x", "by_label": {"sadness": 1}}}}, "one label sadness"),
        ({"expected": {"dev": {"source": "x", "by_row": {"Sadness": 1}}}}, "display row Sadness"),
        ({"expected": {"dev": {"source": "x", "by_attribute": {"time": {"never": 1}}}}}, "time never"),
    ],
)
def test_a_mapping_that_contradicts_itself_is_refused(tmp_path, change, says):
    with refused("BadMapping", match=says):
        mapping.read(changed(tmp_path, change))


def test_a_code_must_name_one_label_only_and_an_unknown_mapping_names_those_that_are_there(tmp_path):
    test = {"source": "x", "by_label": {"None": 29}}
    with refused("BadMapping", match="one label None"):
        mapping.read(changed(tmp_path, {"expected": {"test": test}}, name="figsim"))
    with refused("BadMapping", match="cradle, cssrs, figsim, rsd15k, sdcnl, swmh"):
        mapping.read("nothing")
