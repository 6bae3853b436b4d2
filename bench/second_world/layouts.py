"""Compose pictures: captions over pictures, boxes above them, labels, arcs, chats, post cards, walls of text, notes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from PIL import Image, ImageDraw, ImageOps

from bench.second_world import backgrounds, captions

BOLD, PLAIN, ANY = ("impact", "sans"), ("sans",), ("sans", "impact", "serif", "hand", "mono")
THEMES = {  # paper, card, ink, quiet ink
    "light": ("#e6ecf0", "#ffffff", "#14171a", "#657786"),
    "dim": ("#10171e", "#15202b", "#f2f5f7", "#8899a6"),
    "dark": ("#000000", "#1a1a1b", "#d7dadc", "#818384"),
}
BUBBLES = ("#0b93f6", "#26a147", "#3a3b3d", "#e5e5ea", "#dcf8c6", "#6a3fb5")


@dataclass(frozen=True)
class Template:
    """What the memes of one template share: its layout, size, background and signs in the background."""

    layout: str
    seed: str
    size: tuple[int, int]
    sign: str | None
    theme: str

    def background(self, *, mirrored: bool) -> Image.Image:
        """Draw the background; mirrored before the sign and the caption stand on it, as a person's editor does."""
        rng = random.Random(self.seed)
        kinds = (
            backgrounds.photograph,
            backgrounds.photograph,
            backgrounds.scene,
            backgrounds.scene,
            backgrounds.panels,
        )
        image = rng.choice(kinds)(rng, self.size)
        if self.sign:
            backgrounds.signs(image, rng, self.sign)
        return ImageOps.mirror(image) if mirrored else image


Layout = Callable[[Image.Image, str, random.Random, Template], Image.Image]


def _halves(text: str) -> tuple[str, str]:
    words = text.split(" ")
    cut = max(1, len(words) // 2)
    return " ".join(words[:cut]), " ".join(words[cut:])


def _set(rng: random.Random, text: str, roles: tuple[str, ...], size: int, effect: str) -> captions.Setting:
    how = captions.setting(rng, text, roles=roles, size=size, effect=effect)
    if how is None:
        raise LookupError("no installed font has the characters of a caption")
    return how


def _put(image: Image.Image, layer: Image.Image, x: float, y: float) -> None:
    image.paste(
        layer, (int(max(0, min(x, image.width - layer.width))), int(max(0, min(y, image.height - layer.height)))), layer
    )


def classic(image: Image.Image, text: str, rng: random.Random, _: Template) -> Image.Image:
    """A caption at the top and the bottom of a picture."""
    how = _set(rng, text, BOLD, image.width // rng.choice((9, 11, 13)), rng.choice(captions.EFFECTS))
    parts = _halves(text) if len(text) > 24 else ("", text)
    for part, top in zip(parts, (True, False), strict=True):
        if part:
            layer = captions.block(part, how, image.width - 12, int(image.height * 0.3))
            _put(image, layer, (image.width - layer.width) / 2, 6 if top else image.height - layer.height - 6)
    return image


def header(image: Image.Image, text: str, rng: random.Random, template: Template) -> Image.Image:
    """A box with the caption above the picture, or below it."""
    how = _set(rng, text, ("sans", "serif", "hand"), image.width // rng.choice((14, 17, 20)), "none")
    paper, ink = rng.choice((("white", "black"), ("white", "black"), ("black", "white"), ("#1b1b1b", "#e8e8e8")))
    layer = captions.block(text, replace(how, ink=ink, align=rng.choice(("left", "center"))), image.width - 16, 400)
    out = Image.new("RGB", (image.width, image.height + layer.height + 12), paper)
    below = template.seed[-1] in "37"
    out.paste(image, (0, 0 if below else layer.height + 12))
    _put(out, layer, (8 if how.align == "left" else (image.width - layer.width) / 2), image.height + 6 if below else 6)
    return out


def labels(image: Image.Image, text: str, rng: random.Random, _: Template) -> Image.Image:
    """Two labels over the faces and objects of a picture, turned by some degrees."""
    for part, (x, y) in zip(_halves(text), ((0.3, 0.3), (0.65, 0.72)), strict=True):
        if part:
            how = _set(
                rng, part, ANY, image.width // rng.choice((14, 18)), rng.choice(("outline", "box", "veil", "double"))
            )
            layer = captions.block(
                part, replace(how, angle=rng.uniform(-13, 13)), int(image.width * 0.55), image.height // 3
            )
            _put(image, layer, image.width * x - layer.width / 2, image.height * y - layer.height / 2)
    return image


def arc(image: Image.Image, text: str, rng: random.Random, _: Template) -> Image.Image:
    """The first half along an arc, the second half below."""
    first, second = _halves(text) if len(text) > 34 else (text, "")
    how = _set(rng, text, ("impact", "sans", "serif"), image.width // 13, "outline")
    _put(image, captions.arc(first, how, image.width - 12), 6, 8)
    if second:
        layer = captions.block(second, how, image.width - 20, image.height // 3)
        _put(image, layer, (image.width - layer.width) / 2, image.height - layer.height - 8)
    return image


def low(image: Image.Image, text: str, rng: random.Random, template: Template) -> Image.Image:
    """A quotation of low contrast on a plain colour."""
    level, shift = rng.randint(70, 185), rng.choice((-1, 1)) * rng.randint(48, 80)
    base = tuple(max(0, min(255, level + rng.randint(-18, 18))) for _ in range(3))
    out = Image.new("RGB", image.size, base)
    how = _set(rng, text, ANY, image.width // rng.choice((12, 15)), "none")
    ink = "#" + "".join(f"{max(0, min(255, channel + shift)):02x}" for channel in base)
    layer = captions.block(
        text, replace(how, ink=ink, align=rng.choice(("left", "center"))), image.width - 60, image.height - 40
    )
    _put(out, layer, (image.width - layer.width) / 2, (image.height - layer.height) / 2)
    return out


def chat(image: Image.Image, text: str, rng: random.Random, template: Template) -> Image.Image:
    """A messenger's screenshot: bubbles left and right, times, a status bar."""
    paper, _, ink, quiet = THEMES[template.theme]
    out = Image.new("RGB", image.size, paper)
    draw, size = ImageDraw.Draw(out), image.width // rng.choice((18, 22))
    how = _set(rng, text, PLAIN, size, "none")
    small = _set(rng, "12:45 LTE 83%", PLAIN, max(13, size * 2 // 3), "none")
    _put(out, captions.block(f"{rng.randint(1, 12)}:{rng.randint(10, 59)}", replace(small, ink=ink), 200, 60), 4, 0)
    _put(out, captions.block("LTE 83%", replace(small, ink=ink), 200, 60), image.width, 0)
    y, words, right = image.height // 10, text.split(" "), rng.random() < 0.5
    while words:
        part, words = " ".join(words[:9]), words[9:]
        fill = rng.choice(BUBBLES)
        bright = sum(int(fill[i : i + 2], 16) for i in (1, 3, 5)) > 480
        layer = captions.block(
            part, replace(how, ink="black" if bright else "white", align="left"), int(image.width * 0.72), 300
        )
        x = image.width - layer.width - 16 if right else 16
        draw.rounded_rectangle((x, y, x + layer.width, y + layer.height), size * 3 // 4, fill=fill)
        _put(out, layer, x, y)
        y += layer.height + size // 3
        if rng.random() < 0.4:
            stamp = captions.block(f"{rng.randint(1, 12)}:{rng.randint(10, 59)} PM", replace(small, ink=quiet), 200, 60)
            _put(out, stamp, (image.width - stamp.width) / 2, y)
            y += stamp.height
        right = not right if rng.random() < 0.7 else right
    return out.crop((0, 0, out.width, min(out.height, max(y + 30, out.height // 2))))


def post(image: Image.Image, text: str, rng: random.Random, template: Template) -> Image.Image:
    """A social network's card: avatar, name, handle, the caption as body, counts, perhaps the picture below."""
    paper, card, ink, quiet = THEMES[template.theme]
    size = image.width // rng.choice((20, 24))
    how = _set(rng, text, PLAIN, size, "none")
    body = captions.block(text, replace(how, ink=ink, align="left"), image.width - 50, 900)
    pic = (
        image.resize((image.width - 60, (image.width - 60) * image.height // image.width))
        if rng.random() < 0.4
        else None
    )
    out = Image.new("RGB", (image.width, body.height + size * 7 + (pic.height + 20 if pic else 0)), paper)
    draw = ImageDraw.Draw(out)
    draw.rounded_rectangle((10, 10, out.width - 10, out.height - 10), size // 2, fill=card)
    draw.ellipse((24, 24, 24 + size * 2, 24 + size * 2), fill=backgrounds.colour(rng, 60, 220))
    quietly = _set(rng, "Maple Quarry @mapleq 4h", PLAIN, max(14, size * 3 // 4), "none")
    _put(out, captions.block("Maple Quarry", replace(quietly, ink=ink), 400, 90), 30 + size * 2, 14)
    _put(out, captions.block("@mapleq 4h", replace(quietly, ink=quiet), 400, 90), 30 + size * 2, 14 + size)
    _put(out, body, 18, 24 + size * 2)
    if pic:
        out.paste(pic, (30, 30 + size * 3 + body.height))
    counts = captions.block(
        f"{rng.randint(2, 900)}   {rng.randint(2, 90)}.{rng.randint(1, 9)}K", replace(quietly, ink=quiet), 400, 90
    )
    _put(out, counts, 24, out.height - counts.height - 12)
    return out


def note(image: Image.Image, text: str, rng: random.Random, template: Template) -> Image.Image:
    """A note on lined paper, turned by some degrees, lying on the picture."""
    how = _set(rng, text, ("hand", "serif", "mono"), image.width // rng.choice((16, 19)), "none")
    layer = captions.block(
        text, replace(how, ink="#20242c", align="left"), int(image.width * 0.8), int(image.height * 0.75)
    )
    sheet = Image.new("RGBA", layer.size, rng.choice(("#fffef2", "#fff6b0", "#f4f4f4")))
    draw = ImageDraw.Draw(sheet)
    for y in range(how.size, sheet.height, how.size * 3 // 2):
        draw.line((0, y, sheet.width, y), fill="#c9d4e4")
    sheet.alpha_composite(layer)
    sheet = sheet.rotate(rng.uniform(-6, 6), Image.Resampling.BICUBIC, expand=True)
    _put(image, sheet, (image.width - sheet.width) / 2, (image.height - sheet.height) / 2)
    return image


LAYOUTS: dict[str, Layout] = {f.__name__: f for f in (classic, header, labels, arc, low, chat, post, note)}
