"""The test that never moves, and what a registered model says of it.

Candidate and champion are asked here, now and both, by the files that consumers load: what a stage predicted with its
own weights some months ago says nothing of a package. The test's labels never leave this module but as a board for
scoring; a model sees what a consumer would send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.config.params import Params
from pipelines.datasets.splits import digest_of, split_digest
from pipelines.errors import CorpusError, RegistryError
from pipelines.evaluate.benchmark import ABSTAINED, VOTE, Board, Item, Run, Sampling
from pipelines.registry.client import unpickled
from pipelines.taxonomy import load as scheme_of
from pipelines.taxonomy.task import Task, task_of
from pipelines.vault.vault import Vault

if TYPE_CHECKING:
    import pandas as pd

TEST = "test"
COLUMNS = ("labels", "probabilities", "abstain")
# Ours: items of one request, so that pictures are not all in memory twice.
TOGETHER = 64


class CannotBeAsked(RegistryError):
    """A registered model does not load, or does not answer as its signature says."""

    message = "It cannot be asked: {detail}."
    remedy = "Package and register it again: `corpus register`."
    exit_code = 65


@dataclass(frozen=True)
class Frozen:
    """A corpus's test items of one category that are live and have gold.

    Args:
        corpus: whose.
        board: items, gold and groups, for scoring.
        majority: the most frequent label set of validation: what a model without a mind would say.
        digest: of the items and their gold; what was scored on another is not comparable.
        split: of the whole split (:func:`split_digest`).
        taken_down: how many items of the test are gone.
        inputs: what a model is sent, column by column, in the board's order.
    """

    corpus: str
    board: Board
    majority: frozenset[str]
    digest: str
    split: str
    taken_down: int
    inputs: tuple[dict[str, Any], ...] = field(repr=False)

    @property
    def task(self) -> Task:
        """The category that is asked about."""
        return self.board.task

    @property
    def record_ids(self) -> frozenset[str]:
        """Whose items they are."""
        return frozenset(record_id for record_id, _ in self.board.items)

    def frames(self) -> Iterator[pd.DataFrame]:
        """Give the inputs as a model takes them, some at a time."""
        import pandas as pd

        for start in range(0, len(self.inputs), TOGETHER):
            yield pd.DataFrame(list(self.inputs[start : start + TOGETHER]))

    def constant(self) -> Run:
        """Return what the majority set scores as: the least that a first champion must beat."""
        return Run(0, dict.fromkeys(self.board.items, VOTE), dict.fromkeys(self.board.items, self.majority))


def open_test(
    corpus: str, *, category: str, params: Params, vault: Vault, root: Path = Path(), sampling: Sampling | None = None
) -> Frozen:
    """Open the test of a category in a clone of the corpus.

    Raises:
        NotCurated: the split or the gold is not there (posts).
        NoGold: the same (memes).
        CorpusError: see :func:`pipelines.datasets.posts.load` and :func:`pipelines.datasets.memes.load`.
    """
    task = task_of(scheme_of(params.corpora[corpus].scheme), category)
    given: dict[str, Any] = {"task": task, "params": params, "vault": vault, "root": root}
    if params.corpora[corpus].content == "texts":
        from pipelines.datasets import posts

        opened = posts.load(corpus, subset=None, ensemble=None, **given)
        material: Any = opened
        inputs = [_post(opened.posts[example.item[0]]) for example in opened.test]
    else:
        from pipelines.datasets import memes

        material = memes.load(corpus, **given)
        inputs = [{"image": example.image, "text": example.text} for example in material.test]
    truth = material.truth(TEST)
    return of_items(
        corpus,
        task=task,
        items=[example.item for example in material.test],
        gold=[truth[example.item] for example in material.test],
        groups=[example.group for example in material.test],
        inputs=inputs,
        validation=list(material.truth("validation").values()),
        split=split_digest(corpus, root=root),
        taken_down=material.taken_down[TEST],
        sampling=sampling or Sampling(params.evaluate.resamples, params.evaluate.seed),
    )


def of_items(
    corpus: str,
    *,
    task: Task,
    items: Sequence[Item],
    gold: Sequence[frozenset[str]],
    groups: Sequence[str],
    inputs: Sequence[dict[str, Any]],
    validation: Sequence[frozenset[str]],
    split: str,
    taken_down: int,
    sampling: Sampling,
) -> Frozen:
    """Return a test of these items, all given in one order; ``validation`` are label sets, for the majority."""
    counts = Counter(validation)
    labels = task.labels
    majority = min(counts, key=lambda s: (-counts[s], sorted(map(labels.index, s))), default=frozenset())
    lines = (f"{i[0]} {i[1]} {g} {','.join(sorted(s))}" for i, g, s in zip(items, groups, gold, strict=True))
    board = Board(task, tuple(items), tuple(gold), tuple(groups), sampling)
    return Frozen(corpus, board, majority, digest_of([corpus, task.key, *lines]), split, taken_down, tuple(inputs))


def ask(folder: Path, *, frozen: Frozen) -> Run:
    """Load the model of a folder whose files were verified, and ask it about the test.

    Raises:
        CannotBeAsked: it does not load, fails, or answers otherwise than its signature says.
    """
    from mlflow import pyfunc

    with unpickled():
        try:
            model = pyfunc.load_model(str(folder))
            said = [row for frame in frozen.frames() for row in _rows(model.predict(frame), asked=len(frame))]
        except CannotBeAsked:
            raise
        except CorpusError as error:
            raise CannotBeAsked(detail=str(error)) from None
        except Exception as error:
            # a model's own message may quote what it was asked
            raise CannotBeAsked(detail=f"it fails ({type(error).__name__})") from None
    outcomes, answers = {}, {}
    for item, (labels, abstained) in zip(frozen.board.items, said, strict=True):
        outcomes[item] = ABSTAINED if abstained else VOTE
        if not abstained:
            answers[item] = _labels(labels, task=frozen.task)
    return Run(0, outcomes, answers)


def _post(post: Any) -> dict[str, Any]:
    return {"title": post.title, "body": post.body}


def _rows(answer: Any, *, asked: int) -> Iterator[tuple[Any, bool]]:
    import pandas as pd

    if not isinstance(answer, pd.DataFrame) or not {*COLUMNS} <= {*answer.columns}:
        raise CannotBeAsked(detail=f"its answer has not the columns {', '.join(COLUMNS)}")
    if len(answer) != asked:
        raise CannotBeAsked(detail=f"{len(answer)} answers to {asked} items")
    for labels, abstained in zip(answer["labels"].tolist(), answer["abstain"].tolist(), strict=True):
        if not isinstance(abstained, bool | np.bool_):
            raise CannotBeAsked(detail="abstain is not true or false")
        yield labels, bool(abstained)


def _labels(labels: Any, *, task: Task) -> frozenset[str]:
    if not isinstance(labels, Sequence | np.ndarray) or isinstance(labels, str):
        raise CannotBeAsked(detail="its labels are no list")
    named = frozenset(map(str, labels))
    if not named <= {*task.labels} or (task.kind == "single" and len(named) != 1):
        raise CannotBeAsked(detail=f"its labels are none of '{task.key}', or too many")
    return named
