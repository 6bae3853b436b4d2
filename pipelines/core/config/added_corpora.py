"""Complete the parameters of the corpora that a profile adds to, or removes from, the section ``corpora``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

SEED = 20251001
# By content: the splits, and what those are balanced on whose items have no gold (ours).
SPLITS: Mapping[str, list[str]] = {"images": ["train", "validation", "test"], "texts": ["train", "dev", "test"]}
STRATA: Mapping[str, list[str]] = {"images": ["month", "kind", "has_text"], "texts": ["month", "subreddit"]}
# What is fitted where nothing is stated: what needs no large accelerator; ours.
MODELS: Mapping[str, list[str]] = {"images": ["bert", "vit", "clip"], "texts": ["modernbert", "knn"]}
# Sections with an entry for each corpus.
KEYED = (
    "sample", "split", "gold", "round.protocol", "moderation.systems", "votes.labellers", "silver.ensembles",
    "train.rows", "predict.rows", "few_shot.examples", "batch_predict", "release.corpora", "report.titles",
)  # fmt: skip


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
        for path, default in _defaults(_content(corpus)).items():
            for entries in _sections(values, path):
                given = entries.setdefault(name, default)
                if isinstance(default, dict) and isinstance(given, dict):
                    entries[name] = {**default, **given}
    return values


def _defaults(content: str | None) -> dict[str, Any]:
    """Return by section the values of a corpus that the parameters do not state; ours but the proposals (SPEC 2.1).

    People label all of its sample, and models learn from them.
    """
    if content is None or content not in SPLITS:
        return {}
    splits = SPLITS[content]
    split = {"version": 1, "ratios": dict(zip(splits, (60, 20, 20), strict=True)), "strata": [*STRATA[content]]}
    return {
        "sample": {"size": 1000, "seed": SEED},
        "split": {**split, "seed": SEED, "proposals": 4_000_000, "sizes": None, "published": None},
        "gold": {"splits": None, "truth": False, "published": None},
        "votes.labellers": [],
        "silver.ensembles": [],
        "train.rows": {"models": [*MODELS[content]], "subsets": ["gold"], "ensemble": None, "seeds": [1, 2, 3]},
        "predict.rows": [],
        "few_shot.examples": 0,
        "batch_predict": [],
        "round.protocol": "own",
    }


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


def _remove(values: dict[str, Any], corpus: str) -> None:
    for section in _sections(values, "corpora", *KEYED):
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
