"""List the items of test on which named models differ from gold (CRADLE Table 9 and section 6), without their content.

The list has ids, labels and the kind of each error; the stored records remain sealed. :func:`write_content` opens them
for a holder of the vault's keys, into a new folder that only this person may read; it logs and returns counts only.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pipelines.annotate.rounds import desk
from pipelines.core import rows, spreadsheet
from pipelines.core.config.params import Params
from pipelines.core.errors import DataError
from pipelines.core.process import write_private
from pipelines.core.taxonomy import Category
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.task import task_of
from pipelines.datasets.example import NoGold
from pipelines.evaluate.inputs import TEST, EvaluationGold, read_predictions, runs_of
from pipelines.evaluate.model_scores import Item
from pipelines.store.vault.vault import Vault

TYPE, LEVEL = "type", "level"
ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


@dataclass(frozen=True)
class ErrorItem:
    """One item of test: its gold labels, each model's labels (``None``: no answer), and the kinds of its errors."""

    record_id: str
    image: int
    gold: tuple[str, ...]
    said: Mapping[str, tuple[str, ...] | None]
    kinds: tuple[str, ...]

    def row(self) -> dict[str, Any]:
        return asdict(self)


def listed(
    corpus: str, *, models: Sequence[str], params: Params, category: str | None = None, root: Path = Path()
) -> list[ErrorItem]:
    """Return the items of test that no named model has right and at least one answered, sorted by id.

    Of a model with several runs, the first run counts. An item without any answer is a refusal, not an error, and is
    left out. ``category`` may be omitted if the scheme has only one.
    """
    scheme = load_scheme(params.corpora[corpus].scheme, root=root)
    task = task_of(scheme, scheme.category(category).key)
    folder = root / "snapshot" / corpus
    if not all((folder / name).is_dir() for name in ("split", "gold", "few_shot")):
        raise NoGold(corpus=corpus)
    gold = EvaluationGold.read(folder)
    own = [row for row in rows.read(root).answers.values() if row.corpus == corpus]
    predictions = read_predictions(folder / "predictions", answers=own, params=params)
    runs = runs_of(predictions.rows, tasks={task.key: task}, gold=gold).get(task.key, {})
    if lacking := [model for model in models if not runs.get(model)]:
        raise DataError("NoAnswers", model=lacking[0], category=task.key, known=", ".join(sorted(runs)) or "no model")
    answers = {model: runs[model][0].answers for model in models}
    items = []
    for item, truth in gold.seen(task, split=TEST).items():
        said = {model: answers[model].get(item) for model in models}
        answered = [labels for labels in said.values() if labels is not None]
        if answered and truth not in answered:
            kinds = {kind for labels in answered for kind in kinds_of(labels, truth=truth, category=task.category)}
            shown = {model: None if labels is None else tuple(sorted(labels)) for model, labels in said.items()}
            items.append(ErrorItem(item[0], item[1], tuple(sorted(truth)), shown, tuple(sorted(kinds))))
    return items


def kinds_of(labels: Collection[str], *, truth: Collection[str], category: Category) -> list[str]:
    """Return the kinds of a wrong answer: those of CRADLE 6 where labels have a type, else ``extra`` and ``missed``.

    ``over_extension:TYPE`` and ``missed:TYPE``: a type that only the answer, or only gold, has. ``level``: the same
    type with another level, such as active for passive. ``time``: the same type and level at another time.
    ``beside``: all labels of gold, and others beside them.
    """
    none = {category.none}
    extra, missed = set(labels) - set(truth) - none, set(truth) - set(labels) - none
    kinds = ["beside"] if extra and not missed and set(truth) - none else []
    attributes = category.attributes
    if not all(TYPE in attributes[name] for name in extra | missed):
        return [*kinds, *(["extra"] if extra else []), *(["missed"] if missed else [])]

    def types(names: Collection[str]) -> set[str]:
        return {attributes[name][TYPE] for name in names if name not in none}

    kinds += [f"over_extension:{kind}" for kind in types(extra) - types(truth)]
    kinds += [f"missed:{kind}" for kind in types(missed) - types(labels)]
    for mine, theirs in product((attributes[name] for name in extra), [attributes[name] for name in missed]):
        if mine[TYPE] == theirs[TYPE]:
            kinds.append("level" if mine.get(LEVEL) != theirs.get(LEVEL) else "time")
    return kinds


def write_content(
    corpus: str, items: Sequence[ErrorItem], *, to: Path, params: Params, vault: Vault, root: Path
) -> dict[str, int]:
    """Decrypt the listed items into a new folder: ``items.csv``, and a file for each picture; return counts.

    Records that were taken down since are left out. The files are the caller's to remove; no takedown reaches them.
    """
    by_item: dict[Item, ErrorItem] = {(error.record_id, error.image): error for error in items}
    places = {item: at for at, item in enumerate(by_item)}
    to.mkdir(parents=True, exist_ok=True, mode=0o700)
    to.chmod(0o700)
    out = io.StringIO()
    lines = csv.writer(out)
    lines.writerow(["record_id", "image", "gold", "said", "kinds", "title", "body", "picture"])
    opened = desk.task_list(corpus, items=places, cases=None, params=params, vault=vault, root=root)
    for task in opened:
        error = by_item[task.item]
        picture = ""
        if task.image is not None:
            picture = f"{error.record_id}-{error.image}.{ENDINGS.get(task.media_type or '', 'bin')}"
            half = to / picture
            half.touch(mode=0o600)
            half.write_bytes(task.image)
        said = "; ".join(f"{m}: {'–' if s is None else '|'.join(s)}" for m, s in error.said.items())
        texts = [task.text.get("title", ""), task.text.get("body", "")]
        lines.writerow(
            [
                *(error.record_id, error.image, "|".join(error.gold), said, "; ".join(error.kinds)),
                *(*map(spreadsheet.cell, texts), picture),
            ]
        )
    write_private(to / "items.csv", out.getvalue())
    return {"items": len(items), "opened": len(opened)}
