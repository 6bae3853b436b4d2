"""Define the interface of labellers: a name, and an answer for every post and category."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pipelines.datasets.post import Post
from pipelines.llm.outcome import Answer


class Labeller(Protocol):
    """A model that labels posts, over HTTP or in this process."""

    name: str

    def label(self, posts: Sequence[Post], *, progress: Callable[[int], None] | None = None) -> list[Answer]:
        """Return one answer for each post and category, in the order of ``posts``.

        Args:
            posts: the posts to label.
            progress: called after each post with the number of posts answered so far.
        """
