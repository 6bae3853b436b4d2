"""Small memes for the tests."""

import io

import numpy as np
from PIL import Image, ImageDraw

from crisis_corpus_sandbox.reddit.draw import font


def background(seed=3, *, width=640, height=480):
    field = np.random.default_rng(seed).uniform(20, 235, (5, 6, 3)).astype(np.uint8)
    return Image.fromarray(field).resize((width, height), Image.Resampling.BICUBIC)


def jpeg(image, *, quality=90):
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality, subsampling=0)
    return out.getvalue()


def capitals(text, *, at=(20, 20), size=40, seed=3):
    image = background(seed)
    ImageDraw.Draw(image).multiline_text(at, text, font=font(size), fill="white", stroke_width=4, stroke_fill="black")
    return jpeg(image)


def paper(*blocks, size=28):
    """Dark text on white above a picture; each block is (text, left)."""
    image = Image.new("RGB", (800, 520), "white")
    image.paste(background(width=800, height=340), (0, 180))
    for text, left in blocks:
        ImageDraw.Draw(image).multiline_text((left, 20), text, font=font(size), fill="black")
    return jpeg(image)
