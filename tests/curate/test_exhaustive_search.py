"""Near-duplicates that the stage dedupe did not list: the split finds them itself and keeps them together."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from pipelines.collect.read.shingles import signature
from pipelines.core.config.params import Params, load
from pipelines.curate import sample, split
from pipelines.store import tables
from pipelines.store.seal import write_rows
from pipelines.store.vault.vault import Vault
from tests import small_corpus
from tests.contexts import context_of
from tests.small_corpus import NOW, full

ROOT = Path(__file__).resolve().parents[2]
MONTH = "2022-11"
# 40 texts of which only the last two share three words in a row
OTHERS = [" ".join(f"word{n}x{k}" for k in range(30)) for n in range(38)]
TWINS = [" ".join(f"same{k}" for k in range(40)), " ".join([*(f"same{k}" for k in range(38)), "another end"])]


@pytest.fixture(scope="module")
def params() -> Params:
    values = load(ROOT)
    few = {name: values.split[name].model_copy(update={"proposals": 5_000}) for name in values.split}
    return values.model_copy(update={"split": few})


def write(root: Path, vault: Vault, *, corpus: str, words: Sequence[str], params: Params) -> list[str]:
    """Write a month with one item for each text, and a result of dedupe that lists no pair; return the record ids."""
    names = {vault.record_id(f"t3_{n}"): f"t3_{n}" for n in range(len(words))}
    small_corpus.admit(vault, names, corpus=corpus, month=MONTH)
    ids = list(names)
    posts = [
        {
            "record_id": r, "author_id": vault.author_id(r), "created": NOW, "kind": "text", "subreddit": "s",
            "media": "[]", "title": "", "body": text,
        }
        for r, text in zip(ids, words, strict=True)
    ]  # fmt: skip
    small_corpus.write_posts(root, posts, corpus=corpus, month=MONTH, vault=vault)
    if corpus == "memes":
        hashes = [0, 1 << 9] + [(0x9E3779B97F4A7C15 * n) % 2**64 for n in range(1, len(ids) - 1)]
        images = [
            {
                "record_id": r, "image": 0, "sha256": f"{n:064x}", "text": text, "words": 30, "fingerprint": h,
                "fingerprint_id": "phash-1", "bytes": b"x",
            }
            for n, (r, text, h) in enumerate(zip(ids, words, reversed(hashes), strict=True))
        ]  # fmt: skip
        small_corpus.write_images(root, [images], corpus=corpus, month=MONTH, vault=vault)
    else:
        rows = [
            full("texts", record_id=r, words=30, signature=signature(text.split(), params=params.texts))
            for r, text in zip(ids, words, strict=True)
        ]
        write_rows(rows, root / "data" / corpus / MONTH / "texts" / "000.parquet", name="texts", vault=vault)
    snapshot = root / "snapshot" / corpus
    for stage, name in (("dedupe", "pairs"), ("dedupe", "drops"), ("gold", "gold"), ("gold", "drops")):
        small_corpus.write_table(snapshot / stage / f"{name}.parquet", [], name=name)
    return ids


@pytest.mark.parametrize("corpus", ["memes", "posts"])
def test_a_pair_that_was_missed_is_found_and_not_separated(
    tmp_path: Path, vault: Vault, params: Params, corpus: str
) -> None:
    ids = write(tmp_path, vault, corpus=corpus, words=[*OTHERS, *TWINS], params=params)
    found = split.near_pairs(corpus, {(r, 0) for r in ids}, params=params, vault=vault, root=tmp_path)
    assert [{one[0], other[0]} for one, other in found] == [set(ids[-2:])]
    sample.run(context_of(corpus, params=params, vault=vault, root=tmp_path))
    report = split.run(context_of(corpus, params=params, vault=vault, root=tmp_path))
    assert (report["missed_pairs"], report["leakage"]) == (1, 0)
    table = tables.read(tmp_path / "snapshot" / corpus / "split" / "splits.parquet", name="splits")
    placed = dict(zip(table["record_id"].to_pylist(), table["split"].to_pylist(), strict=True))
    assert placed[ids[-1]] == placed[ids[-2]]


def test_of_an_assigned_pair_the_one_in_test_is_withheld(tmp_path: Path, vault: Vault, params: Params) -> None:
    ids = write(tmp_path, vault, corpus="posts", words=[*OTHERS, *TWINS], params=params)
    rows = {(ids[-1], 0): "train", (ids[-2], 0): "test"}
    vault.assign("posts", version=params.split["posts"].version, rows=rows, now=NOW)
    sample.run(context_of("posts", params=params, vault=vault, root=tmp_path))
    report = split.run(context_of("posts", params=params, vault=vault, root=tmp_path))
    assert (report["separated_pairs"], report["withheld"], report["leakage"]) == (1, 1, 0)
    table = tables.read(tmp_path / "snapshot" / "posts" / "split" / "splits.parquet", name="splits")
    placed = dict(zip(table["record_id"].to_pylist(), table["split"].to_pylist(), strict=True))
    assert placed[ids[-1]] == "train"
    assert ids[-2] not in placed
