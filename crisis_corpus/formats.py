"""Refuse stored data whose format this release does not read; ``pipelines/core/formats.toml`` lists the formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crisis_corpus.errors import CorpusError

if TYPE_CHECKING:
    import sqlalchemy as sa

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


def require_in(connection: sa.Connection, *, name: str, known: int) -> int:
    """Return the version of the format ``name`` in a database, from its table ``<name>_format`` of one row."""
    import sqlalchemy as sa

    table = sa.Table(f"{name}_format", sa.MetaData(), sa.Column("version", sa.Integer))
    there = sa.inspect(connection).has_table(table.name)
    return require(connection.scalar(sa.select(table.c.version)) if there else None, name=name, known=known)
