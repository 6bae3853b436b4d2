"""Digests of what people reviewed: the texts of label schemes and prompts, mappings of published sets, protocols.

A person reads a changed text beside its source, then writes the new digests with
`.venv/bin/python tests/reviewed.py`; the commit shows which texts were reviewed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import yaml

from pipelines.annotate import manifest
from pipelines.annotate.imports import mapping
from pipelines.core import taxonomy
from pipelines.core.taxonomy.guideline import guideline
from pipelines.llm.prompts import System, build

FILE = Path(__file__).with_name("reviewed.yaml")
HEAD = "# Written by tests/reviewed.py after a person read each changed text. First 12 digits of a SHA-256.\n"


def digest(value: Any) -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 of a value as JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=sorted).encode()).hexdigest()[:12]


def digests() -> dict[str, dict[str, str]]:
    """Return the digest of each part by file and place."""
    found = {f"pipelines/core/taxonomy/schemes/{name}.yaml": of_scheme(name) for name in taxonomy.available()}
    for name in mapping.available():
        values = mapping.read(name).model_dump(mode="json")
        found[f"pipelines/annotate/imports/mappings/{name}.yaml"] = {key: digest(v) for key, v in values.items()}
    for name in manifest.protocols():
        rounds = {f"round {r.name}": digest(r.model_dump(mode="json")) for r in manifest.load_protocol(name).rounds}
        found[f"pipelines/annotate/protocols/{name}.yaml"] = rounds
    return found


def of_scheme(name: str) -> dict[str, str]:
    """Return the digests of a label scheme's texts and rules, and of the guideline and the prompts made from it."""
    scheme = taxonomy.load(name)
    found = {key: digest(getattr(scheme, key)) for key in ("title", "item", "role", "purpose", "display")}
    found["annotation guideline"] = digest(guideline(scheme, content="images" if scheme.item == "meme" else "texts"))
    for key, category in scheme.categories.items():
        for part in ("kind", "ordinal", "none", "task", "task_merge", "severities"):
            found[f"{key}: {part}"] = digest(getattr(category, part))
        found |= {f"{key}: label {label.name}": digest(asdict(label)) for label in category.labels}
        found |= {f"{key}: rule {rule.name}": digest(asdict(rule)) for rule in category.rules}
        found |= {f"{key}: merge {merge}": digest(asdict(value)) for merge, value in category.merges.items()}
        for part in ("guidelines", "special", "brief"):
            lines = enumerate(getattr(category, part), start=1)
            found |= {f"{key}: {part} {number}": digest(text) for number, text in lines}
        for system in get_args(System):
            found[f"{key}: prompt {system}"] = build(scheme, keys=[key], system=system).digest[:12]
    return found


def read() -> dict[str, dict[str, str]]:
    """Return the digests that a person reviewed."""
    found: dict[str, dict[str, str]] = yaml.safe_load(FILE.read_text())
    return found


if __name__ == "__main__":
    FILE.write_text(HEAD + yaml.safe_dump(digests(), sort_keys=False, width=120))
