"""The sections of ``params.yaml`` for labellers, ensembles and their votes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipelines.config.base import Fraction, Positive, Section


class Provider(Section):
    """A service that answers: its protocol and the limits that its account has."""

    api: Literal["openai", "anthropic", "google"]
    concurrency: Positive
    requests_per_minute: Positive | None
    tokens_per_minute: Positive | None
    timeout_seconds: Annotated[float, Field(gt=0)]
    max_retries: Annotated[int, Field(ge=0)]
    max_retry_after_seconds: Annotated[float, Field(ge=0)]
    batch_poll_seconds: Annotated[float, Field(gt=0)]


class Price(Section):
    """US dollars for a million tokens, where the price list of genai-prices does not know a model."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]


class RemoteLabeller(Section):
    """A language model that is asked over HTTP."""

    kind: Literal["remote"]
    provider: str
    model: str
    system: Literal["open", "commercial"]
    price: Price | None = None


class OfflineLabeller(Section):
    """A member of the offline ensemble, fitted on the dev gold."""

    kind: Literal["offline"]
    features: Literal["characters", "words", "embedding"]


Labeller = Annotated[RemoteLabeller | OfflineLabeller, Field(discriminator="kind")]


class Ensemble(Section):
    """Labellers that vote together; ``fallback`` names the member that decides on test where no majority does."""

    members: tuple[str, ...]
    aggregate: Literal["label_set_majority", "k_of_n", "weighted", "dawid_skene", "mean_logit"]
    fallback: str | None


class VotesParams(Section):
    labellers: tuple[str, ...]
    mode: Literal["paper", "improved"]
    examples: Annotated[int, Field(ge=0)]
    max_output_tokens: Positive
    context_tokens: Positive
    shard_size: Positive
    budget_usd: Annotated[float, Field(ge=0)]
    batch: bool
    max_failed: Fraction
    min_positives: Positive
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
