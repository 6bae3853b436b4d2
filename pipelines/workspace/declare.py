"""Declare a corpus of one's own: write the folder with its label scheme, its profile and the mapping of its labels."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from pipelines.core import rows, taxonomy
from pipelines.core.config.added_corpora import complete
from pipelines.core.config.base import CORPORA
from pipelines.core.config.params import Params, overlay, parse, profile_places, read_params, validate
from pipelines.core.errors import ConfigError
from pipelines.core.taxonomy.scheme import normal

# As a scheme's name, which becomes that of a data set, of a folder, of a Dag and of models.
NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
SCHEME, PROFILE, MAPPING = "scheme.yaml", "profile.yaml", "mapping.yaml"
# What is said above a value, by a pattern of its place in one of the three files.
COMMENTS = {
    "version": "raise it with every change of a label",
    "item": "what one record is called, and several of them, in prompts and reports",
    "role": "the reader that prompts address, and the purpose of the research",
    "categories": "the questions about an item; models predict each of them",
    "categories.*.kind": "single: one label for each item; multi: any number, or none",
    "categories.*.task": "the question, as annotators and prompts read it",
    "categories.*.labels": "when an item has the label: one sentence, as annotators and prompts read it",
    "corpora": "the corpora of this repository; null leaves out one of params.yaml",
    "corpora.*.content": "what is labelled: texts or images",
    "corpora.*.scheme": f"the label scheme: {CORPORA}/<name>/{SCHEME}",
    "corpora.*.subreddits": "the subreddits that are read",
    "corpora.*.source": "an entry of section sources, such as dump (the files in CORPUS_DUMPS), or a list of them",
    "corpora.*.first_month": "the first and the last month that is collected, YYYY-MM; null: every month from now on",
    "sources.*.ethics": "the board that approved research with these posts and its reference, or why none is needed",
    "sources.*.access_basis": "the terms on which the source may be read, such as the name of an agreement",
    "sources.*.approval": "the decision of your data protection officer or board, such as its number",
    "sources.*.expires": "the day from which the source may no longer be read",
    "sources.*.retention_days": "the number of days for which content is kept",
    "gold.*.published": f"the labels that `corpus import` brings, by {CORPORA}/<name>/{MAPPING}",
    "train.rows.*.models": "what is trained: entries of section models in catalogue.yaml; the first can be registered",
    "registry": "the models that others load, one for each question; batch_predict: those that label new months",
    "promote": "the test before a model goes into service: its whole test split decides, ten times at most",
    "dataset": "names the labels in the corpus, as the profile's gold.<corpus>.published does",
    "level": "one row is an item (a post), or a user with all posts",
    "columns": "the column with a post's id, fullname or address at Reddit",
    "labels": "by question the column with its labels, or a column of 0 and 1 for each (flags: {label: [column]})",
}


# The definition of a label until a person has written one.
UNDEFINED = "Say here when {item} is {label}."
ITEMS = {"texts": ("text", "texts"), "images": ("picture", "pictures")}


@dataclass(frozen=True)
class Question:
    """A question about an item: its labels with their definitions, and how a file has the answers.

    The file has one ``column`` with labels, or for each label a column of 0 and 1 (``flags``).
    """

    labels: Mapping[str, str]
    several: bool = False
    column: str = ""
    separator: str = "|"
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def mapped(self) -> dict[str, Any]:
        """The entry of a mapping's section ``labels``."""
        if self.flags:
            return {"flags": {label: [column] for label, column in self.flags.items()}}
        several = {"separator": self.separator, "blank": "none"} if self.several else {"blank": "unlabelled"}
        return {"columns": [self.column], **several}


def scheme_text(name: str, questions: Mapping[str, Question], *, content: str) -> str:
    """Return the text of a label scheme with these questions."""
    item, items = ITEMS[content]
    head = {
        "name": name,
        "version": 1,
        "title": name,
        "item": item,
        "items": items,
        "role": f"You read {items} that people share on Reddit.",
        "purpose": "Research on what people share.",
    }
    categories = {
        key: {
            "kind": "multi" if question.several else "single",
            "task": f"Say which of the labels {item} has.".replace(item, f"the {item}"),
            "labels": [
                {"name": label, "code": code, "definition": text or UNDEFINED.format(item=f"a {item}", label=label)}
                for (label, text), code in zip(question.labels.items(), _codes(question.labels), strict=True)
            ],
        }
        for key, question in questions.items()
    }
    return commented({**head, "categories": categories})


def _codes(labels: Collection[str]) -> list[str]:
    """Return a short code for each label, none of which is another label's name."""
    names = {normal(label) for label in labels}
    letters = next(
        letters for letters in ("L", "LC", "LCX") if not names & {f"{letters}{n}".lower() for n in range(200)}
    )
    return [f"{letters}{number}" for number in range(1, len(labels) + 1)]


def profile_text(
    name: str,
    *,
    corpus: Mapping[str, Any],
    sources: Mapping[str, Mapping[str, Any]],
    models: Sequence[str],
    tasks: Collection[str],
    others: Sequence[str],
) -> str:
    """Return the text of a profile with one corpus: ``tasks`` are predicted by ``models``, ``others`` are left out."""
    registered = {task: f"{name}-{task}".replace("_", "-") for task in tasks}
    return "# Written by `corpus new`; every other value is that of params.yaml.\n" + commented(
        {
            "corpora": {**dict.fromkeys(others), name: {**corpus, "scheme": name}},
            "sources": sources,
            "gold": {name: {"published": f"annotations/{name}/{name}/gold.csv"}},
            "train": {"rows": {name: {"models": [*models]}}},
            "registry": {
                registered[task]: {"corpus": name, "task": task, "candidates": [{"model": models[0]}]} for task in tasks
            },
            "batch_predict": {name: [*registered.values()]},
            "promote": {"baselines": [], "parts": 1, "looks": 10},
        }
    )


def mapping_text(name: str, questions: Mapping[str, Question], *, columns: Sequence[str]) -> str:
    """Return the text of the mapping of a file with labels, whose rows are named by one of the ``columns``."""
    return commented(
        {
            "dataset": name,
            "title": name,
            "source": "our annotators",
            "scheme": name,
            "level": "item",
            "columns": {"reddit": [*columns]},
            "labels": {key: question.mapped for key, question in questions.items()},
        }
    )


def declare(
    name: str,
    texts: Mapping[str, str],
    *,
    checkout: Path,
    today: date,
    check: Callable[[Path], object],
    dry_run: bool = False,
) -> None:
    """Write the files of a corpus to its folder in a checkout, all at once and valid, or nothing.

    They are validated as when they are read; ``check`` gets a folder that has them at the same places.
    """
    above = checkout / CORPORA
    above.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=above, prefix=".new-") as made:
        root = Path(made)
        folder = root / CORPORA / name
        folder.mkdir(parents=True)
        for file, text in texts.items():
            (folder / file).write_text(text)
        require_valid(name, root=root, checkout=checkout, today=today)
        check(root)
        if not dry_run:
            folder.rename(above / name)


def require_valid(name: str, *, root: Path, checkout: Path, today: date) -> Params:
    """Validate profile and scheme of a corpus below ``root``, and that its sources may be read."""
    where = f"{CORPORA}/{name}/{PROFILE}"
    values = complete(overlay(read_params(checkout), parse((root / where).read_text(), where=where)))
    params = validate(values, where=where)
    rows.resolve(params, root=root)
    for source in params.corpora[name].sources if name in params.corpora else ():
        if source not in params.sources:
            raise ConfigError("UnknownName", kind="source", name=source, known=", ".join(params.sources))
        params.sources[source].check(source, today=today)
    return params


def require_new(name: str, *, params: Params, checkout: Path) -> None:
    """Refuse a name that no new corpus can have."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            "NotDeclared", option="NAME", detail="needs a lower-case letter, then letters, digits and _, 32 at most"
        )
    taken = [str(path) for path in (checkout / CORPORA / name, *profile_places(name, root=checkout)) if path.exists()]
    if taken or name in params.corpora or name in taxonomy.available(root=checkout):
        detail = f"'{name}' exists ({', '.join(taken) or 'a corpus or scheme'}); edit it, or take another name"
        raise ConfigError("NotDeclared", option="NAME", detail=detail)


def commented(values: Mapping[str, Any], *, place: str = "", indent: str = "") -> str:
    """Return values as YAML, each under the comment of :data:`COMMENTS` for its place."""
    text = ""
    for name, value in values.items():
        here = f"{place}{name}"
        fitting = (p for p in COMMENTS if here.count(".") == p.count(".") and fnmatchcase(here, p))
        text += "".join(f"{indent}# {COMMENTS[pattern]}\n" for pattern in fitting)
        if value and isinstance(value, Mapping):
            text += f"{indent}{_key(name)}:\n{commented(value, place=f'{here}.', indent=f'{indent}  ')}"
        elif value and isinstance(value, list) and isinstance(value[0], Mapping):
            text += f"{indent}{_key(name)}:\n" + "".join(f"{indent}  - {_flow(each)}\n" for each in value)
        else:
            text += f"{indent}{_key(name)}: {_flow(value)}\n"
    return text


def _key(name: str) -> str:
    """Return a key as YAML: one that YAML would not read as this text is quoted."""
    return name if re.fullmatch("[A-Za-z][A-Za-z0-9_-]*", name) and yaml.safe_load(name) == name else _flow(name)


def _flow(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
