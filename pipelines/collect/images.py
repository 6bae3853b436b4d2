"""Run the step ``images``: fetch one shard of a month's pictures and extract text, language and fingerprint."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.collect.collect import work
from pipelines.collect.image_fetch import fetch_images, may_pass
from pipelines.collect.month import Window, first_post
from pipelines.collect.read.confined_engine import open_engine
from pipelines.collect.read.decode import DecodedPicture, Decoder
from pipelines.collect.read.engine import ENGINES, OcrFailed, OcrReading
from pipelines.collect.read.fingerprint import FINGERPRINT_ID, fingerprints
from pipelines.collect.read.language import CaptionReader, LanguageGate
from pipelines.collect.read.words import words
from pipelines.collect.scrub import scrub
from pipelines.core import telemetry
from pipelines.core.config.collect import Fetch, Sources, require
from pipelines.core.config.params import Params
from pipelines.core.errors import SourceUnavailable
from pipelines.core.process import now, reporter
from pipelines.store import approvals, tables
from pipelines.store.exclusions import write_exclusions
from pipelines.store.seal import open_columns, write_rows
from pipelines.store.tables import Item
from pipelines.store.vault.vault import Vault

STEP = "images"
# Ours: pictures fetched ahead of OCR at most, enough to hide the network latency.
BATCH = 32
# Ours: fewer failures say nothing of the hosts, whatever their share of the shard.
FEW = 10


@dataclass(frozen=True)
class ImageJob:
    """A picture of a submission, with the addresses to try in order."""

    record_id: str
    image: int
    addresses: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True)
class GivenPictures:
    """Pictures that a dataset's publisher gives: by address its bytes or why there are none, and the text in it.

    ``source`` names who read these texts, as an OCR engine's identity does; a picture without a text is read here.
    """

    source: str
    read: Callable[[str], bytes | str]
    texts: Mapping[str, str]


# Returns the bytes of each job's picture, or why there are none.
Fetching = Callable[[list[ImageJob]], list[bytes | str]]


def run(
    corpus: str,
    *,
    window: Window,
    shard: int,
    params: Params,
    vault: Vault,
    contact: str = "",
    given: GivenPictures | None = None,
    root: Path = Path(),
) -> dict[str, Any]:
    """Fetch and decode the pictures of one shard, and extract their text.

    A shard holds ``shard_size`` posts of the month in the order of ``record_id``, from ``shard * shard_size`` on. If a
    picture cannot be decoded, its previews are tried; if none can, the reason is that of the picture itself. A picture
    that failed for a reason that may pass is tried again after all others; if pictures are ``given``, nothing is
    fetched. Writes ``data/<corpus>/<month>/images/<shard>.parquet`` and the shard's drops under ``work/``.
    """
    folder = work(root, corpus=corpus, month=window.key)
    jobs = list(_jobs(folder / "records.parquet", shard=shard, size=params.collect.shard_size, vault=vault))
    reader = _PictureReader(params, sources=approvals.sources_of(corpus, params=params, root=root), given=given)
    rows: list[dict[str, Any]] = []
    drops: dict[Item, str] = {}
    progress = reporter(STEP, total=len(jobs))
    with Decoder(params.images.decode) as decoder:
        fetch = _fetching(params, contact=contact, given=given)
        read = _read(jobs, reader=reader, decoder=decoder, params=params, fetch=fetch)
        for done, (job, row) in enumerate(read, start=1):
            if isinstance(row, str):
                drops[job.record_id, job.image] = row
            else:
                rows.append(row)
            progress(done)
    _require_hosts(drops, pictures=len(jobs), most=params.images.fetch.unavailable)
    # a table does not depend on which pictures were tried again
    rows.sort(key=lambda row: (row["record_id"], row["image"]))
    name = f"{shard:03d}.parquet"
    kept = write_rows(rows, root / "data" / corpus / window.key / "images" / name, name="images", vault=vault)
    telemetry.count("corpus.pictures.read", kept, corpus=corpus)
    return {
        "images": kept,
        "dropped": write_exclusions(drops, folder / "drops" / name, step=STEP),
        "engine": reader.engine.identity,
    }


def _fetching(params: Params, *, contact: str = "", given: GivenPictures | None = None) -> Fetching:
    def fetch(batch: list[ImageJob]) -> list[bytes | str]:
        if given:
            return [given.read(next(iter(job.addresses), "")) for job in batch]
        return asyncio.run(fetch_images([job.addresses for job in batch], params=params.images.fetch, contact=contact))

    return fetch


def _jobs(path: Path, *, shard: int, size: int, vault: Vault) -> Iterator[ImageJob]:
    columns = ["record_id", "title", "media"]
    posts = tables.part(path, name="records", columns=columns, start=first_post(shard, size=size), count=size)
    media, titles = open_columns(posts, name="records", columns=["media", "title"], vault=vault)
    for record_id, value, title in zip(posts["record_id"].to_pylist(), media, titles, strict=True):
        for image, addresses in enumerate(json.loads(value) if value else ()):
            yield ImageJob(record_id, image, tuple(addresses), (title or b"").decode())


def _read(
    jobs: list[ImageJob], *, reader: _PictureReader, decoder: Decoder, params: Params, fetch: Fetching
) -> Iterator[tuple[ImageJob, dict[str, Any] | str]]:
    """Yield every job with its row or drop reason, those that are tried again last.

    Time limits are in wall time, so a process that was stopped would cost the pictures in progress for good.
    """
    originals = {(job.record_id, job.image): job for job in jobs}
    for last in (False, True):
        again = []
        for job, picture in _decoded(jobs, decoder=decoder, params=params, fetch=fetch):
            row = reader.row(job, picture) if isinstance(picture, DecodedPicture) else picture
            if isinstance(row, str) and may_pass(row) and not last:
                again.append(originals[job.record_id, job.image])
            else:
                yield job, row
        jobs = again


def _require_hosts(drops: Mapping[Item, str], *, pictures: int, most: float) -> None:
    failed = Counter(reason for reason in drops.values() if may_pass(reason))
    if failed.total() >= FEW and failed.total() > most * pictures:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(failed.items()))
        raise SourceUnavailable(
            source="picture hosts",
            detail=f"{failed.total()} of {pictures} pictures of this shard failed twice ({reasons}). If a host is gone "
            "for good, remove it from images.fetch.hosts",
        )


def batch_size(params: Fetch) -> int:
    """Return how many pictures are fetched together, so that two batches of the largest ones fit in ``memory_mb``."""
    return max(1, min(BATCH, params.memory_mb * 2**20 // (2 * params.max_bytes)))


def _fetched(jobs: list[ImageJob], *, params: Params, fetch: Fetching) -> Iterator[tuple[ImageJob, bytes | str]]:
    """Yield every job with its bytes or drop reason; the next batch is fetched while the current one is read."""
    size = batch_size(params.images.fetch)
    batches = [jobs[i : i + size] for i in range(0, len(jobs), size)]
    with ThreadPoolExecutor(1) as ahead:
        coming = [ahead.submit(fetch, batch) for batch in batches[:1]]
        for i, batch in enumerate(batches):
            results = coming.pop().result()
            coming = [ahead.submit(fetch, following) for following in batches[i + 1 : i + 2]]
            yield from zip(batch, results, strict=True)


def _decoded(
    jobs: list[ImageJob], *, decoder: Decoder, params: Params, fetch: Fetching
) -> Iterator[tuple[ImageJob, DecodedPicture | str]]:
    """Yield every job with its picture or drop reason; the previews of a picture that cannot be decoded come last."""
    reasons: dict[Item, str] = {}
    while jobs:
        previews = []
        for job, fetched in _fetched(jobs, params=params, fetch=fetch):
            picture = decoder.decode(fetched) if isinstance(fetched, bytes) else fetched
            if isinstance(picture, DecodedPicture):
                yield job, picture
                continue
            reason = reasons.setdefault((job.record_id, job.image), picture)
            if isinstance(fetched, bytes) and job.addresses[1:]:
                previews.append(replace(job, addresses=job.addresses[1:]))
            else:
                yield job, reason
        jobs = previews


class _PictureReader:
    def __init__(self, params: Params, *, sources: Sources, given: GivenPictures | None) -> None:
        ocr, allowed = params.images.ocr, params.distributions
        paid = ENGINES.get(ocr.engine, allowed).remote
        if paid:
            require("ask_providers", sources, today=now().date())
        self.engine = open_engine(ocr, consent=params.consents.get(ocr.engine), allowed=allowed)
        self.gate, self.given = LanguageGate(params.language), given
        self.captions = CaptionReader(self.engine, self.gate, twice=not paid)
        self.kinds = params.collect.scrub
        self.placeholders = params.images.fetch.placeholder_digests
        self.fingerprint = params.images.fingerprint

    def row(self, job: ImageJob, picture: DecodedPicture) -> dict[str, Any] | str:
        """Return the picture's row of the table ``images``, or the reason why the picture is dropped."""
        if picture.sha256 in self.placeholders:
            return "placeholder"
        published = self.given.texts.get(job.addresses[0], "") if self.given else ""
        try:
            if self.given and published.strip():
                reading = OcrReading(published, confidence=1.0, engine=self.given.source)
                verdict = self.gate.judge(published, title=job.title, confidence=1.0)
            else:
                reading, verdict = self.captions.read(picture.data, title=job.title)
        except OcrFailed as failed:
            return str(failed)
        if not verdict.kept:
            return "not_english"
        captioned = bool(words(reading.text))
        hashes = fingerprints(picture.data, min_energy=self.fingerprint.min_energy, captioned=captioned)
        text, _ = scrub(reading.text, kinds=self.kinds)
        return {
            "record_id": job.record_id,
            "image": job.image,
            "sha256": picture.sha256,
            "width": picture.width,
            "height": picture.height,
            "bytes": picture.data,
            "text": text,
            "words": len(words(text)),
            "ocr_engine": reading.engine,
            "ocr_confidence": reading.confidence,
            "language": verdict.language,
            "fingerprint": hashes.trimmed,
            "inner_fingerprint": hashes.inner,
            "outer_fingerprint": hashes.outer,
            "fingerprint_id": FINGERPRINT_ID,
            "energy": hashes.energy,
            "text_area": None if published.strip() else reading.area,
        }
