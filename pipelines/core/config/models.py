"""Define the sections of ``params.yaml`` for models: training, prompting, evaluation, report and promotion."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipelines.core.config.base import Fraction, Positive, Section

# A commit: a branch such as `main` or a tag can move to other weights.
Revision = Annotated[str, Field(pattern="^[0-9a-f]{40}$")]


class Based(Section):
    """A model on a pretrained base model.

    ``base`` is a folder, a ``tiny:`` name, or an id on the Hugging Face hub, which needs a ``revision``.
    """

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


class WithRationales(Section):
    """A model that reads the rationales of memes that ``labeller`` writes in the stage ``rationales``."""

    labeller: str


class InfusedModel(WithRationales, Based):
    """A text and image encoder whose features attend to a labeller's remarks on the meme."""

    kind: Literal["infused"]


class OwnRecipe(Section):
    """How one model is trained if its authors did it otherwise than section ``train``.

    Args:
        epochs: the number of epochs.
        batch: the number of memes per batch.
        learning_rate: the highest learning rate.
        schedule: how the learning rate goes on after the warm-up: linearly to 0, or unchanged.
        warmup: the share of the steps in which the learning rate rises from 0.
        weight_decay: AdamW's; without it AdamW is Adam.
        clip: the largest norm of the gradients; ``null`` does not clip.
        reweighted: whether rare labels weigh more in the loss.
    """

    epochs: Positive
    batch: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    schedule: Literal["linear", "constant"]
    warmup: Fraction
    weight_decay: Annotated[float, Field(ge=0)]
    clip: Annotated[float, Field(gt=0)] | None
    reweighted: bool


class M3hModel(WithRationales):
    """M3H (Mazhar et al. 2025), a text model that reads a meme's words, its rationale and similar labelled memes.

    Args:
        text: the encoder-decoder with the classification head.
        text_revision: its commit on the hub.
        embedder: the model of the sentence embeddings by which similar memes are found.
        embedder_revision: its commit on the hub.
        open_layers: how many of the last layers of encoder and decoder are trained; the others are frozen.
        examples: the number of similar labelled memes of train in the prompt.
        words: the number of words of a meme's text that the prompt has at most.
        max_tokens: the number of tokens of a prompt at most; the end of a longer one is cut.
        recipe: how it is trained; ``null`` trains it as all other models (section ``train``).
    """

    kind: Literal["m3h"]
    text: str
    text_revision: Revision | None = None
    embedder: str
    embedder_revision: Revision | None = None
    open_layers: Positive
    examples: Annotated[int, Field(ge=0)]
    words: Positive
    max_tokens: Positive
    recipe: OwnRecipe | None = None

    @property
    def bases(self) -> tuple[tuple[str, str | None], ...]:
        """Return each base model with its revision."""
        return ((self.text, self.text_revision), (self.embedder, self.embedder_revision))


class PromptedModel(Section):
    """A labeller that is prompted about items of dev and test only, without training.

    About memes it is asked ``runs`` times, with the picture and ``examples`` labelled memes of the split train; about
    posts once, with the first ``examples`` of the posts of dev that the stage ``few_shot`` chose.
    """

    kind: Literal["prompted"]
    labeller: str
    examples: Annotated[int, Field(ge=0)]
    runs: Positive


# How much the records of train count in the loss: all the same (the papers), or by their labels' posterior in silver.
ExampleWeights = Literal["equal", "posterior"]


class SftModel(Based):
    """A causal language model that is fine-tuned to generate the labels as JSON (CRADLE 5.2, F).

    The last three fields fit a recipe to fewer or smaller GPUs than the paper's. ``quantization`` and ``optimizer``
    change what is computed (:attr:`deviations`) and run on one GPU; ``offload`` changes only where, on any number.

    Args:
        quantization: ``nf4`` holds the frozen base in 4 bits (QLoRA, Dettmers et al. 2023); needs ``tuning: lora``.
        offload: ``cpu`` holds weights, gradients and the optimiser's state in the memory of the host.
        optimizer: ``adamw8bit`` holds AdamW's two moments in 8 bits (Dettmers et al. 2022).
    """

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
    quantization: Literal["nf4"] | None = None
    offload: Literal["cpu"] | None = None
    optimizer: Literal["adamw", "adamw8bit"] = "adamw"

    @model_validator(mode="after")
    def _consistent(self) -> SftModel:
        if self.quantization and self.tuning == "full":
            raise ValueError("quantization needs tuning: lora, because weights of 4 bits cannot be trained")
        if self.single and self.offload:
            raise ValueError("offload: cpu is instead of quantization: nf4 and optimizer: adamw8bit, not besides")
        return self

    @property
    def single(self) -> bool:
        """Whether the recipe can use only one GPU, because its weights or moments cannot be divided."""
        return self.quantization is not None or self.optimizer == "adamw8bit"

    @property
    def deviations(self) -> tuple[str, ...]:
        """What a recipe for fewer GPUs computes differently from the paper, for the report; usually nothing."""
        quantized = ("base in 4 bits (nf4)",) if self.quantization else ()
        return (*quantized, *(("AdamW in 8 bits",) if self.optimizer == "adamw8bit" else ()))


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
    """Nearest neighbours in the split train by sentence embedding, blended with the answers of a ``labeller`` if set.

    ``neighbours`` are candidate numbers of neighbours, ``blend`` candidate weights of the labeller; the best are chosen
    on the split dev.
    """

    kind: Literal["knn"]
    neighbours: tuple[Positive, ...]
    labeller: str | None
    blend: tuple[Fraction, ...]


class LocalModel(Based):
    """A causal language model that runs locally and is prompted without tuning.

    ``prompt``: ``evaluation`` asks as labellers are asked (CRADLE 4.1 and B: their prompt with its examples, up to
    ``votes.max_output_tokens`` tokens written freely); ``training`` asks as a model fine-tuned on this corpus is asked
    (its short prompt, constrained to valid answers), which a base that cannot follow an instruction needs.
    """

    kind: Literal["local"]
    batch: Positive
    max_length: Positive
    prompt: Literal["evaluation", "training"] = "evaluation"


class VotesModel(Section):
    """Use the stored votes of one labeller as predictions."""

    kind: Literal["votes"]
    labeller: str


class EnsembleModel(Section):
    """Use the silver labels (aggregated votes) of one ensemble as predictions."""

    kind: Literal["ensemble"]
    ensemble: str


class SavedModel(Section):
    """Use predictions from outside this project, in a file at ``path`` below ``CORPUS_ANNOTATION_FILES``."""

    kind: Literal["saved"]
    path: str


class RegisteredModel(Section):
    """Use a registered model as predictor, such as ``models:/crisis-posts@champion``."""

    kind: Literal["registered"]
    uri: str


Model = Annotated[
    TextModel
    | ImageModel
    | FusionModel
    | YadavModel
    | InfusedModel
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
    """Parameters of fine-tuning (CRADLE 5.1, 5.2); ``recall_floors`` are the minimum recalls of labels' alerts."""

    category: str
    ensemble: str
    subsets: tuple[Literal["unanimous", "consensus", "gold"], ...]
    models: tuple[str, ...]
    recall_floors: dict[str, Fraction]
    checkpoint_steps: Positive
    max_new_tokens: Positive
    seed: int


class Repeats(Section):
    """Further seeds with which each model of ``finetune`` is trained, to measure how its scores vary between seeds."""

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
    """Parameters of the benchmark report: ``titles`` has the title for each corpus."""

    titles: dict[str, str]


class Train(Section):
    """Training parameters of meme models, from FigSIM's Table 9 where the paper states them."""

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


class RegistryEntry(Section):
    """A registered model: the corpus whose records it labels, the category that it predicts, and its candidates."""

    corpus: str
    task: str
    candidates: tuple[Chosen, ...]


class Promote(Section):
    """Parameters of the promotion gate, the test that a candidate version must pass to become champion.

    The values are this project's own, because neither paper deploys a model.

    Args:
        alpha: the probability that any look (one comparison of a candidate on the gate set) promotes a candidate that
            is not better; from 1 on, the expected number of such looks.
        looks: the number of looks over which alpha is spent, in equal shares.
        parts: the number of parts into which the split test is divided, by group. One part is the gate set, and the
            parts after it are scored only for a version that passed; with 1 the whole split is the gate set, and every
            score took part in the decision.
        refresh: which part is the gate set, from 0; raise it when the looks at this part are used up. The last part has
            none after it, and from ``parts`` on a new version of the split is due.
        baselines: the models that a version must beat beside constant answers if the model has no champion and the
            corpus has their predictions on the test; a fine-tuned one is named with its subset (``knn-consensus``).
        severe: the candidate must find labels of at least this severity (of the scheme) at least as often as the
            champion.
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
        """The significance level of one look: ``alpha`` divided by the number of looks."""
        return self.alpha / self.looks

    @property
    def single(self) -> float:
        """The significance level of a comparison that is not counted as a look."""
        return self.alpha if self.alpha < 1 else self.level


class Drift(Section):
    """Thresholds of :mod:`pipelines.registry.drift`, which compares new predictions with those on the split test.

    A larger difference is reported and sent to webhooks.

    Args:
        alpha: the maximum probability of a false alarm in a month.
        rate: threshold for the difference of the rate of a label, or of alerts.
        confidence: threshold for the difference of the mean confidence.
        psi: threshold for the population stability index of language and length of the input.
    """

    alpha: Annotated[float, Field(gt=0, lt=1)]
    rate: Fraction
    confidence: Fraction
    psi: Annotated[float, Field(ge=0)]


class ModelSections(Section):
    models: dict[str, Model]
    prompted: Prompted
    finetune: Finetune
    predict_finetuned: PredictFinetuned
    repeats: Repeats
    baselines: Baselines
    evaluate: Evaluate
    report: Report
    train: Train
    registry: dict[str, RegistryEntry]
    promote: Promote
    batch_predict: dict[str, tuple[str, ...]]
    drift: Drift
