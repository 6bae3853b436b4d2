"""Measure fetching pictures from one slow host: ``fetch_images`` with all its checks against sequential ``requests``.

The host is a loopback server in a separate process that answers each picture after LATENCY seconds, like an image host
on the other side of a continent. Both sides use one persistent connection per slot, read everything and hash it. The
decoder's pictures per second are not part of the ratio; they are in ``decode``.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path

import requests
from PIL import Image as Pillow

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.collect.image_fetch import fetch_images
from pipelines.collect.read.decode import DecodedPicture, Decoder
from pipelines.core.config.params import load

PICTURES = 200
LATENCY = 0.02
ROUNDS = 3


def picture() -> bytes:
    """Return a JPEG of 1080 x 1080 with the size of a typical meme, about 250 kB."""
    out = io.BytesIO()
    Pillow.effect_noise((540, 540), 40).resize((1080, 1080)).convert("RGB").save(out, "JPEG", quality=85)
    return out.getvalue()


class Handler(BaseHTTPRequestHandler):
    """A handler that serves one picture after LATENCY."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    body = b""

    def do_GET(self) -> None:
        time.sleep(LATENCY)
        self.send_response(200)
        self.send_header("Content-Type", "image/jpeg")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """Print nothing: standard output is reserved for the result."""


def serve(pipe: Connection, body: bytes) -> None:
    Handler.body = body
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pipe.send(server.server_address[1])
    server.serve_forever()


def sequential(addresses: list[str]) -> list[str]:
    with requests.Session() as session:
        session.trust_env = False
        return [hashlib.sha256(session.get(address, timeout=30).content).hexdigest() for address in addresses]


def concurrent(addresses: list[str]) -> list[str]:
    params = load(Path(__file__).resolve().parents[1], profile="sandbox").images.fetch
    found = asyncio.run(fetch_images([(address,) for address in addresses], params=params))
    return [hashlib.sha256(item).hexdigest() if isinstance(item, bytes) else item for item in found]


def decoded(body: bytes) -> dict[str, float]:
    params = load(Path(__file__).resolve().parents[1]).images.decode
    began = time.perf_counter()
    with Decoder(params) as decoder:
        decoder.decode(body)
        started = time.perf_counter()
        count = sum(isinstance(decoder.decode(body), DecodedPicture) for _ in range(50))
    return {
        "first_seconds": round(started - began, 3),
        "pictures_per_second": round(count / (time.perf_counter() - started), 1),
    }


def main() -> None:
    body = picture()
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there, body), daemon=True)
    server.start()
    port = here.recv()
    addresses = [f"http://127.0.0.1:{port}/i/{n}.jpg" for n in range(PICTURES)]
    rates: dict[Callable[[list[str]], list[str]], list[float]] = {sequential: [], concurrent: []}
    wanted = [hashlib.sha256(body).hexdigest()] * PICTURES
    for _ in range(ROUNDS):
        for side, rate in rates.items():
            began = time.perf_counter()
            if side(addresses) != wanted:
                raise SystemExit(f"{side.__name__}: not every picture arrived")
            rate.append(PICTURES / (time.perf_counter() - began))
    server.terminate()
    ours, baseline = max(rates[concurrent]), max(rates[sequential])
    result = {
        "name": "fetch",
        "ours": round(ours, 1),
        "baseline": round(baseline, 1),
        "baseline_name": "sequential requests",
        "ratio": round(ours / baseline, 2),
        "unit": "pictures/s",
        "decode": decoded(body),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
