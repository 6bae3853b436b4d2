"""The sample: seeded, of a fixed size, and without a way out for its members."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.curate import sample
from pipelines.curate.items import kept_items
from pipelines.store.vault.vault import Vault
from tests import small_corpus
from tests.curate import small_corpus as corpus

# Record 1 as a whole, the picture of record 2, and a picture that record 3 does not have.
DROPS = [(1, -1), (2, 0), (3, 1)]
NOW = datetime(2023, 1, 1, tzinfo=UTC)
ITEMS = st.sets(st.tuples(st.sampled_from([f"{n:032x}" for n in range(12)]), st.integers(0, 3)))


@given(items=ITEMS, size=st.integers(0, 30), seed=st.integers(0, 3))
@settings(max_examples=60)
def test_a_larger_size_contains_a_smaller_one(items: set[sample.Item], size: int, seed: int) -> None:
    small, large = (sample.draw(items, size=s, seed=seed) for s in (size, size + 3))
    assert set(small) <= set(large) <= items
    assert len(small) == min(size, len(items))
    assert small == sorted(small)


@given(items=ITEMS, more=ITEMS, size=st.integers(0, 20))
@settings(max_examples=60)
def test_members_stay_however_the_corpus_grows(items: set[sample.Item], more: set[sample.Item], size: int) -> None:
    before = sample.draw(items, size=size, seed=1)
    after = sample.draw(items | more, size=size, seed=1, members=before)
    assert set(before) <= set(after)
    assert len(after) == min(size, len(items | more))


def test_another_seed_draws_others() -> None:
    items = [(f"{n:032x}", 0) for n in range(100)]
    assert sample.draw(items, size=50, seed=1) != sample.draw(items, size=50, seed=2)


def test_a_drop_of_a_whole_record_drops_all_its_items(tmp_path: Path) -> None:
    corpus.write(tmp_path, range(4))
    drops = [{"record_id": corpus.record_id(n), "image": image, "step": "s", "reason": "r"} for n, image in DROPS]
    small_corpus.write_table(tmp_path / "snapshot/memes/dedupe/drops.parquet", drops, name="drops")
    kept = kept_items("memes", params=corpus.params(), root=tmp_path)
    assert sorted(int(r, 16) for r in kept["record_id"].to_pylist()) == [0, 3]


def test_dropped_and_taken_down_items_are_not_drawn(tmp_path: Path) -> None:
    corpus.write(tmp_path, range(10), dropped=[3])
    with Vault.open(f"sqlite:///{tmp_path / 'vault.sqlite'}", secret=bytes(range(32))) as vault:
        vault.admit([(corpus.record_id(4), "t3_x")], corpus="memes", month="2022-01", now=NOW)
        vault.destroy([corpus.record_id(4)], reason="test", now=NOW)
        report = sample.run("memes", params=corpus.params(size=20), vault=vault, root=tmp_path)
    assert report == {"size": 20, "candidates": 8, "taken": 8, "missing": 12}
    table = pq.read_table(tmp_path / "snapshot/memes/sample/sample.parquet")
    assert [int(r, 16) for r in table["record_id"].to_pylist()] == [0, 1, 2, 5, 6, 7, 8, 9]
