"""Draw memes from specifications (scene, style, text, stickers), and change them as reposts do.

The same specification gives the same bytes.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random

from PIL import Image, ImageDraw, ImageFilter, ImageFont, ImageOps

from crisis_corpus_sandbox.reddit.scenes import scene, sticker

Font = ImageFont.FreeTypeFont
Box = tuple[int, int, int, int]
# Side margin, wider than a one-percent crop.
MARGIN = 0.04
# Extra space between words for legibility: a thin space for bold text, a full one for outlined capitals.
SPACE, SPACE_OUTLINED = " \u2009", "  "
SMALLEST = 20


@dataclass(frozen=True, slots=True)
class Meme:
    """The specification of a meme to draw.

    ``text`` holds the text blocks in reading order, ``sized_for`` the blocks that decide the font size, so that an
    edited caption keeps its template's layout.
    """

    seed: int
    style: str
    text: tuple[str, ...] = ()
    sized_for: tuple[str, ...] = ()
    stickers: tuple[str, ...] = ()
    width: int = 640
    height: int = 640
    mirrored: bool = False


def draw(meme: Meme) -> Image.Image:
    """Return the meme as an RGB image of ``meme.width`` by ``meme.height`` pixels."""
    paint, height = STYLES[meme.style]
    image = paint(meme)
    if height is not None:
        _stick(image, meme.stickers, y=int(meme.height * height))
    return image


def wording(style: str, blocks: Sequence[str]) -> tuple[str, ...]:
    """Return text blocks in the case of a meme style: capitals for outlined text, else a capital first letter."""
    if style == "capitals":
        return tuple(b.upper() for b in blocks)
    if style == "labels":
        return tuple(blocks)
    return tuple(" ".join("I" if w == "i" else w for w in (b[:1].upper() + b[1:]).split(" ")) for b in blocks)


@lru_cache(maxsize=256)
def font(size: int, *, bold: bool = True) -> Font:
    """Return the font DejaVu Sans at ``size`` pixels from matplotlib's package; no system font is needed."""
    spec = importlib.util.find_spec("matplotlib")
    folder = Path((spec.submodule_search_locations or [""])[0] if spec else "") / "mpl-data" / "fonts" / "ttf"
    return ImageFont.truetype(folder / ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"), size)


def _wrap(text: str, *, face: Font, width: int, space: str = SPACE) -> list[str]:
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]}{space}{word}" if lines else word
        if lines and face.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _fit(text: str, *, box: Box, largest: int, bold: bool = True, space: str = SPACE) -> Font:
    """Return the largest font whose wrapped ``text`` fits ``box``."""
    width, height = box[2] - box[0], box[3] - box[1]
    for size in range(largest, SMALLEST, -2):
        face = font(size, bold=bold)
        lines = _wrap(text, face=face, width=width, space=space)
        if len(lines) * size * 1.25 <= height and max(face.getlength(line) for line in lines) <= width:
            return face
    return font(SMALLEST, bold=bold)


def _write(
    pen: ImageDraw.ImageDraw,
    text: str,
    *,
    box: Box,
    face: Font,
    fill: str = "white",
    outline: str | None = None,
    align: str = "centre",
    anchor: str = "middle",
) -> None:
    """Write wrapped ``text`` into ``box``, centred or to the left, at its top, middle or bottom."""
    lines = _wrap(text, face=face, width=box[2] - box[0], space=SPACE_OUTLINED if outline else SPACE)
    step = face.size * 1.25
    bottom = box[3] - len(lines) * step
    y = {"top": box[1], "middle": (box[1] + bottom) / 2, "bottom": bottom}[anchor]
    for line in lines:
        x = box[0] if align == "left" else (box[0] + box[2] - face.getlength(line)) / 2
        stroke = max(2, round(face.size / 16)) if outline else 0
        pen.text((x, y), line, font=face, fill=fill, stroke_width=stroke, stroke_fill=outline)
        y += step


def _picture(meme: Meme, *, above: int = 0, figures: int | None = None) -> Image.Image:
    image = scene(meme.seed, width=meme.width, height=meme.height - above, figures=figures)
    return ImageOps.mirror(image) if meme.mirrored else image


def _stick(image: Image.Image, stickers: Sequence[str], *, y: int, share: int = 8, left: int = 0) -> None:
    """Put the stickers alternately above and below height ``y``, each with a ``share``-th of the width.

    OCR reads round stickers in a straight row as a row of the letter O.
    """
    size = image.width // share
    for i, name in enumerate(stickers):
        mark = sticker(name, size=size)
        top = y - size // 2 - (i % 2) * size * 3 // 4
        image.paste(mark, (left + int(image.width * 0.04 + i * size * 1.1), top), mark)


def _inset(width: int, top: float, bottom: float) -> Box:
    return int(width * MARGIN), int(top), int(width * (1 - MARGIN)), int(bottom)


def _capitals(meme: Meme) -> Image.Image:
    image = _picture(meme)
    pen, h = ImageDraw.Draw(image), meme.height
    boxes = (_inset(meme.width, h * 0.03, h * 0.28), _inset(meme.width, h * 0.72, h * 0.97))
    for text, sized, box, anchor in zip(meme.text, meme.sized_for or meme.text, boxes, ("top", "bottom"), strict=False):
        face = _fit(sized, box=box, largest=meme.width // 12, space=SPACE_OUTLINED)
        _write(pen, text, box=box, face=face, outline="black", anchor=anchor)
    return image


def _bar(meme: Meme) -> Image.Image:
    text, sized = meme.text[0], (meme.sized_for or meme.text)[0]
    image = Image.new("RGB", (meme.width, meme.height), "white")
    top = int(meme.height * 0.22)
    image.paste(_picture(meme, above=top), (0, top))
    box = _inset(meme.width, meme.height * 0.02, top - meme.height * 0.02)
    face = _fit(sized, box=box, largest=meme.width // 15)
    _write(ImageDraw.Draw(image), text, box=box, face=face, fill="black", align="left")
    return image


def _tweet(meme: Meme) -> Image.Image:
    """Draw a post's screenshot with its name painted over, as most communities' rules require."""
    image = _picture(meme)
    pen, w, h = ImageDraw.Draw(image), meme.width, meme.height
    dark = meme.seed % 3 == 0
    paper, ink, faint = ("#15202b", "white", "#38444d") if dark else ("white", "#0f1419", "#cfd9de")
    left, right = int(w * 0.06), int(w * 0.94)
    top = int(h * (0.06 + meme.seed % 7 * 0.035))
    bottom = top + int(h * 0.44)
    pen.rounded_rectangle((left, top, right, bottom), 18, fill=paper)
    radius = w // 18
    face_of = scene(meme.seed + 1, width=96, height=96, figures=1).resize((2 * radius, 2 * radius))
    image.paste(face_of, (left + radius // 2, top + radius // 2))
    for row, length in ((0.55, 0.36), (1.35, 0.24)):
        y = int(top + radius * row)
        pen.rounded_rectangle((left + radius * 3, y, left + radius * 3 + w * length, y + radius // 2), 6, fill=faint)
    body = (left + radius // 2, int(top + radius * 2.8), right - radius // 2, int(bottom - radius * 0.6))
    sized = (meme.sized_for or meme.text)[0]
    _write(pen, meme.text[0], box=body, face=_fit(sized, box=body, largest=w // 18, bold=False), fill=ink, align="left")
    return image


def _labels(meme: Meme) -> Image.Image:
    """Draw labels on objects: each on a plate over its own figure, each lower than the previous one."""
    image = _picture(meme, figures=max(1, len(meme.text)))
    pen, w, h, n = ImageDraw.Draw(image), meme.width, meme.height, len(meme.text)
    for i, text in enumerate(meme.text):
        wide = int(w * 0.46)
        left = int(w * (MARGIN + (1 - 2 * MARGIN - 0.46) * (i / max(1, n - 1))))
        top = int(h * (0.1 + 0.62 * i / n))
        box = (left, top, left + wide, top + int(h * 0.16))
        face = _fit(text, box=(box[0] + 8, box[1] + 4, box[2] - 8, box[3] - 4), largest=w // 17, space=SPACE_OUTLINED)
        if meme.seed % 2:
            pen.rounded_rectangle(box, 10, fill="white", outline="black", width=2)
            _write(pen, text, box=box, face=face, fill="black")
        else:
            _write(pen, text, box=box, face=face, outline="black")
    return image


def _panels(meme: Meme) -> Image.Image:
    """Draw two rows with a picture on one side and its text on the other."""
    image = Image.new("RGB", (meme.width, meme.height), "white")
    pen, w, h, n = ImageDraw.Draw(image), meme.width, meme.height, len(meme.text)
    row, wide = h // n, int(w * 0.55)
    left, column = ((0, wide), (w - wide, 0))[meme.seed % 2]
    for i, (text, sized) in enumerate(zip(meme.text, meme.sized_for or meme.text, strict=True)):
        part = scene(meme.seed + i * 7919, width=wide, height=row)
        image.paste(ImageOps.mirror(part) if meme.mirrored else part, (left, i * row))
        box = (column + int(w * MARGIN), i * row + 8, column + w - wide - int(w * MARGIN), (i + 1) * row - 8)
        _write(pen, text, box=box, face=_fit(sized, box=box, largest=w // 17), fill="black")
        pen.line((0, i * row, w, i * row), fill="black", width=3)
    edge = max(left, column)
    pen.line((edge, 0, edge, h), fill="black", width=3)
    _stick(image, meme.stickers, y=h - w // 18, share=14, left=left)
    return image


# Style -> its function, and where stickers are put, as share of the height (None: by the function).
STYLES: dict[str, tuple[Callable[[Meme], Image.Image], float | None]] = {
    "capitals": (_capitals, 0.62),
    "bar": (_bar, 0.88),
    "tweet": (_tweet, 0.8),
    "labels": (_labels, 0.9),
    "panels": (_panels, None),
    "textless": (_picture, 0.85),
}


EXIF_ORIENTATION = 0x0112
# EXIF orientation 6: the picture is stored sideways and must be rotated by 270 degrees (EXIF 2.3).
LYING = 6
SUFFIX = {"jpeg": "jpg", "png": "png", "alpha": "png", "webp": "webp", "gif": "gif", "rotated": "jpg"}
CONTENT_TYPE = {"jpg": "image/jpeg", "png": "image/png", "webp": "image/webp", "gif": "image/gif"}


@dataclass(frozen=True, slots=True)
class Rendering:
    """An image file to generate: a meme, the variant applied to it, and the file format.

    ``amount`` is the factor of ``resized`` and the share of the width of ``bordered`` and ``cropped``.
    """

    file: str
    meme: Meme
    variant: str = "original"
    amount: float = 0.0
    encoding: str = "jpeg"
    quality: int = 88


def vary(variant: str, *, rng: Random) -> tuple[float, int]:
    """Draw the strength and the JPEG quality of a repost of kind ``variant``; changes are mild, as in real reposts."""
    if variant == "recompressed":
        return 0.0, rng.randint(40, 65)
    if variant == "resized":
        return rng.uniform(0.75, 1.3), 85
    if variant == "bordered":
        return rng.choice((-1, 1)) * rng.uniform(0.02, 0.04), 85
    if variant == "cropped":
        return rng.uniform(0.006, 0.012), 85
    if variant == "low_quality":
        return rng.uniform(0.6, 0.7), rng.randint(18, 26)
    return 0.0, 88


def render(job: Rendering) -> bytes:
    """Draw the meme, apply the variant, and return the bytes of the image file."""
    return encode(apply(draw(job.meme), job=job), encoding=job.encoding, quality=job.quality)


def apply(image: Image.Image, *, job: Rendering) -> Image.Image:
    """Return ``image`` resized, framed or cropped as the rendering's variant requires."""
    width, height = image.size
    if job.variant in ("resized", "low_quality"):
        smaller = image.resize((round(width * job.amount), round(height * job.amount)), Image.Resampling.LANCZOS)
        return smaller.filter(ImageFilter.GaussianBlur(0.6)) if job.variant == "low_quality" else smaller
    if job.variant == "bordered":
        edge = round(width * abs(job.amount))
        framed = Image.new("RGB", (width + 2 * edge, height + 2 * edge), "black" if job.amount < 0 else "white")
        framed.paste(image, (edge, edge))
        return framed
    if job.variant == "cropped":
        dx, dy = round(width * job.amount), round(height * job.amount)
        return image.crop((dx, dy, width - dx, height - dy))
    return image


def encode(image: Image.Image, *, encoding: str, quality: int) -> bytes:
    """Encode ``image`` in the rendering's format: JPEG (also rotated by EXIF), PNG, WebP or animated GIF."""
    out = io.BytesIO()
    if encoding == "gif":
        first = image.convert("P", palette=Image.Palette.ADAPTIVE, colors=128)
        later = [
            image.point(lambda v, k=k: max(0, v - 25 * k)).convert("P", palette=Image.Palette.ADAPTIVE, colors=64)
            for k in (1, 2)
        ]
        first.save(out, "GIF", save_all=True, append_images=later, duration=120, loop=0)
    elif encoding == "rotated":
        exif = Image.Exif()
        exif[EXIF_ORIENTATION] = LYING
        image.transpose(Image.Transpose.ROTATE_90).save(out, "JPEG", quality=quality, exif=exif)
    elif encoding == "alpha":
        veil = Image.new("L", image.size, 255)
        edge = image.width // 40
        veil.paste(0, (0, 0, edge, edge))
        image.putalpha(veil)
        image.save(out, "PNG", compress_level=1)
    elif encoding == "png":
        image.save(out, "PNG", compress_level=1)
    elif encoding == "webp":
        image.save(out, "WEBP", quality=quality, method=0)
    else:
        image.save(out, "JPEG", quality=quality)
    return out.getvalue()
