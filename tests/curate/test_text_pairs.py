"""Near-duplicate texts: what the search by signatures finds equals a comparison of all texts with one another."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.collect.read.shingles import shingles, signature, similarity
from pipelines.collect.read.words import words
from pipelines.core.config.params import Params, load
from pipelines.curate.dedupe import dedupe
from pipelines.curate.dedupe.dedupe import run
from pipelines.curate.dedupe.text_pairs import text_kinds_and_pairs
from pipelines.store.seal import write_rows
from pipelines.store.vault.vault import Vault
from tests import small_corpus
from tests.contexts import context_of
from tests.small_corpus import NOW, full

ROOT = Path(__file__).resolve().parents[2]
PARAMS = load(ROOT)
RULE: dict[str, Any] = {"similarity": PARAMS.dedupe.similarity, "shingle_words": PARAMS.texts.shingle_words}


def posts(count: int, *, seed: int) -> list[str]:
    """Return texts, of which some are copies, edited near the threshold, or alike in their set of shingles only."""
    rng = random.Random(seed)
    texts = [
        " ".join(f"w{int(rng.paretovariate(0.7)) % 3000}" for _ in range(rng.randint(5, 90))) for _ in range(count)
    ]
    for text in list(texts[: count // 2]):
        said = text.split()
        for _ in range(rng.randint(0, 1 + len(said) // 12)):
            at = rng.randrange(len(said))
            said[at : at + rng.randint(0, 2)] = rng.choice([[], ["edited"], ["now", "edited"]])
        texts.append(" ".join(said) or "gone")
    texts += [rng.choice(texts).upper() + "!" for _ in range(count // 4)]
    texts += [texts[0]] * 120  # more than dedupe.listed_copies
    texts += [" ".join(["ha"] * n) for n in range(1, 12)] + ["a b c a b c a b", "b c a b c a b c", "", "?"]
    rng.shuffle(texts)
    return texts


def brute_force(texts: Sequence[str]) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Return the class of each text, and each pair of classes that are near-duplicates with their word difference."""
    numbers: dict[tuple[str, ...], int] = {}
    kind = [numbers.setdefault(tuple(words(text)), len(numbers)) for text in texts]
    runs = [shingles(said, size=PARAMS.texts.shingle_words) for said in numbers]
    counts = [Counter(said) for said in numbers]
    return kind, [
        (a, b, max(counts[a].total(), counts[b].total()) - (counts[a] & counts[b]).total())
        for b in range(len(runs))
        for a in range(b)
        if similarity(runs[a], runs[b]) >= PARAMS.dedupe.similarity
    ]


def searched(texts: Sequence[str], *, batch: int, seed: int) -> tuple[list[int], list[int], list[tuple[int, int, int]]]:
    """Search with the signatures in random rows."""
    rows = np.random.default_rng(seed).permutation(len(texts))
    made = {text: signature(words(text), params=PARAMS.texts) for text in set(texts)}
    signatures = np.empty((len(texts), PARAMS.texts.permutations), np.uint32)
    signatures[rows] = np.frombuffer(b"".join(made[text] for text in texts), "<u4").reshape(signatures.shape)
    at = dict(zip(rows.tolist(), texts, strict=True))

    def opened(batches: Sequence[np.ndarray]) -> Callable[[int], list[str | None]]:
        return lambda number: [at[row] for row in batches[number].tolist()]

    known, found = text_kinds_and_pairs(signatures, rows, opened=opened, batch=batch, **RULE)
    assert not found.hamming.any()
    pairs = sorted(zip(*(side.tolist() for side in (found.left, found.right, found.words)), strict=True))
    return known.kind.tolist(), known.first.tolist(), pairs


@pytest.mark.parametrize("seed", range(3))
def test_the_search_finds_what_comparing_every_pair_finds(seed: int) -> None:
    texts = posts(240, seed=seed)
    kind, pairs = brute_force(texts)
    assert len(pairs) > 40
    for batch in (1, 50, 10_000):
        found = searched(texts, batch=batch, seed=batch)
        assert found == (kind, [kind.index(k) for k in range(max(kind) + 1)], sorted(pairs))


def test_a_text_posted_often_costs_no_square() -> None:
    burst = " ".join(f"word{n}" for n in range(40))
    kind, first, pairs = searched([burst] * 30_000 + [burst + " now"], batch=1000, seed=0)
    assert (set(kind), first, pairs) == ({0, 1}, [0, 30_000], [(0, 1, 1)])


def test_more_words_than_fit_in_a_number_are_compared_exactly() -> None:
    size = PARAMS.texts.model_copy(update={"shingle_words": 9})
    long = [" ".join(f"{kind}{n}" for n in range(400)) for kind in "abc"]
    texts = [*long, *(text + " end" for text in long), "too short for one"]
    made = np.frombuffer(b"".join(signature(words(t), params=size) for t in texts), "<u4").reshape(7, -1)

    def opened(batches: Sequence[np.ndarray]) -> Callable[[int], list[str]]:
        return lambda number: [texts[row] for row in batches[number]]

    _, found = text_kinds_and_pairs(made, np.arange(7), opened=opened, **RULE | {"shingle_words": 9})
    assert list(zip(found.left.tolist(), found.right.tolist(), strict=True)) == [(0, 3), (1, 4), (2, 5)]


def write(root: Path, texts: Sequence[str], *, months: Sequence[str], shard: int, vault: Vault) -> list[str]:
    """Write posts and their texts in turn to the months, each with files of ``shard`` rows; return the record ids."""
    names = {vault.record_id(f"t3_{n}"): f"t3_{n}" for n in range(len(texts))}
    small_corpus.admit(vault, names, corpus="posts", month=months[0])
    rows = list(zip(names, texts, strict=True))
    for m, month in enumerate(months):
        own = rows[m :: len(months)]
        said = [{"record_id": r, "created": NOW, "title": text[:9], "body": text[9:]} for r, text in own]
        small_corpus.write_posts(root, said, corpus="posts", month=month, vault=vault)
        made = [
            full("texts", record_id=r, words=9, signature=signature(words(f"{t[:9]}\n{t[9:]}"), params=PARAMS.texts))
            for r, t in own
        ]
        for at in range(0, len(made), shard):
            path = root / "data" / "posts" / month / "texts" / f"{at:03d}.parquet"
            write_rows(made[at : at + shard], path, name="texts", vault=vault)
    return list(names)


def results(root: Path, *, vault: Vault, params: Params = PARAMS) -> list[bytes]:
    run(context_of("posts", params=params, vault=vault, root=root))
    return [path.read_bytes() for path in sorted((root / "snapshot").rglob("*.parquet"))]


def test_months_and_batches_do_not_matter(tmp_path: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = posts(60, seed=7)
    write(tmp_path / "one", texts, months=["2022-11"], shard=1000, vault=vault)
    once = results(tmp_path / "one", vault=vault)
    monkeypatch.setattr(dedupe, "OPENED", 30)
    for months in (["2022-10", "2022-11"], ["2022-11", "2022-12", "2023-01"]):
        root = tmp_path / months[0]
        for known in (months[:1], months):  # the last month comes later
            write(root, texts, months=months, shard=17, vault=vault)
            for month in set(months) - set(known):
                for path in sorted((root / "data" / "posts" / month).rglob("*.parquet")):
                    path.unlink()
            found = results(root, vault=vault)
        assert found == once


def test_a_taken_down_text_is_in_no_pair(tmp_path: Path, vault: Vault) -> None:
    same = " ".join(f"word{n}" for n in range(30))
    texts = [same, same, same + " end", "something else is written here"]
    ids = write(tmp_path, texts, months=["2022-11"], shard=9, vault=vault)
    assert run(context_of("posts", params=PARAMS, vault=vault, root=tmp_path))["dropped"] == 2
    vault.destroy([ids[1]], reason="request", now=NOW)
    metrics = run(context_of("posts", params=PARAMS, vault=vault, root=tmp_path))
    assert (metrics["items"], metrics["taken_down"], metrics["pairs"], metrics["dropped"]) == (3, 1, 1, 1)
