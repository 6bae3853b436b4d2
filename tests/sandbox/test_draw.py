"""Pictures: different scenes lie far apart for a perceptual hash, copies close to their originals."""

import io

import imagehash
import numpy as np
import pytest
from PIL import Image

from crisis_corpus_sandbox.reddit.draw import STYLES, Meme, Rendering, draw, render, wording

TEXT = {
    "capitals": ("my cat hides the last cookie", "totally fine as usual"),
    "panels": ("my cat hides the last cookie", "totally fine as usual"),
    "labels": ("my bed", "me", "one more email"),
    "textless": (),
}


def meme(style, *, seed, mirrored=False):
    blocks = wording(style, TEXT.get(style, ("my cat hides the last cookie on a rainy friday",)))
    return Meme(seed, style, blocks, stickers=("moon", "boat"), mirrored=mirrored, width=560, height=560)


def distance(left, right):
    return imagehash.phash(left) - imagehash.phash(right)


@pytest.mark.parametrize("style", STYLES)
def test_a_meme_is_drawn_the_same_twice_and_is_never_flat(style):
    first, second = draw(meme(style, seed=11)), draw(meme(style, seed=11))
    assert first.tobytes() == second.tobytes()
    assert first.size == (560, 560)
    assert np.asarray(first.convert("L")).std() > 15


def test_a_border_is_plain_on_all_four_sides():
    framed = Image.open(io.BytesIO(render(Rendering("a.png", meme("bar", seed=1), "bordered", 0.03, "png"))))
    edge = np.asarray(framed)[:10]
    assert len(np.unique(edge.reshape(-1, 3), axis=0)) == 1


def test_a_sideways_picture_is_rotated_by_its_exif():
    lying = Image.open(io.BytesIO(render(Rendering("a.jpg", meme("bar", seed=2), encoding="rotated"))))
    assert lying.getexif()[0x0112] == 6
    upright = lying.transpose(Image.Transpose.ROTATE_270)
    assert distance(upright, draw(meme("bar", seed=2))) <= 2
