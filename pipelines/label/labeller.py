"""What every labeller is to the rest: a name, and an answer for every post and category, whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pipelines.datasets.post import Post
from pipelines.llm.outcome import Answer


class Labeller(Protocol):
    """A model that can be asked, over HTTP or in this process."""

    name: str

    def label(self, posts: Sequence[Post], *, progress: Callable[[int], None] | None = None) -> list[Answer]:
        """Return one answer for each post and category, in the order of ``posts``.

        Args:
            posts: whom to ask about.
            progress: called after each post with the number of posts answered so far.
        """
