"""Label memes with FigSIM's decoding settings; prepare their pictures and text for sending (SPEC 1.2, items 8 to 10).

The examples of a few-shot prompt are drawn from train, so that they show every label (SPEC 1.2, item 11).
Everything else is shared with posts: the sealed store of answers, the budget, the limits, the outcomes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from pipelines.core.config.label import RemoteLabeller
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.datasets.example import TRAIN, only
from pipelines.datasets.post import Post
from pipelines.label.remote import Remote
from pipelines.llm.pictures import shown
from pipelines.llm.prompting.prompts import PromptExample, choose
from pipelines.llm.vendor import vendor_of

if TYPE_CHECKING:
    from pipelines.core.taxonomy.task import Task
    from pipelines.datasets.example import Example

# FigSIM T10; multiplied by the factor of the capability table for models with hidden reasoning.
MAX_OUTPUT_TOKENS = 128
# FigSIM T10. The stop string removes the closing brace; the parser restores it (the repair "brace").
STOP = "}"


class MemePost(Post):
    """A meme in the form that labellers receive; ``body`` is the OCR text if the prompt includes it, else empty.

    The empty ``body`` is FigSIM's own format: its prompt (FigSIM Table 11) has no place for text beside the picture.
    """

    @cached_property
    def text(self) -> str:
        """The text that precedes the meme's picture in the prompt."""
        return f"Words read from the picture: {self.body}" if self.body else ""


def meme(example: Example, *, words: bool) -> MemePost:
    """Return a meme in the form that labellers receive.

    Args:
        example: the meme, with a picture; its labels are ignored.
        words: whether to send the OCR text with the picture.
    """
    record_id, _ = example.item
    images = (shown(example.image),) if example.image is not None else ()
    return MemePost(record_id, title="", body=example.text if words else "", images=images)


def described(name: str, *, params: Params) -> RemoteLabeller:
    """Return the parameters of a remote labeller after a check that its model accepts pictures."""
    labeller = params.labellers.get(name)
    if labeller is None:
        raise ConfigError("NotAsked", labeller=name, detail="section labellers of catalogue.yaml has no such entry")
    if not isinstance(labeller, RemoteLabeller):
        raise ConfigError("NotAsked", labeller=name, detail="it is offline and reads only text")
    if not vendor_of(labeller.provider, params=params).capabilities(labeller.model).images:
        raise ConfigError("CannotSee", model=labeller.model, detail="the model accepts no images")
    return labeller


class MemeLabeller(Remote):
    """A remote model that labels memes with FigSIM's decoding settings, once per repetition.

    Each repetition has its own stored answers, because repeating a request is a new measurement, not a lookup.
    Generation stops at the closing brace if the capability table allows it.
    """

    def __init__(self, name: str, *, repetition: int = 1, **given: Any) -> None:
        """``repetition`` counts from 1; create it with :meth:`named`."""
        super().__init__(name, **given)
        stops = self._can.stop and (self.provider.vendor.batch_stops or not self.batches)
        self._decoding = {"stop_sequences": [STOP]} if stops else {}
        self._repetition = repetition

    @classmethod
    def named(cls, name: str, *, params: Params, settings: Settings, **given: Any) -> Self:
        """Create a labeller of ``params.yaml`` with FigSIM's decoding settings; ``given`` as in :meth:`Remote.of`.

        Raises:
            PriceUnknown: the price of the model is unknown.
        """
        votes = params.votes.model_copy(update={"max_output_tokens": MAX_OUTPUT_TOKENS, "mode": params.train.mode})
        labeller = described(name, params=params)
        return cls.of(name, labeller=labeller, params=params, settings=settings, votes=votes, **given)

    def _key(self, post: Post) -> str:
        told = json.dumps([super()._key(post), self._decoding, self._repetition], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()


def draw(train: Sequence[Example], *, task: Task, count: int, seed: int) -> list[Example]:
    """Draw ``count`` labelled items with pictures that cover every label of the task, in an order set by ``seed``.

    The empty set counts as a label of its own ("None" of a multi-label task). A label that no item of train has cannot
    be shown; :func:`unshown` lists it.

    Raises:
        LeakRefused: an item is not of train.
        TooFewExamples: ``count`` is not 0, and is less than the number of labels or more than the number of items.
    """
    candidates = {
        f"{example.item[0]}/{example.item[1]}": (example, task.seen(example.labels))
        for example in only(train, splits=(TRAIN,))
        if example.labels is not None and example.image is not None
    }
    if not count:
        return []
    there = {label for _, labels in candidates.values() for label in labels or {""}}
    if not len(there) <= count <= len(candidates):
        raise ConfigError("TooFewExamples", count=count, labels=len(there), items=len(candidates), task=task.key)
    gold = {key: labels for key, (_, labels) in candidates.items()}
    chosen = choose(gold, count=count, seed=seed, category=task.category)
    return [candidates[key][0] for key in chosen]


def in_prompt(drawn: Sequence[Example], *, task: Task, words: bool) -> list[PromptExample]:
    """Return memes of train as prompt examples with picture and labels; with ``words``, also with the OCR text."""
    return [
        PromptExample(
            example.item[0],
            meme(example, words=words),
            {task.key: tuple(sorted(task.seen(example.labels or frozenset())))},
        )
        for example in only(drawn, splits=(TRAIN,))
    ]


def unshown(drawn: Sequence[Example], *, task: Task) -> list[str]:
    """Return the labels of the task that none of the drawn memes has, in the scheme's order."""
    seen = {label for example in drawn for label in task.seen(example.labels or frozenset())}
    return [label for label in task.labels if label not in seen]
