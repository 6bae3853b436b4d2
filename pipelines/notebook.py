"""Look at a corpus, and score predictions of your own, in a notebook or a Python session.

::

    corpus = open_corpus("adhd", why="word counts for the guideline, board request 12")
    train = corpus.items(split="train", text=True)
    model.fit(train.text.reveal(), ...)
    corpus.score(pandas.Series(labels, index=dev.index), against="champion")

Without ``text=True`` nothing needs the project secret. The content is in objects of :class:`Sealed`, which show an id
and a length wherever a frame is displayed, printed or written, and which cannot be pickled. What ``reveal``, ``show``
and ``to_datasets`` return is plain: a notebook stores what is left as the last expression of a cell, and an error in
your own code may quote it. Each opening is on record (`corpus access`) before anything is decrypted.

The labels of test are closed. Records that were taken down are in no frame, whichever commit is open.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import pandas as pd
import pyarrow as pa

from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, ConfigError, CorpusError, DataError, RegistryError
from pipelines.core.process import now, private_files
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import Task, task_of, tasks_of
from pipelines.curate.items import read_items, read_posts
from pipelines.datasets.example import TEST, NoGold
from pipelines.datasets.items import CONTENTS, VALIDATIONS, digest_of, opened
from pipelines.datasets.post import Post
from pipelines.evaluate.inputs import TRAIN, EvaluationGold, runs_of
from pipelines.evaluate.model_scores import VOTE, Board, Item, Json, Run, Sampling, score, scores
from pipelines.evaluate.paired import Entrant, pairs
from pipelines.registry.batch_predict import pinned_versions
from pipelines.registry.journal import Journal, signed
from pipelines.registry.promotion import looks
from pipelines.registry.promotion.holdout import answers_of
from pipelines.registry.versions import entry
from pipelines.store import tables
from pipelines.store.vault import access
from pipelines.store.vault.database import Database, tombstoned
from pipelines.store.vault.vault import Vault, newest_split
from pipelines.takedown.object_versions import replaced
from pipelines.workspace.clone import Workspace, workspace

if TYPE_CHECKING:
    from pathlib import Path

    import datasets

KEY = ["record_id", "image"]
CHAMPION, MINE = "champion", "mine"
OPEN = (TRAIN, *VALIDATIONS)


class Sealed:
    """The content of one item, a text or a picture: it shows the item and the length; ``reveal()`` returns it."""

    __slots__ = ("_length", "_shown", "reveal")

    def __init__(self, item: Item, content: str | bytes) -> None:
        kind = "characters" if isinstance(content, str) else "bytes"
        self._length, self._shown = len(content), f"<sealed {item[0]}/{item[1]}: {len(content)} {kind}>"
        # no attribute has the content, so that nothing that lists attributes shows it
        self.reveal: Callable[[], Any] = lambda: content

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return self._shown

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise ConfigError("ContentSealed")

    def __copy__(self) -> Sealed:
        return self

    def __deepcopy__(self, memo: Any) -> Sealed:
        return self


@pd.api.extensions.register_series_accessor("reveal")
class Reveal:
    """Add ``frame.text.reveal()`` to a column of sealed content: its texts or pictures as a list."""

    def __init__(self, column: pd.Series) -> None:
        if not all(isinstance(value, Sealed | None) for value in column):
            raise AttributeError("only a column of sealed content has .reveal")
        self._column = column

    def __call__(self) -> list[Any]:
        """Return the plain content; a picture that is missing is ``None``."""
        return [None if value is None else value.reveal() for value in self._column]


@dataclass(frozen=True, repr=False)
class Score:
    """The scores of predictions, as the report states them for its models.

    Args:
        models: ``Scores`` of ``evaluate.json`` by model (a missing answer counts as wrong), yours as ``mine``.
        pairs: the paired tests (``Pair`` of ``evaluate.json``).
        look: for test, the number of this look, and how many are left at this gate set; else ``None``.
    """

    split: str
    n: int
    models: Mapping[str, Json]
    pairs: Sequence[Json] = ()
    look: Json | None = None

    @property
    def table(self) -> pd.DataFrame:
        """The figures: a row for each model and figure, with mean and 95 % interval."""
        rows = {(m, name): cell for m, found in self.models.items() for name, cell in found["figures"].items()}
        return pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "low", "high"])

    @property
    def tests(self) -> pd.DataFrame:
        """The paired tests: a row for each pair, with the difference of macro-F1, its interval, and Holm's p-values."""
        rows = [{"a": p["a"], "b": p["b"], **p["macro_f1"], **p["holm"]} for p in self.pairs]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        left = f"; look {self.look['number']}, {self.look['left']} left" if self.look else ""
        parts = [f"{self.split}: {self.n} items{left}", self.table.round(3).to_string()]
        return "\n\n".join([*parts, *([self.tests.round(4).to_string(index=False)] if self.pairs else [])])


def open_corpus(name: str, *, revision: str | None = None, why: str = "") -> Corpus:
    """Open a corpus at the newest commit of its branch, or at ``revision``, in a temporary clone of its own.

    The corpus is that of CORPUS_HOME, else of the checkout or of the clone (`corpus clone`) in which this runs. Tables
    are fetched when they are needed. ``why`` is the reason for opening content, unless a method is given another one.
    Files that this process writes from now on are readable to you alone.
    """
    settings = Settings.from_env()
    private_files()
    with ExitStack() as stack:
        clone = stack.enter_context(workspace(settings, revision=revision))
        params = load(clone.path)
        if name not in params.corpora:
            raise ConfigError("UnknownName", kind="corpus", name=name, known=", ".join(params.corpora))
        database = Database(settings.vault_url, create=False)
        stack.callback(database.close)
        return Corpus(name, params, why, revision is not None, clone, database, stack.pop_all())


@dataclass(repr=False)
class Corpus:
    """An open corpus; ``close`` removes its clone, as does the end of the process.

    Frames are indexed by item: ``record_id``, and ``image``, which is 0 for a text.
    """

    name: str
    params: Params
    why: str
    _pinned: bool
    _clone: Workspace
    _database: Database
    _stack: ExitStack
    _seen: set[tuple[str, Item]] = field(default_factory=set)
    _placed: set[str] = field(default_factory=set)

    def __repr__(self) -> str:
        return f"<corpus {self.name} at {self.commit[:12]}: {self.content}>"

    @property
    def commit(self) -> str:
        return self._clone.head

    @property
    def content(self) -> str:
        """What an item is: ``texts`` or ``images``."""
        return self.params.corpora[self.name].content

    @property
    def tasks(self) -> dict[str, Task]:
        """What models predict, by name: the categories of the label scheme with their labels."""
        return tasks_of(self._scheme)

    @property
    def _scheme(self) -> Scheme:
        return scheme_of(self.params.corpora[self.name].scheme, root=self._clone.path)

    def close(self) -> None:
        """Remove the clone."""
        self._stack.close()

    def items(self, split: str | None = None, *, text: bool = False, why: str | None = None) -> pd.DataFrame:
        """Return a row for each item of a split, or for all that were collected.

        Columns: ``month``, ``subreddit``, ``language``, ``words`` (how many; of a picture, those read in it), ``split``
        and ``group`` (of near-duplicates and of one author; both missing for an item that was not drawn or was left
        out), and ``text``, sealed, as a model of text reads it, with ``text=True``.
        """
        frame = self._listed(split)
        return self._with(frame, "text", CONTENTS[self.content].text, why=why) if text else frame

    def images(self, split: str | None = None, *, why: str | None = None) -> pd.DataFrame:
        """Return :meth:`items` with the column ``picture``, sealed; a picture that cannot be shown is ``None``."""
        if self.content != "images":
            raise self._absent("pictures")
        return self._with(self._listed(split), "picture", lambda post: next(iter(post.images), None), why=why)

    def show(self, ids: Iterable[str], *, why: str | None = None) -> None:
        """Print the content of these records, which a notebook then stores with its outputs."""
        listed = self._listed(None)
        wanted = set(ids)
        for item, post in self._opened([item for item in listed.index if item[0] in wanted], why=why).items():
            sys.stdout.write(f"{item[0]}/{item[1]}\n{CONTENTS[self.content].text(post)}\n\n")
            for picture in post.images:
                _display(picture)

    def gold(self, split: str | None = None) -> pd.DataFrame:
        """Return the labels that people decided: ``category``, ``labels``, ``how``, ``split``; those of test never."""
        self._gold()
        frame = self._answers("gold/gold.parquet", name="gold", split=split)
        return frame[frame.split.isin(OPEN)][["category", "labels", "how", "split"]]

    def votes(self, split: str | None = None) -> pd.DataFrame:
        """Return what each labeller said of the items outside test."""
        return self._answers("votes/*/votes.parquet", name="votes", split=split)

    def silver(self, split: str | None = None) -> pd.DataFrame:
        """Return what each ensemble of labellers decided about the items outside test."""
        return self._answers("silver/*/silver.parquet", name="silver", split=split)

    def predictions(self, model: str, *, split: str | None = None) -> pd.DataFrame:
        """Return what a model of the report, or ``champion``, says of the items outside test."""
        return self._without_test(self._said(model, *self.tasks.values()), name="predictions", split=split)

    def to_datasets(self, *, why: str | None = None) -> datasets.DatasetDict:
        """Return the splits as data sets of Hugging Face in memory: plain content, and labels by category outside test.

        An item without gold in a category has ``None`` there.
        """
        try:
            from datasets import Dataset, DatasetDict, Image
        except ModuleNotFoundError:
            raise ConfigError("LibraryMissing", package="datasets") from None
        frame = self.items(text=True, why=why).dropna(subset=["split"])
        frame["text"] = frame.text.reveal()
        if self.content == "images":
            frame["picture"] = self.images(why=why).picture.reindex(frame.index).reveal()
        gold = self.gold()
        for key in self.tasks:
            frame[key] = gold[gold.category == key].labels.map(list).reindex(frame.index)
        made = {}
        for split, rows in frame.groupby("split"):
            kept = rows.drop(columns=[] if split in OPEN else list(self.tasks))
            made[split] = Dataset.from_pandas(kept.reset_index(), preserve_index=False)
            if "picture" in kept:
                made[split] = made[split].cast_column("picture", Image())
        return DatasetDict(made)

    def score(
        self,
        predictions: Mapping[Item, Any] | pd.Series,
        *,
        task: str | None = None,
        split: str | None = None,
        against: str | None = None,
    ) -> Score:
        """Score predictions on gold, with the report's intervals and paired tests; an item without one counts as wrong.

        On test this is a look, recorded with your name in the journal of the task's registered models before anything
        is computed; the same predictions again are the same look. Only the part of test that is the gate set is scored.

        Args:
            predictions: a label, or several, by item: such as a Series with the index of :meth:`items`.
            task: one of :attr:`tasks`; may be omitted if there is only one.
            split: by default the one that models are selected on, which is open.
            against: a model of the report, or ``champion``, to compare with.
        """
        chosen, gold = self._task(task), self._gold()
        split = split or gold.validation
        if split not in (TEST, gold.validation):
            raise BadParams(where="split", detail=f"is neither {gold.validation} nor {TEST}")
        board = self._board(chosen, gold=gold, split=split)
        own = [_row(item, said, task=chosen) for item, said in predictions.items()]
        runs = {MINE: self._runs(own, chosen, gold=gold, split=split)}
        if against is not None:
            rows = [row | {"model": against} for row in self._said(against, chosen)]
            runs[against] = self._runs(rows, chosen, gold=gold, split=split)
        for model, found in runs.items():
            if not any(run.answers.keys() & {*board.items} for run in found):
                raise DataError("NothingToScore", model=model, corpus=self.name, split=split, task=chosen.key)
        look = None
        if split == TEST:
            board, look = self._look(board, runs)
        scored = {model: score(board, runs=found, valid=False) for model, found in runs.items()}
        entrants = {m: Entrant.of(board, runs=runs[m], scored=each) for m, each in scored.items()}
        figures = {model: scores(each, board=board) for model, each in scored.items()}
        return Score(split, len(board.items), figures, pairs(board, entrants=entrants), look)

    def _task(self, key: str | None) -> Task:
        return task_of(self._scheme, self._scheme.category(key).key)

    def _board(self, task: Task, *, gold: EvaluationGold, split: str) -> Board:
        seen = gold.seen(task, split=split)
        gone = tombstoned(self._database, {record_id for record_id, _ in seen})
        closed = self._closed() if split != TEST else ()
        items = tuple(item for item in seen if item[0] not in gone and item not in closed and item not in gold.leaks)
        sampling = Sampling(self.params.evaluate.resamples, self.params.evaluate.seed)
        return Board(task, items, tuple(seen[i] for i in items), tuple(gold.group[i] for i in items), sampling)

    def _runs(self, rows: Iterable[Json], task: Task, *, gold: EvaluationGold, split: str) -> Sequence[Run]:
        own = [row | {"split": split} for row in rows if gold.split.get((row["record_id"], row["image"])) == split]
        by_model = runs_of(own, tasks={task.key: task}, gold=gold, split=split).get(task.key, {})
        return [run for found in by_model.values() for run in found]

    def _look(self, board: Board, runs: Mapping[str, Sequence[Run]]) -> tuple[Board, Json]:
        """Record the look of each registered name of the task; return the gate set, and what is left where least is."""
        terms, who, settings = self.params.promote, self._clone.settings.person, self._clone.settings
        if self._pinned:
            raise BadParams(where="revision", detail="is given, but test is scored at the newest commit only")
        looks.require_part(self.name, terms=terms)
        version = self.params.split[self.name].version
        divided = looks.divide(board, corpus=self.name, version=version, terms=terms)
        digests = {model: digest_of(map(answers_of, found)) for model, found in runs.items()}
        pair = digest_of([*(f"{model} {digest}" for model, digest in digests.items()), f"gate {divided.digest}"])
        own = (self.name, board.task.key)
        names = [name for name, each in self.params.registry.items() if (each.corpus, each.task) == own]
        if not names:
            raise BadParams(where="registry", detail=f"names no model of {' '.join(own)}, whose looks would be counted")
        left = []
        with Journal.of(settings, clock=now) as journal:
            for name in names:
                look = looks.take(
                    name,
                    version=None,
                    rival=None,
                    gate=divided.identity,
                    pair=pair,
                    terms=terms,
                    files=digests[MINE],
                    journal=journal,
                    who=who,
                )
                if look is None:
                    what = {"corpus": self.name, "name": name, "validation": self._gold().validation}
                    raise RegistryError("LooksSpent", **what, remedy=looks.remedy(self.name, terms=terms))
                budget = looks.budget(journal.rows(name), gate=divided.identity, terms=terms)
                left.append({"name": name} | budget.figures(look))
        return divided.gate, min(left, key=lambda figures: int(figures["left"]))

    def _place(self, *paths: str) -> None:
        """Fetch files of the commit; for those with records that were taken down since, those that replaced them."""
        wanted = set(paths) - self._placed
        if wanted:
            known = replaced(self._clone.settings)
            files = self._clone.inventory().files(*wanted)
            self._clone.link({path: known.get(digest, (digest, 0))[0] for path, digest in files.items()})
            self._placed |= wanted

    def _listed(self, split: str | None) -> pd.DataFrame:
        root, months = self._clone.path, sorted((self._clone.path / "data" / self.name).glob("*"))
        shown = [f"data/{self.name}/{month.name}" for month in months if month.is_dir()]
        self._place(*(f"{month}/{part}" for month in shown for part in (self.content, "records.parquet")))
        rows = read_items(self.name, params=self.params, columns=["language", "words"], root=root)
        posts = read_posts(self.name, items=rows, columns=["created", "subreddit"], root=root)
        frame = rows.to_pandas().merge(posts.to_pandas(), on="record_id")
        frame["month"] = frame.pop("created").dt.strftime("%Y-%m")
        frame, placed = frame.set_index(KEY).sort_index(), self._splits()
        for at, column in enumerate(("split", "group")):
            frame[column] = [placed.get(item, (None, None))[at] for item in frame.index]
        frame = self._live(frame)[["month", "subreddit", "language", "words", "split", "group"]]
        return frame if split is None else frame[frame.split == self._known(split)]

    def _splits(self) -> Mapping[Item, tuple[str, str]]:
        self._place(f"snapshot/{self.name}/split")
        folder = self._clone.path / "snapshot" / self.name
        return tables.splits(folder) if (folder / "split" / "splits.parquet").is_file() else {}

    def _known(self, split: str) -> str:
        known = sorted({each for each, _ in self._splits().values()})
        if split not in known:
            raise ConfigError("UnknownName", kind="split", name=split, known=", ".join(known) or "none")
        return split

    def _live(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Leave out records that were taken down."""
        ids = frame.index.get_level_values("record_id")
        return frame[~ids.isin(tombstoned(self._database, set(ids)))]

    def _gold(self) -> EvaluationGold:
        folder = f"snapshot/{self.name}"
        self._place(*(f"{folder}/{part}" for part in ("split", "gold", "few_shot")))
        if not all((self._clone.path / folder / part).is_dir() for part in ("split", "gold", "few_shot")):
            raise NoGold(corpus=self.name)
        return EvaluationGold.read(self._clone.path / folder)

    def _paths(self, pattern: str) -> list[Path]:
        """Return the tables of the corpus's snapshot with names of this pattern."""
        folder = f"snapshot/{self.name}"
        self._place(f"{folder}/{pattern.partition('/')[0]}")
        return sorted((self._clone.path / folder).glob(pattern))

    def _absent(self, what: str) -> DataError:
        return DataError("NotInCommit", corpus=self.name, what=what, commit=self.commit[:12])

    def _read(self, pattern: str, *, name: str) -> pa.Table:
        if not (paths := self._paths(pattern)):
            raise self._absent(name)
        return tables.concat(paths, name=name)

    def _answers(self, pattern: str, *, name: str, split: str | None) -> pd.DataFrame:
        return self._without_test(self._read(pattern, name=name).to_pylist(), name=name, split=split)

    def _without_test(self, rows: Sequence[Json], *, name: str, split: str | None) -> pd.DataFrame:
        """Return rows of a table by item, with the present split of the item and without those of test."""
        if split == TEST:
            raise DataError("LabelsClosed", split=split, corpus=self.name)
        placed, closed = self._splits(), self._closed()
        frame = pd.DataFrame(rows, columns=tables.SCHEMAS[name].names).set_index(KEY)
        frame["split"] = [placed.get(item, (None, None))[0] for item in frame.index]
        frame = self._live(frame[[item not in closed for item in frame.index]])
        return frame if split is None else frame[frame.split == self._known(split)]

    def _closed(self) -> set[Item]:
        """Return the items that are test in this commit, or in the newest version of the split."""
        here = {item for item, (split, _) in self._splits().items() if split == TEST}
        return here | {item for item, split in newest_split(self._database, self.name).items() if split == TEST}

    def _said(self, model: str, *tasks: Task) -> list[Json]:
        """Return a model's answers to tasks; of the champion, what ``batch_predict`` stored."""
        if model == CHAMPION:
            pins = reversed([*pinned_versions(self.name, root=self._clone.path)])
            champions = {entry(pin.name, params=self.params).task: pin.name for pin in pins}
            patterns = [f"scoring/{champions[task.key]}.parquet" for task in tasks if task.key in champions]
        else:
            patterns = [f"predictions/{task.key}-*/predictions.parquet" for task in tasks]
        paths = [path for pattern in patterns for path in self._paths(pattern)]
        said = [row for path in paths for row in tables.read(path, name="predictions").to_pylist()]
        rows = [row | {"seed": row["seed"] or 0} for row in said if model in (CHAMPION, row["model"])]
        if not rows:
            raise self._absent(f"predictions of '{model}'")
        return rows

    def _with(self, frame: pd.DataFrame, column: str, part: Any, *, why: str | None) -> pd.DataFrame:
        posts = self._opened(list(frame.index), why=why)
        frame = frame[[item in posts for item in frame.index]].copy()
        parts = {item: part(posts[item]) for item in frame.index}
        sealed = [None if content is None else Sealed(item, content) for item, content in parts.items()]
        frame[column] = pd.Series(sealed, index=frame.index, dtype=object)
        return frame

    def _opened(self, items: Collection[Item], *, why: str | None) -> dict[Item, Post]:
        """Decrypt items, after the opening of those that this session has not opened for this reason is on record."""
        settings = self._clone.settings
        about = signed(settings.person, self.why if why is None else why)
        fresh = [item for item in items if (about["why"], item) not in self._seen]
        with Vault.existing(settings) as vault:
            if fresh:
                access.record(vault, corpus=self.name, items=fresh, now=now(), **about)
                self._seen |= {(about["why"], item) for item in fresh}
            given: dict[str, Any] = {"content": self.content, "vault": vault, "root": self._clone.path}
            try:
                return opened(self.name, items=set(items), **given)[0]
            except CorpusError:
                raise
            except Exception as error:
                # the message of a library may quote content
                raise DataError("NotOpened", corpus=self.name, detail=type(error).__name__) from None


def _row(item: Item, said: Any, *, task: Task) -> Json:
    labels = [said] if isinstance(said, str) else list(said)
    if not {*labels} <= {*task.labels} or (task.kind == "single" and len(labels) != 1):
        # without the value, which may be content
        detail = f"an answer to '{task.key}' is not of its labels: {', '.join(task.labels)}"
        raise BadParams(where="predictions", detail=detail)
    about = {"task": task.key, "model": MINE, "seed": 0, "outcome": VOTE}
    return {"record_id": str(item[0]), "image": int(item[1]), "labels": labels, **about}


def _display(picture: bytes) -> None:
    with suppress(ModuleNotFoundError):
        from IPython.display import Image, display

        display(Image(data=picture))
