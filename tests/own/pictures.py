"""Write dumps of picture posts, whose class is the arrangement of the drawn shapes, and serve the pictures."""

import io
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import cos, pi, sin
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from tests.own.content import (
    AUTUMN,
    HEADS,
    WINTER,
    Draft,
    Truth,
    cast,
    copy_of,
    number_posts,
    other_posts,
    words,
    write_dump,
    write_labels,
)  # fmt: skip

PICTURES = "buttontrays"
ARRANGED, ARRANGED_SHARES = ("row", "ring", "scattered"), (0.40, 0.33, 0.27)


def _centres(rng: random.Random, kind: str, count: int) -> list[tuple[float, float]]:
    """Return points in the unit square, in a row, in a ring, or scattered without overlap."""
    turn, points = rng.random() * pi, list[tuple[float, float]]()
    if kind == "ring":
        angles = [turn + 2 * pi * (n + rng.uniform(-0.1, 0.1)) / count for n in range(count)]
        radius = rng.uniform(0.25, 0.38)
        return [(0.5 + radius * cos(angle), 0.5 + radius * sin(angle)) for angle in angles]
    if kind == "row":
        steps, shift = [0.8 * (n / (count - 1) - 0.5) for n in range(count)], rng.uniform(-0.08, 0.08)
        return [(0.5 + shift + step * cos(turn), 0.5 + shift + step * sin(turn)) for step in steps]
    while len(points) < count:
        x, y = rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9)
        if all((x - a) ** 2 + (y - b) ** 2 > 0.12**2 for a, b in points):
            points.append((x, y))
    return points


def draw(rng: random.Random, kind: str) -> Image.Image:
    """Draw shapes of random kinds and colours on a noisy ground; only their arrangement follows the class."""
    width, height, count = rng.randint(96, 200), rng.randint(96, 200), rng.randint(6, 9)
    noise = np.random.default_rng(rng.getrandbits(32)).normal(rng.randint(70, 190), 25, (height, width, 3))
    image = Image.fromarray((noise + [rng.randint(-40, 40) for _ in range(3)]).clip(0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    for x, y in _centres(rng, kind, count):
        r, colour = rng.uniform(0.04, 0.055) * min(width, height), tuple(rng.randint(0, 255) for _ in range(3))
        if (corners := rng.choice([0, 3, 4, 6])) == 0:
            pen.ellipse((x * width - r, y * height - r, x * width + r, y * height + r), fill=colour)
        else:
            pen.regular_polygon((x * width, y * height, r), corners, rotation=rng.randint(0, 359), fill=colour)
    return image


def encode(image: Image.Image, form: str) -> bytes:
    """Return a PNG, a JPEG, or an animated GIF of three frames."""
    data = io.BytesIO()
    turned = [image.rotate(90), image.rotate(180)]
    more: dict[str, dict[str, Any]] = {"GIF": {"save_all": True, "append_images": turned}, "PNG": {"compress_level": 1}}
    image.save(data, form, **more.get(form, {}))
    return data.getvalue()


def images(folder: Path, *, port: int, seed: int, count: int = 300) -> Truth:
    """Write dumps with `count` picture posts and their files, which `serving` serves; the class is the arrangement."""
    rng, span = random.Random(seed), int((AUTUMN[1] - AUTUMN[0]).total_seconds())
    heads = HEADS if count > 200 else HEADS[-10:]
    drafts, pictures = [], {}
    for author, kind in cast(rng, [*heads, *[1] * (count - 8 - sum(heads))], ARRANGED, ARRANGED_SHARES):
        drafts.append(Draft("", "", author, kind, rng.randrange(span * 9 // 10), PICTURES))
        pictures[id(drafts[-1])] = draw(rng, kind)
    chosen = rng.sample(drafts, 12)
    for draft, why in zip(chosen, ["animated", "truncated", "missing", "not a picture"], strict=False):
        draft.why = why
    for post in chosen[4:]:
        drafts.append(copy_of(post, rng, title="", body="", author=f"Magpie{len(drafts)}"))
        old, scale = pictures[id(post)], rng.choice([0.6, 0.75, 1.4])
        pictures[id(drafts[-1])] = old.resize((int(old.width * scale), int(old.height * scale)))
    drafts += other_posts(rng, 60, span)
    number_posts(drafts, first=WINTER, step=1)
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    for number, draft in enumerate(post for post in drafts if post.kind):
        form = {"animated": "GIF"}.get(draft.why) or rng.choice(["PNG", "PNG", "JPEG"])
        suffix = {"GIF": "gif", "PNG": "png", "JPEG": "jpg"}[form]
        if number % 20 == 7 and form != "GIF":
            suffix = {"png": "jpg", "jpg": "png"}[suffix]
        draft.title = f"Tray {rng.randint(1, 999)}, {rng.choice(words.trays)}"
        draft.url = f"http://127.0.0.1:{port}/{draft.id}.{suffix}"
        data = encode(pictures[id(draft)], form)
        if draft.why == "not a picture":
            data = b"<!DOCTYPE html><title>Gone</title><p>This picture has moved."
        if draft.why != "missing":
            shown = data[: len(data) // 2] if draft.why == "truncated" else data
            (folder / "pictures" / f"{draft.id}.{suffix}").write_bytes(shown)
    write_dump(folder, rng, drafts, AUTUMN[0], "RS_%Y-%m.zst")
    return write_labels(folder, rng, drafts, ARRANGED, ("item", "arrangement", "rater"))


@contextmanager
def serving(folder: Path, port: int) -> Iterator[int]:
    """Serve the pictures of `images` on the loopback; yield the port (0 picks a free one)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            file = folder / "pictures" / Path(self.path.split("?")[0]).name
            data = file.read_bytes() if file.is_file() else b"404"
            kind = {".png": "image/png", ".jpg": "image/jpeg", ".gif": "image/gif"}.get(file.suffix, "text/plain")
            self.send_response(200 if file.is_file() else 404)
            self.send_header("Content-Type", "text/html" if data.startswith(b"<!DOCTYPE") else kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
