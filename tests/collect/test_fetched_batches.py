"""A host that sends nothing but the largest pictures cannot fill the memory of the step ``images``."""

import threading
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipelines.collect.images import ImageJob, _fetched, batch_size
from pipelines.config.params import load

MIB = 2**20
PICTURE = bytes(MIB)


class Largest(BaseHTTPRequestHandler):
    """Answers every request with a picture of the largest allowed size."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "image/png")
        self.send_header("Content-Length", str(len(PICTURE)))
        self.end_headers()
        self.wfile.write(PICTURE)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Largest) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_pictures_that_wait_to_be_read_stay_within_the_limit(port: int) -> None:
    params = load(Path(__file__).resolve().parents[2], profile="sandbox")
    small = {"max_bytes": MIB, "memory_mb": 4, "hosts": ("127.0.0.1",), "allow_http": True, "allow_loopback": True}
    fetch = params.images.fetch.model_copy(update=small)
    params = params.model_copy(update={"images": params.images.model_copy(update={"fetch": fetch})})
    jobs = [ImageJob("0" * 32, n, (f"http://127.0.0.1:{port}/{n}.png",)) for n in range(24)]
    tracemalloc.start()
    try:
        sizes = [len(found) for _, found in _fetched(jobs, params=params, contact="")]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sizes == [MIB] * 24
    # two batches of two pictures, and the buffers of those that are being received
    assert peak < 8 * MIB


@pytest.mark.parametrize(
    ("memory_mb", "max_bytes", "size"), [(256, 20 * MIB, 6), (256, MIB // 10, 32), (8, 20 * MIB, 1)]
)
def test_a_batch_is_as_large_as_the_memory_allows(memory_mb: int, max_bytes: int, size: int) -> None:
    fetch = load(Path(__file__).resolve().parents[2]).images.fetch
    assert batch_size(fetch.model_copy(update={"memory_mb": memory_mb, "max_bytes": max_bytes})) == size
