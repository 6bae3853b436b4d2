"""Define what a kind of model is: the parameters of its entries in section ``models``, and how they fit and answer.

A kind is a package below :mod:`pipelines.models.kinds`, or a module of another distribution, with one subclass of
:class:`Kind`. A validated entry is an object of its kind, so that no other code asks which kind it is. Libraries that
take seconds to import are imported in methods. Modules that only fitting needs are imported by :func:`later`: a served
version of the model gets what the imports of its kind name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from inspect import get_annotations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import ConfigDict, model_validator

from pipelines.core.config.models import Entry, Revision
from pipelines.core.errors import ConfigError
from pipelines.core.parts import Parts

if TYPE_CHECKING:
    from pipelines.core.config.params import Params
    from pipelines.core.config.settings import Settings
    from pipelines.core.taxonomy import Scheme
    from pipelines.core.taxonomy.task import Task
    from pipelines.datasets.example import Example, Item, Material
    from pipelines.datasets.features import Cues
    from pipelines.datasets.post import Post
    from pipelines.label.remote import Remote
    from pipelines.llm.asking import PlannedRequests
    from pipelines.llm.own_prompts import OwnPrompts
    from pipelines.models.prediction import Prediction, Predictor, Spent, Votes
    from pipelines.store.vault.vault import Vault

Say = Any
"""Called with the numbers of each epoch, by name."""


class Kind(Entry):
    """An entry of section ``models``; a subclass has the parameters of its kind as fields.

    Class attributes:
        fitted: whether it has a method ``fit``, for the stage ``train``; else it only answers in the stage ``predict``.
        inputs: what it reads of an item: ``text``, ``image``.
        large: whether it needs a large accelerator, unless its base is tiny.
        least: how many items of train a label needs to be learnt (SPEC 2.3, of the offline labellers: five).
        compares: whether it needs the examples of train where it predicts.
        packable: why a package for consumers cannot hold it; ``None`` if it can.
        note: what a reader of its figures must know about it.
    """

    model_config = ConfigDict(extra="forbid")
    fitted: ClassVar[bool] = False
    inputs: ClassVar[tuple[str, ...]] = ("text",)
    least: ClassVar[int] = 5
    compares: ClassVar[bool] = False
    large: ClassVar[bool] = False
    packable: ClassVar[str | None] = "it is not fitted here"
    note: ClassVar[str | None] = None

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.fitted = cls.fit is not Kind.fit

    @model_validator(mode="after")
    def _read(self) -> Self:
        """Refuse what the kind does not read; a kind that reads it has the field itself."""
        own = {field for base in type(self).__mro__ if base not in Kind.__mro__ for field in get_annotations(base)}
        for name in ("labeller", "rationales", "silver", "votes"):
            if getattr(self, name) is not None and name not in own:
                raise ValueError(f"{name}: models of kind {self.kind} read none")
        return self

    @property
    def roots(self) -> tuple[str, ...]:
        """The modules that a served version needs, beside those that they import."""
        return (type(self).__module__,)

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries that a served version needs although no module imports them."""
        return ()

    @property
    def bases(self) -> tuple[tuple[str, str | None], ...]:
        """Each base model with its revision."""
        return ()

    @property
    def named(self) -> str:
        """The names of its base models."""
        return " + ".join(base for base, _ in self.bases)

    @property
    def deviations(self) -> tuple[str, ...]:
        """What its recipe computes differently from the paper's."""
        return ()

    @property
    def weighted(self) -> bool:
        """Whether an item of train weighs as much as its silver labels are probable."""
        return False

    @property
    def soft(self) -> bool:
        """Whether an item of train has the shares of its annotators as targets."""
        return False

    def labellers(self, params: Params) -> tuple[str, ...]:
        """Return the labellers of section ``labellers`` whose answers are the model's."""
        return ()

    def check(self, name: str, *, params: Params, settings: Settings, root: Path, folder: Path) -> None:
        """Refuse to fit on this machine, before anything is loaded; ``folder`` has the checkpoints of a killed run."""

    def fit(self, job: Job[Any], *, say: Say) -> dict[str, Any]:
        """Fit the model, write its files to ``job.out``, and return measures of the fit, as JSON values."""
        raise NotImplementedError

    def open(self, folder: Path, serving: Serving) -> Predictor:
        """Load a fitted model from the folder that :meth:`fit` or :meth:`pack` wrote."""
        raise NotImplementedError

    def asked(self, desk: Desk) -> dict[str, Any]:
        """Return how the fitted model is asked when it is scored, where that differs from how it is served."""
        return {}

    def pack(self, folder: Path, *, to: Path, serving: Serving) -> None:
        """Write the files of a fitted model to ``to`` as consumers get them, without need of any base model."""
        later("fitting.card").copy_parts(folder, to=to)

    def answer(self, desk: Desk) -> Answers:
        """Return the model's answers without a fit."""
        raise NotImplementedError

    def asking(self, desk: Desk) -> Iterator[tuple[Remote, list[Post]]]:
        """Yield the labeller of each run of :meth:`answer`, and what it is asked about; nothing is sent."""
        yield from ()

    def planned(self, desk: Desk) -> Iterator[PlannedRequests]:
        """Yield what :meth:`answer` would send, and at what cost; nothing is sent."""
        yield from ()


class Based(Kind):
    """A model on a pretrained base model.

    ``base`` is a folder, a ``tiny:`` name, or an id on the Hugging Face hub, which needs a ``revision``.
    """

    base: str
    revision: Revision | None = None

    @property
    def bases(self) -> tuple[tuple[str, str | None], ...]:
        return ((self.base, self.revision),)


KINDS = Parts("pipelines.models.kinds", Kind)
K = TypeVar("K", bound=Kind)


def later(module: str) -> Any:
    """Import a module that a served version must not get."""
    return import_module(f"pipelines.models.{module}")


def spec(params: Params, name: str) -> Kind:
    """Return an entry of section ``models`` as an object of its kind."""
    if (entry := params.models.get(name)) is None:
        raise ConfigError("UnknownName", kind="model", name=name, known=", ".join(params.models))
    return KINDS.of(entry, params.distributions, where=f"models.{name}")


def weights(params: Params, name: str) -> str | None:
    """Return the weights that a model predicts with, by their names; ``None`` if not known.

    Several are joined by `` + ``: two encoders, or the members of an ensemble, in their order.
    """
    if name not in params.models:
        return None
    model = spec(params, name)
    asked = [getattr(params.labellers.get(labeller), "model", None) for labeller in model.labellers(params)]
    if asked:
        return None if None in asked else " + ".join(map(str, asked))
    return (model.named if model.bases else None) or None


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What a fitted model is opened with.

    Args:
        folder: for temporary files and, while it is fitted, checkpoints.
        seed: of the fit: seeds the order of the examples, dropout and new weights.
        batch: how many texts a causal model reads together.
        vault: for models that hold content.
        cues: the rationales of the items, for models that read them.
        said: the votes of the entry's labeller by item, for models that read them.
        train: examples of train with labels, for models that compare items with them.
        others: the other examples that such a model is asked about.
        asked: what :meth:`Kind.asked` returns, if the model is scored.
    """

    task: Task
    scheme: Scheme
    folder: Path
    seed: int = 0
    batch: int = 16
    vault: Vault | None = None
    cues: Cues | None = None
    said: Votes | None = None
    train: Sequence[Example] = ()
    others: Sequence[Example] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Job(Serving, Generic[K]):
    """What a model is fitted with.

    Args:
        out: the folder for its files.
        own: a team's own prompts.
        processes: number of processes that divide the model; ``None`` for one for each GPU, or one on a CPU.
    """

    spec: K
    validation: Sequence[Example]
    out: Path
    mode: Literal["paper", "improved"] = "improved"
    checkpoint_steps: int = 200
    own: OwnPrompts | None = None
    processes: int | None = None


@dataclass(frozen=True)
class Answers:
    """A model's answers by seed and item; an item without one has no row.

    Args:
        runs: the answers of each run: 0 where nothing is sampled, 1 to n where a model is asked n times.
        splits: the splits that the model was asked about.
        spent: their cost, if known.
        more: further metrics of the kind.
    """

    runs: Mapping[int, Mapping[Item, Prediction]]
    spent: Spent | None
    splits: tuple[str, ...] = ("validation", "test")
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Desk:
    """What an entry that is not fitted answers about: the examples of one task, and where stored answers are."""

    corpus: str
    model: str
    task: Task
    params: Params
    settings: Settings
    vault: Vault
    root: Path

    @cached_property
    def material(self) -> Material:
        """The examples to predict, with gold, those of train with gold if there is any."""
        # a served version must not get it
        items = import_module("pipelines.datasets.items")
        asked: dict[str, Any] = {"params": self.params, "vault": self.vault, "root": self.root}
        material: Material = items.load(self.corpus, task=self.task, subset=items.GOLD, ensemble=None, **asked)
        return material

    @cached_property
    def scheme(self) -> Scheme:
        from pipelines.core.taxonomy import load

        return load(self.params.corpora[self.corpus].scheme, root=self.root)

    @property
    def snapshot(self) -> Path:
        return self.root / "snapshot" / self.corpus

    @property
    def tested(self) -> frozenset[str]:
        """The groups of the test items that scores rest on: without those of a published split that leak anyway."""
        leaks = import_module("pipelines.store.tables").leaks(self.snapshot)
        return frozenset(example.group for example in self.material.test if example.item not in leaks)

    def groups_of(self, records: Collection[str]) -> frozenset[str]:
        """Return the groups of near-duplicates and authors that have one of the records."""
        return frozenset(group for (record, _), (_, group) in self.material.placed.items() if record in records)
