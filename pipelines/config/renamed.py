"""Map earlier names of parameters, stages and metrics files to the present names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

# Earlier name -> present name, of a section of params.yaml and of the stage that reads it.
SECTIONS = {
    "score": "quality",
    "probe": "injection_test",
    "untuned": "baselines",
    "scoring": "batch_predict",
    "predict": "predict_finetuned",
}
STAGES = {**SECTIONS, "remarks": "rationales"}
# Sections that are now part of another one.
NESTED = {"fetch": "images", "decode": "images", "ocr": "images", "fingerprint": "images"}
# Values that are now in another section.
MOVED = {("votes", "examples"): "few_shot"}


def params(values: dict[str, Any]) -> dict[str, Any]:
    """Rename old sections and kinds in the content of ``params.yaml`` or of a profile; return the renamed content.

    If a file has a section under both names, the values are merged; values under the present name take precedence.
    """
    found: dict[str, Any] = {}
    for name, section in values.items():
        if name in NESTED:
            found.setdefault(NESTED[name], {}).setdefault(name, section)
        elif name in SECTIONS:
            found.setdefault(SECTIONS[name], section)
        elif isinstance(section, dict) and isinstance(found.get(name), dict):
            found[name] = {**found[name], **section}
        else:
            found[name] = section
    for (name, key), now in MOVED.items():
        if isinstance(found.get(name), dict) and key in found[name]:
            found[name] = dict(found[name])
            found[now] = {key: found[name].pop(key), **found.get(now, {})}
    if isinstance(found.get("models"), dict):
        found["models"] = {name: _model(entry) for name, entry in found["models"].items()}
    if isinstance(found.get("promote"), dict):
        found["promote"] = _promote(found["promote"])
    return found


def _model(entry: Any) -> Any:
    """Return the entry of a model; kind ``m3h`` with a ``base`` was the model that is now of kind ``infused``."""
    if isinstance(entry, dict) and entry.get("kind") == "m3h" and "base" in entry:
        return {**entry, "kind": "infused"}
    return entry


def _promote(section: dict[str, Any]) -> dict[str, Any]:
    """Return the terms of the gate; the level of one test becomes the level of all looks together."""
    new = {name: value for name, value in section.items() if name not in ("min_probability", "min_positives")}
    if (least := section.get("min_probability")) is not None:
        new.setdefault("alpha", round(1 - float(least), 9) or 0.001)
    return new


def stage(name: str) -> str:
    """Return the present name of a DVC stage that may have an old name, such as ``score@memes``."""
    step, at, rest = name.partition("@")
    return STAGES.get(step, step) + at + rest


def path(name: str) -> str:
    """Return the present path of a stage's output, which may have an old name.

    Only metrics files, which are named after stages, are renamed.
    """
    found = re.fullmatch(r"(metrics/[^/]+/)([a-z_]+)((?:-[^/]*)?\.json)", name)
    return f"{found[1]}{STAGES.get(found[2], found[2])}{found[3]}" if found else name


def metrics(folder: Path, step: str) -> Path:
    """Return the path of a stage's metrics file in a folder; before `corpus upgrade` it has the stage's old name."""
    present = folder / f"{step}.json"
    earlier = (folder / f"{old}.json" for old, new in STAGES.items() if new == step)
    return next((path for path in (present, *earlier) if path.exists()), present)
