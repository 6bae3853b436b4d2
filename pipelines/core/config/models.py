"""Define the sections of ``params.yaml`` for models: training, prediction, evaluation, report and promotion."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipelines.core.config import base
from pipelines.core.config.base import Fraction, Month, Positive, Section

Subset = Literal["unanimous", "consensus", "gold"]
# A commit: a branch such as `main` or a tag can move to other weights.
Revision = Annotated[str, Field(pattern="^[0-9a-f]{40}$")]


# How much the items of train count in the loss: all the same (the papers), or by their labels' posterior in silver.
ExampleWeights = Literal["equal", "posterior"]


class Entry(base.Entry):
    """What every entry of section ``models`` may say; the rest is its kind's (:mod:`pipelines.models.kind`).

    ``tasks`` are those that the model is fit for (``None``: every one). The labeller of ``rationales`` or ``votes`` and
    the ensemble of ``silver`` are those whose work it reads, ``labeller`` is the one that it asks.
    """

    kind: str
    tasks: tuple[str, ...] | None = None
    rationales: str | None = None
    votes: str | None = None
    silver: str | None = None
    labeller: str | None = None


class FitRows(Section):
    """Which models are fitted on a corpus: each on every subset, with every seed, for every task of the scheme.

    A subset is ``unanimous`` or ``consensus`` of the silver of ``ensemble`` (CRADLE 5.1), or ``gold``. A candidate of
    section ``registry`` without a seed has the weights of the first one. ``until`` has months of backtests on gold.
    """

    models: tuple[str, ...]
    subsets: tuple[Subset, ...]
    ensemble: str | None = None
    seeds: tuple[int, ...]
    until: tuple[Month, ...] = ()


class Train(Section):
    """Parameters of training that all kinds of models share; a model's own are its entry's.

    ``keep`` has keys of rows (``rows.yaml``) whose weights are kept beside those of candidates for the registry. With
    ``mode: paper``, thresholds and the best epoch are as the papers have them.
    """

    rows: dict[str, FitRows]
    keep: tuple[str, ...] = ()
    mode: Literal["paper", "improved"]
    checkpoint_steps: Positive


class Predict(Section):
    """Which models are compared without a fit on a corpus, and how many texts a causal model reads together."""

    rows: dict[str, tuple[str, ...]]
    batch: Positive


class Queue(Section):
    """A reviewers' day: how many items arrive, how many of them may be read, and the labels that order them."""

    arrivals: Positive
    read: tuple[Positive, ...]
    labels: tuple[str, ...] = ()


class Evaluate(Section):
    """Parameters of the evaluation.

    Args:
        queues: corpus -> task -> the day of the table of what reviewers leave unread; without an entry there is none.
        joint: corpus -> pairs of tasks whose joint errors are counted: the one that would be corrected, and the other.
    """

    resamples: Positive
    seed: int
    queues: dict[str, dict[str, Queue]] = Field(default_factory=dict)
    joint: dict[str, tuple[tuple[str, str], ...]] = Field(default_factory=dict)


class Report(Section):
    """Parameters of the benchmark report: ``titles`` has the title for each corpus."""

    titles: dict[str, str]


class Chosen(Section):
    """A fitted model that may be registered, as the row that it is in ``rows.yaml``.

    Without a ``seed``, the seed with the best score on validation is taken, and the weights of all are kept.
    """

    model: str
    subset: Subset = "gold"
    seed: int | None = None


class Registered(Section):
    """What a registered name stands for, and its candidates, in this order."""

    corpus: str
    task: str
    candidates: tuple[Chosen, ...]

    def wants(self, corpus: str, task: str, model: str, subset: str, seed: int) -> bool:
        """Return whether a row is a candidate."""
        return (corpus, task) == (self.corpus, self.task) and any(
            (chosen.model, chosen.subset) == (model, subset) and chosen.seed in (None, seed)
            for chosen in self.candidates
        )


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
    """Thresholds of :mod:`pipelines.registry.drift`; a larger difference is reported and sent to webhooks.

    ``alpha`` is the greatest probability of a false alarm in a month, ``psi`` of the population stability index.
    """

    alpha: Annotated[float, Field(gt=0, lt=1)]
    rate: Fraction
    confidence: Fraction
    psi: Annotated[float, Field(ge=0)]


class ModelSections(Section):
    models: dict[str, Entry]
    evaluate: Evaluate
    report: Report
    train: Train
    predict: Predict
    registry: dict[str, Registered]
    promote: Promote
    batch_predict: dict[str, tuple[str, ...]]
    drift: Drift
