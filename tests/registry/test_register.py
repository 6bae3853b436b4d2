"""The same pack is the same version with one row in the journal: repeated, killed, raced; and what is refused."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from crisis_corpus import integrity
from crisis_corpus.client import load
from crisis_corpus.integrity import digest, listing, sha256
from crisis_corpus.trusted import FilesChanged
from crisis_corpus.versions import DIGEST, UnknownModel
from pipelines.core.config.models import Chosen
from pipelines.core.errors import BadParams
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.registry.candidate import Context
from pipelines.registry.packaging.register import PACK, PLACE, Unregistrable, put, register
from pipelines.registry.promotion import gate
from pipelines.registry.versions import Registry
from tests.contexts import context_of
from tests.refusals import refused
from tests.registry import packs
from tests.registry.small_registry import NAME, WHO, add, events, opened, saved
from tests.train import small_posts, small_tuned


@pytest.fixture
def folder(context: Context, tmp_path: Path) -> Path:
    return saved(context, to=tmp_path / "model", knows=6)


def again(folder: Path, to: Path) -> Path:
    """Copy a model as if it were saved again: MLflow writes another time into MLmodel, the pack is the same."""
    described = shutil.copytree(folder, to) / "MLmodel"
    described.write_text(described.read_text().replace("utc_time_created: '2", "utc_time_created: '3"))
    assert digest(to) != digest(folder)
    return to


def test_a_version_has_its_run_its_files_and_its_row(context: Context, folder: Path, tmp_path: Path) -> None:
    version, written = put(NAME, folder, context=context, **WHO)
    assert (version.version, written) == (1, True)
    copy = context.registry.fetch(version, to=tmp_path / "copy")
    assert digest(copy) == digest(folder) == version.digest == context.registry.version(NAME, 1).tags[DIGEST]
    run = context.registry.client.get_run(version.run_id)
    assert run.info.status == "FINISHED" and run.data.tags["data_commit"] == "c" * 40
    assert context.registry.client.get_experiment(run.info.experiment_id).name == "memes-registry"
    assert run.info.run_name.startswith(f"{NAME} of cccccccccccc")
    page = (integrity.place(folder) / integrity.PAGE).read_text().strip()
    assert context.registry.client.get_model_version(NAME, "1").description.startswith(page)
    assert "`champion` is in use" in context.registry.client.get_registered_model(NAME).description
    (row,) = context.journal.rows(NAME)
    assert (row.event, row.to_version, row.who, row.files) == ("registered", 1, "tester", digest(folder))
    pack = integrity.place(folder)
    assert row.metrics[PACK] == sha256(pack / integrity.FILES) and row.metrics["records"] == 36
    # every file is in one of the two lists
    listed = {*row.metrics["outside"], *json.loads((pack / integrity.FILES).read_text())}
    assert len(listed) == sum(path.is_file() for path in folder.rglob("*")) - 1
    assert gate.judge(NAME, 1, context=context).passed


def test_weights_that_are_not_the_registered_ones_pass_neither_the_gate_nor_a_load(
    context: Context, tmp_path: Path
) -> None:
    def weights(pack: Path, *, value: float = 1.0) -> None:
        save_file({"w": np.full(3, value, np.float32)}, pack / "model.safetensors")

    folder = saved(context, to=tmp_path / "model", knows=6, change=weights)
    version = put(NAME, folder, context=context, **WHO)[0]
    (row,) = context.journal.rows(NAME)
    assert row.metrics["weights"] == {"model.safetensors": sha256(integrity.place(folder) / "model.safetensors")}
    assert gate.judge(NAME, 1, context=context).passed
    # every list and digest fits the other weights, but for what was registered
    pack = integrity.place(Path(version.source.removeprefix("file://")))
    weights(pack, value=2.0)
    (pack / integrity.FILES).unlink()
    (pack / integrity.FILES).write_text(json.dumps(listing(pack)))
    forged = digest(Path(version.source.removeprefix("file://")))
    context.registry.tag(version, {DIGEST: forged})
    told = {"event": "registered", "to_version": 1, "files": forged, "metrics": dict(row.metrics)}
    context.journal.append(NAME, **WHO, **told)
    said = r"weights are not the registered ones: model\.safetensors"
    assert re.search(said, "; ".join(gate.judge(NAME, 1, context=context).reasons))
    with pytest.raises(FilesChanged, match=said):
        load(f"{NAME}/1", cache=tmp_path / "cache")


def test_the_same_pack_is_the_same_version_and_another_the_next(context: Context, folder: Path, tmp_path: Path) -> None:
    first = put(NAME, folder, context=context, **WHO)[0]
    assert put(NAME, again(folder, tmp_path / "again"), context=context, **WHO) == (first, False)
    assert len(context.journal.rows(NAME)) == 1
    assert put(NAME, saved(context, to=tmp_path / "other", knows=5), context=context, **WHO)[0].version == 2
    assert events(context) == [("registered", None, 1), ("registered", None, 2)]


@pytest.mark.parametrize("step", ["stored", "added", "recorded"])
def test_killed_after_any_step_it_is_finished_by_repeating_it(
    context: Context, folder: Path, killer: Callable[..., int], step: str
) -> None:
    assert killer(context.root, "put", step, folder=str(folder)) == -9
    assert len(context.journal.rows(NAME)) == (step == "recorded")
    version = put(NAME, folder, context=context, **WHO)[0]
    assert put(NAME, folder, context=context, **WHO) == (version, False)
    assert [v.version for v in context.registry.versions(NAME)] == [version.version] == [1]
    assert events(context) == [("registered", None, 1)]
    place = context.registry.client.get_experiment_by_name("memes-registry").experiment_id
    assert [run.info.status for run in context.registry.client.search_runs([place])] == ["FINISHED"]


def test_an_upload_that_was_cut_short_is_not_gone_on_with(context: Context, folder: Path, tmp_path: Path) -> None:
    described = again(folder, tmp_path / "half") / "MLmodel"
    mark = sha256(integrity.place(folder) / integrity.FILES)
    place = context.registry.client.create_experiment("memes-registry")
    run = context.registry.client.create_run(place, tags={PACK: mark, "name": NAME})
    context.registry.client.log_artifact(run.info.run_id, str(described), PLACE)
    version = put(NAME, folder, context=context, **WHO)[0]
    assert version.run_id != run.info.run_id and version.digest == digest(folder)


@pytest.mark.parametrize("saved_again", [False, True])
def test_two_at_once_make_one_version(
    context: Context, folder: Path, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved_again: bool
) -> None:
    kind = type(context.registry.client)
    both, upload = Barrier(2, timeout=60), kind.log_artifacts

    def together(*given: Any) -> None:
        both.wait()
        upload(*given)

    def met(step: str) -> None:
        if step == "stored":
            both.wait()

    def one(own_folder: Path) -> int:
        with opened(small) as own:
            return put(NAME, own_folder, context=own, **WHO, say=met)[0].version

    monkeypatch.setattr(kind, "log_artifacts", together)
    other = again(folder, tmp_path / "again") if saved_again else folder
    with ThreadPoolExecutor(2) as pool:
        assert {*pool.map(one, (folder, other))} == {1}
    (version,) = context.registry.versions(NAME)
    assert version.version == 1
    assert events(context) == [("registered", None, 1)]
    assert gate.judge(NAME, 1, context=context).passed
    assert put(NAME, other, context=context, **WHO) == (version, False)


def test_who_records_what_another_was_first_to_store_names_the_others_run(
    context: Context, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(context.registry.client)
    upload = kind.log_artifacts

    def killed(step: str) -> None:
        if step == "added":
            raise InterruptedError

    def after_another(*given: Any) -> None:
        monkeypatch.setattr(kind, "log_artifacts", upload)
        with pytest.raises(InterruptedError):
            put(NAME, again(folder, tmp_path / "again"), context=context, **WHO, say=killed)
        upload(*given)

    monkeypatch.setattr(kind, "log_artifacts", after_another)
    version, written = put(NAME, folder, context=context, **WHO)
    assert (version.version, version.digest, written) == (1, digest(tmp_path / "again"), True)
    (row,) = context.journal.rows(NAME)
    assert row.metrics["run"] == version.run_id and row.files == version.digest
    assert [v.version for v in context.registry.versions(NAME)] == [1] and gate.judge(NAME, 1, context=context).passed


def changed(folder: Path) -> None:
    (integrity.place(folder) / "words.json").write_text("{}")


def uncarded(folder: Path) -> None:
    pack = integrity.place(folder)
    (pack / integrity.CARD).unlink()
    listed = json.loads((pack / integrity.FILES).read_text())
    del listed[integrity.CARD]
    (pack / integrity.FILES).write_text(json.dumps(listed))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / "code.dat").write_bytes(pickle.dumps(os.getpid)), r"pickle: code\.dat"),
        (changed, r"files: 1 files differ from files\.json: words\.json"),
        (uncarded, r"card: card\.json is missing or empty"),
        (lambda folder: shutil.rmtree(integrity.place(folder)), r"0 files named files\.json"),
    ],
)
def test_what_may_not_be_believed_is_refused_before_it_is_stored(
    context: Context, folder: Path, damage: Callable[[Path], None], reason: str
) -> None:
    damage(folder)
    with pytest.raises(Unregistrable, match=reason):
        put(NAME, folder, context=context, **WHO)
    assert context.registry.names() == [] and context.journal.rows() == []
    assert context.registry.client.get_experiment_by_name("memes-registry") is None


def test_registration_needs_a_person_a_reason_and_a_name(context: Context, folder: Path) -> None:
    with pytest.raises(BadParams, match="why"):
        put(NAME, folder, context=context, who="tester", why=" ")
    with pytest.raises(UnknownModel):
        put("another", folder, context=context, **WHO)
    assert context.registry.names() == []


def test_what_the_store_altered_gets_no_row(context: Context, folder: Path) -> None:
    class Killed(Exception):
        pass

    def say(step: str) -> None:
        if step == "added":
            raise Killed

    with pytest.raises(Killed):
        put(NAME, folder, context=context, say=say, **WHO)
    (version,) = context.registry.versions(NAME)
    place = Path(version.source.removeprefix("file://"))
    described = place / "MLmodel"
    described.write_text(described.read_text() + "\n")
    with refused("StoredOtherwise", match="version 1 has other files"):
        put(NAME, folder, context=context, **WHO)
    changed(place)
    with refused("StoredOtherwise", match=r"words\.json"):
        put(NAME, folder, context=context, **WHO)
    assert context.journal.rows() == []


def test_a_number_that_the_journal_knows_of_other_files_is_not_taken(context: Context, folder: Path) -> None:
    context.journal.append(NAME, event="registered", to_version=1, files="0" * 64, **WHO)
    with refused("NumberTaken"):
        put(NAME, folder, context=context, **WHO)
    assert len(context.journal.rows(NAME)) == 1


def test_a_tag_makes_no_version_of_another_pack(context: Context, folder: Path) -> None:
    context.registry.tag(add(context, knows=4), {PACK: sha256(integrity.place(folder) / integrity.FILES)})
    version, written = put(NAME, folder, context=context, **WHO)
    assert (version.version, written) == (2, True)
    assert [v.version for v in context.registry.versions(NAME)] == [1, 2]


def test_of_two_versions_of_one_pack_the_second_goes(context: Context, folder: Path) -> None:
    """As two who register at once leave it if one is killed: neither is on record."""
    mark = sha256(integrity.place(folder) / integrity.FILES)
    run_id = context.registry.client.create_run(context.registry.client.create_experiment("memes-registry")).info.run_id
    context.registry.client.log_artifacts(run_id, str(folder), PLACE)
    source = f"{context.registry.client.get_run(run_id).info.artifact_uri}/{PLACE}"
    for _ in range(2):
        context.registry.add(NAME, source=source, run_id=run_id, tags={DIGEST: digest(folder), PACK: mark})
    assert put(NAME, folder, context=context, **WHO)[0].version == 1
    assert [v.version for v in context.registry.versions(NAME)] == [1]
    # the number is not given again
    assert put(NAME, saved(context, to=folder.with_name("other"), knows=2), context=context, **WHO)[0].version == 3


CHOSEN = Chosen(model="encoder", subset="consensus")


@pytest.mark.faults
def test_tuned_registered_loaded_and_asked_through_a_server(address: str, small: Path, tmp_path: Path) -> None:
    made = small_posts.made()
    with opened(small) as memes, small_posts.copied(made, to=tmp_path / "copy") as corpus:
        small_tuned.tuned(corpus, memes.settings, model="encoder")
        small_tuned.predicted(corpus, memes.settings, model="encoder")
        evaluate.run(context_of("posts", params=packs.params("encoder"), root=corpus.root), sampling=Sampling(200, 1))
        settings = memes.settings.model_copy(update={"mlflow_tracking_uri": address})
        given: dict[str, Any] = {"settings": settings, "vault": corpus.vault, "root": corpus.root}
        context = replace(memes, registry=Registry(address), params=packs.params("encoder"), **given)
        version, written = register("crisis-posts", chosen=CHOSEN, context=context, **WHO)
        assert written and register("crisis-posts", chosen=CHOSEN, context=context, **WHO) == (version, False)
        model = load("crisis-posts/1", tracking_uri=address)
        asked = [corpus.posts[record] for record in corpus.of("test")]
        answer = model.predict(pd.DataFrame({"title": [p.title for p in asked], "body": [p.body for p in asked]}))
        assert len(answer) == len(asked) and not answer["abstain"].any()
        # the code of a version that was run is still the code that was registered
        assert digest(context.settings.home / "models" / version.digest) == version.digest
        assert gate.judge("crisis-posts", 1, context=context).figures["scores"]
