"""Define the sections of ``params.yaml`` for corpora, sources, their items, near-duplicates, sample and split.

Of an entry that belongs to a part (a source, an OCR engine), only what every part has is checked here, the rest by the
part's own model (:func:`pipelines.core.config.base.fitted`).
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pipelines.core.config.base import Entry, Fraction, Month, Positive, Section
from pipelines.core.errors import SourceNotApproved

# What to do where the system can confine no child process that reads pictures.
Sandboxing = Literal["required", "accepted_without"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]


class Corpus(Section):
    content: Literal["images", "texts"]
    scheme: str
    subreddits: tuple[str, ...]
    # one source, or several in the order in which they are asked for what is still missing of a month
    source: str | Annotated[tuple[str, ...], Field(min_length=1)]
    first_month: Month
    last_month: Month | None

    @model_validator(mode="after")
    def _in_order(self) -> Corpus:
        if self.last_month and self.last_month < self.first_month:
            raise ValueError(f"last_month {self.last_month} is before first_month {self.first_month}")
        return self

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources in order of preference, each once."""
        return (self.source,) if isinstance(self.source, str) else tuple(dict.fromkeys(self.source))


class Matrix(Section):
    """The corpora for which the stages of ``dvc.yaml`` run."""

    corpora: tuple[str, ...]


class Listing(Section):
    """How a source's listings are read: when (``schedule``: cron), how far they go back, and posts of a page."""

    schedule: str = "17 * * * *"
    limit: Positive
    page_size: Positive


class SourceEntry(Entry):
    """A source of records, and on whose word it is read; further keys are the source's own parameters.

    ``listing`` is given for a source that shows its newest records. ``ethics`` is the ethics approval for research with
    its posts, or the decision that none is needed: which board, and its reference (FigSIM, Ethics: a human research
    ethics committee and a project id). Dumps need it as much as a live source, because the posts are the same.
    """

    live: bool
    listing: Listing | None = None
    ethics: str | None = None
    access_basis: str | None
    approval: str | None
    expires: date | None
    retention_days: int | None

    @property
    def unset(self) -> list[str]:
        """The keys without which the source is not read: an ethics approval, and of a live one the terms."""
        terms = ("access_basis", "approval", "expires", "retention_days") if self.live else ()
        return [key for key in ("ethics", *terms) if not str(getattr(self, key) or "").strip()]

    def check(self, name: str, *, today: date) -> None:
        """Reject a source that lacks one of these keys, and a live one whose approval has ended."""
        if unset := self.unset:
            ethics = "ethics (which board approved the research, or why none)"
            detail = ethics if "ethics" in unset else ", ".join(unset)
            raise SourceNotApproved(source=name, detail=f"{detail} not set")
        if self.live and self.expires is not None and self.expires <= today:
            raise SourceNotApproved(source=name, detail=f"its approval ended on {self.expires}")


class Refresh(Section):
    """How often a listing is read, how far back, and when a month closes."""

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
    """The OCR engine, and the parameters of engines by name."""

    engine: str
    engines: dict[str, dict[str, Any]] = Field(default_factory=dict)
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


class Dedupe(Section):
    radius: Annotated[int, Field(ge=0, le=31)]
    radius_no_text: Annotated[int, Field(ge=0, le=31)]
    radius_long_caption: Annotated[int, Field(ge=0, le=31)]
    long_caption: Positive
    word_difference: Positive
    misread_words: Annotated[int, Field(ge=0)]
    listed_copies: Positive
    similarity: Fraction


class Sample(Section):
    size: Positive
    seed: int


class Split(Section):
    version: Positive
    ratios: dict[str, Annotated[float, Field(gt=0)]]
    sizes: dict[str, Positive] | None = None
    strata: tuple[Literal["month", "kind", "has_text", "subreddit"], ...]
    seed: int
    proposals: Positive
    # DVC makes a dependency of it
    published: Annotated[str, Field(pattern=r"^annotations(/[A-Za-z0-9_][A-Za-z0-9_.+@-]*)+$")] | None = None

    @model_validator(mode="after")
    def _same_names(self) -> Split:
        if self.sizes is not None and list(self.sizes) != list(self.ratios):
            raise ValueError("sizes and ratios must name the same splits in the same order")
        return self


class Quality(Section):
    truth: bool


class CollectSections(Section):
    corpora: dict[str, Corpus]
    matrix: Matrix
    sources: dict[str, SourceEntry]
    refresh: Refresh = Field(default_factory=Refresh)
    collect: Collect
    images: Images
    texts: Texts
    language: Language
    sandbox: Sandbox | None = None
    dedupe: Dedupe
    sample: dict[str, Sample]
    split: dict[str, Split]
    quality: Quality

    def listing(self, corpus: str) -> str | None:
        """Return the source whose listings a corpus reads; its posts wait in the store of refreshes for their month."""
        return next((name for name in self.corpora[corpus].sources if self.sources[name].listing), None)
