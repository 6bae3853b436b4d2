"""The picture of the flow is the present graph; its boxes do not overlap and are wide enough for their text."""

from __future__ import annotations

import runpy
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def flow() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "flow.py"))


@pytest.fixture(scope="module")
def picture() -> ET.Element:
    return ET.fromstring((ROOT / "docs" / "images" / "flow.svg").read_text())


def frames(picture: ET.Element) -> list[tuple[float, float, float, float]]:
    """Return left, top, right and bottom of the boxes."""
    found = []
    for rect in picture.iter(f"{SVG}rect"):
        if rect.get("class") == "box":
            x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            found.append((x, y, x + width, y + height))
    return found


def test_the_committed_picture_is_the_present_graph(flow: dict[str, Any]) -> None:
    committed = (ROOT / "docs" / "images" / "flow.svg").read_text()
    assert committed == flow["svg"](), "run `make docs` and commit docs/images/flow.svg"


def test_every_stage_and_every_dag_is_drawn(picture: ET.Element) -> None:
    texts = [text.text or "" for text in picture.iter(f"{SVG}text")]
    words = {word for text in texts for word in text.replace(",", "").split()}
    words |= {word.replace("*", corpus) for word in words for corpus in ("memes", "posts")}
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    assert stages.keys() <= words
    assert {path.stem for path in (ROOT / "dags").glob("*.py")} - {"added_corpora"} <= words


def test_an_edge_that_a_longer_path_implies_is_left_out(flow: dict[str, Any]) -> None:
    after = {name: {box.name for box in found.after} for name, found in flow["graph"]().items()}
    assert after["collect"] == {"images", "texts"}
    assert after["dedupe"] == {"sample"}  # split and quality read it too
    assert after["report"] == {"register"}
    assert "batch_predict" in after["promote"]


def test_boxes_do_not_overlap_and_lie_in_the_picture(picture: ET.Element) -> None:
    boxes = frames(picture)
    for left, top, right, bottom in boxes:
        assert 0 <= left < right <= float(picture.attrib["width"])
        assert 0 <= top < bottom <= float(picture.attrib["height"])
    for one, other in combinations(boxes, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_a_text_fits_its_box(picture: ET.Element) -> None:
    for text in picture.iter(f"{SVG}text"):
        if text.get("class") == "label":
            continue
        half = len(text.text or "") * (6.02 if text.get("class") == "note" else 7.22) / 2
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        assert [box for box in frames(picture)
                if box[0] <= x - half and x + half <= box[2] and box[1] < y < box[3]], text.text  # fmt: skip
