"""The comparison names what differs: a changed number, a missing row, a missing command; nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.golden import frozen

OUTS = {"evaluate@memes": ["metrics/memes"], "train@memes": ["snapshot/memes"]}
TABLE = pa.schema(
    [("record_id", pa.string()), ("scores", pa.list_(pa.float32())), ("text", pa.large_binary())],
    metadata={b"key": b"record_id"},
)


def write(root: Path, *, f1: float, ids: tuple[str, ...], seconds: float = 1.0) -> None:
    (root / "metrics" / "memes").mkdir(parents=True, exist_ok=True)
    (root / "snapshot" / "memes").mkdir(parents=True, exist_ok=True)
    (root / "metrics" / "memes" / "evaluate.json").write_text(json.dumps({"bert": [{"f1": f1, "seconds": seconds}]}))
    rows = [{"record_id": record_id, "scores": [0.5, 0.1234567], "text": b"sealed"} for record_id in ids]
    pq.write_table(pa.Table.from_pylist(rows, schema=TABLE), root / "snapshot" / "memes" / "predictions.parquet")
    (root / "snapshot" / "memes" / "report.md").write_text(f"| model | F1 |\n|---|---|\n| bert | {f1:.2f} |\nProse.\n")


def freeze(root: Path) -> frozen.Frozen:
    made = frozen.freeze(root, OUTS, unseal=lambda table: table)
    return made | {"commands": {"corpus": {"corpus status": "--json", "corpus init": ""}}}


@pytest.fixture
def wanted(tmp_path: Path) -> frozen.Frozen:
    write(tmp_path, f1=0.5, ids=("a1", "b2"))
    made = freeze(tmp_path)
    frozen.save(made, tmp_path / "small")
    assert frozen.load(tmp_path / "small") == made
    return made


def test_equal_data_has_no_differences_whatever_time_it_took(wanted: frozen.Frozen, tmp_path: Path) -> None:
    write(tmp_path, f1=0.5, ids=("a1", "b2"), seconds=2.0)
    assert list(frozen.differences(wanted, freeze(tmp_path))) == []


def test_a_number_a_row_and_a_command_are_named(wanted: frozen.Frozen, tmp_path: Path) -> None:
    write(tmp_path, f1=0.6, ids=("a1",))
    found = freeze(tmp_path)
    del found["commands"]["corpus"]["corpus init"]
    assert list(frozen.differences(wanted, found)) == [
        "commands:",
        "  corpus: corpus init:  -> missing",
        "evaluate@memes:",
        "  metrics/memes/evaluate.json: bert.0.f1: 0.5 -> 0.6",
        "train@memes:",
        "  snapshot/memes/predictions.parquet: 1 rows missing: b2",
        "  snapshot/memes/report.md: table 1 row 3: bert|0.50 -> bert|0.60",
    ]


def test_no_content_is_kept(wanted: frozen.Frozen) -> None:
    assert "sealed" not in json.dumps(wanted) and "Prose" not in json.dumps(wanted)
