"""An exported model version loads in ``transformers`` without a network and answers as the registered one does."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from crisis_corpus import integrity
from crisis_corpus.versions import UnknownVersion
from pipelines.metrics.calibration import Calibration
from pipelines.registry.candidate import Context
from pipelines.registry.packaging.register import put
from pipelines.registry.promotion import promote
from pipelines.release.export import model_folder
from pipelines.release.export.folder import NotExportable, read
from tests.registry import packs, small_registry
from tests.registry.packs import NAME, Made

WHO: dict[str, Any] = {"who": "Ada Writer", "why": "a reason of ours"}
REPO = "my-lab/crisis-posts"
# Mild words of our own, short enough that no middle is cut.
TEXTS = ["A long week", "No friend to talk to", "We walked by the river and it was fine", "again the same monday"]


def export(context: Context, version: int, to: Path, *, name: str = NAME, **given: Any) -> dict[str, Any]:
    return model_folder.run(name, version, to=to, context=context, **{"repo": REPO} | given)


def card(folder: Path) -> tuple[dict[str, Any], str]:
    _, head, text = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(head), text


@pytest.fixture
def exported(context: Context, made: Made, tmp_path: Path, offline: None) -> Path:
    version, _ = put(NAME, made.saved, context=context, **WHO)
    export(context, version.version, tmp_path / "out")
    return tmp_path / "out"


def test_an_encoder_answers_as_the_registered_model(exported: Path, made: Made) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(exported)
    reader = AutoTokenizer.from_pretrained(exported)
    asked = pd.DataFrame({"title": TEXTS, "body": TEXTS[::-1]})
    registered = mlflow.pyfunc.load_model(str(made.saved)).predict(asked)
    # as the card says
    words = [f"Title: {row.title} Text: {row.body}" for row in asked.itertuples()]
    with torch.no_grad():
        raw = torch.sigmoid(model(**reader(words, padding=True, return_tensors="pt")).logits).numpy()
    calibration = Calibration.of_json(json.loads((exported / "calibration.json").read_bytes())["calibration"])
    found = calibration(raw)
    np.testing.assert_allclose(found, np.array(list(registered["probabilities"])), atol=1e-5)
    assert len({tuple(row) for row in found.round(6).tolist()}) == len(TEXTS)
    assert isinstance(AutoModel.from_pretrained(exported), torch.nn.Module)
    best = pipeline("text-classification", model=str(exported), device="cpu")(words[0])[0]
    described = json.loads((made.pack / "model.json").read_bytes())
    assert best["label"] == described["labels"][int(raw[0].argmax())]


def test_its_files_are_those_of_the_hub_and_no_ids_are_among_them(exported: Path, made: Made) -> None:
    import pyarrow.parquet as pq

    names = {path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file()}
    assert names == {
        "README.md", "LICENSE", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "calibration.json", "scheme.yaml", "card.json", "export.json",
    }  # fmt: skip
    assert integrity.pickles(exported) == [] and set(read(exported).files) == names - {"export.json"}
    assert (exported / "model.safetensors").read_bytes() == (made.pack / "model.safetensors").read_bytes()
    ids = pq.read_table(made.pack / integrity.RECORDS)["record_id"].to_pylist()
    posts = [made.corpus.posts[record_id] for record_id in ids if record_id in made.corpus.posts]
    assert len(ids) > 30 and len(posts) > 30
    searched = [*ids, *(post.title for post in posts), *(post.body for post in posts), "Ada Writer", "reason of ours"]
    for name in sorted(names):
        data = (exported / name).read_bytes()
        assert not [text for text in searched if len(text) > 12 and text.encode() in data], name
        assert b"/tmp" not in data and b"/home" not in data, name


def test_the_card_has_the_metadata_of_the_hub(exported: Path) -> None:
    head, text = card(exported)
    assert (head["license"], head["license_link"]) == ("other", "LICENSE")
    assert (head["library_name"], head["pipeline_tag"]) == ("transformers", "text-classification")
    assert "base_model" not in head, "a base of the tests is not on the Hub"
    measured = json.loads((exported / "card.json").read_bytes())["measured"]["figures"]
    results = {m["type"]: m["value"] for m in head["model-index"][0]["results"][0]["metrics"]}
    assert results["macro_f1"] == round(measured["macro_f1"]["mean"], 4)
    assert "extra_gated_prompt" in head and "checkbox" in head["extra_gated_fields"].values()
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    loaded: dict[str, Any] = {}
    exec(code.replace("my-lab/crisis-posts", str(exported)), loaded)
    assert isinstance(loaded["model"], torch.nn.Module) and loaded["reader"]("words")["input_ids"]
    assert "Never for" in text and "## Status" in text and 'from_pretrained("my-lab/crisis-posts")' in text
    assert "is not champion. The promotion gate has not judged it." in text


def test_the_card_states_gate_and_champion_without_the_persons(context: Context, made: Made, tmp_path: Path) -> None:
    version, _ = put(NAME, made.saved, context=context, **WHO)
    told: dict[str, Any] = {"to_version": 1, "metrics": {"reasons": [], "figures": {}, "basis": "b"}}
    context.journal.append(NAME, event="gated", **WHO, **told)
    for event in ("intended", "promoted"):
        context.journal.append(NAME, event=event, to_version=1, metrics={"leads_to": "promoted"}, **WHO)  # type: ignore[arg-type]
    export(context, version.version, tmp_path / "champion")
    text = (tmp_path / "champion" / "README.md").read_text()
    said = "Version 1 of `crisis-posts` is champion since 2023-01-02. The promotion gate passed it on 2023-01-02"
    assert said in text and "Ada" not in text
    refused = {"reasons": ["better: p is 0.31", "recall: of x", "better: too"], "figures": {}, "basis": "c"}
    context.journal.append(NAME, event="refused", from_version=3, to_version=1, metrics=refused, **WHO)
    export(context, version.version, tmp_path / "refused")
    text = (tmp_path / "refused" / "README.md").read_text()
    assert "refused it on 2023-01-02 against version 3. Checks that it failed: better, recall." in text
    assert "0.31" not in text


def test_withdrawn_stale_and_unknown_versions_are_refused(context: Context, made: Made, tmp_path: Path) -> None:
    put(NAME, made.saved, context=context, **WHO)
    with pytest.raises(NotExportable, match="no registration"):
        export(context, 7, tmp_path / "out")
    context.journal.append(
        NAME, event="stale", from_version=1, metrics={"taken_down": 1, "until": "2023-02-01T00:00:00+00:00"}, **WHO
    )
    with pytest.raises(NotExportable, match="its weights are deleted on 2023-02-01"):
        export(context, 1, tmp_path / "out")
    promote.withdraw(NAME, 1, context=context, **WHO)
    with pytest.raises(NotExportable, match="withdrawn"):
        export(context, 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_version_with_records_taken_down_or_deleted_weights_is_refused_even_without_its_row(
    context: Context, made: Made, tmp_path: Path
) -> None:
    version, _ = put(NAME, made.saved, context=context, **WHO)
    context.registry.tag(version, {"taken_down": "2"})
    with pytest.raises(NotExportable, match="2 records on which it was trained"):
        export(context, 1, tmp_path / "out")
    context.registry.remove(version)
    with pytest.raises(UnknownVersion):
        export(context, 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "data"), [("config.json", b"{}"), ("extra.json", pickle.dumps({"a": 1}))])
def test_files_that_are_not_the_registered_ones_are_refused(
    context: Context, made: Made, tmp_path: Path, name: str, data: bytes
) -> None:
    version, _ = put(NAME, made.saved, context=context, **WHO)
    place = tmp_path / "changed"
    shutil.copytree(made.saved, place)
    pack = integrity.place(place)
    file = pack / name
    file.write_bytes(data)
    context.registry.put(version, [file], below=pack.relative_to(place).as_posix())
    with pytest.raises(NotExportable, match="digest"):
        export(context, 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("kind", "said"), [("fusion", "its head"), ("rule", "kind 'rule'")])
def test_kinds_that_transformers_does_not_load_are_refused(
    context: Context, tmp_path: Path, kind: str, said: str
) -> None:
    def change(pack: Path) -> None:
        told = json.loads((pack / "model.json").read_text())
        (pack / "model.json").write_text(json.dumps(told | {"kind": kind}))

    small_registry.add(context, knows=6, change=change)
    with pytest.raises(NotExportable, match=said) as caught:
        export(context, 1, tmp_path / "out", name=small_registry.NAME)
    assert "crisis_corpus.load" in str(caught.value) and "params.yaml" in str(caught.value)


@pytest.mark.faults
def test_a_causal_model_is_exported_with_its_prompt(context: Context, tmp_path: Path, offline: None) -> None:
    made = packs.made("sft")
    put(NAME, made.saved, context=context, **WHO)
    told = export(context, 1, tmp_path / "out")
    assert told["kind"] == "sft"
    head, _ = card(tmp_path / "out")
    assert (head["library_name"], head["pipeline_tag"]) == ("transformers", "text-generation")
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    theirs = AutoModelForCausalLM.from_pretrained(made.pack, dtype=torch.float32)
    reader = AutoTokenizer.from_pretrained(tmp_path / "out")
    prompt = json.loads((tmp_path / "out" / "prompt.json").read_bytes())
    words = [{"role": "system", "content": prompt["system"]}, {"role": "user", "content": TEXTS[0]}]
    batch = reader.apply_chat_template(words, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        assert torch.equal(ours(**batch).logits, theirs(**batch).logits)
    assert "labels" in prompt["schema"]["properties"] and "{{ post }}" in prompt["template"]
