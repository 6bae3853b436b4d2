"""The stage on real files: what it drops, what it keeps together, and that order does not matter."""

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.params import Params, load
from pipelines.curate.dedupe.dedupe import run
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from tests import small_corpus
from tests.contexts import context_of
from tests.refusals import refused

NOW = datetime(2023, 1, 2, tzinfo=UTC)
LONG = "nobody told me that the plant on the window needs water"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def params() -> Params:
    return load(ROOT)


class Months:
    """Writes a corpus from (name, image, day, fingerprint, caption), in any order and any number of shards."""

    def __init__(self, root: Path, vault: Vault) -> None:
        self.root, self.vault = root, vault

    def write(self, items: Sequence[tuple[str, int, int, int | None, str]], *, shards: int = 1, **columns: Any) -> None:
        ids = {name: self.vault.record_id(f"t3_{name}") for name, *_ in items}
        place: dict[str, Any] = {"corpus": "memes", "month": "2022-12"}
        small_corpus.admit(self.vault, {ids[n]: f"t3_{n}" for n in sorted(ids)}, **place)
        days = {name: NOW + timedelta(days=day) for name, _, day, *_ in items}
        posts = [{"record_id": ids[name], "created": day, "media": "[]"} for name, day in days.items()]
        small_corpus.write_posts(self.root, posts, vault=self.vault, **place)
        images = [
            {"record_id": ids[name], "image": image, "fingerprint": fingerprint, "text": text, "bytes": b"x"}
            | {"sha256": f"{fingerprint}", "fingerprint_id": "phash-1"}
            | columns
            for name, image, _, fingerprint, text in items
        ]
        small_corpus.write_images(self.root, [images[n::shards] for n in range(shards)], vault=self.vault, **place)

    def read(self, name: str) -> list[dict[str, Any]]:
        """Rows of an output, with names for ids."""
        back = {self.vault.record_id(f"t3_{c}"): c for c in "abcdefgh"}
        rows: list[dict[str, Any]] = tables.read(
            self.root / "snapshot/memes/dedupe" / f"{name}.parquet", name=name
        ).to_pylist()
        for row in rows:
            for column in ("record_id", "other_id"):
                if column in row:
                    row[column] = back[row[column]]
            if "cluster" in row:
                record_id, image = row["cluster"].split("#")
                row["cluster"] = f"{back[record_id]}#{image}"
        return rows


# a chain a - b - c: a and c are too far apart; d repeats a; e is alone; f is a gallery that repeats itself
CHAIN = [
    ("a", 0, 1, 0b0, LONG),
    ("b", 0, 2, 0b0, LONG.replace("plant", "cat").replace("window", "sofa")),
    ("c", 0, 3, 0b0, LONG.replace("plant", "cat").replace("window", "sofa").replace("water", "food")),
    ("d", 0, 4, 0b11, LONG.upper()),
    ("e", 0, 5, 0b0, "something else entirely is written here"),
    ("f", 1, 6, 2**63, ""),
    ("f", 0, 6, 2**63, ""),
]


def test_what_is_dropped_and_what_stays_together(tmp_path: Path, vault: Vault, params: Params) -> None:
    months = Months(tmp_path, vault)
    months.write(CHAIN)
    metrics = run(context_of("memes", params=params, vault=vault, root=tmp_path))

    drops = [(d["record_id"], d["image"], d["step"], d["reason"]) for d in months.read("drops")]
    assert sorted(drops) == [(*item, "dedupe", "near_duplicate") for item in (("b", 0), ("d", 0), ("f", 1))]
    clusters = {(c["record_id"], c["image"]): c for c in months.read("clusters")}
    assert {key: c["cluster"] for key, c in clusters.items()} == {
        **{(name, 0): "a#0" for name in "abcd"},
        ("f", 0): "f#0",
        ("f", 1): "f#0",
    }
    apart = {key: (c["hamming"], c["word_difference"]) for key, c in clusters.items() if not c["keeper"]}
    assert apart == {("b", 0): (0, 2), ("d", 0): (2, 0), ("f", 1): (0, 0)}
    assert all(c["hamming"] is None and c["word_difference"] is None for c in clusters.values() if c["keeper"])
    pairs = [(p["record_id"], p["other_id"], p["hamming"], p["word_difference"]) for p in months.read("pairs")]
    assert sorted(pairs) == [("a", "b", 0, 2), ("a", "d", 2, 0), ("b", "c", 0, 1), ("b", "d", 2, 2), ("f", "f", 0, 0)]
    assert metrics == json.loads((tmp_path / "metrics/memes/dedupe.json").read_text())
    counts = {"items": 7, "taken_down": 0, "without_hash": 0, "pairs": 5, "clusters": 2, "largest_cluster": 4}
    assert metrics == counts | {"dropped": 3, "kept": 4}


@pytest.mark.parametrize("seed", range(3))
def test_order_and_shards_do_not_matter(tmp_path: Path, vault: Vault, params: Params, seed: int) -> None:
    bytes_of = []
    for name, shards in (("one", 1), ("other", 3)):
        items = list(CHAIN)
        random.Random(seed if name == "other" else 99).shuffle(items)
        Months(tmp_path / name, vault).write(items, shards=shards)
        run(context_of("memes", params=params, vault=vault, root=tmp_path / name))
        tables_ = sorted((tmp_path / name / "snapshot").rglob("*.parquet"))
        files = [*tables_, tmp_path / name / "metrics/memes/dedupe.json"]
        bytes_of.append([f.read_bytes() for f in files])
    assert len(bytes_of[0]) == 4
    assert bytes_of[0] == bytes_of[1]


def test_a_record_that_was_taken_down_leaves_its_copies_in(tmp_path: Path, vault: Vault, params: Params) -> None:
    months = Months(tmp_path, vault)
    months.write(CHAIN)
    vault.destroy([vault.record_id("t3_a")], reason="request", now=NOW)
    metrics = run(context_of("memes", params=params, vault=vault, root=tmp_path))
    assert metrics["taken_down"] == 1
    assert {d["record_id"] for d in months.read("drops")} == {"c", "d", "f"}
    assert "a" not in {c["record_id"] for c in months.read("clusters")}


@pytest.mark.parametrize("kind", ["assigned", "earlier version", "published"])
def test_a_member_of_a_split_outlasts_an_original_that_came_later(
    tmp_path: Path, vault: Vault, params: Params, kind: str
) -> None:
    months = Months(tmp_path, vault)
    months.write([("b", 0, 5, 0b1, LONG)])
    member = (vault.record_id("t3_b"), 0)
    section = params.split["memes"]
    if kind == "published":
        (tmp_path / "splits.csv").write_text(f"record_id,image,split\n{member[0]},0,test\n")
        section = section.model_copy(update={"published": "splits.csv"})
    else:
        vault.assign("memes", version=1, rows={member: "test"}, now=NOW)
        section = section.model_copy(update={"version": 2 if kind == "earlier version" else 1})
    params = params.model_copy(update={"split": {**params.split, "memes": section}})
    months.write([("b", 0, 5, 0b1, LONG), ("a", 0, 0, 0b1, LONG), ("c", 0, 9, 0b1, LONG)])
    run(context_of("memes", params=params, vault=vault, root=tmp_path))
    assert sorted(row["record_id"] for row in months.read("drops")) == ["a", "c"]


def test_flat_pictures_have_no_hash(tmp_path: Path, vault: Vault, params: Params) -> None:
    months = Months(tmp_path, vault)
    months.write([("a", 0, 1, None, ""), ("b", 0, 2, None, ""), ("c", 0, 3, 0, "")])
    assert run(context_of("memes", params=params, vault=vault, root=tmp_path))["without_hash"] == 2
    assert [d["record_id"] for d in months.read("drops")] == ["b"]


def test_an_empty_corpus_gives_empty_tables(tmp_path: Path, vault: Vault, params: Params) -> None:
    assert run(context_of("memes", params=params, vault=vault, root=tmp_path))["items"] == 0
    assert Months(tmp_path, vault).read("pairs") == []


def test_fingerprints_of_two_kinds_are_refused(tmp_path: Path, vault: Vault, params: Params) -> None:
    months = Months(tmp_path, vault)
    months.write(CHAIN[:1], fingerprint_id="phash-2")
    other = tmp_path / "data/memes/2022-12"
    other.rename(tmp_path / "data/memes/2022-11")
    months.write(CHAIN[4:5])
    with refused("SchemaMismatch", match="2 different methods"):
        run(context_of("memes", params=params, vault=vault, root=tmp_path))


def test_an_image_without_its_post_is_refused(tmp_path: Path, vault: Vault, params: Params) -> None:
    Months(tmp_path, vault).write(CHAIN)
    (tmp_path / "data/memes/2022-12/records.parquet").unlink()
    with refused("SchemaMismatch", match="6 records have items and no post"):
        run(context_of("memes", params=params, vault=vault, root=tmp_path))
