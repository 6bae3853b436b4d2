"""Write the sandbox's memes and posts as small sealed corpora with gold, for the stage ``analysis``.

The sandbox plants differences by label: its captions say the severity in phrases (``reddit/captions.py``) while
its scenes are drawn from seeds that know no label.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from crisis_corpus_sandbox.reddit.draw import render
from crisis_corpus_sandbox.reddit.post_world import PostWorld
from crisis_corpus_sandbox.reddit.world import World
from pipelines.core.config.collect import Sandbox
from pipelines.core.config.params import Params
from pipelines.core.config.params import load as load_params
from pipelines.evaluate.analysis.analysis import AnalysedItems
from pipelines.store.vault.vault import Vault
from tests import small_corpus
from tests.small_corpus import MONTHS, ROOT, full, write_table

Gold = dict[str, dict[tuple[str, int], frozenset[str]]]


def labelled(seed: int, submissions: int) -> list[Any]:
    """Return the submissions of a sandbox that have labels and a drawn picture."""
    sandbox = Sandbox(seed=seed, months=MONTHS, submissions=submissions, posts=300, port=8125)
    return [p for p in World(sandbox).build() if p.figsim and p.pictures and p.pictures[0].rendering]


def named(post: Any) -> dict[str, list[str]]:
    return {key: [v] if isinstance(v, str) else list(v) for key, v in post.figsim.names().items()}


def memes(root: Path, *, vault: Vault, submissions: int, drawn: bool, seed: int = 7) -> Params:
    """Write the labelled memes of a sandbox; with ``drawn`` their pictures, else one of nine plain ones at random."""
    rng, posts, pictures = Random(seed), labelled(seed, submissions), [plain(n) for n in range(9)]
    rows, images, gold, units = [], [], {}, {}
    small_corpus.admit(vault, {vault.record_id(p.fullname): p.fullname for p in posts}, corpus="memes", month=MONTHS[0])
    for post in posts:
        record, picture = vault.record_id(post.fullname), post.pictures[0]
        rows.append({"record_id": record, "author_id": post.author, "created": post.created, "title": post.title})
        data = render(picture.rendering) if drawn and picture.rendering else rng.choice(pictures)
        area = rng.uniform(0.05, 0.3)
        images.append({"record_id": record, "image": 0, "bytes": data, "text": picture.text, "text_area": area})
        gold[record, 0] = named(post)
        units[record, 0] = post.family
    small_corpus.write_posts(root, rows, corpus="memes", month=MONTHS[0], vault=vault)
    small_corpus.write_images(root, [images], corpus="memes", month=MONTHS[0], vault=vault)
    _snapshot(root, corpus="memes", gold=gold, units=units)
    return load_params(ROOT)


def captions(seed: int, *, submissions: int, visual: Sequence[list[float]]) -> tuple[AnalysedItems, Gold]:
    """Return the labelled memes of a sandbox as the stage reads them, each with a random one of the visual features."""
    rng, posts = Random(seed), labelled(seed, submissions)
    gold: Gold = {}
    for post in posts:
        for category, kept in named(post).items():
            gold.setdefault(category, {})[post.fullname, 0] = frozenset(kept)
    found = AnalysedItems(
        items=tuple((post.fullname, 0) for post in posts),
        units=tuple(str(post.family) for post in posts),
        months=(MONTHS[0],) * len(posts),
        texts=tuple(post.pictures[0].text or "" for post in posts),
        visual=tuple(rng.choice(visual) for _ in posts),
    )
    return found, gold


def posts(root: Path, *, vault: Vault, count: int, seed: int = 7) -> Params:
    """Write the posts of a sandbox with their labels."""
    sandbox = Sandbox(seed=seed, months=MONTHS, submissions=310, posts=count, port=8125)
    kept = [p for p in PostWorld(sandbox).build() if p.expected == "kept"]
    ids = {p.fullname: vault.record_id(p.fullname) for p in kept}
    small_corpus.admit(vault, {record: fullname for fullname, record in ids.items()}, corpus="posts", month=MONTHS[0])
    rows = [
        {"record_id": ids[p.fullname], "created": p.created, "title": p.title, "body": p.body, "author_id": p.author}
        for p in kept
    ]
    small_corpus.write_posts(root, rows, corpus="posts", month=MONTHS[0], vault=vault)
    gold = {(ids[p.fullname], 0): {"labels": list(p.cradle)} for p in kept}
    _snapshot(root, corpus="posts", gold=gold, units={(ids[p.fullname], 0): p.author for p in kept})
    return load_params(ROOT)


def _snapshot(root: Path, *, corpus: str, gold: dict, units: dict) -> None:  # type: ignore[type-arg]
    folder = root / "snapshot" / corpus
    write_table(folder / "gold" / "gold.parquet", small_corpus.gold_rows(gold), name="gold")
    splits = [
        full("splits", record_id=record, image=image, group=str(unit), split="test")
        for (record, image), unit in units.items()
    ]
    write_table(folder / "split" / "splits.parquet", splits, name="splits")


def plain(seed: int) -> bytes:
    """Return a small picture of two random colours."""
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (64, 64), tuple(rng.integers(0, 255, 3).tolist()))
    image.paste(tuple(rng.integers(0, 255, 3).tolist()), (0, 0, 64, int(rng.integers(10, 50))))
    out = io.BytesIO()
    image.save(out, "JPEG")
    return out.getvalue()
