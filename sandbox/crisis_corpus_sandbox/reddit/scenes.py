"""Generate the photographs under the captions of memes, and the small stickers on them that express labels.

Every scene has a light field with strong, random low frequencies. Perceptual hashes depend on these, so two scenes of
different seeds differ in about 32 of 64 bits, and a caption or a recompression changes few of them.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random

import numpy as np
from PIL import Image, ImageChops, ImageDraw

from crisis_corpus_sandbox.reddit import seeded

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


# Draw this many times larger and scale down, for smooth edges.
OVERSAMPLE = 3
# Pictogram -> its strokes: shape, colour, and x y in hundredths of the side; the last two numbers of an arc are angles.
STROKES: dict[str, str] = {
    "boat": "polygon sienna 15 62 85 62 70 85 30 85, polygon royalblue 50 15 50 58 80 58, line black 47 12 47 62",
    "coin": "ellipse gold 12 25 60 75, ellipse orange 42 25 90 75, ellipse gold 52 36 80 64",
    "upside_smile": (
        "ellipse gold 12 12 88 88, ellipse black 30 58 42 72, ellipse black 58 58 70 72, arc black 30 24 70 60 190 350"
    ),
    "moon": "ellipse khaki 15 12 85 85, ellipse white 38 5 100 70",
    "thought": (
        "ellipse lightsteelblue 20 12 90 60, ellipse lightsteelblue 20 62 38 78, ellipse lightsteelblue 10 80 20 90"
    ),
    "calendar": (
        "box whitesmoke 15 20 85 85, box firebrick 15 20 85 38, box gray 30 50 42 62, box firebrick 56 50 68 62"
    ),
    "door": "box peru 28 10 72 90, ellipse gold 60 48 68 56",
    "chair": "box saddlebrown 25 12 36 90, box saddlebrown 25 50 75 60, box saddlebrown 65 50 75 90",
    "mask": "ellipse mediumorchid 12 15 88 90, ellipse white 26 38 45 52, ellipse white 55 38 74 52",
    "pin": "polygon crimson 25 45 75 45 50 92, ellipse crimson 22 10 78 66, ellipse white 40 28 60 48",
    "lifebuoy": (
        "ellipse tomato 10 10 90 90, box white 44 10 56 90, box white 10 44 90 56, ellipse lightcyan 34 34 66 66"
    ),
    "storm": (
        "ellipse dimgray 10 15 60 55, ellipse dimgray 40 12 92 55, polygon gold 50 50 36 74 50 72 42 94 66 64 52 65"
    ),
    "pair": "ellipse teal 18 15 42 40, box teal 16 45 44 88, ellipse coral 58 15 82 40, box coral 56 45 84 88",
    "film": "box black 10 25 90 75, box skyblue 24 34 76 66, box white 12 32 20 40, box white 80 60 88 68",
    "arrow": "box darkslateblue 15 42 60 58, polygon darkslateblue 55 22 90 50 55 78",
    "cloud": "ellipse lightgray 10 35 55 75, ellipse lightgray 30 20 70 65, ellipse lightgray 45 35 92 75",
    "plaster": "polygon burlywood 10 65 65 10 90 35 35 90, polygon tan 36 50 50 36 64 50 50 64",
    "house": "box bisque 22 45 78 88, polygon brown 12 48 50 12 88 48, line black 50 46 42 60 56 72 50 88",
    "stop": "polygon red 32 10 68 10 90 32 90 68 68 90 32 90 10 68 10 32, box white 24 44 76 56",
    "speech": (
        "box mediumseagreen 10 15 90 62, polygon mediumseagreen 25 60 50 60 22 88, box white 22 30 78 36, "
        "box white 22 44 60 50"
    ),
    "kite": "polygon hotpink 55 8 85 40 50 70 25 34, line black 50 70 35 80 42 92",
    "sun": "ellipse gold 20 20 80 80, ellipse orange 32 32 68 68",
    "clock": "ellipse black 12 12 88 88, ellipse white 18 18 82 82, line black 50 26 50 50 68 58",
    "hourglass": (
        "polygon sandybrown 22 12 78 12 50 50, polygon sandybrown 22 88 78 88 50 50, box maroon 18 6 82 14, "
        "box maroon 18 86 82 94"
    ),
}


def sticker(name: str, *, size: int) -> Image.Image:
    """Draw the pictogram ``name`` on a white disc of ``size`` pixels (RGBA)."""
    side = size * OVERSAMPLE
    image = Image.new("RGBA", (side, side))
    pen = ImageDraw.Draw(image)
    pen.ellipse((0, 0, side - 1, side - 1), fill="white", outline="black", width=OVERSAMPLE * 2)
    inner, edge = side * 0.7, side * 0.15
    width = 3 * OVERSAMPLE
    filled = {"ellipse": pen.ellipse, "box": pen.rectangle, "polygon": pen.polygon}
    for stroke in STROKES[name].split(", "):
        shape, colour, *numbers = stroke.split()
        ends = [int(number) / 100 * inner + edge for number in (numbers[:4] if shape == "arc" else numbers)]
        if shape == "line":
            pen.line(ends, fill=colour, width=width)
        elif shape == "arc":
            pen.arc(ends, int(numbers[4]), int(numbers[5]), fill=colour, width=width)
        else:
            filled[shape](ends, fill=colour)
    return image.resize((size, size), Image.Resampling.LANCZOS)
