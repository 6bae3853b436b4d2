"""Define the sections of ``params.yaml`` for models: training, prompting, evaluation, report and promotion."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipelines.config.base import Fraction, Positive, Section


class TextModel(Section):
    """A text encoder with a classification head."""

    kind: Literal["text"]
    base: str


class ImageModel(Section):
    """An image encoder with a classification head."""

    kind: Literal["image"]
    base: str


class FusionModel(Section):
    """A text and image encoder with a classification head on the joint features."""

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
    """A labeller that is prompted with a meme's picture and ``examples`` labelled memes from train."""

    kind: Literal["prompted"]
    labeller: str
    examples: Annotated[int, Field(ge=0)]
    runs: Positive


class SftModel(Section):
    """A causal language model that is fine-tuned to generate the labels as JSON (CRADLE 5.2, F)."""

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
    """A text encoder with one output per label, for machines without a large accelerator."""

    kind: Literal["encoder"]
    base: str
    batch: Positive
    max_tokens: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    warmup: Fraction
    weight_decay: Annotated[float, Field(ge=0)]
    epochs: Positive


class KnnModel(Section):
    """Nearest neighbours in train by sentence embedding, blended with a labeller's answer if ``labeller`` is set.

    ``neighbours`` are candidate numbers of neighbours, ``blend`` candidate weights of the labeller; the best are chosen
    on dev.
    """

    kind: Literal["knn"]
    neighbours: tuple[Positive, ...]
    labeller: str | None
    blend: tuple[Fraction, ...]


class LocalModel(Section):
    """A causal language model that runs locally and is prompted without tuning."""

    kind: Literal["local"]
    base: str
    batch: Positive
    max_length: Positive


class VotesModel(Section):
    """A labeller; its stored votes are the predictions."""

    kind: Literal["votes"]
    labeller: str


class EnsembleModel(Section):
    """An ensemble; its silver labels are the predictions."""

    kind: Literal["ensemble"]
    ensemble: str


class SavedModel(Section):
    """A file of predictions from outside this project, at ``path`` below ``CORPUS_ANNOTATION_FILES``."""

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
    """Parameters of fine-tuning (CRADLE 5.1, 5.2); ``recall_floors``: required recall by label (tuned on dev)."""

    category: str
    ensemble: str
    subsets: tuple[Literal["unanimous", "consensus", "gold"], ...]
    models: tuple[str, ...]
    recall_floors: dict[str, Fraction]
    checkpoint_steps: Positive
    max_new_tokens: Positive
    seed: int


class PredictFinetuned(Section):
    """``batch`` is the number of posts per batch when a fine-tuned model predicts."""

    batch: Positive


class Baselines(Section):
    """The models that are evaluated without tuning on this corpus, as names of section ``models``."""

    models: tuple[str, ...]


class Evaluate(Section):
    resamples: Positive
    seed: int


class Report(Section):
    """The title of each corpus's report."""

    titles: dict[str, str]


class Train(Section):
    """Training parameters: those of FigSIM's Table 9, and those that the paper does not state."""

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


class Chosen(Section):
    """A model to register: a name of section ``models``, and for posts the ``subset`` it was tuned on."""

    model: str
    subset: Literal["unanimous", "consensus", "gold"] | None = None


class Promote(Section):
    """Parameters of the promotion gate; all values are ours, because neither paper deploys a model.

    Args:
        min_probability: the minimum share of resamples in the paired bootstrap on test (SPEC 2.5) in which the
            candidate's macro-F1 exceeds the champion's, ties counting half; 0.95 is a one-sided test at 5 %.
        severe: labels of at least this severity (of the scheme) get a recall floor from the champion's recall.
        tolerance: how far the candidate's recall of such a label may be below the champion's.
        recall_floors: registered name -> label -> minimum recall on test; applies to every candidate, also without a
            champion.
        min_positives: a recall floor is not applied to a label with fewer items in test, because a single item could
            decide; the recall is only reported.
    """

    min_probability: Fraction
    severe: Positive
    tolerance: Fraction
    recall_floors: dict[str, dict[str, Fraction]]
    min_positives: Positive


class Drift(Section):
    """Bounds of :mod:`pipelines.registry.drift`: a difference is shown and notified if it is larger than its bound.

    Args:
        alpha: the probability of a false alarm in a month, at most.
        rate: difference of the rate of a label, or of alerts.
        confidence: difference of the mean confidence.
        psi: population stability index of language and length of the input.
    """

    alpha: Annotated[float, Field(gt=0, lt=1)]
    rate: Fraction
    confidence: Fraction
    psi: Annotated[float, Field(ge=0)]
