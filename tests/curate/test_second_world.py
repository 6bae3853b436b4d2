"""The second world of memes is the same for a seed, its truth holds, and mirrored hashes need no pixels."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from bench.second_world import world
from pipelines.collect.read.fingerprint import fingerprint
from pipelines.collect.read.language import mirrored
from pipelines.curate.dedupe.image_pairs import MIRROR, bits_apart


def build(seed: int) -> list[world.Picture]:
    return list(world.build(seed, count=4, per_template=2, foreign=2, copies=11))


def test_a_seed_draws_the_same_world_with_every_change() -> None:
    pictures = build(3)
    assert pictures == build(3)
    assert {one.change for one in pictures} == {"base", *world.CHANGES}
    bases = {one.group: one for one in pictures if one.change == "base"}
    assert len(bases) == 4 + 2
    assert all(bases[one.group].template == one.template for one in pictures)
    english = [one for one in bases.values() if one.language == "en"]
    assert all(
        world.likeness(a.caption, b.caption) < 0.6
        for a in english
        for b in english
        if a.template == b.template and a is not b
    )


def test_the_hash_of_a_mirrored_picture_follows_from_the_hash() -> None:
    distances = []
    for one in world.build(4, count=8, per_template=1, foreign=0, copies=0):
        out = io.BytesIO()
        Image.open(io.BytesIO(one.data)).convert("RGB").save(out, "JPEG", quality=95)
        hashes = [np.array([fingerprint(data)[0]], np.uint64) for data in (out.getvalue(), mirrored(out.getvalue()))]
        distances.append(int(np.bitwise_count(hashes[0] ^ hashes[1] ^ MIRROR)[0]))
        assert bits_apart(*hashes)[0] <= distances[-1]
    assert sorted(distances)[len(distances) // 2] <= 4
    assert max(distances) <= 12
