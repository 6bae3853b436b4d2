"""A valid manifest of an annotation round."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.annotate import manifest
from pipelines.annotate.manifest import RoundManifest

NOW = datetime(2023, 3, 1, 9, tzinfo=UTC)


def manifest_of(name: str = "round-1", **changes: Any) -> RoundManifest:
    """Return the manifest of a round with two annotators; ``changes`` replaces fields."""
    values = {
        **{"corpus": "posts", "round": name, "protocol": "cradle", "phase": "double", "scheme": "cradle"},
        **{"scheme_digest": "0" * 16, "guideline_version": 1, "guideline": "1" * 16, "seed": 1, "size": 4},
        **{"overlap": 2, "batch_size": 50, "annotators": ["annotator-1", "annotator-2"], "daily_cap": 60},
        **{"adjudicator": "adjudicator-1", "backend": "files", "gold": True, "agreement": True, "splits": None},
        **{"draw": "sample", "against": [], "base": "a" * 40, "status": "open", "opened": NOW},
    }
    return RoundManifest.model_validate(values | changes)


def write_manifest(root: Path, name: str, **changes: Any) -> Path:
    """Write the manifest of a round below ``root``; return the round's folder."""
    written = manifest_of(name, **changes)
    folder = manifest.folder(root, written.corpus, name)
    manifest.write(written, folder / manifest.FILE)
    return folder
