"""Complete the parameters of the corpora that a profile adds to, or removes from, the section ``corpora``."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

SEED = 20251001
# Values of a corpus that the parameters do not state, by its content; all ours but the proposals (SPEC 2.1).
DEFAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "images": {
        "sample": {"size": 1000, "seed": SEED},
        "split": {
            "version": 1,
            "ratios": {"train": 60, "validation": 20, "test": 20},
            "strata": ["month", "kind", "has_text"],
            "seed": SEED,
            "proposals": 4_000_000,
        },
        "gold": {"splits": None, "truth": False, "published": None},
    },
    "texts": {
        "sample": {"size": 1000, "seed": SEED},
        "split": {
            "version": 1,
            "ratios": {"train": 60, "dev": 20, "test": 20},
            "strata": ["month", "subreddit"],
            "seed": SEED,
            "proposals": 4_000_000,
        },
        # an ensemble labels the others
        "gold": {"splits": ["dev", "test"], "truth": False, "published": None},
    },
}
# Who labels and what is fitted where nothing is stated: what needs no key and no large accelerator; ours.
ROWS: Mapping[str, Mapping[str, Any]] = {
    "images": {
        "votes.labellers": [],
        "silver.ensembles": [],
        "train.rows": {"models": ["bert", "vit", "clip"], "subsets": ["gold"], "ensemble": None, "seeds": [1, 2, 3]},
        "predict.rows": [],
        "batch_predict": [],
    },
    "texts": {
        "votes.labellers": ["characters", "words", "embedding"],
        "silver.ensembles": ["offline"],
        "train.rows": {
            "models": ["modernbert", "knn"],
            "subsets": ["unanimous", "consensus"],
            "ensemble": "offline",
            "seeds": [1, 2, 3],
        },
        "predict.rows": ["offline"],
        "batch_predict": [],
    },
}
# Further sections with an entry for each corpus.
KEYED = ("round.protocol", "moderation.systems", "release.corpora", "report.titles")


def complete(values: dict[str, Any]) -> dict[str, Any]:
    """Add and remove the entries of corpora in every section that has one entry per corpus; return ``values``.

    A corpus that is null is removed with all that is keyed by it; the lists of the section ``matrix`` get all others.
    Other present entries are unchanged, and so are values of a wrong form, which the validation reports.
    """
    corpora = values.get("corpora")
    stages = values.get("matrix")
    if not isinstance(corpora, dict) or not isinstance(stages, dict):
        return values
    for name in [name for name, corpus in corpora.items() if corpus is None]:
        _remove(values, name)
    for matrix, listed in stages.items():
        if isinstance(listed, list):
            stages[matrix] = [*filter(corpora.__contains__, listed), *(name for name in corpora if name not in listed)]
    for name, corpus in corpora.items():
        _fill(values, name, content=_content(corpus) or "")
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


def _fill(values: dict[str, Any], corpus: str, *, content: str) -> None:
    stated = {**DEFAULTS.get(content, {}), **ROWS.get(content, {})}
    for path, default in stated.items():
        for entries in _sections(values, path):
            given = entries.setdefault(corpus, copy.deepcopy(default))
            if isinstance(default, dict) and isinstance(given, dict):
                entries[corpus] = copy.deepcopy(default) | given


def _remove(values: dict[str, Any], corpus: str) -> None:
    for section in _sections(values, "corpora", *DEFAULTS["texts"], *ROWS["texts"], *KEYED):
        section.pop(corpus, None)
    for registry in _sections(values, "registry"):
        models = [name for name, model in registry.items() if isinstance(model, dict) and model.get("corpus") == corpus]
        for name in models:
            for section in _sections(values, "registry", "promote.recall_floors"):
                section.pop(name, None)


def _sections(values: dict[str, Any], *paths: str) -> Iterator[dict[str, Any]]:
    for path in paths:
        section: Any = values
        for name in path.split("."):
            section = section.get(name) if isinstance(section, dict) else None
        if isinstance(section, dict):
            yield section
