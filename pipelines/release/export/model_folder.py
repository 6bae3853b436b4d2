"""Export a registered model version in the form that ``transformers`` loads: weights, settings, tokenizer and card.

The files are those of the registered model package, after the checks that a promotion makes, without the package's list
of record ids. Names of labels are added to ``config.json``. Persons who decided are not named in the card, and a
version that the gate refused has no scores of the gate, as in the registry.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crisis_corpus import integrity
from crisis_corpus.integrity import pickles
from crisis_corpus.journal import MOVES, Standing, canonical, standing
from crisis_corpus.versions import Version
from pipelines.core.process import now
from pipelines.core.templates import render
from pipelines.metrics import recall_constraints
from pipelines.models.fitting.instruct import DELIMITER, instruction
from pipelines.registry.candidate import Candidate, Context, enter, registration, scratch
from pipelines.registry.journal import Journal
from pipelines.registry.packaging.described import Described, asked
from pipelines.registry.promotion.comparison import JUDGED, last_verdict
from pipelines.registry.versions import entry
from pipelines.release.export.folder import CARD, LICENCE, ExportOrigin, NotExportable, checked_repo, finish, writing
from pipelines.store import approvals

WITHDRAWN = "it is withdrawn, and its weights may not be handed out"
STALE = "records on which it was trained were taken down, and its weights are deleted on {until}"
UNREGISTERED = "the journal has no registration of it, so that its files cannot be verified"
TRAIN_AGAIN = "Train the model again, register it, and export the new version: `corpus registry {name}` lists all."


@dataclass(frozen=True)
class ModelStatus:
    """The status of a model version, as its card states it: dates and numbers, no person.

    Args:
        passed: the gate's last verdict on it; ``None`` if the gate did not judge it.
        against: the champion that it was compared with, if any.
    """

    champion: bool
    since: str | None
    passed: bool | None = None
    judged: str | None = None
    against: int | None = None
    failed: tuple[str, ...] = ()


def current(name: str, version: int, *, repo: str, journal: Journal) -> tuple[ExportOrigin, ModelStatus]:
    """Return the origin that an export of a model version has now, and the version's status."""
    now, what = standing(journal, name), f"Version {version} of '{name}'"
    detail = UNREGISTERED if (row := registration(journal, Version(name, version, "", ""))) is None else ""
    if until := now.stale.get(version):
        detail = STALE.format(until=until[:10])
    if version in now.withdrawn:
        detail = WITHDRAWN
    if row is None or detail:
        raise NotExportable(what=what, detail=detail, do=TRAIN_AGAIN.format(name=name))
    status = _status(now, version=version, journal=journal)
    state = canonical({"files": row.files, "status": asdict(status)})
    basis = hashlib.sha256(state.encode()).hexdigest()
    return ExportOrigin(kind="model", name=name, version=version, repo=repo, basis=basis), status


def _status(now: Standing, *, version: int, journal: Journal) -> ModelStatus:
    verdict = last_verdict(journal, name=now.name, version=version)
    champion = now.champion == version
    moves = [row for row in journal.rows(now.name) if row.event in MOVES and row.to_version == version]
    since = moves[-1].at[:10] if champion and moves else None
    if verdict is None:
        return ModelStatus(champion, since)
    failed = tuple(dict.fromkeys(str(reason).partition(":")[0] for reason in verdict.metrics["reasons"]))
    passed = verdict.event == JUDGED[0]
    return ModelStatus(champion, since, passed, judged=verdict.at[:10], against=verdict.from_version, failed=failed)


PROMPT = (
    "These weights classify posts by people in crisis and may remember training data. By requesting access you agree "
    "to the terms in LICENSE, not to use them for what the card prohibits, and to delete your copies when this version "
    "is withdrawn."
)
FIELDS = {
    "Name": "text",
    "Institution": "text",
    "Intended use": "text",
    "I will not use it for a prohibited purpose of the card": "checkbox",
    "I will delete my copies when this repository is removed or replaced": "checkbox",
}
LOADERS = {
    "text-classification": ("AutoModelForSequenceClassification", "AutoTokenizer"),
    "image-classification": ("AutoModelForImageClassification", "AutoImageProcessor"),
    "text-generation": ("AutoModelForCausalLM", "AutoTokenizer"),
}
# What an answer of the registered model has beside these weights, by kind.
BESIDE = {
    "encoder": "The input is one text, `Title: … Text: …`. The registered model first scrubs personal data, cuts the "
    f"middle out of long posts, and calibrates the logits' probabilities with `{recall_constraints.FILE}`; its labels "
    "are the most probable set that `scheme.yaml` allows.",
    "sft": "The input is one text, `Title: … Text: …`. The registered model first scrubs personal data, asks with "
    "the words of `prompt.json`, and only lets answers pass that `scheme.yaml` allows; its probabilities are "
    f"calibrated with `{recall_constraints.FILE}`.",
    "text": "The input is the text of a picture. The registered model first reads it from there if there is none, "
    "scrubs personal data, and gives a label from its threshold in `thresholds.json` (several labels), or the most "
    "probable one (one label).",
    "image": "The input is a picture. The registered model first re-encodes it as the corpus does, and gives a label "
    "from its threshold in `thresholds.json` (several labels), or the most probable one (one label).",
}
TEMPLATE = Path(__file__).with_name("model_card.md.jinja")


def text(pack: Path, *, origin: ExportOrigin, status: ModelStatus) -> str:
    """Return the text of ``README.md`` for the files of a model package."""
    from huggingface_hub import ModelCardData

    from pipelines.models.base_files import on_hub
    from pipelines.models.fitting import adapter

    described, adapted = Described.read(pack), adapter.stored(str(pack))
    pipeline = PIPELINES[described.kind]
    on = described.base if on_hub(described.base) and "/" in described.base else None
    head = ModelCardData(
        language="en",
        license="other",
        license_name=f"{described.name}-terms",
        license_link=LICENCE,
        library_name="peft" if adapted else "transformers",
        pipeline_tag=pipeline,
        base_model=on,
        base_model_relation=("adapter" if adapted else "finetune") if on else None,
        model_name=f"{described.name} version {origin.version}",
        eval_results=_results(described, measured=json.loads((pack / integrity.CARD).read_bytes())["measured"]),
        extra_gated_prompt=PROMPT,
        extra_gated_fields=FIELDS,
    )
    model, reader = LOADERS[pipeline]
    names = {"page": (pack / integrity.PAGE).read_text(), "status": status, "adapted": adapted, "repo": origin.repo}
    names |= {"base": described.base, "name": described.name, "version": origin.version, "licence": LICENCE}
    names |= {"model": model, "reader": reader, "beside": BESIDE[described.kind]}
    names["revision"] = described.spec.get("revision") if pipeline == GENERATED else None
    return f"---\n{head.to_yaml()}\n---\n\n{render(TEMPLATE, **names)}"


def _results(described: Described, *, measured: Mapping[str, Any]) -> list[Any]:
    """Return the test figures of the card in the Hub's form."""
    from huggingface_hub import EvalResult

    shared = {"task_type": PIPELINES[described.kind], "dataset_type": f"crisis-corpus-{described.corpus}"}
    shared |= {"dataset_name": f"Crisis Corpus, {described.corpus}", "dataset_split": measured["split"]}
    figures = {name: cell["mean"] for name, cell in measured["figures"].items() if cell["mean"] is not None}
    return [EvalResult(metric_type=name, metric_value=round(mean, 4), **shared) for name, mean in figures.items()]


GENERATED = "text-generation"
# Kind -> the task on the Hub. Each is one model of ``transformers``; an ``sft`` version may be an adapter of ``peft``.
PIPELINES = {
    "encoder": "text-classification",
    "text": "text-classification",
    "image": "image-classification",
    "sft": GENERATED,
}
FUSION = "its head on the features of text and picture is not a part of any model of transformers"
OTHER_KIND = "models of kind '{kind}' are not models of transformers"
BASE_INSIDE = "its adapter's base model is not on the Hub but in the package, where transformers does not find it"
LOAD_OTHERWISE = (
    "Consumers load it with all its parts through the client: `crisis_corpus.load`, see docs/howto/consumers.md. For "
    "the Hub, set a text or image encoder, or a fine-tuned model, under registry in params.yaml and register it."
)
# The parts of a package that are not exported: ids of records, the list of files with them, what the card replaces.
LEFT_OUT = (integrity.RECORDS, integrity.FILES, integrity.PAGE, integrity.MODEL)
CONFIG, THRESHOLDS, INSTRUCTION = "config.json", "thresholds.json", "prompt.json"
# Settings in which libraries note the folder that a model was loaded from.
PLACES = ("_name_or_path", "name_or_path")


def run(name: str, version: int, *, repo: str, to: Path, context: Context) -> dict[str, Any]:
    """Export a registered model version into the folder ``to``, for the model repository ``repo``.

    ``to`` must be new or empty. ``passed`` in the result is the verdict of the gate or ``None``.
    """
    sources = approvals.sources_of(entry(name, params=context.params).corpus, params=context.params, root=context.root)
    approvals.require("export", sources, today=now().date())
    origin, status = current(name, version, repo=checked_repo(repo), journal=context.journal)
    registered = context.registry.version(name, version)
    with scratch(context.settings) as folder, writing(to) as made:
        candidate = enter(registered, context=context, folder=folder)
        pack = _sound(candidate, what=origin.what, context=context)
        described = Described.read(pack)
        _copy(pack, to=made, described=described)
        (made / LICENCE).write_text(context.params.export.licence.strip() + "\n")
        (made / CARD).write_text(text(pack, origin=origin, status=status))
        if suspects := pickles(made):
            raise _refused(origin.what, f"{suspects[0]} is or may be a pickle")
        exported = finish(made, origin=origin)
    result = {"folder": str(to.resolve()), "repo": repo, "files": len(exported.files) + 1}
    return result | {"kind": described.kind, "champion": status.champion, "passed": status.passed}


def _sound(candidate: Candidate, *, what: str, context: Context) -> Path:
    """Return the model package of a downloaded version, if it may be exported."""
    from pipelines.models.fitting import adapter

    wrong = [reason for reasons in candidate.faults.values() for reason in reasons]
    if wrong or candidate.pack is None:
        raise _refused(what, wrong[0] if wrong else "its package cannot be read")
    if count := candidate.taken_down(context.vault):
        raise _refused(what, f"{count} records on which it was trained are taken down")
    kind = candidate.pack.manifest.kind
    if kind not in PIPELINES:
        detail = FUSION if kind == "fusion" else OTHER_KIND.format(kind=kind)
        raise NotExportable(what=what, detail=detail, do=LOAD_OTHERWISE)
    if (candidate.pack.folder / adapter.COPY).is_dir():
        raise NotExportable(what=what, detail=BASE_INSIDE, do=LOAD_OTHERWISE)
    return candidate.pack.folder


def _refused(what: str, detail: str) -> NotExportable:
    return NotExportable(what=what, detail=detail, do="Register the model again, and export the new version.")


def _copy(pack: Path, *, to: Path, described: Described) -> None:
    """Copy a package's files for the Hub, and add what its ``model.json`` tells a user of the weights."""
    shutil.copytree(pack, to, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)
    scheme, task = asked(pack, described=described)
    for path in to.rglob("*config.json"):
        _write(path, {key: value for key, value in json.loads(path.read_bytes()).items() if key not in PLACES})
    if PIPELINES[described.kind] != GENERATED:
        names = dict(enumerate(described.labels))
        config = json.loads((to / CONFIG).read_bytes())
        config |= {"id2label": names, "label2id": {label: place for place, label in names.items()}}
        kinds = {"multi": "multi_label_classification", "single": "single_label_classification"}
        _write(to / CONFIG, config | {"problem_type": kinds[task.kind]})
    if (to / THRESHOLDS).is_file():
        stored = json.loads((to / THRESHOLDS).read_bytes())
        _write(to / THRESHOLDS, dict(zip(stored["labels"], stored["thresholds"], strict=True)))
    if PIPELINES[described.kind] == GENERATED:
        prompt = instruction(scheme, category=task.key)
        words = {"system": prompt.system, "template": prompt.template, "delimiter": DELIMITER}
        _write(to / INSTRUCTION, words | {"schema": prompt.schema, "max_length": described.spec["max_length"]})


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
