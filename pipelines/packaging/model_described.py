"""What ``model.json`` of a pack says: all that a registered model needs to open itself, beside weights and tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from pipelines.config.base import Section
from pipelines.config.collect import Decode, Ocr
from pipelines.config.models import Model
from pipelines.taxonomy import Scheme
from pipelines.taxonomy.loader import load_file
from pipelines.taxonomy.task import Task, task_of

FILE, SCHEME = "model.json", "scheme.yaml"
# Weights that the library does not save with its own: of what stands on a base.
REST = "rest.safetensors"

# The kinds that are sent title and body; all others are sent a picture.
OF_POSTS = ("encoder", "sft")

Count = Annotated[int, Field(ge=0)]


class Trained(Section):
    """Who it has learnt from: how many records, and the SHA-256 of their sorted ids, a line each."""

    records: Count
    digest: str


class Described(Section):
    """A model, where it comes from, and how it is asked.

    Args:
        name: under which it is registered.
        corpus: whose records it was made of.
        kind: ``encoder`` or ``sft`` (posts); ``text``, ``image`` or ``fusion`` (memes).
        task: the category of the scheme that it answers.
        model: its entry of ``params.models``.
        subset: of posts: whose labels it has learnt.
        base: what it was made of; of a folder the last part of its name alone.
        seed: that it was trained from.
        labels: in the scheme's order, which is that of probabilities.
        definitions: what each label means.
        scheme: its name; the file lies beside, as ``scheme.yaml``.
        scheme_digest: of that file.
        data_commit: of the corpus that it was trained on.
        split_digest: of who was in which split.
        votes_digest: of the silver that it has learnt from, where it has.
        train: who that was.
        spec: the entry of ``params.models``, its base being this folder.
        scrub: what is taken out of every text, as the corpus does.
        batch: records that are read together.
        max_tokens: of memes: tokens of a caption.
        max_new_tokens: of ``sft``: the room of an answer.
        thresholds: of memes: from which probability on a label is given.
        decode: of memes: how strangers' pictures are decoded.
        ocr: of memes: by what words are read where none are given.
    """

    name: str
    corpus: str
    kind: str
    task: str
    model: str
    subset: str | None
    base: str
    seed: int
    labels: tuple[str, ...]
    definitions: dict[str, str]
    scheme: str
    scheme_digest: str
    data_commit: str
    split_digest: str
    votes_digest: str | None
    train: Trained
    spec: Model
    scrub: tuple[str, ...]
    batch: Annotated[int, Field(ge=1)]
    max_tokens: int | None = None
    max_new_tokens: int | None = None
    thresholds: tuple[float, ...] | None = None
    decode: Decode | None = None
    ocr: Ocr | None = None

    @property
    def measured_as(self) -> str:
        """What the stage ``evaluate`` calls it."""
        return self.model if self.subset is None else f"{self.model}-{self.subset}"

    @classmethod
    def read(cls, pack: Path) -> Described:
        """Read ``model.json`` of a pack that was verified."""
        return cls.model_validate_json((pack / FILE).read_bytes())

    def write(self, pack: Path) -> None:
        """Write ``model.json``."""
        (pack / FILE).write_text(self.model_dump_json(indent=2) + "\n")


def asked(pack: Path, *, described: Described) -> tuple[Scheme, Task]:
    """Return the scheme and the task of a pack, as its own file has them, whatever schemes are installed."""
    scheme = load_file(pack / SCHEME)
    return scheme, task_of(scheme, described.task)
