"""Define the base exceptions; each message states what failed and what to do next.

Every exception keeps its fields, can be pickled and renders one sentence of cause and one of remedy.
Messages carry ids, counts, offsets and digests, never a post's words, a user name or a raw Reddit id.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar


class CorpusError(Exception):
    """Base class of all exceptions that this package raises deliberately.

    Subclasses set ``message`` (a format string over their fields), ``remedy`` and ``exit_code``
    (sysexits.h: 65 bad data, 69 unavailable, 75 try later, 77 refused, 78 bad configuration).
    """

    message: ClassVar[str] = "{detail}"
    remedy: ClassVar[str] = ""
    exit_code: ClassVar[int] = 70

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        super().__init__(fields)

    def __str__(self) -> str:
        text = self.message.format(**self.fields)
        return f"{text} {self.remedy.format(**self.fields)}".strip()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self.fields), ()


class ConfigError(CorpusError):
    """A parameter, a setting or an argument is wrong; nothing was started."""

    exit_code = 78


class RegistryError(CorpusError):
    """A model may not be published, promoted or loaded."""


class BadParams(ConfigError):
    """``params.yaml``, a profile or an environment variable does not validate."""

    message = "{where}: {detail}."
    remedy = "See docs/configuration.md for the allowed keys and values."
