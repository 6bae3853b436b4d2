"""A pack of a tuned model of posts: all it needs to be opened, no post's text, no deleted record, and a true card."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from crisis_corpus import integrity
from crisis_corpus.integrity import listing
from crisis_corpus.versions import UnknownModel
from pipelines.core.config.models import Chosen
from pipelines.core.taxonomy import load as load_scheme
from pipelines.metrics.alerts import alert
from pipelines.models.fitting import card as fits
from pipelines.registry.candidate import Pack
from pipelines.registry.packaging import card
from pipelines.registry.packaging.card import failures
from pipelines.registry.packaging.described import Described
from pipelines.registry.packaging.pack import measured
from pipelines.registry.promotion.holdout import split_digest
from tests.refusals import refused
from tests.registry import packs
from tests.registry.packs import NAME, Made
from tests.small_corpus import own_scheme
from tests.train import small_posts, small_tuned
from tests.train.small_posts import SmallPosts


@pytest.fixture
def corpus(made: Made, tmp_path: Path) -> Iterator[SmallPosts]:
    with packs.copied(made, to=tmp_path / "root") as corpus:
        yield corpus


def folder_of(root: Path) -> Path:
    return fits.folder_of("posts", small_tuned.row_of("encoder"), root=root)


def test_it_says_what_it_was_made_of(made: Made) -> None:
    found, described = Pack.read(made.pack), Described.read(made.pack)
    root, seen = made.corpus.root, fits.lineage(folder_of(made.corpus.root))
    card = fits.read(folder_of(root))
    assert found.records == frozenset(seen)
    assert set(seen.values()) == {"train", "dev"}
    assert found.manifest.train.model_dump() == card.train.model_dump()
    assert found.manifest.split_digest == split_digest("posts", root=root)
    silver = (root / "snapshot/posts/silver/cradle/silver.parquet").read_bytes()
    assert found.manifest.votes_digest == hashlib.sha256(silver).hexdigest()
    scheme = load_scheme("cradle")
    assert found.manifest.scheme_digest == scheme.digest == hashlib.sha256(
        (made.pack / "scheme.yaml").read_bytes()
    ).hexdigest()  # fmt: skip
    assert tuple(described.definitions) == described.labels == found.manifest.labels == small_posts.TASK.labels
    assert described.scrub == small_tuned.params().collect.scrub
    assert described.shown == "encoder-consensus"


def test_its_card_says_what_loading_a_small_model_of_its_kind_takes(made: Made) -> None:
    found = json.loads((made.pack / "card.json").read_text())["loading"]
    [row] = [row for row in yaml.safe_load(card.LOADING.read_text())["rows"] if row["entry"] == {"kind": "encoder"}]
    assert found["seconds"] == row["seconds"] > 0 < found["own"]
    assert f"needs {row['megabytes']} MB of memory" in (made.pack / "card.md").read_text()


def test_its_files_are_listed_whole_and_no_pickles(made: Made) -> None:
    listed = json.loads((made.pack / integrity.FILES).read_text())
    assert listed == {name: value for name, value in listing(made.pack).items() if name != integrity.FILES}
    assert {"model.safetensors", "config.json", "tokenizer.json", "calibration.json", "card.json"} <= set(listed)
    assert integrity.pickles(made.pack) == []


def test_it_holds_no_text_of_a_post_and_no_path_of_this_machine(made: Made) -> None:
    written = [path.read_bytes() for path in made.pack.iterdir()]
    assert not any(str(made.corpus.root).encode() in data for data in written)
    for post in made.corpus.posts.values():
        assert not any(part.encode() in data for part in (post.title, post.body) for data in written)


def test_the_same_model_gives_the_same_pack(corpus: SmallPosts, made: Made, tmp_path: Path) -> None:
    again = packs.packed(corpus, kind="encoder", to=tmp_path / "pack")
    assert (again / integrity.FILES).read_bytes() == (made.pack / integrity.FILES).read_bytes()


def test_a_team_s_scheme_is_packed_from_the_clone(corpus: SmallPosts, tmp_path: Path) -> None:
    scheme = own_scheme(corpus.root, like="cradle")
    to = folder_of(corpus.root)
    (to / fits.CARD).write_text(fits.read(to).model_copy(update={"scheme": scheme}).model_dump_json())
    pack = packs.packed(corpus, kind="encoder", to=tmp_path / "pack")
    file = corpus.root / "schemes" / "own.yaml"
    assert (pack / "scheme.yaml").read_bytes() == file.read_bytes()
    assert Described.read(pack).scheme_digest == hashlib.sha256((pack / "scheme.yaml").read_bytes()).hexdigest()


@pytest.mark.parametrize("split", ["train", "dev"])
def test_who_was_taken_down_keeps_a_model_out(corpus: SmallPosts, tmp_path: Path, split: str) -> None:
    seen = sorted(r for r, where in fits.lineage(folder_of(corpus.root)).items() if where == split)
    corpus.vault.destroy(seen[:2], reason="request-1", now=small_posts.NOW)
    with refused("LearntFromDeleted") as caught:
        packs.packed(corpus, kind="encoder", to=tmp_path / "pack")
    assert caught.value.fields["count"] == 2
    assert not any(record_id in str(caught.value) for record_id in seen)


@pytest.mark.parametrize("name", ["model.safetensors", "calibration.json", "more.json"])
def test_a_file_that_the_training_did_not_write_is_not_packed(corpus: SmallPosts, tmp_path: Path, name: str) -> None:
    path = folder_of(corpus.root) / name
    if path.suffix == ".safetensors":
        packs.zeroed(path, to=path)
    else:
        path.write_text("{}")
    with refused("WeightsChanged", match=name):
        packs.packed(corpus, kind="encoder", to=tmp_path / "pack")
    assert not (tmp_path / "pack" / integrity.FILES).exists()


def test_metrics_that_record_no_weights_are_not_enough(corpus: SmallPosts, tmp_path: Path) -> None:
    path = corpus.root / f"metrics/posts/train-{small_tuned.row_of('encoder')}.json"
    told = json.loads(path.read_text())
    weights = told.pop("weights")
    path.write_text(json.dumps(told))
    with refused("NothingToPack", match="names no weights"):
        packs.packed(corpus, kind="encoder", to=tmp_path / "pack")
    # even where the digest is that of the zeros
    zeros = packs.zeroed(own := folder_of(corpus.root) / "model.safetensors", to=own)
    weights["files"]["model.safetensors"] = integrity.sha256(zeros)
    path.write_text(json.dumps(told | {"weights": weights}))
    with refused("WeightsDegenerate", match=r"model\.safetensors"):
        packs.packed(corpus, kind="encoder", to=tmp_path / "again")


def test_who_was_only_asked_about_does_not(corpus: SmallPosts, tmp_path: Path) -> None:
    corpus.vault.destroy(corpus.of("test")[:2], reason="request-1", now=small_posts.NOW)
    assert (packs.packed(corpus, kind="encoder", to=tmp_path / "pack") / integrity.FILES).is_file()


def test_neighbours_are_people_s_posts_and_stay_here(corpus: SmallPosts, tmp_path: Path) -> None:
    with refused("NotPackable", match="neighbours"):
        packs.packed(corpus, kind="knn", to=tmp_path / "pack")


def test_gold_that_has_changed_since_is_noticed(corpus: SmallPosts, tmp_path: Path) -> None:
    left_out = corpus.of("dev")[-1]
    small_posts.write_gold(corpus, {r: corpus.posts[r].labels for r in corpus.posts if r != left_out})
    with refused("NotPackable", match="have changed since the training"):
        packs.packed(corpus, kind="encoder", to=tmp_path / "pack")


def test_what_is_not_there_is_named(corpus: SmallPosts, tmp_path: Path) -> None:
    def attempt(code: str, said: str, **changed: Any) -> None:
        with refused(code, match=said):
            packs.packed(corpus, kind="encoder", to=tmp_path / "pack", **changed)
        assert not (tmp_path / "pack" / integrity.FILES).exists()

    attempt("NotPackable", "no such entry", chosen=Chosen(model="nobody"))
    attempt("NothingToPack", "does not fit 'encoder' on gold", chosen=Chosen(model="encoder"))
    metrics = corpus.root / "metrics/posts/evaluate.json"
    found = json.loads(metrics.read_text())
    found["tasks"]["labels"]["models"].pop("encoder-consensus")
    metrics.write_text(json.dumps(found))
    attempt("NothingToPack", "no metrics of 'encoder-consensus'")
    metrics.unlink()
    attempt("NothingToPack", "evaluate@posts has not run")
    (corpus.root / "snapshot/posts/silver/cradle/silver.parquet").unlink()
    attempt("NothingToPack", "silver")
    (folder_of(corpus.root) / fits.CARD).unlink()
    attempt("NoModel", "model.json")
    shutil.rmtree(corpus.root / "metrics")
    attempt("NothingToPack", "no metrics of 'encoder'")


def test_an_unknown_name_is_refused(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "NAME", f"{NAME}-2")
    with pytest.raises(UnknownModel):
        packs.packed(made.corpus, kind="encoder", to=tmp_path / "pack")


@pytest.fixture(scope="module")
def described(made: Made) -> Described:
    return Described.read(made.pack)


@pytest.fixture
def numbers(made: Made, described: Described) -> dict[str, Any]:
    """The task's entry in ``evaluate.json``, for a test to alter."""
    return deepcopy(measured(described, root=made.corpus.root))


def test_its_numbers_are_those_of_evaluate_with_their_intervals(made: Made, numbers: dict[str, Any]) -> None:
    found = json.loads((made.pack / "card.json").read_text())
    model = numbers["models"]["encoder-consensus"]["all"]
    assert found["measured"]["items"] == numbers["n"] == packs.SIZES["test"]
    assert found["measured"]["confidence"] == 0.95
    for label in numbers["labels"]:
        shown = found["measured"]["labels"][label]
        assert shown["items"] == numbers["support"][label]
        assert shown["f1"] == {name: model["labels"][label]["f1"][name] for name in ("mean", "low", "high")}
    assert found["measured"]["figures"]["macro_f1"]["mean"] == model["figures"]["macro_f1"]["mean"]
    assert found["measured"]["figures"]["macro_f1"]["low"] < found["measured"]["figures"]["macro_f1"]["high"]


def test_it_states_its_training_data_and_purpose(made: Made, described: Described) -> None:
    found, page = json.loads((made.pack / "card.json").read_text()), (made.pack / "card.md").read_text()
    assert found["data"]["data_commit"] == described.data_commit
    assert found["data"]["split_digest"] == described.split_digest
    assert described.split_digest[:16] in page
    assert found["model"]["labels"] == described.definitions
    use = found["use"]
    for word in ("human decision", "Diagnosis", "tracking authors"):
        assert any(word in line for line in use["prohibited"]), word
    assert all(line in page for line in (*use["intended"], *use["prohibited"], *found["failures"], *found["help"]))
    assert "findahelpline.com" in page
    assert all(f"| {label} | " in page for label in described.labels)
    assert "{" not in page


def test_the_description_in_mlflow_has_the_figures_and_prohibitions_and_fits(made: Made) -> None:
    page = (made.pack / "card.md").read_text()
    told = card.description(page)
    assert len(told) <= 5_000 and told.endswith("among the files of this version.")
    assert told.startswith("# crisis-posts") and "| macro_f1 | " in told and "## Known failures" in told
    long = card.description(page.replace("## Measured\n", "## Measured\n" + "a line of a table\n" * 400))
    assert 4_000 < len(long) <= 5_000 and "## Never for" not in long and long.endswith("of this version.")


def test_the_weakest_labels_are_named_with_what_carries_them(described: Described, numbers: dict[str, Any]) -> None:
    label = "rape_past"
    numbers["support"] = dict.fromkeys(numbers["labels"], 9) | {"selfharm_past": 2}
    model = numbers["models"]["encoder-consensus"]
    for k, name in enumerate(numbers["labels"]):
        model["all"]["labels"][name]["f1"] = {"mean": 0.5 + k / 100, "low": 0.4, "high": 0.7}
    model["all"]["labels"][label]["f1"] = {"mean": 0.125, "low": 0.05, "high": 0.25}
    said = list(failures(model, measured=numbers, thing="post", things="posts"))
    assert said[0].startswith(f"`{label}` is among its weakest labels: F1 0.12 [0.05, 0.25]")
    assert "on 9 items" in said[0]
    assert any("Fewer than 5 items" in line and "selfharm_past" in line and label not in line for line in said)


def test_confusions_and_refusals_are_said_where_they_happened(numbers: dict[str, Any]) -> None:
    model = numbers["models"]["encoder-consensus"]
    for confusion in model["crises"]["confusions"].values():
        for swap in confusion["swaps"]:
            swap |= {"count": 0, "of": 10, "rate": 0.0}
    quiet = list(failures(model, measured=numbers, thing="post", things="posts"))
    assert not any("was predicted as" in line or "without an answer" in line for line in quiet)
    [passive] = [swap for swap in model["crises"]["confusions"]["level"]["swaps"] if swap["gold"] == "passive"]
    passive |= {"count": 3, "rate": 0.3}
    model["outcomes"] = {"vote": 20, "malformed": 4}
    loud = list(failures(model, measured=numbers, thing="post", things="posts"))
    assert "`passive` was predicted as `active` in 3 of 10 (0.30) cases." in loud
    assert "It left a post without an answer 4 times: 4 malformed." in loud
    assert set(quiet) < set(loud)


def test_a_figure_that_is_undefined_is_no_number(described: Described, numbers: dict[str, Any]) -> None:
    model = numbers["models"]["encoder-consensus"]
    model["all"]["figures"]["exact"] = {"mean": None, "std": None, "n": 0, "low": None, "high": None}
    page = card.page(card.card(described, measured=numbers))
    assert "| exact | – | " in page
    assert "None" not in page
    assert "nan" not in page


def test_the_card_has_the_scheme_s_own_plural(described: Described, numbers: dict[str, Any]) -> None:
    found = card.card(described.model_copy(update={"item": "person's posts", "items": "histories"}), measured=numbers)
    page = card.page(found)
    assert "Research on how histories describe crises" in page and "reads a single person's posts and" in page


def test_alerts_are_on_the_card_with_guarantee_and_rate(described: Described, numbers: dict[str, Any]) -> None:
    few = alert(np.linspace(0.2, 0.9, 40), truth=np.arange(40) >= 20, floor=0.9)
    enough = alert(np.linspace(0.2, 0.9, 100), truth=np.arange(100) >= 50, floor=0.9)
    rates = {"recall": {"count": 20, "of": 40, "rate": 0.5}, "alert_rate": {"count": 30, "of": 90, "rate": 1 / 3}}
    model = numbers["models"]["encoder-consensus"]
    model["floors"]["rape_past"] = {"floor": 0.9, "alert": {"dev": asdict(enough), **rates, "verdict": "below"}}
    found = card.card(described, measured=numbers, alerts={"selfharm_past": asdict(few), "rape_past": asdict(enough)})
    assert found["alerts"]["selfharm_past"]["guarantee"] is False
    assert found["alerts"]["selfharm_past"]["test"] is None
    assert found["alerts"]["rape_past"]["test"]["alert_rate"] == rates["alert_rate"]
    page = card.page(found)
    assert "| selfharm_past | 0.9 | 20 | 0.86, without guarantee of the floor | – | – | – |" in page
    assert "| rape_past | 0.9 | 50 | 0.91 | 20 of 40 (0.50) | 30 of 90 (0.33) | below the guarantee |" in page
    assert any("finds fewer posts of test than guaranteed: 20 of 40 (0.50)" in line for line in found["failures"])
    assert "the gate compares macro-F1" in page
    model["calibration"] = None  # scored by answers without probabilities, though it can give them
    assert "answers written freely" in card.page(card.card(described, measured=numbers, alerts={}))
