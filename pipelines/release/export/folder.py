"""Write the folder of an export atomically, and read it back: files, and ``export.json`` with origin and digests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from crisis_corpus.integrity import different, listing
from crisis_corpus.journal import RELEASE
from pipelines.core.config.base import Section
from pipelines.core.errors import BadParams, DataError

FILE, CARD, LICENCE = "export.json", "README.md", "LICENSE"
# What the Hub itself may keep in a repository.
OF_HUB = frozenset({".gitattributes"})
Kind = Literal["dataset", "model"]


class NotExportable(DataError):
    """A release or a model version may not be exported, or cannot be loaded by the libraries of the Hub."""


class RemovalsDue(NotExportable):
    """The package of a release still has deleted posts whose removal is due; after a refresh it can be exported."""


class ExportOrigin(Section):
    """The source of an export, which determines its content.

    Args:
        version: the version of the model; ``None`` for a release.
        basis: a digest of the state of the release or version; an export with another one is outdated.
    """

    kind: Kind
    name: str
    version: int | None
    repo: str
    basis: str

    @property
    def journal(self) -> str:
        """The name under which the journal has the copies of this release or model."""
        return self.name if self.kind == "model" else f"{RELEASE}{self.name}"

    @property
    def what(self) -> str:
        return f"Release '{self.name}'" if self.version is None else f"Version {self.version} of '{self.name}'"


class Exported(Section):
    """The content of ``export.json``: the source, and the SHA-256 of every other file by its path."""

    origin: ExportOrigin
    files: dict[str, str] = Field(min_length=1)


def checked_repo(repo: str) -> str:
    """Return the name of a repository on the Hub if it is valid: ``OWNER/NAME``."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError:
        repo = ""
    if repo.count("/") != 1:
        detail = "needs OWNER/NAME: letters, digits, '-', '_' and '.', such as my-lab/forum"
        raise BadParams(where="repo", detail=detail)
    return repo


@contextmanager
def writing(to: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``to``, and rename it to ``to``, which must be new or empty, at the end."""
    to = to.resolve()
    if to.is_file() or (to.is_dir() and any(to.iterdir())):
        raise BadParams(where="to", detail="exists already; name a new or empty folder")
    made = to.with_name(f".{to.name}.part")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    try:
        yield made
        if to.is_dir():
            to.rmdir()
        made.rename(to)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def finish(folder: Path, *, origin: ExportOrigin) -> Exported:
    """Write ``export.json`` into the complete folder of an export, and return its content."""
    exported = Exported(origin=origin, files=listing(folder))
    (folder / FILE).write_text(json.dumps(exported.model_dump(), indent=2, sort_keys=True) + "\n")
    return exported


def read(folder: Path) -> Exported:
    """Return what the folder of an export contains, after comparing every file with its digest."""
    try:
        exported = Exported.model_validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError):
        raise DataError("ExportChanged", folder=folder, detail=f"it has no valid {FILE}") from None
    present = listing(folder)
    present.pop(FILE)
    if wrong := different(present, exported.files):
        detail = f"{len(wrong)} files differ from {FILE}, such as {wrong[0]}"
        raise DataError("ExportChanged", folder=folder, detail=detail)
    return exported
