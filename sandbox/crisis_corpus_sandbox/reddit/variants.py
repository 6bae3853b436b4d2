"""Apply the changes that pictures undergo when they are reposted: other encodings, sizes, borders and crops."""

from __future__ import annotations

import io
from dataclasses import dataclass
from random import Random

from PIL import Image, ImageFilter

from crisis_corpus_sandbox.reddit.draw import Meme, draw

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
