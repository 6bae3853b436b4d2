"""All configuration, read in one place: ``params.yaml`` with a profile over it, and the ``CORPUS_*`` environment.

Steps receive frozen models; nothing else in the package reads a YAML file or the environment.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipelines.errors import BadParams, SourceNotApproved


class Section(BaseModel):
    """A frozen section of ``params.yaml``; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


SourceName = Literal["dump", "reddit", "arctic_shift"]
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
Month = Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]


class Corpus(Section):
    subreddits: tuple[str, ...]
    source: SourceName
    first_month: Month
    last_month: Month | None


class Source(Section):
    live: bool
    access_basis: str | None
    approval: str | None
    expires: date | None
    retention_days: int | None

    def check(self, name: str, *, today: date) -> None:
        """Refuse a live source without an access basis, an approval, an expiry in the future and a retention.

        Raises:
            SourceNotApproved: naming what is missing.
        """
        if not self.live:
            return
        missing = [k for k in ("access_basis", "approval", "expires", "retention_days") if getattr(self, k) is None]
        if missing:
            raise SourceNotApproved(source=name, detail=f"{', '.join(missing)} not stated")
        if self.expires is not None and self.expires <= today:
            raise SourceNotApproved(source=name, detail=f"its approval ended on {self.expires}")


class Dump(Section):
    window_log: Annotated[int, Field(ge=10, le=31)]
    max_line_bytes: Positive
    max_ratio: Positive


class Reddit(Section):
    listing_limit: Annotated[int, Field(gt=0, le=1000)]
    page_size: Annotated[int, Field(gt=0, le=100)]


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
    timeout_seconds: float
    min_bytes_per_second: Positive
    max_redirects: int
    max_retry_after_seconds: float
    retries: int
    user_agent: str
    placeholders: tuple[str, ...]


class Decode(Section):
    formats: tuple[str, ...]
    max_pixels: Positive
    max_frames: Positive
    memory_mb: Positive
    timeout_seconds: float
    quality: Annotated[int, Field(ge=1, le=100)]


class Ocr(Section):
    engine: Literal["rapidocr", "tesseract", "google_vision"]
    side: Positive
    split_words_from: Positive


class Language(Section):
    accept: Fraction
    reject: Fraction
    lingua_accept: Fraction
    lingua_confirm: Fraction
    min_letters: Positive


class Fingerprint(Section):
    min_energy: float


class Dedupe(Section):
    radius: Annotated[int, Field(ge=0, le=31)]
    radius_no_text: Annotated[int, Field(ge=0, le=31)]
    radius_long_caption: Annotated[int, Field(ge=0, le=31)]
    long_caption: Positive
    word_difference: Positive
    misread_words: Annotated[int, Field(ge=0)]
    listed_copies: Positive


class Sample(Section):
    size: Positive
    seed: int


class Split(Section):
    version: Positive
    ratios: dict[str, Annotated[float, Field(gt=0)]]
    sizes: dict[str, Positive] | None = None
    strata: tuple[Literal["month", "kind", "has_text"], ...]
    seed: int
    proposals: Positive
    published: str | None = None

    @model_validator(mode="after")
    def _same_names(self) -> Split:
        if self.sizes is not None and list(self.sizes) != list(self.ratios):
            raise ValueError("sizes and ratios must name the same splits in the same order")
        return self


class Score(Section):
    truth: bool


class Sandbox(Section):
    seed: int
    months: tuple[str, ...]
    submissions: Positive
    port: int


class Params(Section):
    """Everything under ``params.yaml``; ``profile`` names the one that a corpus repository was begun with."""

    profile: str | None
    corpora: dict[str, Corpus]
    sources: dict[SourceName, Source]
    dump: Dump
    reddit: Reddit
    arctic_shift: ArcticShift
    collect: Collect
    fetch: Fetch
    decode: Decode
    ocr: Ocr
    language: Language
    fingerprint: Fingerprint
    dedupe: Dedupe
    sample: Sample
    split: Split
    score: Score
    sandbox: Sandbox | None = None


def overlay(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` merged in: mappings merge, everything else replaces."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = overlay(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def load(root: Path = Path(), *, profile: str | None = None) -> Params:
    """Read ``root/params.yaml`` with ``root/profiles/<profile>.yaml`` over it.

    Raises:
        BadParams: naming the file and every key at fault.
    """
    where = root / "params.yaml"
    try:
        values = yaml.safe_load(where.read_text())
        if profile:
            where = root / "profiles" / f"{profile}.yaml"
            values = overlay(values, yaml.safe_load(where.read_text()) or {})
        return Params.model_validate(values)
    except (OSError, yaml.YAMLError) as error:
        raise BadParams(where=where.name, detail=f"cannot be read ({type(error).__name__})") from None
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise BadParams(where=where.name, detail=faults) from None


def _port(variable: str) -> int | None:
    text = os.environ.get(variable)
    if text and not text.isdecimal():
        raise BadParams(where=variable, detail="needs a port number")
    return int(text) if text else None


class Settings(Section):
    """Addresses and secrets, from ``CORPUS_*`` environment variables (docs/configuration.md lists them)."""

    home: Path
    vault_url: str
    repo: str
    remote: str
    cache: Path
    dumps: Path
    sandbox: Path
    reddit_client_id: str
    reddit_client_secret: str
    reddit_url: str
    reddit_oauth_url: str
    arctic_shift_url: str
    contact: str
    sandbox_port: int | None
    mlflow_tracking_uri: str | None

    @classmethod
    def from_env(cls) -> Settings:
        """Read the environment; everything defaults to a place under ``CORPUS_HOME`` (``var``)."""
        home = Path(os.environ.get("CORPUS_HOME", "var")).resolve()

        def env(name: str, default: str) -> str:
            return os.environ.get(f"CORPUS_{name}", default)

        return cls(
            home=home,
            vault_url=env("VAULT_URL", f"sqlite:///{home}/vault.sqlite"),
            repo=env("REPO", f"{home}/corpus.git"),
            remote=env("REMOTE", f"{home}/remote"),
            cache=Path(env("CACHE", f"{home}/cache")),
            dumps=Path(env("DUMPS", f"{home}/sandbox/dumps")),
            sandbox=Path(env("SANDBOX", f"{home}/sandbox")),
            reddit_client_id=env("REDDIT_CLIENT_ID", ""),
            reddit_client_secret=env("REDDIT_CLIENT_SECRET", ""),
            reddit_url=env("REDDIT_URL", "https://www.reddit.com"),
            reddit_oauth_url=env("REDDIT_OAUTH_URL", "https://oauth.reddit.com"),
            arctic_shift_url=env("ARCTIC_SHIFT_URL", "https://arctic-shift.photon-reddit.com"),
            contact=env("CONTACT", ""),
            sandbox_port=_port("CORPUS_SANDBOX_PORT"),
            mlflow_tracking_uri=os.environ.get("MLFLOW_TRACKING_URI"),
        )

    def secret(self) -> bytes:
        """Return the project secret: ``CORPUS_SECRET`` (hex), else ``<home>/secret``, made on first use with mode 600.

        Raises:
            BadParams: the secret is shorter than 32 bytes or not hexadecimal.
        """
        text = os.environ.get("CORPUS_SECRET") or self._own_secret()
        try:
            secret = bytes.fromhex(text.strip())
        except ValueError:
            secret = b""
        if len(secret) < 32:
            raise BadParams(where="CORPUS_SECRET", detail="needs at least 64 hexadecimal digits")
        return secret

    def _own_secret(self) -> str:
        """Read ``<home>/secret``; the first process makes it whole under another name and links it into place."""
        path = self.home / "secret"
        if not path.exists():
            self.home.mkdir(parents=True, exist_ok=True)
            made = path.with_name(f"secret.{os.getpid()}.{secrets.token_hex(4)}")
            made.touch(mode=0o600)
            made.write_text(secrets.token_hex(64))
            with contextlib.suppress(FileExistsError):
                os.link(made, path)
            made.unlink()
        return path.read_text()
