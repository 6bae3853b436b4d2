"""A manifest comes back as it was written, byte for byte, and a damaged one is named without its values."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
import yaml

from pipelines.annotate.manifest import FILE, RoundDecision, RoundManifest, folder, opened, read, write
from tests.annotate.round_manifest import manifest_of
from tests.refusals import refused

WHEN = datetime(2025, 3, 1, 9, 30, tzinfo=UTC)
# all digits: must not come back as numbers
DIGITS = {"scheme_digest": "1234567890123456", "guideline": "12345678901234e5", "base": "0123456789"}
SHAPE = {"corpus": "memes", "protocol": "figsim", "phase": "calibration", "scheme": "figsim", "seed": 3, "size": 50}
OPEN = manifest_of("calibration", **SHAPE, **DIGITS, agreement=False, splits=["dev", "test"], opened=WHEN)
DECISION = RoundDecision(go_on=True, reason="agreement-sufficient", at=WHEN + timedelta(days=1))
ENDED = WHEN + timedelta(days=2, microseconds=5)
CLOSED = OPEN.model_copy(update={"status": "closed", "closed": ENDED, "decision": DECISION})


def altered(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / FILE
    write(OPEN, path)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))
    return path


@pytest.mark.parametrize("manifest", [OPEN, CLOSED, OPEN.model_copy(update={"splits": None, "annotators": ()})])
def test_what_is_written_comes_back(tmp_path: Path, manifest: RoundManifest) -> None:
    path = folder(tmp_path, "memes", "calibration") / FILE
    write(manifest, path)
    assert read(path) == manifest
    before = path.read_bytes()
    assert list(yaml.safe_load(before)) == ["format", *RoundManifest.model_fields], (
        "in the order in which one reads them"
    )
    write(read(path), path)
    assert path.read_bytes() == before


def test_one_moment_is_written_in_one_way(tmp_path: Path) -> None:
    elsewhere = OPEN.model_copy(update={"opened": WHEN.astimezone(timezone(timedelta(hours=9)))})
    write(OPEN, tmp_path / "a.yaml")
    write(elsewhere, tmp_path / "b.yaml")
    assert (tmp_path / "a.yaml").read_bytes() == (tmp_path / "b.yaml").read_bytes()
    assert read(tmp_path / "b.yaml").opened.tzinfo == UTC


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"opened": "2025-03-01T09:30:00"}, "opened"),
        ({"guideline": "SECRET"}, "guideline"),
        ({"status": "closed"}, "a closed round"),
        ({"closed": "2025-03-01T09:30:00Z"}, "a closed round"),
        ({"blinding": "none"}, "blinding"),
        ({"annotators": ["Jane Doe"]}, "annotators"),
        ({"annotators": ["adjudicator-1"]}, "different people"),
        ({"round": "../other"}, "round"),
        ({"remark": "SECRET"}, "remark"),
        ({"decision": {"go_on": True, "reason": "We felt SECRET", "at": "2025-03-01T09:30:00Z"}}, "reason"),
    ],
)
def test_an_inconsistent_manifest_is_named_without_its_values(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    with refused("BadManifest", match=said) as caught:
        read(altered(tmp_path, **changes))
    assert "SECRET" not in str(caught.value) and "Jane" not in str(caught.value)
    with refused("BadManifest", match="a closed round"):
        write(OPEN.model_copy(update={"status": "closed"}), tmp_path / "copy.yaml")
    assert not (tmp_path / "copy.yaml").exists(), "nor is it written"


@pytest.mark.parametrize("content", [None, b"a: [", b"\xff", b"- 1"])
def test_a_file_that_is_none_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "memes" / "pilot-1" / FILE
    if content is not None:
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    with refused("BadManifest", match=r"memes/pilot-1/manifest\.yaml"):
        read(path)


def test_rounds_come_in_the_order_in_which_they_were_opened(tmp_path: Path) -> None:
    days = {"pilot-2": 3, "pilot-1": 1, "large-scale": 9, "calibration": 3}
    for name, day in days.items():
        copy = OPEN.model_copy(update={"round": name, "opened": WHEN + timedelta(days=day)})
        write(copy, folder(tmp_path, "memes", name) / FILE)
    published = folder(tmp_path, "memes", "published")
    published.mkdir(parents=True)  # an import's folder holds no manifest
    assert [m.round for m in opened(tmp_path, "memes")] == ["pilot-1", "calibration", "pilot-2", "large-scale"]
    assert opened(tmp_path, "posts") == []
    write(OPEN, folder(tmp_path, "memes", "pilot-1") / FILE)
    with refused("BadManifest", match="the file is the manifest of memes/calibration"):
        opened(tmp_path, "memes")


@pytest.mark.parametrize("name", ["../params", "Pilot", "", "a/b", "pilot\n"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with refused("UnknownRound"):
        folder(tmp_path, "memes", name)
