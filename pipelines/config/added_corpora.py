"""Complete the parameters of a corpus that a profile adds to section ``corpora``."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# What a new corpus takes from the first one with the same content, and what of it does not fit another corpus.
SECTIONS: Mapping[str, Mapping[str, Any]] = {
    "sample": {},
    "split": {"sizes": None, "published": None},
    "gold": {"truth": False, "published": None},
}


def complete(values: dict[str, Any]) -> dict[str, Any]:
    """Add entries for new corpora to every section that has one entry per corpus; return ``values``.

    Present entries are unchanged, and so are values of a wrong form, which the validation reports.
    """
    corpora = values.get("corpora")
    stages = values.get("matrix")
    if not isinstance(corpora, dict) or not isinstance(stages, dict):
        return values
    for name, corpus in corpora.items():
        content = _content(corpus)
        like = next(one for one, known in corpora.items() if known == corpus or _content(known) == content)
        for matrix in ("corpora", content):
            if isinstance(stages.get(matrix), list) and name not in stages[matrix]:
                stages[matrix] = [*stages[matrix], name]
        if name != like:
            _fill(values, name, like=like)
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
    return corpus.get("content") if isinstance(corpus, dict) else None


def _fill(values: dict[str, Any], name: str, *, like: str) -> None:
    for section, other in SECTIONS.items():
        entries = values.get(section)
        if isinstance(entries, dict) and isinstance(entries.get(like), dict):
            given = entries.get(name) or {}
            entries[name] = {**copy.deepcopy(entries[like]), **other, **given} if isinstance(given, dict) else given
    if isinstance(scored := values.get("batch_predict"), dict):
        scored.setdefault(name, [])
