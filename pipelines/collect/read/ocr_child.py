"""Read the text of pictures with an OCR engine, in a process with few resources and no permissions.

``confined_engine.py`` starts this module through ``confined_child.py``. The answer to a picture is one ``READING``
(outcome, confidence, unread, area, length) and the text. The engine is loaded, and has read a drawn picture, before the
first request: afterwards no file can be opened. The program ``tesseract`` must still be started for each picture; its
process keeps read access to the system's folders and the models.
"""

from __future__ import annotations

import io
import json
import os
import struct
from functools import partial

from PIL import Image, ImageDraw

from pipelines.collect.read.confine import allow_only, announce, confine, limit, serve
from pipelines.collect.read.engine import ENGINES, Engine
from pipelines.core.config.base import Distribution
from pipelines.core.config.collect import Ocr
from pipelines.core.errors import CorpusError, DataError, EngineMissing, StepFailed

READING = struct.Struct(">BdddQ")
READ, UNREADABLE, FAILED = range(3)
# Ours: address space of RapidOCR with its models and of Tesseract, each about a third of this on large pictures.
MEMORY_MB = 4096
FILES = 256
# Ours: Tesseract's largest temporary picture, of 40 million pixels twice enlarged.
WRITTEN = 2**30


def answer(data: bytes, *, engine: Engine) -> tuple[bytes, bytes]:
    """Return the response to the parent."""
    try:
        reading = engine.read(data)
    except DataError:
        return READING.pack(UNREADABLE, 0.0, 0.0, 0.0, 0), b""
    except StepFailed:
        return READING.pack(FAILED, 0.0, 0.0, 0.0, 0), b""
    text = reading.text.encode(errors="replace")
    return READING.pack(READ, reading.confidence, reading.unread, reading.area, len(text)), text


def main(arguments: list[str]) -> None:
    """Read pictures from the pipe until the parent closes it."""
    settings, distributions, seconds, readable, folder = arguments
    params = Ocr.model_validate_json(settings)
    programs = bool(folder)
    CorpusError()  # reads the texts of errors, which the sandbox will not let the child do
    limit(memory_mb=MEMORY_MB, files=FILES, written=WRITTEN if programs else 0)
    devices = ["/dev/null", "/dev/urandom"]
    held = allow_only([*readable.split(os.pathsep), "/proc/self", *devices], writable=[folder, "/dev/null"] * programs)
    try:
        allowed = {name: Distribution(**entry) for name, entry in json.loads(distributions).items()}
        kind = ENGINES.get(params.engine, allowed)
        engine = kind(kind.Parameters(**params.engines.get(params.engine, {})))
    except EngineMissing as error:
        announce(missing=error.fields)
        return
    if not programs:
        engine.read(_drawn())
    layers = confine(programs=programs)
    if programs:
        engine.read(_drawn())
        layers += ["landlock"] * held
    announce(layers=layers, identity=engine.identity)
    serve(partial(answer, engine=engine), seconds=int(seconds))


def _drawn() -> bytes:
    """Return a picture with words that are glued together, so that all parts of an engine are used."""
    image = Image.new("RGB", (640, 200), "white")
    ImageDraw.Draw(image).text((20, 60), "SOMEWORDSTOGETHER and more", fill="black", font_size=40)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=95)
    return out.getvalue()
