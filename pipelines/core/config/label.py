"""Define the sections of ``params.yaml`` for labels by people and by models, and what is done with them."""

from __future__ import annotations

import ipaddress
from datetime import date
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, model_validator

from pipelines.core.config.base import Entry, Fraction, Positive, Pseudonym, Section
from pipelines.core.errors import ConfigError

Said = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Round(Section):
    """Settings of annotation rounds; ``backends`` has the parameters of annotation backends by name."""

    backend: str
    backends: dict[str, dict[str, Any]] = Field(default_factory=dict)
    protocol: dict[str, str]
    annotators: tuple[Pseudonym, ...]
    adjudicator: Pseudonym
    daily_cap: Positive
    warning: str
    contacts: tuple[str, ...]

    @model_validator(mode="after")
    def _apart(self) -> Round:
        if len({*self.annotators, self.adjudicator}) <= len(self.annotators):
            raise ValueError("annotators and adjudicator must be different people")
        return self


class Agreement(Section):
    resamples: Positive
    confidence: Annotated[float, Field(gt=0, lt=1)]
    enough: Fraction
    seed: int


class GoldParams(Section):
    """The splits whose items get gold labels (``None`` means all sampled items), and further sources of gold.

    ``truth`` is whether the sandbox's ground truth is used; ``published`` is a CSV file. Answers from rounds take
    precedence over both.
    """

    splits: tuple[str, ...] | None
    truth: bool
    published: str | None


class LexiconFile(Section):
    """A lexicon of the user's: its path on the machine that runs the stage, and the SHA-256 that the file must have."""

    path: str | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None


class Lexicons(Section):
    """A dictionary in LIWC's format, and the NRC emotion lexicon."""

    liwc: LexiconFile = LexiconFile()
    nrc: LexiconFile = LexiconFile()


class Analysis(Section):
    """Parameters of the stage ``analysis``.

    ``mode``: ``paper`` adds FigSIM's own tests, each feature by itself, to those that hold for all of them together.
    ``heatmaps`` are pairs of categories, and ``factors`` the categories by which features are compared; those that a
    scheme lacks are left out. ``least``: the smallest count of items that is shown, and level that is tested.
    """

    mode: Literal["paper", "improved"] = "improved"
    heatmaps: tuple[tuple[str, str], ...]
    factors: tuple[str, ...]
    alpha: Annotated[float, Field(gt=0, lt=1)]
    confidence: Annotated[float, Field(gt=0, lt=1)]
    least: Annotated[Positive, Field(ge=2)]
    seed: int
    lexicons: Lexicons = Lexicons()


class ProviderNotConsented(ConfigError):
    """Items of a corpus may not be sent to a model provider, because no valid consent is on record."""


class Consent(Section):
    """The consent that a provider may receive items, and keep them for ``retention_days``; ``None``: not stated."""

    terms: Said | None = None
    retention_days: Annotated[int, Field(ge=0)] | None = None
    approved_by: Said | None = None
    approved_on: date | None = None
    expires: date | None = None

    def check(self, provider: str, *, today: date) -> None:
        """Reject a consent that is incomplete or does not cover today."""
        if missing := [name for name in type(self).model_fields if getattr(self, name) is None]:
            detail = f"its consent lacks {', '.join(missing)}"
        elif self.approved_on is not None and self.approved_on > today:
            detail = f"its consent begins on {self.approved_on}"
        elif self.expires is not None and self.expires <= today:
            detail = f"its consent ended on {self.expires}"
        else:
            return
        raise ProviderNotConsented(provider=provider, detail=detail)

    def told(self, provider: str, *, today: date) -> str:
        """Return until when the consent lasts, as "until DATE", or what :meth:`check` finds wrong with it."""
        try:
            self.check(provider, today=today)
        except ProviderNotConsented as error:
            return str(error.fields["detail"])
        return f"until {self.expires}"


def on_this_machine(url: str | None) -> bool:
    """Return whether an address is on the loopback interface, so that nothing that is sent to it leaves the machine."""
    host = urlsplit(url or "").hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ProviderEntry(Entry):
    """A service that serves models: the vendor whose protocol it speaks (``api``), and what the vendor reads besides.

    The fields are those of a class in ``pipelines/llm/vendors``.
    """

    api: str


class Price(Section):
    """A model's price in US dollars per million tokens, used instead of the price that genai-prices lists."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]


class RemoteLabeller(Section):
    """A labeller that is a language model called over HTTP.

    ``order``: that of the labels in its prompt; ``reversed`` shows whether answers depend on it. ``sample``: how many
    items it is asked about; ``None``: all.
    """

    kind: Literal["remote"]
    provider: str
    model: str
    system: Literal["open", "commercial"]
    price: Price | None = None
    order: Literal["scheme", "reversed"] = "scheme"
    sample: Positive | None = None


class OfflineLabeller(Section):
    """A labeller of the offline ensemble: a local classifier fitted on the gold labels of the split dev."""

    kind: Literal["offline"]
    features: Literal["characters", "words", "embedding"]


Labeller = Annotated[RemoteLabeller | OfflineLabeller, Field(discriminator="kind")]


class Ensemble(Section):
    """Labellers (``members``) whose votes are aggregated; ``fallback`` decides undecided records of the split test.

    Or the labels that others published of their models' votes: a CSV file ``record_id,image,category,labels,agreement``
    (``published``, aggregate ``published``), which an import writes; no model is asked.
    """

    members: tuple[str, ...] = ()
    aggregate: Literal["label_set_majority", "k_of_n", "weighted", "dawid_skene", "mean_logit", "published"]
    fallback: str | None = None
    published: str | None = None

    @model_validator(mode="after")
    def _either(self) -> Ensemble:
        if (self.aggregate == "published") != (self.published is not None) or bool(self.members) == bool(
            self.published
        ):
            raise ValueError("an ensemble has members, or aggregate `published` with a file in `published`")
        return self


class VotesParams(Section):
    """Parameters of the stage ``votes``; ``labellers``: corpus -> who is asked about its items.

    ``constrained``: whether the answer's schema is sent to the models that take one; else the prompt alone asks for it.
    ``canaries``: how many known items a remote labeller is asked about with each shard.
    """

    labellers: dict[str, tuple[str, ...]]
    mode: Literal["paper", "improved"]
    constrained: bool = True
    max_output_tokens: Positive
    context_tokens: Positive
    shard_size: Positive
    canaries: Annotated[int, Field(ge=0)] = 0
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
    """The examples in prompts: how many of a corpus, ``among`` all gold of validation or only disputed items."""

    examples: dict[str, Annotated[int, Field(ge=0)]]
    among: Literal["all", "disagreement"] = "all"
    seed: int


class Silver(Section):
    """Parameters of the stage ``silver``; ``ensembles``: corpus -> whose votes are aggregated.

    ``review``: the share of validation's items that may be *nothing* and yet have to be reviewed, as the price of
    finding others whose labels an instruction changed to nothing; 0: no decision is compared with validation.
    """

    ensembles: dict[str, tuple[str, ...]]
    review: Annotated[float, Field(ge=0, lt=1)] = 0
    k: Positive
    resamples: Positive
    min_probability: Fraction
    seed: int


class InjectionTest(Section):
    size: Annotated[int, Field(ge=0)]
    seed: int


class ModeratorEntry(Entry):
    """A moderation system; the fields are those of a class in ``pipelines/evaluate/moderation/moderators``."""

    kind: str
    provider: str


class Moderation(Section):
    """Parameters of the stage ``moderation``: the systems that are asked, and about how many items with gold."""

    systems: dict[str, tuple[str, ...]]
    items: Positive | None
    resamples: Positive
    seed: int

    def of(self, corpus: str) -> tuple[str, ...]:
        """Return the names of the systems that are asked about a corpus."""
        return self.systems.get(corpus, ())


class LabelSections(Section):
    round: Round
    agreement: Agreement
    gold: dict[str, GoldParams]
    analysis: Analysis
    providers: dict[str, ProviderEntry]
    consents: dict[str, Consent] = Field(default_factory=dict)
    labellers: dict[str, Labeller]
    ensembles: dict[str, Ensemble]
    moderators: dict[str, ModeratorEntry]
    moderation: Moderation
    prompts: Prompts = Field(default_factory=Prompts)
    few_shot: FewShot
    votes: VotesParams
    silver: Silver
    injection_test: InjectionTest
