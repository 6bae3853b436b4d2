"""The sections of ``params.yaml`` for models: what is trained, asked, evaluated, reported and promoted."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipelines.config.base import Fraction, Positive, Section


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
    """A causal model that is fine-tuned to answer with the JSON of the labels (CRADLE 5.2, F)."""

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
    """A causal model that is prompted without tuning."""

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
    """What is tuned on a corpus's labels (CRADLE 5.1, 5.2); ``recall_floors``: least recall by label, tuned on dev."""

    category: str
    ensemble: str
    subsets: tuple[Literal["unanimous", "consensus", "gold"], ...]
    models: tuple[str, ...]
    recall_floors: dict[str, Fraction]
    checkpoint_steps: Positive
    max_new_tokens: Positive
    seed: int


class PredictFinetuned(Section):
    """The number of posts that a fine-tuned model predicts together."""

    batch: Positive


class Baselines(Section):
    """Models that are evaluated without tuning: prompted, saved or registered."""

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


class Chosen(Section):
    """A model that becomes a candidate: ``model`` of the section ``models``, and for posts the ``subset`` it learnt."""

    model: str
    subset: Literal["unanimous", "consensus", "gold"] | None = None


class Promote(Section):
    """All values are ours; neither paper deploys a model.

    Args:
        min_probability: the least share of the paired bootstrap's resamples of the test (SPEC 2.5) in which the
            candidate's macro-F1 is ahead, ties counting half: 0.95 is a one-sided test at 5 %.
        severe: the severity (of the scheme) from which a label's recall has a floor though none is named.
        tolerance: how far such a recall may lie below the champion's.
        recall_floors: registered name -> label -> the least recall on test, for every candidate, the first one too.
        min_positives: a label that fewer items of the test carry is reported and not judged: one item more or less
            would decide.
    """

    min_probability: Fraction
    severe: Positive
    tolerance: Fraction
    recall_floors: dict[str, dict[str, Fraction]]
    min_positives: Positive
