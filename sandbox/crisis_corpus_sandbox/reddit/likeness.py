"""Measure the similarity of generated posts, so that only intended copies are near-duplicates."""

from __future__ import annotations

from collections import Counter

from crisis_corpus_sandbox.reddit.generated_posts import SandboxPost
from pipelines.extract.words import words

# params.yaml: three words per shingle (texts.shingle_words), near-duplicates from .7 on (dedupe.similarity). Copies are
# above that and all other pairs below it by more than the error of a MinHash (.09 with 128 permutations).
SHINGLE, ALIKE, UNLIKE = 3, 0.8, 0.5


def text_of(post: SandboxPost) -> str:
    """Return the text of a post by which its similarity is measured: title and body."""
    return f"{post.title}\n{post.body}"


def shingles(text: str) -> set[str]:
    """Return all shingles of a text, which are its sequences of three words; a shorter text is one shingle."""
    spoken = words(text)
    return {" ".join(spoken[i : i + SHINGLE]) for i in range(max(1, len(spoken) - SHINGLE + 1))}


def similarity(one: set[str], other: set[str]) -> float:
    """Return the Jaccard index of two sets of shingles."""
    return len(one & other) / len(one | other)


class SeenTexts:
    """The shingles of all generated texts so far, used to reject a new text that resembles one of them by chance."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._by: dict[str, list[int]] = {}

    def admit(self, text: str) -> bool:
        """Add a generated text and return ``True``, or return ``False`` if it is too similar to an earlier text."""
        mine = shingles(text)
        shared = Counter(number for shingle in mine for number in self._by.get(shingle, ()))
        if any(n / (len(mine) + self._sizes[number] - n) >= UNLIKE for number, n in shared.items()):
            return False
        for shingle in mine:
            self._by.setdefault(shingle, []).append(len(self._sizes))
        self._sizes.append(len(mine))
        return True
