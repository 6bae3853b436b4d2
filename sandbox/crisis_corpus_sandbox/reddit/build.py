"""Write the offline Reddit's files, the same bytes for the same parameters (``corpus sandbox build``)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import PIL

from crisis_corpus_sandbox.reddit import listing, seeded
from crisis_corpus_sandbox.reddit.draw import CONTENT_TYPE, render
from crisis_corpus_sandbox.reddit.generated_posts import HOME, KEPT, SandboxPicture
from crisis_corpus_sandbox.reddit.image_host import faulty
from crisis_corpus_sandbox.reddit.listing import live
from crisis_corpus_sandbox.reddit.post_world import COMMUNITIES, PostWorld
from crisis_corpus_sandbox.reddit.truth import post_truth, truth
from crisis_corpus_sandbox.reddit.world import World
from pipelines.core.config.collect import Sandbox

T = TypeVar("T")
R = TypeVar("R")
MARKER = "build.json"
# Starting a process costs about as much as drawing this many pictures.
WORTH_A_POOL = 60


def build(root: Path, *, sandbox: Sandbox) -> dict[str, int]:
    """Write the offline Reddit below ``root``.

    Does nothing if an identical build (same parameters, same generator, same Pillow) already exists.

    Returns:
        Counts: ``submissions``, ``images``, ``kept_images``, ``pairs`` (near-duplicates), ``elsewhere`` (posts of other
        communities), ``posts``, ``kept_posts``, ``post_pairs``.
    """
    identity, marker = _identity(sandbox), root / MARKER
    if marker.is_file():
        known = json.loads(marker.read_text())
        if known["identity"] == identity:
            return {str(k): int(v) for k, v in known["counts"].items()}
    marker.unlink(missing_ok=True)
    root.mkdir(parents=True, exist_ok=True)
    counts = _world(root, sandbox=sandbox)
    # the marker is written atomically, so a killed build is repeated
    written = marker.with_suffix(".partial")
    _json(written, {"identity": identity, "counts": counts})
    written.replace(marker)
    return counts


def _world(root: Path, *, sandbox: Sandbox) -> dict[str, int]:
    for name in ("images", "dumps"):
        shutil.rmtree(root / name, ignore_errors=True)
    posts = World(sandbox).build()
    pictures = [picture for post in posts for picture in post.pictures]
    renderings = [r for p in pictures for r in (p.rendering, p.preview) if r is not None]
    (root / "images").mkdir()
    faults = {p.file: p.fault for p in pictures if p.fault and p.file}
    with _mapping(len(renderings) > WORTH_A_POOL) as run:
        for rendering, data in zip(renderings, run(render, renderings), strict=True):
            fault = faults.get(rendering.file)
            served = faulty(fault, picture=data, rng=seeded(sandbox.seed, rendering.file)) if fault else data
            (root / "images" / rendering.file).write_bytes(served)
    _json(root / "images.json", _served(pictures))
    texts = PostWorld(sandbox).build() if sandbox.posts else []
    lines = [json.dumps(live(post, port=sandbox.port), ensure_ascii=False) for post in (*posts, *texts)]
    (root / "submissions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    listing.write(root / "dumps", posts=posts, sandbox=sandbox)
    for name in COMMUNITIES if texts else ():
        own = [post for post in texts if post.subreddit == name]
        listing.write(root / "dumps", posts=own, sandbox=sandbox, subreddit=name)
    known = truth(posts, sandbox=sandbox)
    _json(root / "truth_images.json", known)
    known_posts = post_truth(texts, sandbox=sandbox)
    _json(root / "truth_texts.json", known_posts)
    home = [post for post in posts if post.subreddit == HOME]
    return {
        "submissions": len(home),
        "images": len(renderings),
        "kept_images": sum(image["expected"] == KEPT for image in known["images"]),
        "pairs": len(known["pairs"]),
        "elsewhere": len(posts) - len(home),
        "posts": len(texts),
        "kept_posts": sum(post.expected == KEPT for post in texts),
        "post_pairs": len(known_posts["pairs"]),
    }


def _served(pictures: Iterable[SandboxPicture]) -> dict[str, dict[str, str]]:
    """Return how the image host serves each file."""
    served = {}
    for picture in pictures:
        for rendering, behaviour in ((picture.rendering, picture.behaviour), (picture.preview, "ok")):
            if rendering is not None:
                kind = CONTENT_TYPE[rendering.file.rsplit(".", 1)[1]]
                kind = "text/html; charset=utf-8" if behaviour == "wrong_type" else kind
                served[rendering.file] = {"content_type": kind, "behaviour": behaviour}
    return dict(sorted(served.items()))


@contextmanager
def _mapping(parallel: bool) -> Iterator[Callable[[Callable[[T], R], Iterable[T]], Iterator[R]]]:
    """Yield ``map``, or the ordered map of a pool with one process per core; the results are the same."""
    workers = os.cpu_count() or 1
    if not parallel or workers < 2:
        yield map
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield pool.map


def _identity(sandbox: Sandbox) -> str:
    """Return the digest of everything that determines the bytes: parameters, the generator's code, Pillow's version."""
    digest = hashlib.sha256(f"{sandbox.model_dump_json()} {PIL.__version__}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
