"""Define the base exceptions; each message states what failed and what to do next.

Every exception keeps its fields, can be pickled and renders one sentence of cause and one of remedy.
Messages carry ids, counts, offsets and digests, never a post's words, a user name or a raw Reddit id.
"""

from __future__ import annotations

import tomllib
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar


class CorpusError(Exception):
    """Base class of all exceptions that are raised deliberately.

    An error has a code, such as ``UnknownName``, whose texts are in a catalogue (TOML: ``cause`` and ``remedy`` are
    format strings over the fields). A class of its own exists only where code catches it; its name is its code.
    ``exit_code``: sysexits.h (65 bad data, 69 unavailable, 75 try later, 77 refused, 78 bad configuration).
    """

    catalogues: ClassVar[list[Path]] = []
    message: str = "{detail}"
    remedy: str = ""
    exit_code: int = 70

    def __init__(self, code: str = "", /, **fields: Any) -> None:
        self.code = code or type(self).__name__
        self.fields = fields
        catalogue = _catalogue(*self.catalogues)
        names = [*(cls.__name__ for cls in reversed(type(self).__mro__)), self.code]
        texts = {key: text for name in names for key, text in catalogue.get(name, {}).items()}
        self.exit_code = texts.get("exit_code", self.exit_code)
        self.message, self.remedy = texts.get("cause", self.message), texts.get("remedy", self.remedy)
        super().__init__(fields)

    def __str__(self) -> str:
        return " ".join(text.format(**self.fields) for text in (self.message, self.remedy)).strip()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self.code, **self.fields), ()


@cache
def _catalogue(*paths: Path) -> dict[str, dict[str, Any]]:
    """Read catalogues only when there is an error: every command imports this module."""
    families = [family for path in paths for family in tomllib.loads(path.read_text(encoding="utf-8")).values()]
    return {code: texts for family in families for code, texts in family.items()}


class ConfigError(CorpusError):
    """A parameter, a setting or an argument is wrong; nothing was started."""

    exit_code = 78


class RegistryError(CorpusError):
    """A model may not be published, promoted or loaded."""


class BadParams(ConfigError):
    """``params.yaml``, a profile or an environment variable does not validate."""

    message = "{where}: {detail}."
    remedy = "See docs/configuration.md for the allowed keys and values."
