"""Serve registered models of posts: scrub personal data from title and body, then run the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pandas as pd

from pipelines.datasets.post import Post
from pipelines.packaging.model_pyfunc import SILENT, Asker, ServedAnswer, texts
from pipelines.pii.scrub import scrub

# The placeholders that scrubbing leaves.
PLACEHOLDER = re.compile(r"<[a-z0-9]+>")

Reader = Callable[[Sequence[str]], Sequence[ServedAnswer]]


def asker(reader: Reader, *, kinds: Sequence[str]) -> Asker:
    """Return a function that labels the posts in a table of ``title`` and ``body``; it abstains on posts without words.

    Args:
        reader: predicts texts in the form of ``Post.text``; returns the answers in the order of the texts.
        kinds: the kinds of personal data that are removed first.
    """

    def ask(frame: pd.DataFrame) -> list[ServedAnswer]:
        titles, bodies = (
            [scrub(part or "", kinds=kinds)[0] for part in texts(frame, column)] for column in ("title", "body")
        )
        posts = [Post("", title, body) for title, body in zip(titles, bodies, strict=True)]
        readable = [n for n, post in enumerate(posts) if says(post.title) or says(post.body)]
        answers = [SILENT] * len(posts)
        for n, answer in zip(readable, reader([posts[n].text for n in readable]), strict=True):
            answers[n] = answer
        return answers

    return ask


def says(text: str) -> bool:
    """Return whether a scrubbed text contains a letter or digit besides its placeholders."""
    return any(sign.isalnum() for sign in PLACEHOLDER.sub("", text))
