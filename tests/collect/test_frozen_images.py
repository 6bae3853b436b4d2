"""A process that is stopped while it fetches pictures, as on an overloaded host, loses none of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.collect.test_fetched_batches import picture, served

ROOT = Path(__file__).resolve().parents[2]
PICTURES, LIMIT_SECONDS, STOPPED_SECONDS = 40, 1.5, 4.0
READ = """
import json, sys
from pathlib import Path
from pipelines.collect.images import ImageJob, _fetching, _PictureReader, _read
from pipelines.core.config.params import load
from pipelines.collect.read.decode import Decoder
address, count, limit = sys.argv[1:]
params = load(Path(), profile="sandbox")
fetch = params.images.fetch.model_copy(update={"timeout_seconds": float(limit), "retries": 0})
params = params.model_copy(update={"images": params.images.model_copy(update={"fetch": fetch})})
reader = _PictureReader.__new__(_PictureReader)
reader.row = lambda job, picture: {"width": picture.width}
jobs = [ImageJob("0" * 32, n, (f"{address}/{n}",)) for n in range(int(count))]
with Decoder(params.images.decode) as decoder:
    found = list(_read(jobs, reader=reader, decoder=decoder, params=params, fetch=_fetching(params)))
print(json.dumps([row if isinstance(row, str) else "read" for _, row in found]))
"""


def slow(path: str, number: int) -> tuple[int, bytes]:
    """Send each picture after a moment, so that several are always being received."""
    time.sleep(0.3)
    return 200, picture()


@pytest.mark.faults
@pytest.mark.parametrize("after", [2, 9, 17, 26])
def test_a_stopped_process_reads_every_picture(after: int) -> None:
    with served(slow) as (address, asked):
        argv = [sys.executable, "-c", READ, address, str(PICTURES), str(LIMIT_SECONDS)]
        reading = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)
        while asked.total() < after and reading.poll() is None:
            time.sleep(0.01)
        os.killpg(reading.pid, signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        os.killpg(reading.pid, signal.SIGCONT)
        told, _ = reading.communicate(timeout=60)
    assert Counter(json.loads(told)) == {"read": PICTURES}
    assert asked.total() > PICTURES, "no download ran out of time, so this test shows nothing"
