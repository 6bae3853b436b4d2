"""Write the model card of an exported version: the Hub's metadata, gate and champion, loading, and the package's card.

Persons who decided are not named, and a version that the gate refused has no scores of the gate, as in the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.config.models import SftModel
from pipelines.export.folder import LICENCE
from pipelines.export.model_status import ModelStatus
from pipelines.metrics import recall_constraints
from pipelines.models.pretrained.base_files import on_hub
from pipelines.packaging.model_described import Described

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
    "text": "The input is the text of a meme. The registered model first reads it from the picture if there is none, "
    "scrubs personal data, and gives a label from its threshold in `thresholds.json` (several labels), or the most "
    "probable one (one label).",
    "image": "The input is a picture. The registered model first re-encodes it as the corpus does, and gives a label "
    "from its threshold in `thresholds.json` (several labels), or the most probable one (one label).",
}
WHOLE = """\
from transformers import {model}, {reader}

model = {model}.from_pretrained("{repo}")
reader = {reader}.from_pretrained("{repo}")"""
# transformers would load an adapter on the newest commit of its base
ADAPTER = """\
from peft import PeftModel
from transformers import {model}, {reader}

base = {model}.from_pretrained("{base}", revision="{revision}")
model = PeftModel.from_pretrained(base, "{repo}")
reader = {reader}.from_pretrained("{repo}")"""
ABOUT = """\
{page}
## Status
{status}

## Load
```python
{load}
```

{beside} With all of that, the version is loaded from the registry by `crisis_corpus.load("models:/{name}/{version}")`.

## Removal
When records of the training data are taken down, or the version is withdrawn, this repository is to be removed or
replaced, earlier versions included. Copies that were downloaded are not reached: look here before every use.

Terms: [`{licence}`]({licence}).
"""


def text(
    described: Described,
    *,
    status: ModelStatus,
    version: int,
    repo: str,
    card: Mapping[str, Any],
    page: str,
    pipeline: str,
    adapted: bool,
) -> str:
    """Return the text of ``README.md``.

    Args:
        described: the package's ``model.json``.
        status: the version's status.
        version: its number.
        repo: the repository on the Hub.
        card: the package's ``card.json``, for the measured figures.
        page: the package's ``card.md``.
        pipeline: the task on the Hub.
        adapted: whether the weights are an adapter of ``peft``.
    """
    from huggingface_hub import ModelCardData

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
        model_name=f"{described.name} version {version}",
        eval_results=_results(described, card=card, pipeline=pipeline),
        extra_gated_prompt=PROMPT,
        extra_gated_fields=FIELDS,
    )
    model, reader = LOADERS[pipeline]
    body = ABOUT.format(
        page=page,
        status=_sentences(status, name=described.name, version=version),
        load=(ADAPTER if adapted else WHOLE).format(
            model=model,
            reader=reader,
            repo=repo,
            base=described.base,
            revision=described.spec.revision if isinstance(described.spec, SftModel) else None,
        ),
        beside=BESIDE[described.kind],
        name=described.name,
        version=version,
        licence=LICENCE,
    )
    return f"---\n{head.to_yaml()}\n---\n\n{body}"


def _sentences(status: ModelStatus, *, name: str, version: int) -> str:
    champion = f"champion since {status.since}" if status.champion else "not champion"
    rival = f" against version {status.against}" if status.against else ""
    if status.passed is None:
        verdict = "The promotion gate has not judged it"
    elif status.passed:
        verdict = f"The promotion gate passed it on {status.judged}{rival}: every check passed"
    else:
        failed = ", ".join(status.failed)
        verdict = f"The promotion gate refused it on {status.judged}{rival}. Checks that it failed: {failed}"
    return f"Version {version} of `{name}` is {champion}. {verdict}."


def _results(described: Described, *, card: Mapping[str, Any], pipeline: str) -> list[Any]:
    """Return the test figures of the card in the Hub's form."""
    from huggingface_hub import EvalResult

    measured = card["measured"]
    given = {"task_type": pipeline, "dataset_type": f"crisis-corpus-{described.corpus}"}
    given |= {"dataset_name": f"Crisis Corpus, {described.corpus}", "dataset_split": measured["split"]}
    figures = {name: cell["mean"] for name, cell in measured["figures"].items() if cell["mean"] is not None}
    return [EvalResult(metric_type=name, metric_value=round(mean, 4), **given) for name, mean in figures.items()]
