"""Represent a post as a labeller receives it, without the form boilerplate that a corpus's collectors added."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field
from functools import cached_property

# SPEC 22: a form's instruction to its annotators was pasted behind the posts, with varying markup and whitespace.
BOILERPLATE = re.compile(
    r"""
    for\s{1,9}any\s{1,9}crisis\s{1,9}present,?\s{0,9}mark\s{1,9}whether\s{1,9}it\s{1,9}is\s{1,9}
    ongoing\s{1,9}or\s{1,9}past\.?
    (?:[\s*_]{0,9}leave\s{1,9}a\s{1,9}row\s{1,9}blank(?:\s{1,9}if\s{1,9}(?:that|the)\s{1,9}crisis(?:\s{1,9}type)?
        \s{1,9}is\s{1,9}not\s{1,9}present)?\.?[*_]{0,3})?
    """,
    re.IGNORECASE | re.VERBOSE,
)
# the formats that browsers and providers read, by their first bytes
MAGIC = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png", b"GIF8": "image/gif", b"RIFF": "image/webp"}


def media_type(picture: bytes) -> str | None:
    """Return the media type of an encoded picture, or ``None`` if its format is another one."""
    return next((kind for magic, kind in MAGIC.items() if picture.startswith(magic)), None)


@dataclass(frozen=True)
class Post:
    """A post or meme to label; ``repr`` shows only the id, so that no log or traceback contains content.

    ``images`` are encoded pictures (PNG or JPEG); a meme's ``body`` is the text read from them, if any.
    """

    record_id: str
    title: str = field(repr=False)
    body: str = field(repr=False)
    images: tuple[bytes, ...] = field(default=(), repr=False)

    @cached_property
    def text(self) -> str:
        """The input text of models, ``Title: ... Text: ...`` as in the papers (SPEC 22)."""
        title, body = (BOILERPLATE.sub("", part).strip() for part in (self.title, self.body))
        return f"Title: {title} Text: {body}"

    @property
    def cells(self) -> dict[str, str | bytes | None]:
        """What it has for each input column of registered models: a consumer would send the same."""
        picture = self.images[0] if self.images else None
        return {"title": self.title, "body": self.body, "image": picture, "text": self.body}

    @cached_property
    def strips(self) -> int:
        """The number of boilerplate passages that :attr:`text` leaves out."""
        return sum(len(BOILERPLATE.findall(part)) for part in (self.title, self.body))

    def content_digest(self, *, secret: bytes) -> str:
        """Return the HMAC-SHA-256 of the post's whole content in hexadecimal.

        Without a key, anyone could verify a guess of the text. Each part has its length before it, so that different
        posts never give the same input.
        """
        digest = hmac.new(secret, digestmod=hashlib.sha256)
        for part in (self.title.encode(errors="surrogatepass"), self.body.encode(errors="surrogatepass"), *self.images):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.hexdigest()
