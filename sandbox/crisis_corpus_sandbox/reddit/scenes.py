"""Generate the photographs under the captions of memes, and the small stickers on them that express labels.

Every scene has a light field with strong, random low frequencies. Perceptual hashes depend on these, so two scenes of
different seeds differ in about 32 of 64 bits, and a caption or a recompression changes few of them.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Literal

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


Shape = Literal["ellipse", "box", "polygon", "line", "arc"]
Stroke = tuple[Shape, tuple[float, ...], str]
# Draw this many times larger and scale down, for smooth edges.
OVERSAMPLE = 3

STROKES: dict[str, tuple[Stroke, ...]] = {
    "boat": (
        ("polygon", (0.15, 0.62, 0.85, 0.62, 0.7, 0.85, 0.3, 0.85), "sienna"),
        ("polygon", (0.5, 0.15, 0.5, 0.58, 0.8, 0.58), "royalblue"),
        ("line", (0.47, 0.12, 0.47, 0.62), "black"),
    ),
    "coin": (
        ("ellipse", (0.12, 0.25, 0.6, 0.75), "gold"),
        ("ellipse", (0.42, 0.25, 0.9, 0.75), "orange"),
        ("ellipse", (0.52, 0.36, 0.8, 0.64), "gold"),
    ),
    "upside_smile": (
        ("ellipse", (0.12, 0.12, 0.88, 0.88), "gold"),
        ("ellipse", (0.3, 0.58, 0.42, 0.72), "black"),
        ("ellipse", (0.58, 0.58, 0.7, 0.72), "black"),
        ("arc", (0.3, 0.24, 0.7, 0.6, 190, 350), "black"),
    ),
    "moon": (("ellipse", (0.15, 0.12, 0.85, 0.85), "khaki"), ("ellipse", (0.38, 0.05, 1.0, 0.7), "white")),
    "thought": (
        ("ellipse", (0.2, 0.12, 0.9, 0.6), "lightsteelblue"),
        ("ellipse", (0.2, 0.62, 0.38, 0.78), "lightsteelblue"),
        ("ellipse", (0.1, 0.8, 0.2, 0.9), "lightsteelblue"),
    ),
    "calendar": (
        ("box", (0.15, 0.2, 0.85, 0.85), "whitesmoke"),
        ("box", (0.15, 0.2, 0.85, 0.38), "firebrick"),
        ("box", (0.3, 0.5, 0.42, 0.62), "gray"),
        ("box", (0.56, 0.5, 0.68, 0.62), "firebrick"),
    ),
    "door": (("box", (0.28, 0.1, 0.72, 0.9), "peru"), ("ellipse", (0.6, 0.48, 0.68, 0.56), "gold")),
    "chair": (
        ("box", (0.25, 0.12, 0.36, 0.9), "saddlebrown"),
        ("box", (0.25, 0.5, 0.75, 0.6), "saddlebrown"),
        ("box", (0.65, 0.5, 0.75, 0.9), "saddlebrown"),
    ),
    "mask": (
        ("ellipse", (0.12, 0.15, 0.88, 0.9), "mediumorchid"),
        ("ellipse", (0.26, 0.38, 0.45, 0.52), "white"),
        ("ellipse", (0.55, 0.38, 0.74, 0.52), "white"),
    ),
    "pin": (
        ("polygon", (0.25, 0.45, 0.75, 0.45, 0.5, 0.92), "crimson"),
        ("ellipse", (0.22, 0.1, 0.78, 0.66), "crimson"),
        ("ellipse", (0.4, 0.28, 0.6, 0.48), "white"),
    ),
    "lifebuoy": (
        ("ellipse", (0.1, 0.1, 0.9, 0.9), "tomato"),
        ("box", (0.44, 0.1, 0.56, 0.9), "white"),
        ("box", (0.1, 0.44, 0.9, 0.56), "white"),
        ("ellipse", (0.34, 0.34, 0.66, 0.66), "lightcyan"),
    ),
    "storm": (
        ("ellipse", (0.1, 0.15, 0.6, 0.55), "dimgray"),
        ("ellipse", (0.4, 0.12, 0.92, 0.55), "dimgray"),
        ("polygon", (0.5, 0.5, 0.36, 0.74, 0.5, 0.72, 0.42, 0.94, 0.66, 0.64, 0.52, 0.65), "gold"),
    ),
    "pair": (
        ("ellipse", (0.18, 0.15, 0.42, 0.4), "teal"),
        ("box", (0.16, 0.45, 0.44, 0.88), "teal"),
        ("ellipse", (0.58, 0.15, 0.82, 0.4), "coral"),
        ("box", (0.56, 0.45, 0.84, 0.88), "coral"),
    ),
    "film": (
        ("box", (0.1, 0.25, 0.9, 0.75), "black"),
        ("box", (0.24, 0.34, 0.76, 0.66), "skyblue"),
        ("box", (0.12, 0.32, 0.2, 0.4), "white"),
        ("box", (0.8, 0.6, 0.88, 0.68), "white"),
    ),
    "arrow": (
        ("box", (0.15, 0.42, 0.6, 0.58), "darkslateblue"),
        ("polygon", (0.55, 0.22, 0.9, 0.5, 0.55, 0.78), "darkslateblue"),
    ),
    "cloud": (
        ("ellipse", (0.1, 0.35, 0.55, 0.75), "lightgray"),
        ("ellipse", (0.3, 0.2, 0.7, 0.65), "lightgray"),
        ("ellipse", (0.45, 0.35, 0.92, 0.75), "lightgray"),
    ),
    "plaster": (
        ("polygon", (0.1, 0.65, 0.65, 0.1, 0.9, 0.35, 0.35, 0.9), "burlywood"),
        ("polygon", (0.36, 0.5, 0.5, 0.36, 0.64, 0.5, 0.5, 0.64), "tan"),
    ),
    "house": (
        ("box", (0.22, 0.45, 0.78, 0.88), "bisque"),
        ("polygon", (0.12, 0.48, 0.5, 0.12, 0.88, 0.48), "brown"),
        ("line", (0.5, 0.46, 0.42, 0.6, 0.56, 0.72, 0.5, 0.88), "black"),
    ),
    "stop": (
        ("polygon", (0.32, 0.1, 0.68, 0.1, 0.9, 0.32, 0.9, 0.68, 0.68, 0.9, 0.32, 0.9, 0.1, 0.68, 0.1, 0.32), "red"),
        ("box", (0.24, 0.44, 0.76, 0.56), "white"),
    ),
    "speech": (
        ("box", (0.1, 0.15, 0.9, 0.62), "mediumseagreen"),
        ("polygon", (0.25, 0.6, 0.5, 0.6, 0.22, 0.88), "mediumseagreen"),
        ("box", (0.22, 0.3, 0.78, 0.36), "white"),
        ("box", (0.22, 0.44, 0.6, 0.5), "white"),
    ),
    "kite": (
        ("polygon", (0.55, 0.08, 0.85, 0.4, 0.5, 0.7, 0.25, 0.34), "hotpink"),
        ("line", (0.5, 0.7, 0.35, 0.8, 0.42, 0.92), "black"),
    ),
    "sun": (("ellipse", (0.2, 0.2, 0.8, 0.8), "gold"), ("ellipse", (0.32, 0.32, 0.68, 0.68), "orange")),
    "clock": (
        ("ellipse", (0.12, 0.12, 0.88, 0.88), "black"),
        ("ellipse", (0.18, 0.18, 0.82, 0.82), "white"),
        ("line", (0.5, 0.26, 0.5, 0.5, 0.68, 0.58), "black"),
    ),
    "hourglass": (
        ("polygon", (0.22, 0.12, 0.78, 0.12, 0.5, 0.5), "sandybrown"),
        ("polygon", (0.22, 0.88, 0.78, 0.88, 0.5, 0.5), "sandybrown"),
        ("box", (0.18, 0.06, 0.82, 0.14), "maroon"),
        ("box", (0.18, 0.86, 0.82, 0.94), "maroon"),
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
    for shape, points, colour in STROKES[name]:
        # the last two numbers of an arc are angles
        ends = [p * inner + edge for p in (points[:4] if shape == "arc" else points)]
        if shape == "line":
            pen.line(ends, fill=colour, width=width)
        elif shape == "arc":
            pen.arc(ends, points[4], points[5], fill=colour, width=width)
        else:
            filled[shape](ends, fill=colour)
    return image.resize((size, size), Image.Resampling.LANCZOS)
