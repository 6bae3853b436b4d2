"""Write the offline Reddit's files, the same bytes for the same parameters (``corpus sandbox build``)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import networkx
import PIL

from crisis_corpus_sandbox.reddit import listing, post_world, seeded
from crisis_corpus_sandbox.reddit.captions import words_apart
from crisis_corpus_sandbox.reddit.draw import CONTENT_TYPE, render
from crisis_corpus_sandbox.reddit.generated_posts import HOME, KEPT, SandboxPicture, SandboxPost
from crisis_corpus_sandbox.reddit.image_host import faulty, placeholder_sha256
from crisis_corpus_sandbox.reddit.listing import live
from crisis_corpus_sandbox.reddit.post_world import ALIKE, COMMUNITIES, PostWorld, shingles, text_of
from crisis_corpus_sandbox.reddit.world import CANARY_BODY, CANARY_OVERLAY, CANARY_TITLE, CANARY_USER, World
from pipelines.collect.read.shingles import similarity
from pipelines.collect.read.words import normalise, words
from pipelines.core.config.collect import Sandbox

Item = tuple[str, int]
Pair = tuple[Item, Item]
# FigSIM 3.1: near-duplicates differ in fewer than three words.
WORD_DIFFERENCE = 3
DELETED = ("deleted", "deleted_later")


def truth(posts: Sequence[SandboxPost], *, sandbox: Sandbox) -> dict[str, Any]:
    """Return the ground truth of the pictures: items, submissions, near-duplicate and mirrored pairs, canary texts.

    Two kept pictures are a pair when they have the same base, the same handedness and captions fewer than three
    words apart; ``group`` numbers the connected components of the pairs. ``mirrored_pairs`` would be pairs
    if one picture were not mirrored.
    """
    kept = [
        (p, i, picture)
        for p in posts
        for i, picture in enumerate(p.pictures)
        if p.subreddit == HOME and p.expected == KEPT and picture.expected == KEPT
    ]
    pairs, mirrored = _pairs(kept)
    groups = _groups(pairs)
    home = [p for p in posts if p.pictures]
    return {
        "seed": sandbox.seed,
        "months": list(sandbox.months),
        "images": [_image(p, i, picture, groups=groups) for p in home for i, picture in enumerate(p.pictures)],
        "submissions": [_submission(p) for p in posts],
        "pairs": [[list(a), list(b)] for a, b in pairs],
        "mirrored_pairs": [[list(a), list(b)] for a, b in mirrored],
        "canaries": _canaries(posts, words=(CANARY_TITLE, CANARY_BODY), user=CANARY_USER, overlay=CANARY_OVERLAY),
        "placeholders": [placeholder_sha256()],
    }


def post_truth(posts: Sequence[SandboxPost], *, sandbox: Sandbox) -> dict[str, Any]:
    """Return the ground truth of text posts: labels, expected outcomes, near-duplicate pairs, canary texts.

    Two kept posts are a pair when one is a copy of the other and their shingles are similar; ``group`` names the
    connected components of the pairs. All posts of a component are pairs.
    """
    families: dict[str, list[SandboxPost]] = defaultdict(list)
    for post in posts:
        if post.family and post.expected == KEPT:
            families[post.family].append(post)
    pairs: list[tuple[str, str]] = []
    groups: dict[str, str] = {}
    for family, members in families.items():
        known = [(post.fullname, shingles(text_of(post))) for post in members]
        for (left, one), (right, other) in combinations(known, 2):
            if similarity(one, other) >= ALIKE:
                pairs.append((min(left, right), max(left, right)))
                groups[left] = groups[right] = family
    canaries = _canaries(posts, words=(post_world.CANARY_TITLE, post_world.CANARY_BODY), user=post_world.CANARY_USER)
    return {
        "seed": sandbox.seed,
        "months": list(sandbox.months),
        "submissions": [_post(post, group=groups.get(post.fullname)) for post in posts],
        "pairs": [[(post, 0) for post in pair] for pair in sorted(pairs)],
        "canaries": canaries,
    }


def _pairs(kept: Sequence[tuple[SandboxPost, int, SandboxPicture]]) -> tuple[list[Pair], list[Pair]]:
    by_base: dict[str, list[tuple[Item, SandboxPicture]]] = defaultdict(list)
    for post, image, picture in kept:
        by_base[picture.base].append(((post.fullname, image), picture))
    pairs: list[Pair] = []
    mirrored: list[Pair] = []
    for members in by_base.values():
        for (left, one), (right, other) in combinations(members, 2):
            if words_apart(words(one.text), words(other.text)) < WORD_DIFFERENCE:
                same = (one.variant == "mirrored") == (other.variant == "mirrored")
                (pairs if same else mirrored).append((min(left, right), max(left, right)))
    return sorted(pairs), sorted(mirrored)


def _groups(pairs: Sequence[Pair]) -> dict[Item, str]:
    connected = sorted(map(sorted, networkx.connected_components(networkx.Graph(pairs))))
    return {item: f"g{number:03d}" for number, items in enumerate(connected) for item in items}


def _image(post: SandboxPost, image: int, picture: SandboxPicture, *, groups: dict[Item, str]) -> dict[str, Any]:
    text = normalise(picture.text)
    expected = post.expected if post.expected in (*DELETED, "removed") else picture.expected
    return {
        "fullname": post.fullname,
        "image": image,
        "file": picture.file or None,
        "text": text,
        "language": picture.language,
        "base": picture.base,
        "variant": picture.variant,
        "encoding": picture.rendering.encoding if picture.rendering else None,
        "group": groups.get((post.fullname, image)),
        "style": picture.rendering.meme.style if picture.rendering else None,
        "expected": expected,
    }


def _origin(post: SandboxPost) -> dict[str, Any]:
    return {
        "fullname": post.fullname,
        "subreddit": post.subreddit,
        "month": f"{post.created:%Y-%m}",
        "case": post.case,
        "expected": post.expected,
    }


def _post(post: SandboxPost, *, group: str | None) -> dict[str, Any]:
    labels = {"cradle": {"labels": sorted(post.cradle)}}
    return _origin(post) | {"labels": labels, "injected": post.injected, "group": group, "language": post.language}


def _submission(post: SandboxPost) -> dict[str, Any]:
    return _origin(post) | {
        "deleted": post.expected in DELETED,
        "labels": {"figsim": post.figsim.names() if post.figsim else None, "cradle": {"labels": list(post.cradle)}},
        "carriers": post.carriers,
    }


def _canaries(
    posts: Sequence[SandboxPost], *, words: tuple[str, str], user: str, overlay: str | None = None
) -> dict[str, list[str]]:
    title, body = words
    drawn = {p.fullname for p in posts for picture in p.pictures if overlay and overlay in picture.text.lower()}
    planted = [p.fullname for p in posts if title in p.title or body in p.body or p.fullname in drawn]
    return {"words": [*words], "users": [user], "fullnames": planted} | ({"ocr": [overlay]} if overlay else {})


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
    _json(written, {"identity": identity, "port": sandbox.port, "counts": counts})
    written.replace(marker)
    return counts


def drawn_port(root: Path) -> int | None:
    """Return the port in the addresses of the drawn pictures, or ``None`` if nothing is drawn."""
    try:
        return int(json.loads((root / MARKER).read_text())["port"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


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
