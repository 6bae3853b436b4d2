"""How alike two posts of the offline Reddit are, so that copies are near-duplicates and nothing else is."""

from __future__ import annotations

from collections import Counter

from pipelines.extract.words import words
from pipelines.sandbox.reddit.posts import Post

# params.yaml: three words a shingle (texts.shingle_words), near-duplicates from .7 on (dedupe.similarity). Copies stay
# above that and all others below it by more than a MinHash errs (.09 with 128 permutations).
SHINGLE, ALIKE, UNLIKE = 3, 0.8, 0.5


def text_of(post: Post) -> str:
    """Return the text that is compared: title and body."""
    return f"{post.title}\n{post.body}"


def shingles(text: str) -> set[str]:
    """Return the runs of three words of a text; a shorter one is one run."""
    spoken = words(text)
    return {" ".join(spoken[i : i + SHINGLE]) for i in range(max(1, len(spoken) - SHINGLE + 1))}


def similarity(one: set[str], other: set[str]) -> float:
    """Return the Jaccard index of two sets of shingles."""
    return len(one & other) / len(one | other)


class Seen:
    """The shingles of all texts so far, so that no two posts are alike by chance."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._by: dict[str, list[int]] = {}

    def admit(self, text: str) -> bool:
        """Remember a text and return ``True``, unless it is too similar to one that was admitted before."""
        mine = shingles(text)
        shared = Counter(number for shingle in mine for number in self._by.get(shingle, ()))
        if any(n / (len(mine) + self._sizes[number] - n) >= UNLIKE for number, n in shared.items()):
            return False
        for shingle in mine:
            self._by.setdefault(shingle, []).append(len(self._sizes))
        self._sizes.append(len(mine))
        return True
