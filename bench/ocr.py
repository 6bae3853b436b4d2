"""Measure OCR of drawn memes: with denormal numbers as zero against without, one thread.

Texts and confidences must be equal. The better of two runs each.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import time
from random import Random

import onnxruntime

from pipelines.config.params import load
from pipelines.extract.ocr.rapidocr import RapidOcr
from pipelines.sandbox.reddit.caption_grammar import sentence
from pipelines.sandbox.reddit.draw import Meme, draw

PICTURES = 24
ROUNDS = 2
STYLES = ("capitals", "bar", "tweet")


def pictures() -> list[bytes]:
    """Draw memes of three styles with two sentences each, 640 x 640, quality 90."""
    rng, files = Random(11), []
    for seed in range(PICTURES):
        meme = Meme(seed, STYLES[seed % len(STYLES)], text=(sentence(rng), sentence(rng)))
        out = io.BytesIO()
        draw(meme).save(out, "JPEG", quality=90)
        files.append(out.getvalue())
    return files


class Denormals(onnxruntime.SessionOptions):  # type: ignore[misc]
    """Options of a session that keeps denormal numbers; the others are equal."""

    def add_session_config_entry(self, *_: str) -> None:
        """Ignore our one entry."""


def read(engine: RapidOcr) -> tuple[float, str]:
    """Return the CPU seconds and a digest of all readings."""
    files = pictures()
    readings, start = hashlib.sha256(), time.process_time()
    for data in files:
        readings.update(repr(engine.read(data)).encode())
    return time.process_time() - start, readings.hexdigest()


def measured(which: str) -> tuple[float, str]:
    """Return :func:`read` of one engine in a process of its own: the setting holds for a whole thread."""
    done = subprocess.run([sys.executable, __file__, which], stdout=subprocess.PIPE, check=True)
    seconds, digest = json.loads(done.stdout)
    return seconds, digest


def main() -> None:
    """Print one JSON line."""
    ours, baseline = (min(measured(which) for _ in range(ROUNDS)) for which in ("ours", "plain"))
    assert ours[1] == baseline[1]
    line = {
        "name": "ocr",
        "ours": round(PICTURES / ours[0], 2),
        "baseline": round(PICTURES / baseline[0], 2),
        "baseline_name": "denormal numbers kept",
        "ratio": round(baseline[0] / ours[0], 2),
        "unit": "pictures/s per core",
    }
    print(json.dumps(line))


if __name__ == "__main__":
    if sys.argv[1:]:
        if sys.argv[1] == "plain":
            onnxruntime.SessionOptions = Denormals
        print(json.dumps(read(RapidOcr(load().images.ocr))))
    else:
        main()
