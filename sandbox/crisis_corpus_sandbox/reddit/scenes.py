"""Generate procedural photographs, the pictures under the captions of memes.

Every scene has a light field with strong, random low frequencies. Perceptual hashes depend on these, so two scenes of
different seeds differ in about 32 of 64 bits, and a caption or a recompression changes few of them.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random

import numpy as np
from PIL import Image, ImageChops, ImageDraw

from crisis_corpus_sandbox.reddit.chance import seeded

Colour = tuple[int, int, int]
# Cells per side of the light field's coarse grid. pHash keeps frequencies up to 4 cycles per side, which 8 cells hold.
CELLS = 8
# Standard deviations of the light field and of the grain, in grey levels.
LIGHT, GRAIN = 50, 5
PALETTES: tuple[tuple[Colour, Colour, Colour, Colour], ...] = (
    ((126, 178, 221), (232, 224, 200), (96, 140, 92), (205, 92, 66)),
    ((244, 178, 130), (250, 226, 180), (120, 88, 98), (66, 92, 140)),
    ((70, 84, 120), (140, 130, 168), (52, 70, 78), (226, 190, 96)),
    ((160, 200, 190), (238, 238, 220), (150, 140, 90), (176, 84, 110)),
    ((190, 170, 210), (246, 222, 230), (110, 130, 110), (240, 150, 60)),
    ((110, 120, 128), (200, 204, 204), (88, 92, 84), (92, 150, 170)),
    ((236, 208, 120), (250, 240, 200), (140, 110, 70), (70, 120, 110)),
    ((88, 150, 160), (190, 220, 214), (60, 90, 100), (230, 120, 90)),
)


def scene(seed: int, *, width: int, height: int, figures: int | None = None) -> Image.Image:
    """Draw the landscape that ``seed`` determines, with ``figures`` people, cats or screens (by default 1 to 3)."""
    rng = seeded("scene", seed)
    sky, glow, ground, accent = rng.choice(PALETTES)
    image = _gradient(sky, glow, width=width, height=height)
    pen = ImageDraw.Draw(image)
    horizon = int(height * rng.uniform(0.5, 0.7))
    _sky(pen, rng=rng, width=width, horizon=horizon, colour=glow)
    _hills(pen, rng=rng, width=width, height=height, horizon=horizon, colour=ground)
    if rng.random() < 0.6:
        _houses(pen, rng=rng, width=width, horizon=horizon, colour=accent)
    _figures(pen, rng=rng, size=(width, height), count=figures or rng.randint(1, 3), colour=accent)
    return _light(image, seed=seed)


def _gradient(top: Colour, bottom: Colour, *, width: int, height: int) -> Image.Image:
    column = Image.new("RGB", (1, 2))
    column.putdata([top, bottom])
    return column.resize((width, height), Image.Resampling.BILINEAR)


def _light(image: Image.Image, *, seed: int) -> Image.Image:
    """Add the light field and the grain, both in grey levels around 128, in Pillow's own arithmetic, for speed."""
    rng = np.random.default_rng([seed, 1])
    cells = np.clip(128 + rng.normal(0, LIGHT, (CELLS, CELLS)), 0, 255).astype(np.uint8)
    field = Image.fromarray(cells).resize(image.size, Image.Resampling.BICUBIC)
    level = ImageChops.add(field, _grain(*image.size), offset=-128)
    return ImageChops.add(image, Image.merge("RGB", (level, level, level)), offset=-128)


@lru_cache(maxsize=8)
def _grain(width: int, height: int) -> Image.Image:
    rng = np.random.default_rng([width, height])
    return Image.fromarray(rng.integers(128 - GRAIN, 128 + GRAIN + 1, (height, width)).astype(np.uint8))


def _shade(colour: Colour, factor: float) -> Colour:
    red, green, blue = (min(255, max(0, int(c * factor))) for c in colour)
    return red, green, blue


def _sky(pen: ImageDraw.ImageDraw, *, rng: Random, width: int, horizon: int, colour: Colour) -> None:
    radius = int(width * rng.uniform(0.05, 0.13))
    x, y = rng.randint(radius, width - radius), rng.randint(radius, max(radius + 1, horizon - radius))
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=_shade(colour, 1.15))
    for _ in range(rng.randint(0, 4)):
        x, y = rng.randint(0, width), rng.randint(0, horizon)
        for k in range(3):
            w = int(width * rng.uniform(0.05, 0.1))
            pen.ellipse((x + k * w - w, y - w // 2, x + k * w + w, y + w // 2), fill=_shade(colour, 1.05))


def _hills(pen: ImageDraw.ImageDraw, *, rng: Random, width: int, height: int, horizon: int, colour: Colour) -> None:
    for depth in range(rng.randint(1, 3)):
        base = horizon + depth * (height - horizon) // 4
        steps = rng.randint(3, 6)
        ridge = [(i * width // steps, base + rng.randint(-height // 12, height // 12)) for i in range(steps + 1)]
        pen.polygon([(0, height), *ridge, (width, height)], fill=_shade(colour, 1 - depth * 0.15))


def _houses(pen: ImageDraw.ImageDraw, *, rng: Random, width: int, horizon: int, colour: Colour) -> None:
    for _ in range(rng.randint(1, 4)):
        w, h = int(width * rng.uniform(0.08, 0.16)), int(width * rng.uniform(0.12, 0.35))
        x = rng.randint(0, width - w)
        pen.rectangle((x, horizon - h, x + w, horizon + h // 4), fill=_shade(colour, rng.uniform(0.5, 1.0)))
        pane = max(4, w // 5)
        for row in range(horizon - h + pane, horizon - pane, 2 * pane):
            for column in range(x + pane // 2, x + w - pane, 2 * pane):
                lit = (250, 232, 150) if rng.random() < 0.5 else (60, 64, 80)
                pen.rectangle((column, row, column + pane, row + pane), fill=lit)


def _figures(pen: ImageDraw.ImageDraw, *, rng: Random, size: tuple[int, int], count: int, colour: Colour) -> None:
    width, height = size
    for i in range(count):
        radius = int(min(width, height) * rng.uniform(0.08, 0.12))
        x = int(width * (i + 0.5) / count + rng.uniform(-0.06, 0.06) * width)
        y = int(height * rng.uniform(0.45, 0.58))
        skin = rng.choice([(240, 208, 176), (198, 150, 110), (140, 98, 70), (176, 190, 140), (180, 180, 188)])
        coat = _shade(rng.choice([colour, (70, 90, 150), (150, 70, 90), (90, 140, 90)]), rng.uniform(0.6, 1.1))
        pen.rounded_rectangle((x - radius * 1.3, y + radius * 0.8, x + radius * 1.3, height), radius, fill=coat)
        if rng.random() < 0.35:
            for side in (-1, 1):
                tip = (x + side * radius * 0.9, y - radius * 1.4)
                pen.polygon([(x + side * radius * 0.2, y - radius * 0.8), tip, (x + side * radius, y)], fill=skin)
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=skin, outline=_shade(skin, 0.6), width=2)
        _face(pen, centre=(x, y), radius=radius, mood=rng.choice([(20, 160), (200, 340), (0, 1)]))


def _face(pen: ImageDraw.ImageDraw, *, centre: tuple[int, int], radius: int, mood: tuple[int, int]) -> None:
    x, y = centre
    for side in (-1, 1):
        eye = x + side * radius * 0.38
        pen.ellipse((eye - radius * 0.14, y - radius * 0.3, eye + radius * 0.14, y), fill=(30, 30, 36))
    start, end = mood
    if end - start < 10:
        pen.line((x - radius * 0.4, y + radius * 0.45, x + radius * 0.4, y + radius * 0.45), fill=(40, 20, 20), width=3)
        return
    drop = 0.05 if start < 100 else 0.35
    box = (x - radius * 0.45, y + radius * drop, x + radius * 0.45, y + radius * (drop + 0.5))
    pen.arc(box, start, end, fill=(40, 20, 20), width=3)
