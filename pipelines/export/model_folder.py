"""Export a registered model version in the form that ``transformers`` loads: weights, settings, tokenizer and card.

The files are those of the registered model package, after the checks that a promotion makes, without the package's list
of record ids. Names of labels are added to ``config.json``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from crisis_corpus import integrity
from crisis_corpus.integrity import pickles
from pipelines.config.models import SftModel
from pipelines.export import model_card, model_status
from pipelines.export.folder import CARD, LICENCE, NotExportable, checked_repo, finish, writing
from pipelines.packaging.model_described import FILE as DESCRIPTION
from pipelines.packaging.model_described import Described, asked
from pipelines.registry.candidate import Candidate, Context, enter, scratch
from pipelines.train.predictors import adapter
from pipelines.train.predictors.instruct import DELIMITER, instruction

# Kind -> the task on the Hub. Each is one model of ``transformers``; an ``sft`` version may be an adapter of ``peft``.
PIPELINES = {
    "encoder": "text-classification",
    "text": "text-classification",
    "image": "image-classification",
    "sft": "text-generation",
}
CLASSIFIERS = ("encoder", "text", "image")
# Why other kinds are not, by kind.
NOT_OF_TRANSFORMERS = {
    "fusion": "its head on the features of text and picture is not a part of any model of transformers",
    "m3h": "it needs a labeller's rationales and memes of train",
    "infused": "it needs a labeller's rationales for every meme",
    "yadav": "it has two base models",
    "knn": "its neighbours are posts, sealed under keys that consumers do not have",
    "prompted": "it is a provider's model with a prompt and has no weights here",
}
OTHER_KIND = "models of kind '{kind}' are not models of transformers"
BASE_INSIDE = "its adapter's base model is not on the Hub but in the package, where transformers does not find it"
LOAD_OTHERWISE = (
    "Consumers load it with all its parts through the client: `crisis_corpus.load`, see docs/howto/consumers.md. For "
    "the Hub, set a text or image encoder, or a fine-tuned model, under registry in params.yaml and register it."
)
# The parts of a package that are not exported: ids of records, the list of files with them, what the card replaces.
LEFT_OUT = frozenset({integrity.RECORDS, integrity.FILES, integrity.PAGE, DESCRIPTION})
CONFIG, THRESHOLDS, PROMPT = "config.json", "thresholds.json", "prompt.json"
# Settings in which libraries note the folder that a model was loaded from.
PLACES = ("_name_or_path", "name_or_path")


def run(name: str, version: int, *, repo: str, to: Path, context: Context) -> dict[str, Any]:
    """Export a registered model version into the folder ``to``, for the model repository ``repo``.

    Args:
        version: the number of the version.
        repo: ``OWNER/NAME`` on the Hub.
        to: the folder, which must be new or empty.

    Returns:
        ``folder``, ``repo``, ``files`` (how many), ``kind``, ``champion`` (whether it is), and ``passed``, the verdict
        of the gate or ``None``.
    """
    origin, status = model_status.current(name, version, repo=checked_repo(repo), journal=context.journal)
    registered = context.registry.version(name, version)
    with scratch(context.settings) as folder, writing(to) as made:
        candidate = enter(registered, context=context, folder=folder)
        pack = _sound(candidate, what=origin.what, context=context)
        described = Described.read(pack)
        _copy(pack, to=made, described=described)
        (made / LICENCE).write_text(context.params.export.licence.strip() + "\n")
        measured = json.loads((pack / integrity.CARD).read_bytes())
        given: dict[str, Any] = {"status": status, "version": version, "repo": repo, "card": measured}
        page = (pack / integrity.PAGE).read_text()
        given |= {"adapted": adapter.stored(str(made)), "pipeline": PIPELINES[described.kind], "page": page}
        (made / CARD).write_text(model_card.text(described, **given))
        if found := pickles(made):
            raise _refused(origin.what, f"{found[0]} is or may be a pickle")
        exported = finish(made, origin=origin)
    told = {"folder": str(to.resolve()), "repo": repo, "files": len(exported.files) + 1}
    return told | {"kind": described.kind, "champion": status.champion, "passed": status.passed}


def _sound(candidate: Candidate, *, what: str, context: Context) -> Path:
    """Return the model package of a downloaded version, if it may be exported."""
    wrong = [reason for found in candidate.faults.values() for reason in found]
    if wrong or candidate.pack is None:
        raise _refused(what, wrong[0] if wrong else "its package cannot be read")
    if count := candidate.taken_down(context.vault):
        raise _refused(what, f"{count} records on which it was trained are taken down")
    kind = candidate.pack.manifest.kind
    if kind not in PIPELINES:
        detail = NOT_OF_TRANSFORMERS.get(kind, OTHER_KIND.format(kind=kind))
        raise NotExportable(what=what, detail=detail, do=LOAD_OTHERWISE)
    if (candidate.pack.folder / adapter.COPY).is_dir():
        raise NotExportable(what=what, detail=BASE_INSIDE, do=LOAD_OTHERWISE)
    return candidate.pack.folder


def _refused(what: str, detail: str) -> NotExportable:
    return NotExportable(what=what, detail=detail, do="Register the model again, and export the new version.")


def _copy(pack: Path, *, to: Path, described: Described) -> None:
    """Copy a package's files for the Hub, and add what its ``model.json`` tells a user of the weights."""
    for path in sorted(path for path in pack.rglob("*") if path.is_file()):
        name = path.relative_to(pack)
        if name.as_posix() not in LEFT_OUT:
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to / name)
    scheme, task = asked(pack, described=described)
    for path in to.rglob("*config.json"):
        _write(path, {key: value for key, value in json.loads(path.read_bytes()).items() if key not in PLACES})
    if described.kind in CLASSIFIERS:
        names = dict(enumerate(described.labels))
        config = json.loads((to / CONFIG).read_bytes())
        config |= {"id2label": names, "label2id": {label: place for place, label in names.items()}}
        kinds = {"multi": "multi_label_classification", "single": "single_label_classification"}
        _write(to / CONFIG, config | {"problem_type": kinds[task.kind]})
    if described.thresholds is not None:
        _write(to / THRESHOLDS, dict(zip(described.labels, described.thresholds, strict=True)))
    if isinstance(described.spec, SftModel):
        prompt = instruction(scheme, category=task.key)
        told = {"system": prompt.system, "template": prompt.template, "delimiter": DELIMITER}
        _write(to / PROMPT, told | {"schema": prompt.schema, "max_length": described.spec.max_length})


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
