"""Define the sections of ``params.yaml`` for labellers, ensembles and votes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipelines.config.base import Fraction, Positive, Section

Api = Literal["openai", "anthropic", "google", "azure"]


class Provider(Section):
    """A service that serves models: its API protocol (``api``), and the limits of the account there.

    ``azure`` is Azure AI Content Safety, which moderates and labels nothing. ``ready_seconds``: how long a step waits
    for a server of your own (``CORPUS_<PROVIDER>_URL``, protocol ``openai``) to be healthy and to serve the model.
    """

    api: Api
    concurrency: Positive
    requests_per_minute: Positive | None
    tokens_per_minute: Positive | None
    timeout_seconds: Annotated[float, Field(gt=0)]
    max_retries: Annotated[int, Field(ge=0)]
    max_retry_after_seconds: Annotated[float, Field(ge=0)]
    batch_poll_seconds: Annotated[float, Field(gt=0)]
    ready_seconds: Annotated[float, Field(ge=0)] = 0


class Price(Section):
    """A model's price in US dollars per million tokens, used instead of the price that genai-prices lists."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]


class RemoteLabeller(Section):
    """A labeller that is a language model called over HTTP."""

    kind: Literal["remote"]
    provider: str
    model: str
    system: Literal["open", "commercial"]
    price: Price | None = None


class OfflineLabeller(Section):
    """A labeller of the offline ensemble: a local classifier fitted on the gold labels of the split dev."""

    kind: Literal["offline"]
    features: Literal["characters", "words", "embedding"]


Labeller = Annotated[RemoteLabeller | OfflineLabeller, Field(discriminator="kind")]


class Ensemble(Section):
    """Labellers (``members``) whose votes are aggregated; ``fallback`` decides undecided records of the split test."""

    members: tuple[str, ...]
    aggregate: Literal["label_set_majority", "k_of_n", "weighted", "dawid_skene", "mean_logit"]
    fallback: str | None


class VotesParams(Section):
    labellers: tuple[str, ...]
    mode: Literal["paper", "improved"]
    max_output_tokens: Positive
    context_tokens: Positive
    shard_size: Positive
    budget_usd: Annotated[float, Field(ge=0)]
    batch: bool
    max_failed: Fraction
    min_positives: Positive
    seed: int


class Prompts(Section):
    """A team's own prompt texts: their folder, and the SHA-256 that they must have; without a folder, ours are used."""

    folder: str | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None


class FewShot(Section):
    """The examples in prompts; ``among``: all of dev's gold, or only posts on which annotators disagreed (CRADLE B)."""

    examples: Annotated[int, Field(ge=0)]
    among: Literal["all", "disagreement"] = "all"
    seed: int


class Silver(Section):
    ensembles: tuple[str, ...]
    k: Positive
    resamples: Positive
    min_probability: Fraction
    seed: int


class InjectionTest(Section):
    size: Annotated[int, Field(ge=0)]
    seed: int
