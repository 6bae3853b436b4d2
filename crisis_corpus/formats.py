"""Refuse stored data whose format this release does not read; ``pipelines/core/formats.toml`` lists the formats."""

from __future__ import annotations

from crisis_corpus.errors import CorpusError

# The formats that consumers read, too.
JOURNAL, MODEL_PACKAGE = 1, 1


class UnknownFormat(CorpusError):
    """Stored data has a format that this release does not read: it is newer, or states no version."""

    message = "The format of '{name}' has version {found}; this release reads versions up to {known}."
    remedy = (
        "Nothing was changed. Upgrade this installation to the release that wrote the data, or to a newer one; see "
        "docs/howto/upgrade.md."
    )
    exit_code = 65


def require(version: object, *, name: str, known: int) -> int:
    """Return the version that stored data of the format ``name`` states, if this release reads it."""
    if type(version) is not int or not 1 <= version <= known:
        raise UnknownFormat(name=name, found=version if type(version) is int else "none", known=known)
    return version
