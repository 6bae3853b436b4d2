"""Complete the parameters of a corpus that a profile adds to the section ``corpora`` of ``params.yaml``."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# What a new corpus takes from the one with the same content that has most of it, and what does not fit another corpus.
SECTIONS: Mapping[str, Mapping[str, Any]] = {
    "sample": {},
    "split": {"sizes": None, "published": None},
    "gold": {"truth": False, "published": None},
}


def complete(values: dict[str, Any]) -> dict[str, Any]:
    """Add entries for new corpora to every section that has one entry per corpus; return the parameters ``values``.

    The lists of the section ``matrix`` get all corpora. Other present entries are unchanged, and so are values of a
    wrong form, which the validation reports.
    """
    corpora = values.get("corpora")
    stages = values.get("matrix")
    if not isinstance(corpora, dict) or not isinstance(stages, dict):
        return values
    described = {content: _described_most(values, content=content) for content in map(_content, corpora.values())}
    for matrix, listed in stages.items():
        if isinstance(listed, list):
            fitting = [name for name, corpus in corpora.items() if matrix in ("corpora", _content(corpus))]
            stages[matrix] = [*filter(fitting.__contains__, listed), *(name for name in fitting if name not in listed)]
    for name, corpus in corpora.items():
        content = _content(corpus)
        if name != described[content]:
            _fill(values, name, like=described[content])
    return values


def create_folders(root: Path, corpora: Iterable[str]) -> None:
    """Create the folders that stages of a corpus depend on, so that git contains them before they have files."""
    for name in corpora:
        for path, text in (
            (root / "annotations" / name / ".gitignore", "*.parquet\n*.csv\n"),
            (root / "models" / name / ".gitkeep", ""),
        ):
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)


def _content(corpus: Any) -> str | None:
    content = corpus.get("content") if isinstance(corpus, dict) else None
    return content if isinstance(content, str) else None


def _described_most(values: dict[str, Any], *, content: str | None) -> str:
    """Return the corpus of a content with the most values in :data:`SECTIONS`; a new one has few or none."""

    def count(name: str) -> int:
        entries = [section.get(name) for key in SECTIONS if isinstance(section := values.get(key), dict)]
        return sum(len(entry) for entry in entries if isinstance(entry, dict))

    corpora: dict[str, Any] = values["corpora"]
    return max((name for name, corpus in corpora.items() if _content(corpus) == content), key=count)


def _fill(values: dict[str, Any], name: str, *, like: str) -> None:
    for section, other in SECTIONS.items():
        entries = values.get(section)
        if isinstance(entries, dict) and isinstance(entries.get(like), dict):
            given = entries.get(name) or {}
            entries[name] = {**copy.deepcopy(entries[like]), **other, **given} if isinstance(given, dict) else given
    if isinstance(scored := values.get("batch_predict"), dict):
        scored.setdefault(name, [])
