"""Gold from people: published files are checked against the scheme, and the examples of the prompt are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.annotate import gold
from pipelines.errors import BadParams
from pipelines.params import Params, Settings, load
from pipelines.privacy.vault import Vault
from pipelines.store import tables

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2023, 1, 2, tzinfo=UTC)
SPLITS = {**{f"{i:032x}": "dev" for i in range(8)}, "a" * 32: "test", "b" * 32: "train"}


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    with Vault.open(f"sqlite:///{tmp_path}/vault.sqlite", secret=bytes(32)) as opened:
        yield opened


@pytest.fixture
def params(tmp_path: Path) -> Params:
    values = load(ROOT)
    table = pa.table(
        {"record_id": list(SPLITS), "image": [0] * len(SPLITS), "group": list(SPLITS), "split": list(SPLITS.values())},
        schema=tables.SPLITS,
    )
    tables.write(table, tmp_path / "snapshot" / "posts" / "split" / "splits.parquet", name="splits")
    return values.model_copy(
        update={
            "gold": values.gold.model_copy(update={"published": "gold.csv"}),
            "votes": values.votes.model_copy(update={"examples": 2}),
        }
    )


def write(root: Path, *lines: str) -> None:
    (root / "gold.csv").write_text("\n".join(["record_id,category,labels", *lines]) + "\n")


def run(root: Path, *, params: Params, vault: Vault) -> list[dict[str, object]]:
    gold.run("posts", params=params, settings=Settings.from_env(), vault=vault, root=root)
    rows: list[dict[str, object]] = tables.read(root / "snapshot/posts/gold/gold.parquet", name="gold").to_pylist()
    return rows


def test_only_the_splits_that_people_label_have_gold(tmp_path: Path, params: Params, vault: Vault) -> None:
    write(tmp_path, *(f"{r},labels,selfharm_past|rape_past" for r in SPLITS))
    rows = run(tmp_path, params=params, vault=vault)
    assert {r["record_id"] for r in rows} == {r for r, split in SPLITS.items() if split != "train"}
    assert all(r["labels"] == ["rape_past", "selfharm_past"] for r in rows)


def test_examples_are_of_dev_and_marked(tmp_path: Path, params: Params, vault: Vault) -> None:
    write(tmp_path, *(f"{r},labels,no_crisis" for r in SPLITS))
    shown = [r["record_id"] for r in run(tmp_path, params=params, vault=vault) if r["how"] == "example"]
    assert len(shown) == 2
    assert all(SPLITS[str(r)] == "dev" for r in shown)
    again = [r["record_id"] for r in run(tmp_path, params=params, vault=vault) if r["how"] == "example"]
    assert shown == again


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{dev},labels,no_crisis|rape_past", "breaks"),
        ("{dev},labels,sadness", "unknown_label"),
        ("{dev},severity,None", "category"),
        ("{dev},labels", "three fields"),
    ],
)
def test_gold_that_the_scheme_forbids_is_refused(
    tmp_path: Path, params: Params, vault: Vault, line: str, says: str
) -> None:
    write(tmp_path, line.format(dev="0" * 32))
    with pytest.raises(BadParams, match=says):
        run(tmp_path, params=params, vault=vault)
    assert not (tmp_path / "snapshot/posts/gold").exists()


def test_another_header_is_refused(tmp_path: Path, params: Params, vault: Vault) -> None:
    (tmp_path / "gold.csv").write_text("id,label\n")
    with pytest.raises(BadParams, match="first line"):
        run(tmp_path, params=params, vault=vault)
