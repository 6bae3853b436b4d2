"""Resolve the rows of the stages ``votes``, ``silver``, ``train`` and ``predict``, and corpora, from the parameters.

``rows.yaml`` beside ``params.yaml`` has them, committed: the stages of ``dvc.yaml`` are a ``foreach`` over its
sections. A row's key says what it is, so that a new row renames and reruns no other (the values of a DVC matrix are a
full product). A row of ``fits`` or ``answers`` names the paths that it reads beside what all rows read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import Field

from pipelines.core import formats
from pipelines.core.config.base import Month, Section, read_section
from pipelines.core.config.label import RemoteLabeller
from pipelines.core.config.models import Subset
from pipelines.core.config.params import Params
from pipelines.core.config.params import load as load_params
from pipelines.core.errors import BadParams, ConfigError
from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import tasks_of

FILE = formats.ROWS
HEAD = """\
# Written by `corpus init`, `corpus params set` and `corpus upgrade` (in a checkout: `make stages`) from params.yaml,
# the catalogue and the label schemes: what votes, silver, train and predict are run for. Do not edit.
"""
GOLD = "gold"
# the code of a row that names no kind and no vendor of this package
OWN = "pipelines/core/rows.py"
R = TypeVar("R", bound="Ask | Aggregate | _Row")
# a pushed commit can change the file, and DVC makes commands and paths of it: no space, no option, no path out of it
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+@-]*$")]
ROOMS = "data|snapshot|annotations|pipelines|crisis_corpus"
Place = Annotated[str, Field(pattern=rf"^({ROOMS})(/[A-Za-z0-9_][A-Za-z0-9_.+@-]*)*$")]


class Corpus(Section):
    """A corpus; ``published`` is the file of its published split, or its data without one."""

    corpus: Name
    published: Place


class Ask(Section):
    """One labeller (``name``) that votes on the items of a corpus; ``code``: its vendor's, if it is asked there."""

    corpus: Name
    name: Name
    code: tuple[Place, ...]


class Aggregate(Section):
    """One ensemble (``name``) whose ``votes`` on a corpus are aggregated."""

    corpus: Name
    name: Name
    votes: Place


def owner(key: str, *, corpora: Iterable[str], rows: Mapping[str, Any]) -> str:
    """Return the corpus of a stage's key: of its row, else the longest name that begins the key, or nothing."""
    own = [name for name in corpora if key == name or key.startswith(f"{name}-")]
    return str(rows[key]["corpus"]) if key in rows else max(own, key=len, default="")


def shown(model: str, subset: str | None) -> str:
    """Return a model's name in tables of predictions: with the subset, unless people gave the labels."""
    return model if subset in (None, GOLD) else f"{model}-{subset}"


class _Row(Section):
    """One model for one task.

    Args:
        name: the row's key without the corpus: names its outs and metrics, and is the argument ``--row``.
        labels: where the labels of train come from: the silver of an ensemble, or gold.
        reads: what else the model reads: rationales, annotations, votes; else the table of splits, as every row.
        code: the code of the model's kind, and of the vendor that it asks, beside that of all rows.
        until: of a backtest, the last month that the model learns from.
    """

    corpus: Name
    name: Name
    task: Name
    model: Name
    subset: Subset | None = None
    seed: int | None = None
    until: Month | None = None
    labels: Place
    reads: Place
    code: tuple[Place, ...]

    @property
    def shown(self) -> str:
        """The model's name in tables of predictions."""
        return shown(self.model, self.subset) + (f"-until-{self.until}" if self.until else "")


class Fit(_Row):
    """One model that is fitted for one task, on one subset of the labels, with one seed.

    Args:
        keep: whether the weights are kept; else the row's predictions are.
    """

    subset: Subset
    seed: int
    keep: bool


class Answer(_Row):
    """One model whose answers for one task are compared: a fitted one, or one that is asked or read.

    Subset and seed are ``None`` for a model that is not fitted here.

    Args:
        source: what is predicted with or copied: the folder of a fit, votes, or silver.
    """

    source: Place


class Rows(Section):
    """All rows by key; see :mod:`pipelines.core.rows`."""

    corpora: dict[Name, Corpus] = Field(default_factory=dict)
    votes: dict[Name, Ask]
    silver: dict[Name, Aggregate]
    fits: dict[Name, Fit]
    answers: dict[Name, Answer]

    def fit(self, corpus: str, name: str) -> Fit:
        """Return a row of ``fits``."""
        return _named(self.fits, corpus, name)

    def answer(self, corpus: str, name: str) -> Answer:
        """Return a row of ``answers``."""
        return _named(self.answers, corpus, name)


def _named(rows: dict[str, R], corpus: str, name: str) -> R:
    row = rows.get(f"{corpus}-{name}")
    if row is None or row.corpus != corpus:
        known = [row.name for row in rows.values() if row.corpus == corpus]
        raise ConfigError("UnknownName", kind=f"row of {corpus}", name=name, known=", ".join(known) or "none")
    return row


class _File(Section):
    code: tuple[tuple[Place, ...], ...] = ()
    rows: Rows


def read(root: Path = Path()) -> Rows:
    """Read the rows of a checkout or clone."""
    return read_section(
        _File, root / FILE, refuse=lambda detail: BadParams(where=FILE, detail=detail), form="corpus"
    ).rows


def check(root: Path) -> None:
    """Refuse a ``rows.yaml`` whose values could be more than a name in a command or lead out of the clone."""
    if (root / FILE).is_file():
        read(root)


def text(params: Params, *, root: Path) -> str:
    """Return the content of ``rows.yaml``; ``root`` has a team's own label schemes."""
    lines, lists = ["rows:"], dict[str, str]()
    for section, found in resolve(params, root=root).model_dump(mode="json", exclude_none=True).items():
        lines.append(f"  {section}: {{}}" if not found else f"  {section}:")
        for key, row in found.items():
            if code := row.pop("code", None):
                row["code"] = lists.setdefault(_flow(code), f"c{len(lists)}")
            lines.append(f"    {key}: {_flow(row)}".replace("code: c", "code: *c"))
    code = [f"- &{name} {paths}" for paths, name in lists.items()]
    return "\n".join([f"{HEAD}format: {formats.version('corpus')}", "code:", *code, *lines, ""])


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=1_000_000, default_flow_style=True).strip()


def resolve(params: Params, *, root: Path) -> Rows:
    """Return the rows that the parameters ask for."""
    votes = [
        Ask(corpus=corpus, name=name, code=_code("votes", labeller=name, params=params))
        for corpus, names in params.votes.labellers.items()
        for name in names
    ]
    silver = [
        Aggregate(corpus=c, name=name, votes=_votes(c, params=params))
        for c, names in params.silver.ensembles.items()
        for name in names
    ]
    fits = [row for corpus in params.train.rows for row in _fits(corpus, params=params, root=root)]
    keys = {f"{row.corpus}-{row.name}" for row in fits if row.until is None}
    if unknown := ", ".join(key for key in params.train.keep if key not in keys):
        raise BadParams(where="train.keep", detail=f"there is no row {unknown}")
    answers = [_fitted(row, params=params) for row in fits]
    answers += [row for corpus in params.predict.rows for row in _unfitted(corpus, params=params, root=root)]
    splits = {corpus: params.split[corpus].published or f"data/{corpus}" for corpus in params.matrix.corpora}
    keyed: dict[str, Any] = {"corpora": {name: Corpus(corpus=name, published=path) for name, path in splits.items()}}
    sections: dict[str, Sequence[Any]] = {"votes": votes, "silver": silver, "fits": fits, "answers": answers}
    keyed |= {section: _keyed(rows, corpora=params.corpora) for section, rows in sections.items()}
    return Rows(**keyed)


def _keyed(rows: Sequence[R], *, corpora: Collection[str]) -> dict[str, R]:
    """Return rows by key; of the corpora ``a`` and ``a-b`` two may have the same."""
    keyed: dict[str, R] = {}
    for row in rows:
        key = f"{row.corpus}-{row.name}"
        if key in keyed or key in corpora:
            detail = f"{row.corpus} and another corpus have the stage '{key}'; rename one of the two"
            raise BadParams(where="corpora", detail=detail)
        keyed[key] = row
    return keyed


def _fits(corpus: str, *, params: Params, root: Path) -> Iterator[Fit]:
    wanted = params.train.rows[corpus]
    if wanted.until and GOLD not in wanted.subsets:
        raise BadParams(where=f"train.rows.{corpus}.until", detail="a backtest learns from gold; add it to subsets")
    for task in tasks_of(load(params.corpora[corpus].scheme, root=root)):
        for model in wanted.models:
            if (only := params.models[model].tasks) is not None and task not in only:
                continue
            for subset in wanted.subsets:
                if subset != GOLD and wanted.ensemble not in params.silver.ensembles.get(corpus, ()):
                    detail = f"subset {subset} needs an ensemble of silver.ensembles.{corpus}"
                    raise BadParams(where=f"train.rows.{corpus}.ensemble", detail=detail)
                labels = "gold/gold.parquet" if subset == GOLD else f"silver/{wanted.ensemble}"
                for seed, until in product(wanted.seeds, (None, *(wanted.until if subset == GOLD else ()))):
                    name = f"{task}-{model}-{subset}-{seed}" + (f"-until-{until}" if until else "")
                    kept = f"{corpus}-{name}" in params.train.keep or any(
                        entry.wants(corpus, task, model, subset, seed) for entry in params.registry.values()
                    )
                    yield Fit(
                        corpus=corpus, name=name, task=task, model=model, subset=subset, seed=seed, until=until,
                        keep=kept and until is None,
                        labels=f"snapshot/{corpus}/{labels}", reads=_reads(corpus, model, params=params),
                        code=_code("fits", kind=params.models[model].kind, params=params),
                    )  # fmt: skip


def _fitted(row: Fit, *, params: Params) -> Answer:
    shared = row.model_dump(include={*_Row.model_fields} - {"code"})
    code = _code("answers", kind=params.models[row.model].kind, params=params)
    return Answer(**shared, code=code, source=f"snapshot/{row.corpus}/fits/{row.name}")


def _unfitted(corpus: str, *, params: Params, root: Path) -> Iterator[Answer]:
    folder = f"snapshot/{corpus}"
    for task in tasks_of(load(params.corpora[corpus].scheme, root=root)):
        for model in params.predict.rows[corpus]:
            entry = params.models[model]
            if entry.tasks is not None and task not in entry.tasks:
                continue
            source = f"{folder}/few_shot/examples.parquet"
            if entry.silver is not None:
                source = f"{folder}/silver/{entry.silver}"
            yield Answer(
                corpus=corpus, name=f"{task}-{model}", task=task, model=model, source=source,
                labels=f"{folder}/gold/gold.parquet", reads=_reads(corpus, model, params=params),
                code=_code("answers", kind=entry.kind, labeller=entry.labeller, params=params),
            )  # fmt: skip


def _reads(corpus: str, model: str, *, params: Params) -> str:
    """Return what an entry of ``models`` makes its rows read: rationales, votes, or no more than all rows."""
    entry, folder = params.models[model], f"snapshot/{corpus}"
    if (entry.model_extra or {}).get("targets") is not None:
        if entry.rationales is not None:
            raise BadParams(where=f"models.{model}.targets", detail="a model that reads rationales has no soft targets")
        return f"annotations/{corpus}"
    if entry.rationales is not None:
        return f"{folder}/rationales/{model}"
    if entry.votes is not None:
        return f"{folder}/votes/{entry.votes}"
    # what an ensemble costs is what its members' votes cost
    return _votes(corpus, params=params) if entry.silver is not None else f"{folder}/split/splits.parquet"


def _votes(corpus: str, *, params: Params) -> str:
    """Return the votes on a corpus, or its split if no labeller votes and all silver is a publisher's."""
    return f"snapshot/{corpus}/" + ("votes" if params.votes.labellers.get(corpus) else "split/splits.parquet")


def _code(section: str, *, params: Params, kind: str = "", labeller: str | None = None) -> tuple[str, ...]:
    """Return the code of a row; a part of another distribution is a parameter, ``distributions``."""
    known, asked = _known()[section], params.labellers.get(labeller or "")
    vendor = params.providers[asked.provider].api if isinstance(asked, RemoteLabeller) else ""
    paths = [*known.get("kinds", {}).get(kind, ()), *known.get("vendors", {}).get(vendor, ())] or [OWN]
    return (*paths, *paths[-1:] * (slots(known) - len(paths)))


def slots(known: Mapping[str, Mapping[str, Sequence[str]]]) -> int:
    """Return how many paths of code each row of a section has: the most that one needs; fewer repeat their last."""
    return sum(max(map(len, parts.values())) for parts in known.values())


@cache
def _known() -> dict[str, dict[str, dict[str, list[str]]]]:
    """Return the code of kinds and vendors by section, as ``make stages`` wrote it."""
    read: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "stages.yaml").read_text())
    return dict(formats.opened("stages", read)["code"])


if __name__ == "__main__":
    Path(FILE).write_text(text(load_params(), root=Path()))
