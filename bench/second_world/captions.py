"""Set a caption as a transparent layer: wrapped lines, an effect, an angle, or glyphs along an arc."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFilter, ImageFont

from bench.second_world import fonts

EFFECTS = ("outline", "outline", "shadow", "glow", "box", "veil", "double")
_INK = ((("white", "black"), 6), (("#ffe600", "black"), 1), (("black", "white"), 2), (("#ff4d4d", "white"), 1))


@dataclass(frozen=True)
class Setting:
    """How one caption is set; chosen once for a picture and its near-duplicates."""

    face: fonts.Face
    size: int
    effect: str
    ink: str
    paper: str
    align: str = "center"
    angle: float = 0.0


def setting(rng: random.Random, text: str, *, roles: tuple[str, ...], size: int, effect: str) -> Setting | None:
    """Draw a setting, or None if no font has the characters."""
    found = fonts.pick(rng, text, roles)
    pairs, weights = zip(*_INK, strict=True)
    ink, paper = rng.choices(pairs, weights)[0]
    return Setting(found, size, effect, ink, paper) if found else None


def lines(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Wrap a text at spaces, or between characters where a word is wider than the line."""
    done: list[str] = []
    for whole in text.split(" "):
        word = whole
        joined = f"{done[-1]} {word}" if done else word
        if done and font.getlength(joined) <= width:
            done[-1] = joined
            continue
        while font.getlength(word) > width and len(word) > 1:
            cut = max(1, next((i for i in range(1, len(word)) if font.getlength(word[: i + 1]) > width), 1))
            done.append(word[:cut])
            word = word[cut:]
        done.append(word)
    return done


def block(text: str, how: Setting, width: int, height: int) -> Image.Image:
    """Return the caption as RGBA, at most width by height: the size shrinks to 13 pixels until it fits."""
    for size in range(how.size, 12, -1):
        font = ImageFont.truetype(how.face.path, size)
        pad = size // 2
        wrapped = "\n".join(lines(text, font, width - 2 * pad))
        left, top, right, bottom = ImageDraw.Draw(Image.new("L", (1, 1))).multiline_textbbox(
            (0, 0), wrapped, font=font, spacing=size // 5, align=how.align, stroke_width=_stroke(size, how)
        )
        if bottom - top + 2 * pad <= height:
            break
    layer = Image.new("RGBA", (int(right - left) + 2 * pad, int(bottom - top) + 2 * pad))
    place = (pad - left, pad - top)
    _effect(layer, place, wrapped, font, how)
    return layer.rotate(how.angle, Image.Resampling.BICUBIC, expand=True) if how.angle else layer


def _stroke(size: float, how: Setting) -> int:
    return max(1, int(size) // 14) * {"outline": 1, "double": 1, "glow": 2}.get(how.effect, 0)


def _effect(layer: Image.Image, at: tuple[float, float], text: str, font: ImageFont.FreeTypeFont, how: Setting) -> None:
    draw = ImageDraw.Draw(layer)
    stroke = max(1, int(font.size) // 14)

    def write(fill: str, shift: float = 0) -> None:
        place, width = (at[0] + shift, at[1] + shift), _stroke(font.size, how)
        draw.multiline_text(place, text, font=font, fill=fill, spacing=int(font.size) // 5, align=how.align,
                            stroke_width=width, stroke_fill=how.paper)  # fmt: skip

    if how.effect in ("box", "veil"):
        paper = Image.new("RGBA", layer.size, how.paper)
        paper.putalpha(255 if how.effect == "box" else 150)
        layer.paste(paper)
    elif how.effect == "shadow":
        write(how.paper, stroke * 1.5)
        write(how.paper, stroke)
    elif how.effect == "glow":
        write(how.paper)
        layer.paste(layer.filter(ImageFilter.GaussianBlur(stroke * 1.2)))
        draw.multiline_text(
            at, text, font=font, fill=how.ink, spacing=int(font.size) // 5 + 2 * stroke, align=how.align
        )
        return
    elif how.effect == "double":
        write(how.paper, stroke)
    write(how.ink)


def arc(text: str, how: Setting, width: int) -> Image.Image:
    """Return the caption set glyph by glyph along the upper part of a circle; it shrinks until one line fits."""
    font = next(
        f
        for s in range(how.size, 9, -1)
        if (f := ImageFont.truetype(how.face.path, s)).getlength(text) < width * 0.94 or s == 10
    )
    radius = width * 0.62
    layer = Image.new("RGBA", (width, int(width * 0.32 + font.size * 2)))
    angle = -font.getlength(text) / radius / 2
    for glyph in text:
        step = font.getlength(glyph) / radius
        tile = Image.new("RGBA", (int(font.size * 3),) * 2)
        _effect(tile, ((tile.width - font.getlength(glyph)) / 2, font.size * 0.9), glyph, font,
                Setting(how.face, how.size, "outline", how.ink, how.paper))  # fmt: skip
        angle += step / 2
        x, y = width / 2 + radius * math.sin(angle), radius * (1 - math.cos(angle)) + font.size
        tile = tile.rotate(-math.degrees(angle), Image.Resampling.BICUBIC)
        layer.alpha_composite(tile, (max(0, int(x - tile.width / 2)), max(0, int(y - tile.height / 2))))
        angle += step / 2
    return layer
