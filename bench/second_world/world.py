"""Build the world: bases on shared templates, their near-duplicates, other languages, and the truth of each picture."""

from __future__ import annotations

import difflib
import io
import itertools
import random
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image, ImageDraw, ImageEnhance, ImageFont, ImageOps

from bench.second_world import fonts, layouts

WORDS = tomllib.loads((Path(__file__).parent / "words.toml").read_text())
# The layouts' shares; two thirds are captions on or above a picture.
SHARES = {"classic": 7, "header": 7, "labels": 3, "arc": 1, "low": 2, "chat": 3, "post": 3, "note": 2}
SCRIPTS = {
    "ru": "Cyrillic",
    "el": "Greek",
    "ar": "Arabic",
    "hi": "Devanagari",
    "zh": "Han",
    "ja": "Japanese",
    "ko": "Hangul",
}


@dataclass(frozen=True)
class Picture:
    """One picture file with its truth. Two pictures are near-duplicates if and only if their groups are equal."""

    key: str
    group: str
    template: str
    layout: str
    change: str  # "base" or what was done to a copy
    caption: str
    title: str
    language: str
    script: str
    sign: str | None
    data: bytes


@dataclass(frozen=True)
class Plan:
    """What is needed to draw a base and, changed a little, its copies."""

    key: str
    number: str
    template: layouts.Template
    caption: str
    title: str
    language: str

    def draw(self, *, mirrored: bool = False) -> Image.Image:
        """Draw the picture; a mirrored background keeps its caption readable."""
        layout = layouts.LAYOUTS[self.template.layout]
        return layout(self.template.background(mirrored=mirrored), self.caption, random.Random(self.key), self.template)


def fill(rng: random.Random, frame: str) -> str:
    """Fill the slots of a frame, each with another value."""
    for slot, values in WORDS["slots"].items():
        for value in rng.sample(values, frame.count(f"{{{slot}}}")):
            frame = frame.replace(f"{{{slot}}}", value, 1)
    return frame


def likeness(a: str, b: str) -> float:
    """Share of words that two captions have in common, in order."""
    return difflib.SequenceMatcher(None, a.lower().split(), b.lower().split(), autojunk=False).ratio()


def english(rng: random.Random, layout: str) -> str:
    """Draw an English caption: frames mostly, short ones, slang, walls of text where they fit; a third in capitals."""
    words, draw = WORDS["english"], rng.random() * (0.94 if layout in ("classic", "labels", "arc", "chat") else 1)
    kind = "frames" if draw < 0.66 else "short" if draw < 0.82 else "slang" if draw < 0.94 else "walls"
    text = fill(rng, rng.choice(words[kind]))
    return text.upper() if rng.random() < 0.35 and kind != "walls" else text


def templates(seed: int, count: int) -> list[layouts.Template]:
    """Draw the templates of a world."""
    rng, found = random.Random(f"{seed}/templates"), []
    for number in range(count):
        layout = rng.choices(list(SHARES), list(SHARES.values()))[0]
        width = rng.choice((480, 560, 640, 720, 828))
        size = (width, round(width * rng.choice((0.7, 0.8, 1.0, 1.25))))
        sign = (
            rng.choice(WORDS["signs"]["other"])
            if rng.random() < 0.25 and layout in ("classic", "header", "labels")
            else None
        )
        found.append(
            layouts.Template(layout, f"{seed}/template/{number}", size, sign, rng.choice(list(layouts.THEMES)))
        )
    return found


def plans(seed: int, *, count: int, per_template: int, foreign: int) -> Iterator[Plan]:
    """Yield English bases whose captions differ clearly within a template, then bases in other languages."""
    rng, shared = random.Random(f"{seed}/plans"), templates(seed, -(-count // per_template))
    taken, siblings = set[str](), dict[str, list[str]]()
    for number in range(count):
        template = shared[number // per_template]
        mine = siblings.setdefault(template.seed, [])
        caption = next(
            text
            for text in (english(rng, template.layout) for _ in itertools.repeat(None))
            if text.lower() not in taken and all(likeness(text, other) < 0.6 for other in mine)
        )
        mine.append(caption)
        taken.add(caption.lower())
        yield Plan(
            f"{seed}/en/{number}", f"en{number}", template, caption, rng.choice(WORDS["english"]["titles"]), "en"
        )
    able = [one for one in WORDS["language"] if all(fonts.pick(rng, c, layouts.PLAIN) for c in one["captions"])]
    for number in range(foreign):
        one = able[number % len(able)]
        sign = rng.choice(WORDS["signs"]["english"]) if rng.random() < 0.2 else None
        template = replace(rng.choice(shared), sign=sign)
        title = rng.choice(one["titles"] if rng.random() < 0.8 else WORDS["english"]["titles"][:3])
        yield Plan(f"{seed}/xx/{number}", f"xx{number}", template, rng.choice(one["captions"]), title, one["code"])


def exchange(text: str, rng: random.Random, *, others: bool) -> str:
    """Exchange two words of a caption with each other, or both for other words."""
    words = text.split(" ")
    a, b = sorted(rng.sample(range(len(words)), 2))
    if others:
        pool = [word for word in WORDS["english"]["others"] if word not in words]
        words[a], words[b] = (w.upper() if text.isupper() else w for w in rng.sample(pool, 2))
    else:
        words[a], words[b] = words[b], words[a]
    return " ".join(words)


def _border(image: Image.Image, rng: random.Random) -> Image.Image:
    return ImageOps.expand(
        image, round(image.width * rng.uniform(0.02, 0.07)), rng.choice(("white", "black", "#dddddd"))
    )


def _crop(image: Image.Image, rng: random.Random) -> Image.Image:
    cut = [round(side * rng.uniform(0, 0.03)) for side in (image.width, image.height) * 2]
    return image.crop((cut[0], cut[1], image.width - cut[2], image.height - cut[3]))


def _scale(image: Image.Image, rng: random.Random) -> Image.Image:
    factor = rng.choice((0.6, 0.75, 1.3, 1.6))
    return image.resize((round(image.width * factor), round(image.height * factor * rng.uniform(0.97, 1.03))))


def _watermark(image: Image.Image, rng: random.Random) -> Image.Image:
    text = rng.choice(WORDS["signs"]["watermarks"])
    font = ImageFont.truetype(fonts.pick(rng, text, layouts.PLAIN).path, max(13, image.width // 34))  # type: ignore[union-attr]
    place = rng.choice(
        ((8, image.height - font.size * 1.5), (image.width - font.getlength(text) - 8, image.height - font.size * 1.5))
    )
    ImageDraw.Draw(image).text(place, text, font=font, fill="white", stroke_width=1, stroke_fill="#404040")
    return image


def _tone(image: Image.Image, rng: random.Random) -> Image.Image:
    image = ImageEnhance.Brightness(image).enhance(rng.choice((0.8, 1.2)))
    return ImageEnhance.Color(ImageEnhance.Contrast(image).enhance(rng.uniform(0.8, 1.2))).enhance(
        rng.choice((0.3, 1.4))
    )


def _phone(image: Image.Image, rng: random.Random) -> Image.Image:
    bar = image.width // 12
    out = Image.new("RGB", (image.width, image.height + 2 * bar), rng.choice(("black", "white", "#1a1a1b")))
    out.paste(image, (0, bar))
    font = ImageFont.truetype(fonts.pick(rng, "12:45 83%", layouts.PLAIN).path, bar // 2)  # type: ignore[union-attr]
    ImageDraw.Draw(out).text(
        (bar // 2, bar // 4), f"{rng.randint(1, 12)}:{rng.randint(10, 59)}", font=font, fill="#808080"
    )
    return out


def _same(image: Image.Image, _: random.Random) -> Image.Image:
    return image


Change = Callable[[Image.Image, random.Random], Image.Image]
AFTER: dict[str, Change] = {"jpeg": _same, "scale": _scale, "crop": _crop, "border": _border, "watermark": _watermark,
    "tone": _tone, "phone": _phone, "mirror": lambda image, _: ImageOps.mirror(image)}  # fmt: skip
CHANGES = (*AFTER, "mirror template", "swap", "replace")


def encode(image: Image.Image, rng: random.Random, *, copy: bool) -> bytes:
    """Encode as JPEG, some bases as PNG; a copy was encoded once or twice more and at a lower quality."""
    image, out = image.convert("RGB"), io.BytesIO()
    if not copy and rng.random() < 0.2:
        image.save(out, "PNG")
        return out.getvalue()
    for quality in (rng.randint(40, 90), rng.randint(25, 80)) if copy else (rng.randint(60, 95),):
        out = io.BytesIO()
        image.save(out, "JPEG", quality=quality)
        image = Image.open(out)
    return out.getvalue()


def _changed(plan: Plan, change: str) -> tuple[Plan, Image.Image]:
    rng = random.Random(f"{plan.key}/{change}")
    if change in ("swap", "replace"):
        plan = replace(plan, caption=exchange(plan.caption, rng, others=change == "replace"))
        return plan, plan.draw()
    image = plan.draw(mirrored=change == "mirror template")
    return plan, AFTER.get(change, _same)(image, rng)


def _picture(plan: Plan, change: str, image: Image.Image) -> Picture:
    data = encode(image, random.Random(f"{plan.key}/{change}/file"), copy=change != "base")
    key = plan.number if change == "base" else f"{plan.number} {change}"
    script = SCRIPTS.get(plan.language, "Latin")
    return Picture(
        key,
        plan.number,
        plan.template.seed,
        plan.template.layout,
        change,
        plan.caption,
        plan.title,
        plan.language,
        script,
        plan.template.sign,
        data,
    )


def build(
    seed: int, *, count: int = 300, per_template: int = 5, foreign: int = 54, copies: int = 240
) -> Iterator[Picture]:
    """Yield the world's pictures: bases, bases in other languages, and copies of English bases."""
    made = list(plans(seed, count=count, per_template=per_template, foreign=foreign))
    for plan in made:
        yield _picture(plan, "base", plan.draw())
    rng, done = random.Random(f"{seed}/copies"), 0
    originals = [plan for plan in made if plan.language == "en"]
    rng.shuffle(originals)
    while done < copies:  # each change once a round, so that one original gets about two of them
        change = CHANGES[done % len(CHANGES)]
        plan = originals[done // 2 % len(originals)]
        if change in ("swap", "replace") and len(plan.caption.split()) < 10:
            plan = next(p for p in originals[done // 2 % len(originals) :] + originals if len(p.caption.split()) >= 10)
        changed, image = _changed(plan, change)
        yield _picture(changed, change, image)
        done += 1
