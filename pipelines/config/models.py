"""Define the sections of ``params.yaml`` for models: training, prompting, evaluation, report and promotion."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipelines.config.base import Fraction, Positive, Section

# A commit: a branch such as `main` or a tag can move to other weights.
Revision = Annotated[str, Field(pattern="^[0-9a-f]{40}$")]


class Based(Section):
    """A model on a base model: a folder, a ``tiny:`` name, or an id on the hub, which needs a ``revision``."""

    base: str
    revision: Revision | None = None

    @property
    def bases(self) -> tuple[tuple[str, str | None], ...]:
        """Return each base model with its revision."""
        return ((self.base, self.revision),)


class TextModel(Based):
    """A text encoder with a classification head."""

    kind: Literal["text"]


class ImageModel(Based):
    """An image encoder with a classification head."""

    kind: Literal["image"]


class FusionModel(Based):
    """A text and image encoder with a classification head on the joint features."""

    kind: Literal["fusion"]


class YadavModel(Section):
    """The depression-symptom model for memes by Yadav et al. (2023)."""

    kind: Literal["yadav"]
    text: str
    image: str
    text_revision: Revision | None = None
    image_revision: Revision | None = None

    @property
    def bases(self) -> tuple[tuple[str, str | None], ...]:
        """Return each base model with its revision."""
        return ((self.text, self.text_revision), (self.image, self.image_revision))


class M3hModel(Based):
    """M3H (Mazhar et al. 2025), which fuses a labeller's figurative and commonsense features with text and picture."""

    kind: Literal["m3h"]
    labeller: str


class PromptedModel(Section):
    """A labeller that is prompted with a meme's picture and with ``examples`` labelled memes from train."""

    kind: Literal["prompted"]
    labeller: str
    examples: Annotated[int, Field(ge=0)]
    runs: Positive


# How much the records of train count in the loss: all the same (the papers), or by their labels' posterior in silver.
ExampleWeights = Literal["equal", "posterior"]


class SftModel(Based):
    """A causal language model that is fine-tuned to generate the labels as JSON (CRADLE 5.2, F)."""

    kind: Literal["sft"]
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
    weights: ExampleWeights = "equal"


class EncoderModel(Based):
    """A text encoder with one output per label, for machines without a large accelerator."""

    kind: Literal["encoder"]
    batch: Positive
    max_tokens: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    warmup: Fraction
    weight_decay: Annotated[float, Field(ge=0)]
    epochs: Positive
    weights: ExampleWeights = "equal"


class KnnModel(Section):
    """Nearest neighbours in train by sentence embedding, blended with a labeller's answer if ``labeller`` is set.

    ``neighbours`` are candidate numbers of neighbours, ``blend`` candidate weights of the labeller; the best are chosen
    on dev.
    """

    kind: Literal["knn"]
    neighbours: tuple[Positive, ...]
    labeller: str | None
    blend: tuple[Fraction, ...]


class LocalModel(Based):
    """A causal language model that runs locally and is prompted without tuning."""

    kind: Literal["local"]
    batch: Positive
    max_length: Positive


class VotesModel(Section):
    """Use the stored votes of one labeller as predictions."""

    kind: Literal["votes"]
    labeller: str


class EnsembleModel(Section):
    """Use the silver labels of one ensemble as predictions."""

    kind: Literal["ensemble"]
    ensemble: str


class SavedModel(Section):
    """Use the predictions in a file from outside this project, at ``path`` below ``CORPUS_ANNOTATION_FILES``."""

    kind: Literal["saved"]
    path: str


class RegisteredModel(Section):
    """Use a registered model, such as ``models:/crisis-posts@champion``."""

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
    """Parameters of fine-tuning (CRADLE 5.1, 5.2); ``recall_floors``: the recall that a label's alert must have."""

    category: str
    ensemble: str
    subsets: tuple[Literal["unanimous", "consensus", "gold"], ...]
    models: tuple[str, ...]
    recall_floors: dict[str, Fraction]
    checkpoint_steps: Positive
    max_new_tokens: Positive
    seed: int


class Repeats(Section):
    """The further seeds with which each model of ``finetune`` is trained, for the spread of its scores over seeds."""

    seeds: tuple[int, ...]


class PredictFinetuned(Section):
    """Parameters of prediction with fine-tuned models; ``batch`` is the number of posts per batch."""

    batch: Positive


class Baselines(Section):
    """The models that are evaluated without fine-tuning on this corpus, given as names of section ``models``."""

    models: tuple[str, ...]


class Evaluate(Section):
    resamples: Positive
    seed: int


class Report(Section):
    """Parameters of the benchmark report: the title for each corpus."""

    titles: dict[str, str]


class Train(Section):
    """Training parameters, from FigSIM's Table 9 where the paper states them."""

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
    """A model to register: a name of section ``models`` and, for posts, the ``subset`` that it was fine-tuned on."""

    model: str
    subset: Literal["unanimous", "consensus", "gold"] | None = None


class Promote(Section):
    """Parameters of the promotion gate; the values are this project's own, because neither paper deploys a model.

    Args:
        alpha: the probability that any look at a gate set promotes a candidate that is not better; from 1 on, the
            expected number of such looks.
        looks: over how many looks alpha is spent, in equal shares.
        parts: into how many parts the test is divided, by group. One is the gate set, and those after it are scored
            only for a version that passed; with 1 the whole test is the gate set, and every score took part in the
            decision.
        refresh: which part is the gate set, from 0; raise it when the looks at this one are used up. The last part has
            none after it, and from ``parts`` on a new version of the split is due.
        baselines: the models that a version must beat beside constant answers where there is no champion, if the corpus
            has their predictions on the test; a fine-tuned one is named with its subset (``knn-consensus``).
        severe: labels of at least this severity (of the scheme) may not be found less often than by the champion.
        tolerance: how far the candidate's recall of such a label may be below the champion's.
        undecided: whether a severe label with too few positives to exclude a loss beyond ``tolerance`` is left to the
            approver (``ask``) or is a reason against the version (``refuse``).
        recall_floors: registered name -> label -> minimum recall on test; applies to every candidate, also without a
            champion.
        four_eyes: whether the person who approves a promotion must be another than the one who started the run or ran
            the gate.
    """

    alpha: Annotated[float, Field(gt=0)]
    looks: Positive
    parts: Positive
    refresh: Annotated[int, Field(ge=0)]
    baselines: tuple[str, ...]
    severe: Positive
    tolerance: Fraction
    undecided: Literal["ask", "refuse"]
    recall_floors: dict[str, dict[str, Fraction]]
    four_eyes: bool = False

    @property
    def level(self) -> float:
        """The level of one look."""
        return self.alpha / self.looks

    @property
    def single(self) -> float:
        """The level of a comparison that is not counted."""
        return self.alpha if self.alpha < 1 else self.level


class Drift(Section):
    """Thresholds of :mod:`pipelines.registry.drift`; a larger difference is reported and sent to webhooks.

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
