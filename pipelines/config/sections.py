"""The sections of ``params.yaml``, one frozen model each, with what each value may be."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pipelines.errors import SourceNotApproved


class Section(BaseModel):
    """A frozen section of ``params.yaml``; unknown keys are refused."""

    # built on first use: most commands read settings and never all sections
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


SourceName = Literal["dump", "reddit", "arctic_shift"]
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
# A pseudonym names an annotator everywhere; who it is stands nowhere in this project.
Pseudonym = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
Month = Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]


class Corpus(Section):
    content: Literal["images", "texts"]
    scheme: str
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
    published: str | None = None

    @model_validator(mode="after")
    def _same_names(self) -> Split:
        if self.sizes is not None and list(self.sizes) != list(self.ratios):
            raise ValueError("sizes and ratios must name the same splits in the same order")
        return self


class Score(Section):
    truth: bool


class Round(Section):
    """How annotation rounds are held: where, after which protocol, by whom, and what protects them."""

    backend: Literal["label_studio", "argilla", "files"]
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


class Gold(Section):
    """Which splits have gold (``None``: every item of the sample), and what it is made of beside the rounds.

    ``truth`` is the sandbox's own, ``published`` a CSV file; what people answered in rounds wins over both.
    """

    splits: tuple[str, ...] | None
    truth: bool
    published: str | None


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


class Probe(Section):
    size: Annotated[int, Field(ge=0)]
    seed: int


class TextModel(Section):
    """An encoder of text with a head."""

    kind: Literal["text"]
    base: str


class ImageModel(Section):
    """An encoder of pictures with a head."""

    kind: Literal["image"]
    base: str


class FusionModel(Section):
    """An encoder of both with a head on their joint features."""

    kind: Literal["fusion"]
    base: str


class YadavModel(Section):
    """Yadav et al. 2023: a depression-symptom model for memes."""

    kind: Literal["yadav"]
    text: str
    image: str


class M3hModel(Section):
    """M3H (Mazhar et al. 2025): figurative and commonsense features of a labeller, fused with text and picture."""

    kind: Literal["m3h"]
    base: str
    labeller: str


class PromptedModel(Section):
    """A labeller that is asked about the picture, with ``examples`` from train."""

    kind: Literal["prompted"]
    labeller: str
    examples: Annotated[int, Field(ge=0)]
    runs: Positive


class SftModel(Section):
    """A causal model that is fine-tuned to answer with the JSON of the labels (CRADLE 5.1)."""

    kind: Literal["sft"]
    base: str
    tuning: Literal["full", "lora"]
    rank: Positive | None = None
    alpha: Positive | None = None
    dropout: Fraction | None = None
    batch: Positive
    accumulation: Positive
    max_length: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    warmup: Fraction
    weight_decay: Annotated[float, Field(ge=0)]
    epochs: Positive
    packing: bool


class EncoderModel(Section):
    """An encoder of text with a head on every label, for those without large accelerators."""

    kind: Literal["encoder"]
    base: str
    batch: Positive
    max_tokens: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    warmup: Fraction
    weight_decay: Annotated[float, Field(ge=0)]
    epochs: Positive


class KnnModel(Section):
    """The votes of the nearest posts of train by sentence embedding, blended with a labeller's answer if one is named.

    ``blend`` are the weights of the labeller that dev chooses among.
    """

    kind: Literal["knn"]
    neighbours: tuple[Positive, ...]
    labeller: str | None
    blend: tuple[Fraction, ...]


class LocalModel(Section):
    """A causal model that is asked as it is."""

    kind: Literal["local"]
    base: str
    batch: Positive
    max_length: Positive


class VotesModel(Section):
    """A labeller, by the votes that it gave."""

    kind: Literal["votes"]
    labeller: str


class EnsembleModel(Section):
    """An ensemble, by its silver."""

    kind: Literal["ensemble"]
    ensemble: str


class SavedModel(Section):
    """A file of predictions that came from elsewhere, at ``path`` below ``CORPUS_ANNOTATION_FILES``."""

    kind: Literal["saved"]
    path: str


class RegisteredModel(Section):
    """A model of the registry, such as ``models:/crisis-posts@champion``."""

    kind: Literal["registered"]
    uri: str


Model = Annotated[
    TextModel
    | ImageModel
    | FusionModel
    | YadavModel
    | M3hModel
    | PromptedModel
    | SftModel
    | EncoderModel
    | KnnModel
    | LocalModel
    | VotesModel
    | EnsembleModel
    | SavedModel
    | RegisteredModel,
    Field(discriminator="kind"),
]


class Prompted(Section):
    models: tuple[str, ...]


class Finetune(Section):
    """What is tuned on a corpus's labels (CRADLE 5.1); ``recall_floors``: the least recall by label, tuned on dev."""

    category: str
    ensemble: str
    subsets: tuple[Literal["unanimous", "consensus", "gold"], ...]
    models: tuple[str, ...]
    recall_floors: dict[str, Fraction]
    checkpoint_steps: Positive
    max_new_tokens: Positive
    seed: int


class Predict(Section):
    """How a tuned model is asked: ``batch`` posts at a time."""

    batch: Positive


class Untuned(Section):
    """Models that are scored as they are: asked, saved or registered."""

    models: tuple[str, ...]


class Evaluate(Section):
    resamples: Positive
    seed: int


class Report(Section):
    """How each corpus's page is headed."""

    titles: dict[str, str]


class Train(Section):
    """FigSIM's Table 9, and what it leaves open."""

    tasks: tuple[Literal["figurative", "severity", "related"], ...]
    models: tuple[str, ...]
    seeds: tuple[int, ...]
    mode: Literal["paper", "improved"]
    epochs: Positive
    batch: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    warmup: Fraction
    weight_decay: Annotated[float, Field(ge=0)]
    clip: Annotated[float, Field(gt=0)]
    max_pos_weight: Annotated[float, Field(ge=1)]
    min_positives: Positive
    max_tokens: Positive
    checkpoint_steps: Positive


class Sandbox(Section):
    seed: int
    months: tuple[str, ...]
    submissions: Positive
    posts: Annotated[int, Field(ge=0)] = 0
    port: int
