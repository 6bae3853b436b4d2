"""Draw the background of a caption: crops of sample photographs, drawn scenes with faces, panels, plain colours."""

from __future__ import annotations

import random
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont, ImageOps

from bench.second_world import fonts

_PHOTOS = (("sklearn", "datasets/images/china.jpg"), ("sklearn", "datasets/images/flower.jpg"),
           ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"))  # fmt: skip


@cache
def photographs() -> tuple[Image.Image, ...]:
    """Return the sample photographs of the installed packages."""
    found = [(find_spec(package), path) for package, path in _PHOTOS]
    files = [Path(spec.origin).parent / path for spec, path in found if spec and spec.origin]
    return tuple(Image.open(file).convert("RGB") for file in files if file.exists())


def colour(rng: random.Random, low: int = 0, high: int = 255) -> tuple[int, int, int]:
    """Return a random colour with channels from low to high."""
    return (rng.randint(low, high), rng.randint(low, high), rng.randint(low, high))


def photograph(rng: random.Random, size: tuple[int, int]) -> Image.Image:
    """Return a random crop of a photograph, toned, perhaps mirrored or blurred."""
    photo = rng.choice(photographs())
    part = rng.uniform(0.35, 0.9)
    scale = max(size[0] / photo.width, size[1] / photo.height) / part
    photo = photo.resize((round(photo.width * scale), round(photo.height * scale)), Image.Resampling.BICUBIC)
    left, top = rng.randint(0, photo.width - size[0]), rng.randint(0, photo.height - size[1])
    photo = photo.crop((left, top, left + size[0], top + size[1]))
    if rng.random() < 0.5:
        photo = ImageOps.mirror(photo)
    photo = ImageEnhance.Color(photo).enhance(rng.choice((0, 0.6, 1, 1, 1.8)))
    if rng.random() < 0.3:
        photo = Image.blend(photo, Image.new("RGB", size, colour(rng)), rng.uniform(0.1, 0.4))
    return photo.filter(ImageFilter.GaussianBlur(rng.uniform(1, 4))) if rng.random() < 0.2 else photo


def gradient(rng: random.Random, size: tuple[int, int]) -> Image.Image:
    """Return a gradient between two colours with some grain."""
    a, b = np.array(colour(rng), float), np.array(colour(rng), float)
    ramp = np.linspace(0, 1, size[1])[:, None, None] * np.ones((1, size[0], 1))
    noise = np.random.default_rng(rng.getrandbits(32)).normal(0, rng.choice((0, 2, 6)), (size[1], size[0], 1))
    return Image.fromarray(np.clip(a + (b - a) * ramp + noise, 0, 255).astype(np.uint8))


def face(draw: ImageDraw.ImageDraw, rng: random.Random, x: int, y: int, r: int) -> None:
    """Draw a face of ellipses with hair, eyes, mouth and shoulders."""
    skin, hair = colour(rng, 90, 250), colour(rng, 0, 160)
    draw.rounded_rectangle((x - 2 * r, y + r, x + 2 * r, y + 4 * r), r, fill=colour(rng))
    draw.ellipse((x - r * 1.1, y - r * 1.4, x + r * 1.1, y + r * 0.6), fill=hair)
    draw.ellipse((x - r * 0.9, y - r, x + r * 0.9, y + r * 1.3), fill=skin)
    for side in (-1, 1):
        ex, ey = x + side * r * 0.38, y - r * rng.uniform(0, 0.2)
        draw.ellipse((ex - r * 0.2, ey - r * 0.14, ex + r * 0.2, ey + r * 0.14), fill="white")
        draw.ellipse((ex - r * 0.08, ey - r * 0.08, ex + r * 0.08, ey + r * 0.08), fill=hair)
    mouth = (x - r * 0.4, y + r * 0.4, x + r * 0.4, y + r * 0.9)
    draw.arc(mouth, *rng.choice(((0, 180), (180, 360), (20, 120))), fill=hair, width=max(2, r // 12))


def scene(rng: random.Random, size: tuple[int, int]) -> Image.Image:
    """Return a drawn scene: a gradient with shapes and one to three faces."""
    image = gradient(rng, size)
    draw = ImageDraw.Draw(image)
    width, height = size
    for _ in range(rng.randint(3, 14)):
        x, y, w, h = (
            rng.randrange(width),
            rng.randrange(height),
            rng.randint(20, width // 3),
            rng.randint(20, height // 3),
        )
        shape = rng.choice((draw.rectangle, draw.ellipse))
        shape((x, y, x + w, y + h), fill=colour(rng), outline=rng.choice((None, "black")))
    for _ in range(rng.randint(1, 3)):
        radius = rng.randint(min(size) // 10, min(size) // 4)
        face(draw, rng, rng.randint(radius, width - radius), rng.randint(height // 3, height * 2 // 3), radius)
    return image


def panels(rng: random.Random, size: tuple[int, int]) -> Image.Image:
    """Return two to four panels of photographs and scenes with a gap between them."""
    columns, rows = rng.choice(((1, 2), (2, 1), (2, 2), (1, 3)))
    image = Image.new("RGB", size, rng.choice(("white", "black")))
    width, height, gap = size[0] // columns, size[1] // rows, rng.choice((0, 4, 10))
    for cell in range(columns * rows):
        part = rng.choice((photograph, scene))(rng, (width - gap, height - gap))
        image.paste(part, (cell % columns * width + gap // 2, cell // columns * height + gap // 2))
    return image


def signs(image: Image.Image, rng: random.Random, text: str) -> None:
    """Draw a sign into the background, smaller than a caption: its text is not the caption."""
    found = fonts.pick(rng, text, ("sans", "serif"))
    if found is None:
        return
    font = ImageFont.truetype(found.path, rng.randint(16, 26))
    draw = ImageDraw.Draw(image)
    left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
    x = rng.randint(8, max(9, image.width - int(right - left) - 16))
    y = rng.randint(image.height // 3, image.height * 2 // 3)
    board, ink = rng.choice(
        (("#a01818", "#fff2d0"), ("#14306a", "white"), ("#f4f0e0", "#202020"), ("#0c4d2c", "#ffe46b"))
    )
    draw.rectangle((x - 6, y - 5, x + right - left + 6, y + bottom - top + 5), fill=board)
    draw.text((x - left, y - top), text, font=font, fill=ink)
