"""Prepare a picture to send to a provider."""

from __future__ import annotations

import io

# Anthropic scales longer sides down before its models see them (its guide to vision), and the other providers not much
# later; without scaling, the largest pictures would be rejected.
SIDE = 1568
# Ours: a scaled picture is encoded once, without visible loss.
QUALITY = 90


def shown(image: bytes) -> bytes:
    """Return a meme's picture to send to a provider: unchanged, or as a JPEG whose longer side has ``SIDE`` pixels."""
    from PIL import Image

    with Image.open(io.BytesIO(image)) as picture:
        if max(picture.size) <= SIDE:
            return image
        small = picture.convert("RGB")
    small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    small.save(out, "JPEG", quality=QUALITY)
    return out.getvalue()
