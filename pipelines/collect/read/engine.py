"""Define what an OCR engine is: a class in a module of ``ocr/`` or in another distribution.

The engine is a parameter, and its identity is stored with every text. Its module must be cheap to import: the process
that opens an engine of this machine imports the class and leaves its libraries to a confined child.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from pipelines.core.config.base import Section
from pipelines.core.config.collect import Ocr
from pipelines.core.parts import Parts


@dataclass(frozen=True)
class OcrReading:
    """The text that an engine read in one picture.

    ``text`` has single spaces and is ``""`` if nothing was read. ``confidence`` is the engine's mean over the lines,
    weighted by their length; a line that was detected but not recognized counts as 0 (0.0 without text). ``unread`` is
    the share of the lines' total length that was detected but not recognized. It is near 1 for a script that the engine
    does not support, which would otherwise pass as a picture without text. ``area`` is the share of the picture within
    the upright boxes of the lines that were read. All three are in 0..1, rounded to four digits.
    """

    text: str
    confidence: float
    engine: str
    unread: float = 0.0
    area: float = 0.0


class OcrFailed(Exception):
    """One picture cannot be read; the message is the drop reason."""


class Engine(ABC):
    """An OCR engine, which reads one JPEG at a time.

    One that is ``remote`` sends pictures to a provider, which needs a consent on record and is paid by the picture
    (``usd_per_1000``).
    ``program`` is started for each picture, ``variables`` are needed in the environment, ``Parameters`` are the model
    of its entry in ``images.ocr.engines``. ``identity`` has name, versions and all settings that decide its texts.
    """

    remote: ClassVar[bool] = False
    usd_per_1000: ClassVar[float] = 0.0
    program: ClassVar[str | None] = None
    variables: ClassVar[tuple[str, ...]] = ()
    Parameters: ClassVar[type[Section]] = Section
    identity: str

    @abstractmethod
    def __init__(self, params: Any) -> None:
        """Load the engine with parameters of the type :attr:`Parameters`, or raise ``EngineMissing``."""

    @abstractmethod
    def read(self, data: bytes) -> OcrReading:
        """Return the text of one JPEG; raise ``OcrFailed`` if it crashed the engine or took it too long."""


ENGINES: Parts[Engine] = Parts("pipelines.collect.read.ocr", Engine)


def packable(params: Ocr) -> bool:
    """Return whether a model may bring the engine to a consumer, whose pictures are sent nowhere."""
    return params.engine in ENGINES.names({}) and not ENGINES.get(params.engine, {}).remote
