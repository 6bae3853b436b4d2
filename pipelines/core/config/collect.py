"""Define the sections of ``params.yaml`` for corpora, sources, images and texts."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipelines.core.config.base import Fraction, Month, Positive, Section
from pipelines.core.errors import SourceNotApproved

# What to do where the system can confine no child process that reads pictures.
Sandboxing = Literal["required", "accepted_without"]
MonthlySource = Literal["dump", "arctic_shift"]
SourceName = Literal[MonthlySource, "reddit"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]


class Corpus(Section):
    content: Literal["images", "texts"]
    scheme: str
    subreddits: tuple[str, ...]
    # one source, or several in the order in which they are asked for what is still missing of a month
    source: SourceName | Annotated[tuple[SourceName, ...], Field(min_length=1)]
    first_month: Month
    last_month: Month | None

    @property
    def sources(self) -> tuple[SourceName, ...]:
        """The sources in order of preference, each once."""
        return (self.source,) if isinstance(self.source, str) else tuple(dict.fromkeys(self.source))

    @property
    def listed(self) -> bool:
        """Whether the corpus reads Reddit's listings, whose posts wait in the store of refreshes for their month."""
        return "reddit" in self.sources


class Matrix(Section):
    """The corpora for which the stages of ``dvc.yaml`` run."""

    corpora: tuple[str, ...]


class Source(Section):
    """A source of posts, and on whose word it is read.

    ``ethics`` is the ethics approval for research with its posts, or the decision that none is needed: which board, and
    its reference (FigSIM, Ethics: a human research ethics committee and a project id). Dumps need it as much as a live
    source, because the posts are the same.
    """

    live: bool
    ethics: str | None = None
    access_basis: str | None
    approval: str | None
    expires: date | None
    retention_days: int | None

    def check(self, name: str, *, today: date) -> None:
        """Reject a source without an ethics approval, and a live one without basis, approval, expiry or retention."""
        if not (self.ethics or "").strip():
            detail = "ethics (which board approved the research, or why none) not set"
            raise SourceNotApproved(source=name, detail=detail)
        if not self.live:
            return
        missing = [k for k in ("access_basis", "approval", "expires", "retention_days") if getattr(self, k) is None]
        if missing:
            raise SourceNotApproved(source=name, detail=f"{', '.join(missing)} not set")
        if self.expires is not None and self.expires <= today:
            raise SourceNotApproved(source=name, detail=f"its approval ended on {self.expires}")


class Dump(Section):
    window_log: Annotated[int, Field(ge=10, le=31)]
    max_line_bytes: Positive
    max_ratio: Positive


class Reddit(Section):
    listing_limit: Annotated[int, Field(gt=0, le=1000)]
    page_size: Annotated[int, Field(gt=0, le=100)]


class Refresh(Section):
    """How often a listing is read, how far back, and when a month closes."""

    schedule: str = "17 * * * *"
    every_hours: Annotated[float, Field(gt=0)] = 24
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    overlap_hours: Annotated[float, Field(ge=0)] = 24
    settle_seconds: Annotated[int, Field(ge=0)] = 600
    grace_hours: Annotated[float, Field(ge=0)] = 48
    retry_hours: Annotated[float, Field(gt=0)] = 24
    retry_days: Annotated[float, Field(ge=0)] = 90

    @model_validator(mode="after")
    def _late_posts(self) -> Refresh:
        if self.grace_hours < self.overlap_hours:
            raise ValueError("grace_hours is less than overlap_hours: posts approved late would miss their month")
        return self


class ArcticShift(Section):
    page_size: Annotated[int, Field(gt=0, le=100)]
    timeout_seconds: float


class Collect(Section):
    shard_size: Positive
    scrub: tuple[str, ...]


class Fetch(Section):
    hosts: tuple[str, ...]
    allow_http: bool
    allow_loopback: bool
    per_host: Positive
    concurrency: Positive
    max_bytes: Positive
    memory_mb: Positive = 256
    timeout_seconds: float
    min_bytes_per_second: Positive
    max_redirects: int
    max_retry_after_seconds: float
    retries: int
    unavailable: Annotated[float, Field(gt=0, le=1)] = 0.5
    user_agent: str
    # of the hosts; a profile's own are in `placeholders`, which it replaces as a whole
    known_placeholders: tuple[Sha256, ...] = ()
    placeholders: tuple[Sha256, ...]
    shared_by: Annotated[int, Field(ge=2)] = 5

    @property
    def placeholder_digests(self) -> frozenset[str]:
        """The SHA-256 of all pictures that stand for a removed one, in lower case."""
        return frozenset(digest.lower() for digest in (*self.known_placeholders, *self.placeholders))


class Decode(Section):
    formats: tuple[str, ...]
    max_pixels: Positive
    max_frames: Positive
    memory_mb: Positive
    timeout_seconds: float
    quality: Annotated[int, Field(ge=1, le=100)]
    sandbox: Sandboxing = "required"


class Ocr(Section):
    engine: Literal["rapidocr", "tesseract", "google_vision"]
    side: Positive
    split_words_from: Positive
    sandbox: Sandboxing = "required"


class Texts(Section):
    min_words: Positive
    max_words: Positive
    shingle_words: Positive
    permutations: Positive


class Language(Section):
    accept: Fraction
    reject: Fraction
    lingua_accept: Fraction
    lingua_confirm: Fraction
    min_letters: Positive


class Fingerprint(Section):
    min_energy: float


class Images(Section):
    """Parameters for fetching, decoding, OCR and fingerprints of images."""

    fetch: Fetch
    decode: Decode
    ocr: Ocr
    fingerprint: Fingerprint


class Sandbox(Section):
    """Months, number of submissions, seed and port of the sandbox's simulated Reddit."""

    seed: int
    months: tuple[str, ...]
    submissions: Positive
    posts: Annotated[int, Field(ge=0)] = 0
    port: int


class CollectSections(Section):
    corpora: dict[str, Corpus]
    matrix: Matrix
    sources: dict[SourceName, Source]
    dump: Dump
    reddit: Reddit
    refresh: Refresh = Field(default_factory=Refresh)
    arctic_shift: ArcticShift
    collect: Collect
    images: Images
    texts: Texts
    language: Language
    sandbox: Sandbox | None = None
