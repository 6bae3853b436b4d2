"""Prepare a picture, and the words that were read from it, to send to a provider (SPEC 1.2, items 8 to 10)."""

from __future__ import annotations

import io
from functools import cached_property

from pipelines.datasets.post import Post

# Anthropic scales longer sides down before its models see them (its guide to vision), and the other providers not much
# later; without scaling, the largest pictures would be rejected.
SIDE = 1568
# Ours: a scaled picture is encoded once, without visible loss.
QUALITY = 90


class Picture(Post):
    """A picture as labellers receive it; ``body`` has the words read from it if they are sent too, else nothing.

    The empty ``body`` is FigSIM's own format: its prompt (FigSIM Table 11) has no place for text beside the picture.
    """

    @cached_property
    def text(self) -> str:
        """The text that precedes the picture in the prompt."""
        return f"Words read from the picture: {self.body}" if self.body else ""


def picture(post: Post, *, words: bool) -> Picture:
    """Return an item of a corpus of images as labellers receive it; ``words``: also with the words read from it."""
    images = tuple(shown(image) for image in post.images)
    return Picture(post.record_id, title="", body=post.body if words else "", images=images)


def shown(image: bytes) -> bytes:
    """Return a picture to send to a provider: unchanged, or as a JPEG whose longer side has ``SIDE`` pixels."""
    from PIL import Image

    with Image.open(io.BytesIO(image)) as opened:
        if max(opened.size) <= SIDE:
            return image
        small = opened.convert("RGB")
    small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    small.save(out, "JPEG", quality=QUALITY)
    return out.getvalue()
