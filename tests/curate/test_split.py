"""Sample and split: nothing leaks, nothing moves, the order of rows does not matter, a second run changes no byte."""

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.annotate.gold import asked_of
from pipelines.core.config.params import Params
from pipelines.core.errors import BadParams
from pipelines.curate import sample, split
from pipelines.curate.items import kept_items
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from tests import small_corpus
from tests.contexts import context_of
from tests.curate import small_corpus as corpus
from tests.refusals import refused

NOW = datetime(2023, 1, 1, tzinfo=UTC)
# Record 1 as a whole, the picture of record 2, and a picture that record 3 does not have.
DROPS = [(1, -1), (2, 0), (3, 1)]
ITEMS = st.sets(st.tuples(st.sampled_from([f"{n:032x}" for n in range(12)]), st.integers(0, 3)))


def run(root: Path, vault: Vault, params: Params | None = None) -> dict[str, object]:
    params = params or corpus.params()
    sample.run(context_of("memes", params=params, vault=vault, root=root))
    report = split.run(context_of("memes", params=params, vault=vault, root=root))
    split.remember("memes", params=params, vault=vault, now=NOW, root=root)
    return report


def assign(vault: Vault, rows: dict[int, str]) -> None:
    vault.assign("memes", version=1, rows={(corpus.record_id(i), 0): s for i, s in rows.items()}, now=NOW)


def files(root: Path) -> list[bytes]:
    folder = root / "snapshot" / "memes"
    paths = [folder / "sample/sample.parquet", folder / "split/splits.parquet", folder / "split/drops.parquet"]
    return [p.read_bytes() for p in [*paths, *sorted((root / "metrics/memes").glob("s*.json"))]]


def test_sizes_leakage_and_balance_are_reported(tmp_path: Path, vault: Vault) -> None:
    corpus.write(tmp_path, range(200), pairs=[(0, 1), (1, 2), (10, 20)])
    report = run(tmp_path, vault)
    assert report["sizes"] == {"train": 120, "validation": 40, "test": 40}
    assert report["leakage"] == report["excluded"] == report["straddling_groups"] == 0
    found = corpus.splits(tmp_path)
    assert len({found[i] for i in (0, 1, 2)}) == len({found[i] for i in (10, 20)}) == 1
    labels = [row["label"] for row in report["balance"]]
    assert labels == ["has_text=no", "has_text=yes", "kind=gallery", "kind=image"] + [
        f"month=2022-{m:02d}" for m in (1, 2, 3)
    ]
    assert json.loads((tmp_path / "metrics/memes/split.json").read_text()) == report


def test_printed_sizes_are_used_when_they_fit(tmp_path: Path, vault: Vault) -> None:
    corpus.write(tmp_path, range(1049))
    report = run(tmp_path, vault, corpus.params(size=1049))
    assert report["sizes"] == report["target_sizes"] == {"train": 633, "validation": 208, "test": 208}


def test_a_second_run_changes_no_byte(tmp_path: Path, vault: Vault) -> None:
    assign(vault, {0: "train", 1: "test"})
    corpus.write(tmp_path, range(90), pairs=[(0, 2), (2, 1), (5, 6)])
    run(tmp_path, vault, corpus.params(size=60))
    before = files(tmp_path)
    run(tmp_path, vault, corpus.params(size=60))
    assert files(tmp_path) == before


def test_the_order_of_rows_and_shards_changes_nothing(tmp_path: Path) -> None:
    found = []
    for attempt in range(3):
        root = tmp_path / str(attempt)
        order = list(range(80))
        random.Random(attempt).shuffle(order)
        corpus.write(root, [i // 2 for i in range(80)], pairs=[(3, 9), (9, 30)], order=order, shard=7 + attempt)
        with Vault.open(f"sqlite:///{root / 'vault.sqlite'}", secret=bytes(range(32))) as vault:
            run(root, vault, corpus.params(size=50))
        found.append(files(root))
    assert found[0] == found[1] == found[2]


def test_members_stay_and_newcomers_join_their_group(tmp_path: Path, vault: Vault) -> None:
    authors = list(range(60))
    corpus.write(tmp_path, authors)
    run(tmp_path, vault, corpus.params(size=40))
    before = corpus.splits(tmp_path)
    member = next(i for i, s in before.items() if s == "test")
    authors += [member, *range(61, 100)]  # item 60 is by an author in test
    corpus.write(tmp_path, authors)
    report = run(tmp_path, vault, corpus.params(size=100))
    after = corpus.splits(tmp_path)
    assert before.items() <= after.items()
    assert after[60] == "test"
    assert report["sizes"] == {"train": 60, "validation": 20, "test": 20}


def test_a_dropped_near_duplicate_still_links(tmp_path: Path, vault: Vault) -> None:
    assign(vault, {0: "validation"})
    corpus.write(tmp_path, range(20), pairs=[(0, 1), (1, 2)], dropped=[1])
    run(tmp_path, vault)
    found = corpus.splits(tmp_path)
    assert 1 not in found
    assert found[2] == "validation"


def test_what_bridges_two_splits_is_left_out_and_spoils_nothing_else(tmp_path: Path, vault: Vault) -> None:
    assign(vault, {0: "train", 1: "test"})
    authors = list(range(30))
    authors[5] = 0  # linked to item 0 alone, by its author
    corpus.write(tmp_path, authors, pairs=[(0, 2), (2, 1), (3, 4), (0, 3), (1, 4)])
    report = run(tmp_path, vault)
    found = corpus.splits(tmp_path)
    assert corpus.left_out(tmp_path) == [2, 3, 4]
    assert report["excluded"] == 3
    assert (found[0], found[1], found[5]) == ("train", "test", "train")
    assert report["leakage"] == 0


def test_an_author_in_two_splits_stops_the_step(tmp_path: Path, vault: Vault) -> None:
    assign(vault, {0: "train", 1: "test"})
    corpus.write(tmp_path, [0, 0, *range(1, 19)])
    with refused("SplitConflict", match="1 near-duplicate"):
        run(tmp_path, vault)
    assert len(vault.assignments("memes", version=1)) == 2
    assert not (tmp_path / "snapshot/memes/split").exists()


def test_a_pair_that_an_earlier_search_missed_is_withheld_from_tuning_and_test_and_moves_nothing(
    tmp_path: Path, vault: Vault
) -> None:
    corpus.write(tmp_path, range(60))
    run(tmp_path, vault)
    before = corpus.splits(tmp_path)
    train, validation, test = (next(i for i in before if before[i] == s) for s in ("train", "validation", "test"))
    pairs = [(min(train, other), max(train, other)) for other in (validation, test)]
    for size in (60, 75):  # found after the upgrade, and again in every later month
        corpus.write(tmp_path, range(size), pairs=pairs)
        report = run(tmp_path, vault)
        assert (report["separated_pairs"], report["withheld"], report["excluded"], report["leakage"]) == (2, 2, 0, 0)
        assert sorted(corpus.left_out(tmp_path)) == sorted([validation, test])
        after = corpus.splits(tmp_path)
        assert after.keys() == set(range(size)) - {validation, test}
        assert before.items() - {(validation, "validation"), (test, "test")} <= after.items()
        assert vault.assignments("memes", version=1)[corpus.record_id(test), 0] == "test"
    fresh = run(tmp_path, vault, corpus.params(version=2))
    assert (fresh["separated_pairs"], fresh["withheld"], fresh["leakage"]) == (0, 0, 0)
    assert corpus.splits(tmp_path).keys() == set(range(75))


def test_a_new_version_starts_from_scratch(tmp_path: Path, vault: Vault) -> None:
    assign(vault, {0: "train", 1: "test"})
    corpus.write(tmp_path, range(20), pairs=[(0, 1)])
    report = run(tmp_path, vault, corpus.params(version=2))
    assert report["leakage"] == 0
    assert len(vault.assignments("memes", version=2)) == 20


def published(root: Path, lines: list[str]) -> Params:
    (root / "published.csv").write_text("\n".join(["record_id,image,split", *lines]) + "\n")
    return corpus.params(size=10, published="published.csv")


def test_a_published_split_wins(tmp_path: Path, vault: Vault) -> None:
    corpus.write(tmp_path, range(40), pairs=[(7, 8)])
    lines = [f"{corpus.record_id(i)},0,{'train' if i == 7 else 'test'}" for i in range(8)]
    params = published(tmp_path, lines)
    run(tmp_path, vault, params)
    found = corpus.splits(tmp_path)
    assert len(found) == 10
    assert all(found[i] == "test" for i in range(7))
    assert found.get(8, "train") == found[7] == "train"


def test_a_published_split_moves_nothing(tmp_path: Path, vault: Vault) -> None:
    assign(vault, {0: "train"})
    corpus.write(tmp_path, range(20))
    with refused("SplitConflict", match="assigns 1 items to another"):
        run(tmp_path, vault, published(tmp_path, [f"{corpus.record_id(0)},0,test"]))


def test_a_published_split_keeps_what_leaks_and_counts_it_and_ours_give_way(tmp_path: Path, vault: Vault) -> None:
    assign(vault, {5: "train"})  # ours, of an earlier month
    authors = [0, 0, 2, 2, 4, *range(5, 20)]
    authors[10], authors[11] = 0, 2  # new: of an author in two splits, of one in test alone
    corpus.write(tmp_path, authors, pairs=[(1, 4), (3, 5), (6, 7)])
    names = ("train", "test", "test", "test", "test")
    params = published(tmp_path, [f"{corpus.record_id(i)},0,{s}" for i, s in [*enumerate(names), (90, "test")]])
    params = params.model_copy(update={"sample": corpus.params(size=100).sample})
    for _ in range(2):
        report = run(tmp_path, vault, params)
        found = corpus.splits(tmp_path)
        assert [found.get(i) for i in range(5)] == [*names] and found[6] == found[7]
        assert sorted(corpus.left_out(tmp_path)) == [5, 10] and found[11] == "test"
        leaks = {int(record, 16) for record, _ in tables.leaks(tmp_path / "snapshot/memes")}
        assert leaks == {1, 4}, "the other author in test, and ours, share nothing with train"
        test = report["published"]["splits"]["test"]
        assert test == {"placed": 4, "leaks": 2, "deleted": 0, "missing": 1, "members": 5}
        assert (report["published"]["authors"], report["published"]["near_duplicates"]) == (1, 0)
        assert (report["leakage"], report["withheld"], report["separated_pairs"]) == (0, 1, 1)
    groups = pq.read_table(tmp_path / "snapshot/memes/split/splits.parquet").to_pylist()
    assert len({row["group"] for row in groups if int(row["record_id"], 16) in (1, 4)}) == 1
    vault.destroy([corpus.record_id(90)], reason="test", now=NOW)
    test = run(tmp_path, vault, params)["published"]["splits"]["test"]
    assert (test["deleted"], test["missing"]) == (1, 0)


def test_a_published_split_that_is_withdrawn_moves_nothing_and_never_leaks(tmp_path: Path, vault: Vault) -> None:
    corpus.write(tmp_path, [0, 0, *range(2, 20)], pairs=[(2, 3)])
    names = ("train", "test", "train", "test", "test")
    run(tmp_path, vault, published(tmp_path, [f"{corpus.record_id(i)},0,{s}" for i, s in enumerate(names)]))
    own = corpus.params(size=10)
    with refused("SplitConflict", match=r"1 near-duplicate.*corpus params set split\.memes\.published FILE"):
        run(tmp_path, vault, own)
    vault.destroy([corpus.record_id(1)], reason="test", now=NOW)
    corpus.write(tmp_path, [0, 1, *range(2, 20)], pairs=[(2, 3)])
    report = run(tmp_path, vault, own)
    found = corpus.splits(tmp_path)
    assert (found[0], found[2], found[4]) == ("train", "train", "test") and 3 not in found, "a copy of train in test"
    assert (report["leakage"], report["withheld"]) == (0, 1) and "published" not in report
    (tmp_path / "published.csv").unlink()
    with pytest.raises(BadParams, match="`corpus import` writes it"):
        run(tmp_path, vault, corpus.params(size=10, published="published.csv"))


def test_of_an_author_in_two_published_splits_the_items_of_each_are_one_group(tmp_path: Path, vault: Vault) -> None:
    corpus.write(tmp_path, [0, 0, 0, *range(3, 20)])
    lines = [f"{corpus.record_id(i)},0,{s}" for i, s in enumerate(("train", "test", "test"))]
    run(tmp_path, vault, published(tmp_path, lines))
    rows = pq.read_table(tmp_path / "snapshot/memes/split/splits.parquet").to_pylist()
    group = {int(row["record_id"], 16): row["group"] for row in rows}
    assert group[1] == group[2] != group[0]


@pytest.mark.parametrize("line", ["abc,0,somewhere", "abc,x,test", "abc,0", "abc,0,test\nabc,0,test"])
def test_a_malformed_published_split_is_refused(tmp_path: Path, vault: Vault, line: str) -> None:
    corpus.write(tmp_path, range(20))
    with pytest.raises(BadParams, match="line"):
        run(tmp_path, vault, published(tmp_path, line.split("\n")))


def test_an_empty_corpus_gives_empty_tables(tmp_path: Path, vault: Vault) -> None:
    corpus.write(tmp_path, [])
    assert run(tmp_path, vault)["sizes"] == {"train": 0, "validation": 0, "test": 0}
    assert pq.read_table(tmp_path / "snapshot/memes/split/splits.parquet").num_rows == 0


def people(params: Params, splits: tuple[str, ...] | None) -> Params:
    """Return the parameters with the splits that people label."""
    section = params.gold["memes"].model_copy(update={"splits": splits})
    return params.model_copy(update={"gold": {**params.gold, "memes": section}})


def test_labelled_items_are_balanced_by_their_labels_and_the_others_by_strata(tmp_path: Path, vault: Vault) -> None:
    corpus.write(tmp_path, range(120))
    corpus.label(tmp_path, {i: {"severity": ["high" if i % 10 == 0 else "low"], "signs": []} for i in range(100)})
    report = run(tmp_path, vault, corpus.params(size=120))
    balance = {row["label"]: row for row in report["balance"]}
    assert balance["severity=high"]["count"] == {"train": 6, "validation": 2, "test": 2}
    assert (
        balance["signs=None"]["total"] == 100
        and balance["kind=image"]["total"] + balance["kind=gallery"]["total"] == 20
    )
    assert (report["stratified_on"], report["labels"]["items"]) == ("labels and strata", 100)


def test_labels_of_a_further_category_leave_the_others_in_use(tmp_path: Path, vault: Vault) -> None:
    corpus.write(tmp_path, range(100))
    labels = {i: {"severity": ["high" if i % 10 == 0 else "low"]} for i in range(100)}
    corpus.label(tmp_path, {**labels, 7: {**labels[7], "related": ["yes"]}, 500: {"signs": []}})
    report = run(tmp_path, vault)
    balance = {row["label"]: row for row in report["balance"]}
    assert balance["severity=high"]["count"] == {"train": 6, "validation": 2, "test": 2}
    assert (balance["related without gold"]["total"], balance["related=yes"]["total"]) == (99, 1)
    assert (report["stratified_on"], report["labels"]["items"], report["labels"]["partial"]) == ("labels", 100, 99)
    assert 0 < report["labels"]["max_deviation"] < 1


def test_a_pilot_of_a_further_category_does_not_hide_that_labels_are_unused(tmp_path: Path, vault: Vault) -> None:
    corpus.write(tmp_path, range(100))
    run(tmp_path, vault)
    before = corpus.splits(tmp_path)
    labels = {i: {"severity": ["high" if before[i] == "test" else "low"]} for i in range(100)}
    corpus.label(tmp_path, {**labels, 7: {**labels[7], "related": ["yes"]}})
    assert run(tmp_path, vault)["labels"]["unused"]


def test_a_deviation_that_was_not_measured_is_not_zero(tmp_path: Path, vault: Vault) -> None:
    assign(vault, dict.fromkeys(range(5), "train"))
    corpus.write(tmp_path, range(60))
    corpus.label(tmp_path, {i: {"severity": ["low"]} for i in range(5)})
    labels = run(tmp_path, vault)["labels"]
    assert labels == {"items": 5, "partial": 0, "max_deviation": None, "mean_deviation": None, "bound_mean": None}


def test_labels_that_come_later_move_nothing(tmp_path: Path, vault: Vault) -> None:
    corpus.write(tmp_path, range(100))
    run(tmp_path, vault)
    before = corpus.splits(tmp_path)
    # a label that its first split holds in one part alone
    corpus.label(tmp_path, {i: {"severity": ["high" if before[i] == "test" else "low"]} for i in range(100)})
    report = run(tmp_path, vault)
    assert corpus.splits(tmp_path) == before
    assert report["labels"]["unused"] and report["labels"]["new_version"]["max_deviation"] < 1
    after = run(tmp_path, vault, corpus.params(version=2))
    assert "unused" not in after["labels"] and after["labels"]["max_deviation"] < 1


def test_an_unfit_item_is_left_out_unless_it_has_a_split(tmp_path: Path, vault: Vault) -> None:
    assign(vault, {0: "train"})
    corpus.write(tmp_path, range(30))
    corpus.label(tmp_path, {}, unfit=[0, 1])
    assert run(tmp_path, vault)["unfit"] == 1
    assert corpus.splits(tmp_path).keys() == {0, *range(2, 30)}


def test_where_people_label_some_splits_labelled_items_join_only_these(tmp_path: Path, vault: Vault) -> None:
    authors = [i if i != 41 else 0 for i in range(100)]  # item 41 has no labels, its author's item 0 has
    corpus.write(tmp_path, authors)
    corpus.label(tmp_path, {i: {"severity": ["high" if i % 4 == 0 else "low"]} for i in range(36)})
    params = people(corpus.params(), ("validation", "test"))
    report = run(tmp_path, vault, params)
    found = corpus.splits(tmp_path)
    assert {found[i] for i in range(36)} == {"validation", "test"} and found[41] == found[0]
    assert report["sizes"] == {"train": 60, "validation": 20, "test": 20}
    assert (report["labels"]["items"], report["labels"]["max_deviation"] < 1) == (36, True)
    assert not [row for row in report["balance"] if row["label"].startswith("severity")]
    assert report["max_deviation"] < 2, "strata are compared with what labelled items leave of each split"
    corpus.label(tmp_path, {i: {"severity": ["low"]} for i in range(80)})
    run(tmp_path, vault, params)
    assert corpus.splits(tmp_path) == found


def test_the_sandboxs_people_label_whole_groups_that_fill_their_splits(tmp_path: Path, vault: Vault) -> None:
    corpus.write(tmp_path, [i // 3 if i < 30 else i for i in range(100)])
    sampled = {(corpus.record_id(i), 0) for i in range(90)}
    params = people(corpus.params(), ("validation", "test"))
    asked = asked_of("memes", sampled, params=params, vault=vault, root=tmp_path)
    numbers = {int(record, 16) for record, _ in asked}
    assert len(numbers) == 36 and numbers <= set(range(90))
    assert all(len({3 * g, 3 * g + 1, 3 * g + 2} & numbers) in (0, 3) for g in range(10))
    assign(vault, {40: "test", 41: "train"})
    later = {int(r, 16) for r, _ in asked_of("memes", sampled, params=params, vault=vault, root=tmp_path)}
    assert len(later) == 36 and 40 in later and 41 not in later
    assert asked_of("memes", sampled, params=people(params, None), vault=vault, root=tmp_path) == sampled


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
    drops = [{"record_id": corpus.record_id(n), "image": image, "step": "dedupe", "reason": "r"} for n, image in DROPS]
    small_corpus.write_table(tmp_path / "snapshot/memes/dedupe/drops.parquet", drops, name="drops")
    kept = kept_items("memes", params=corpus.params(), root=tmp_path)
    assert sorted(int(r, 16) for r in kept["record_id"].to_pylist()) == [0, 3]


def test_dropped_and_taken_down_items_are_not_drawn(tmp_path: Path, vault: Vault) -> None:
    corpus.write(tmp_path, range(10), dropped=[3])
    vault.admit([(corpus.record_id(4), "t3_x")], corpus="memes", month="2022-01", now=NOW)
    vault.destroy([corpus.record_id(4)], reason="test", now=NOW)
    report = sample.run(context_of("memes", params=corpus.params(size=20), vault=vault, root=tmp_path))
    assert report == {"size": 20, "candidates": 8, "taken": 8, "missing": 12}
    table = pq.read_table(tmp_path / "snapshot/memes/sample/sample.parquet")
    assert [int(r, 16) for r in table["record_id"].to_pylist()] == [0, 1, 2, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("authors", "pairs", "says"),
    [
        ([0] * 30, [], "train 30, validation 0, test 0: .* 1 groups; the largest have 30 items"),
        (list(range(30)), [(i, i + 1) for i in range(29)], "train 30, validation 0, test 0"),
        (
            [0] * 20 + [1] * 6 + [2] * 6,
            [],
            "train 20, validation 6, test 6: .* 3 groups; the largest have 20, 6, 6 items",
        ),
        ([0] * 20 + [1, 2, 3, 4, 5] * 3, [], None),
        (list(range(10)), [], None),
    ],
)
def test_a_small_corpus_is_split_or_told_what_would_help(
    authors: list[int], pairs: list[tuple[int, int]], says: str | None, tmp_path: Path, vault: Vault
) -> None:
    corpus.write(tmp_path, authors, pairs=pairs)
    if says is None:
        assert min(run(tmp_path, vault)["sizes"].values()) >= 2
        return
    with refused("UselessSplit", match=says):
        run(tmp_path, vault)
    assert not (tmp_path / "snapshot/memes/split").exists()
