"""Measure perceptual hashes of 1080p JPEGs per second: ours against ``imagehash.phash`` on the opened file.

Pictures are synthetic, 1920 x 1080, quality 90, in memory. Times are CPU seconds of one thread, the best of several
rounds, ours and the baseline alternately.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable, Sequence

import imagehash
import numpy as np
from PIL import Image

from pipelines.collect.read.fingerprint import fingerprint


def pictures(count: int) -> list[bytes]:
    """Draw coloured fields with grain like that of photographs, about 600 kB each."""
    rng = np.random.default_rng(7)
    files = []
    for _ in range(count):
        field = Image.fromarray(rng.uniform(0, 255, (9, 16, 3)).astype(np.uint8))
        pixels = np.asarray(field.resize((1920, 1080), Image.Resampling.BICUBIC), dtype=np.float64)
        out = io.BytesIO()
        grain = rng.normal(0, 6, (1080, 1920, 1))
        Image.fromarray((pixels + grain).clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=90)
        files.append(out.getvalue())
    return files


def seconds(hash_one: Callable[[bytes], object], files: Sequence[bytes]) -> float:
    """Return the CPU time that hashing all ``files`` takes."""
    start = time.process_time()
    for data in files:
        hash_one(data)
    return time.process_time() - start


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    files = pictures(args.pictures)
    rounds = [
        (seconds(fingerprint, files), seconds(lambda data: imagehash.phash(Image.open(io.BytesIO(data))), files))
        for _ in range(args.rounds)
    ]
    ours, baseline = (len(files) / min(times) for times in zip(*rounds, strict=True))
    line = {
        "name": "fingerprint",
        "ours": round(ours, 1),
        "baseline": round(baseline, 1),
        "baseline_name": "imagehash.phash",
        "ratio": round(ours / baseline, 2),
        "unit": "images/s per core at 1080p",
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
