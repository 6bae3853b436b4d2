"""Draw the small stickers that express labels in the pictures of generated memes.

Each pictogram is a list of strokes in a unit square: (shape, points, colour). All are everyday things.
"""

from __future__ import annotations

from typing import Literal

from PIL import Image, ImageDraw

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
