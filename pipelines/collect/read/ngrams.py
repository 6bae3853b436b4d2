"""Features of a text that need no vocabulary: which words and pairs of words occur, by their hashes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

WORD = r"(?u)\b\w[\w']*"  # single letters too: "I" shows who the post is about
COLUMNS = 2**18  # ours: a few thousand texts have about 100,000 different ones

Values = npt.NDArray[np.float64]


def rows(texts: Sequence[str]) -> Any:
    """Return whether each word or pair of words occurs, a sparse matrix of shape (texts, columns)."""
    from sklearn.feature_extraction.text import HashingVectorizer

    options: dict[str, Any] = {"n_features": COLUMNS, "norm": None, "alternate_sign": False, "dtype": np.float64}
    return HashingVectorizer(ngram_range=(1, 2), token_pattern=WORD, binary=True, **options).transform(texts).tocsr()


def decided(rows: Any, *, columns: npt.NDArray[np.integer], weights: Values, intercepts: Values) -> Values:
    """Return the decision values of linear classifiers on some of the columns, shape (rows, labels)."""
    return np.asarray(rows[:, columns] @ weights + intercepts)


def tokens(texts: Sequence[str]) -> list[int]:
    """Return how many words each text has."""
    return [len(re.findall(WORD, text)) for text in texts]
