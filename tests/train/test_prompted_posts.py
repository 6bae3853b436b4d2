"""Models that are asked about posts as labellers are: served over HTTP, or in this process (CRADLE 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crisis_corpus_sandbox import component
from crisis_corpus_sandbox.server import SandboxServer
from crisis_corpus_sandbox.vendors.mind import Temper
from crisis_corpus_sandbox.vendors.vendors import Vendors
from pipelines.core.config.params import load as load_params
from pipelines.core.config.settings import Settings
from pipelines.models import base_files, kind, predict
from pipelines.models import label_prompts as prompts
from pipelines.models.kind import Kind, Serving
from pipelines.models.kinds.local import Local
from pipelines.models.kinds.prompted import Prompted
from pipelines.models.kinds.sft import Evaluation
from pipelines.models.label_prompts import evaluation_prompt
from pipelines.models.train import predict_with
from pipelines.store import tables
from tests.contexts import context_of
from tests.refusals import refused
from tests.train import small_untuned
from tests.train.silver_posts import unlabelled
from tests.train.small_posts import REPO, SmallPosts
from tests.train.small_tuning import SPEC
from tests.train.small_untuned import ASKED, asked, desk, params_of, rows_of, spent

CALM = Temper(
    wrong=0, refuses={}, refuses_any=0, malformed=0, throttled=0, failing=0, slow=0, obeys_inside=0, obeys_outside=0
)
SERVED = Prompted(kind="prompted", labeller="qwen3-8b", examples=1)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SandboxServer]:
    folder = tmp_path / "vendors"
    folder.mkdir()
    (folder / "submissions.jsonl").touch()
    vendors = Vendors(folder, seed=7, tempers={"local": CALM})
    with SandboxServer(folder, vendors=vendors) as found:
        for name, value in component.variables(int(found.address.rpartition(":")[2])).items():
            monkeypatch.setenv(name, value)
        yield found


def run(posts: SmallPosts, settings: Settings, *, spec: Kind, **changed: Any) -> dict[str, Any]:
    votes = posts.params.votes.model_copy(update={"mode": "paper", **changed})
    posts = replace(posts, params=posts.params.model_copy(update={"votes": votes}))
    given = {"settings": settings, "vault": posts.vault, "root": posts.root}
    [planned] = predict.planned(context_of("posts", params=params_of(posts, spec), **given))
    assert planned.cost["records"] == ASKED
    return small_untuned.run(posts, settings, spec=spec)


def test_a_served_model_is_asked_once_about_dev_and_test(
    posts: SmallPosts, settings: Settings, server: SandboxServer
) -> None:
    metrics = run(posts, settings, spec=SERVED)
    rows = rows_of(posts)
    assert set(rows) == set(asked(posts)) and {row["outcome"] for row in rows.values()} == {"vote"}
    assert all(row["labels"] == sorted(posts.posts[r].labels) for r, row in rows.items())
    assert metrics["labeller"] == "qwen3-8b" and metrics["kind"] == "prompted"
    answered = server.vendors.counts()["local"]["answered"]
    assert answered == ASKED
    run(posts, settings, spec=SERVED)
    assert server.vendors.counts()["local"]["answered"] == answered, "stored answers are used"
    told = spent(posts)
    assert (told["records"], told["cost"], told["seconds"]) == (ASKED, 0.0, None)
    assert told["input_tokens"] > 1000 * ASKED, "the labellers' whole prompt, with an example"


def test_examples_are_as_many_as_the_entry_says(posts: SmallPosts, settings: Settings, server: SandboxServer) -> None:
    read = []
    for examples in (0, 1):
        run(posts, settings, spec=SERVED.model_copy(update={"examples": examples}))
        read.append(spent(posts)["input_tokens"])
    assert read[0] < read[1]


def test_several_runs_are_asked_anew_and_an_offline_labeller_is_refused(
    posts: SmallPosts, settings: Settings, server: SandboxServer
) -> None:
    small_untuned.run(posts, settings, spec=SERVED.model_copy(update={"runs": 2, "splits": ("test",)}))
    path = posts.snapshot / "predictions" / small_untuned.ROW / "predictions.parquet"
    rows = tables.read(path, name="predictions").to_pylist()
    assert {(r["record_id"], r["seed"]) for r in rows} == {(r, n) for r in posts.of("test") for n in (1, 2)}
    assert server.vendors.counts()["local"]["answered"] == 24
    with refused("NotAsked", match="offline"):
        small_untuned.run(posts, settings, spec=SERVED.model_copy(update={"labeller": "words"}))


def test_a_local_model_is_asked_with_the_labellers_prompt(posts: SmallPosts, settings: Settings) -> None:
    spec = Local(kind="local", base="tiny:qwen3", batch=8, max_length=2048)
    votes = posts.params.votes.model_copy(update={"max_output_tokens": 3})
    at = desk(posts, settings, params=posts.params.model_copy(update={"votes": votes}))
    [said] = spec.generator(at).predict(unlabelled(["Title: A week Text: It rained."]))
    assert (said.outcome, said.labels, said.scores, said.output_tokens) == ("malformed", frozenset(), (), 3)
    assert said.input_tokens > 1500, "beyond the prompt that models are tuned on"


def test_an_answer_is_read_by_the_labellers_rules(posts: SmallPosts, settings: Settings) -> None:
    at = desk(posts, settings)
    prompt = evaluation_prompt(at, system="open")
    read = partial(prompts.read, prompt=prompt, desk=at, mode="improved")
    assert read('```json\n{"labels": ["no_crisis"]}\n```') == ("vote", {"no_crisis"})
    assert read('<think>So.</think>{"labels": ["rape_past"]}') == ("vote", {"rape_past"})
    assert read('{"labels": ["somewhat_sad"]}') == ("malformed", frozenset())
    assert read("I'm sorry, but I can't label this.") == ("refused", frozenset())


def test_a_tuned_model_is_scored_with_the_labellers_prompt_if_its_entry_says_so(
    posts: SmallPosts, settings: Settings, tmp_path: Path
) -> None:
    """CRADLE F: models were tuned on a shorter prompt than they were evaluated with."""
    folder, found = tmp_path / "model", {}
    base_files.make("tiny:qwen3", folder=folder, seed=1)
    at = desk(posts, settings)
    for name, evaluation in {"own": None, "papers": Evaluation(max_length=4096, max_new_tokens=3)}.items():
        spec = SPEC.model_copy(update={"evaluation": evaluation, "max_length": 4096, "max_new_tokens": 256})
        row: Any = SimpleNamespace(corpus="posts", model="it", task="labels", seed=1, shown="it")
        serving = Serving(task=at.task, scheme=at.scheme, folder=tmp_path)
        places = {"params": at.params, "settings": settings, "vault": posts.vault, "root": posts.root}
        given = {"serving": serving, "row": row, "material": at.material, "to": tmp_path / name, **places}
        spent = predict_with(spec, folder, **given)["spent"]
        rows = tables.read(tmp_path / name / "predictions.parquet", name="predictions").to_pylist()
        found[name] = ({row["outcome"] for row in rows}, any(row["scores"] for row in rows), spent["input_tokens"])
    assert found["own"][:2] == ({"vote"}, True), "the most probable of all valid answers"
    assert found["papers"][:2] == ({"malformed"}, False), "written freely, and read by the labellers' rules"
    assert found["papers"][2] > 2 * found["own"][2], "with examples and guidelines"


def test_the_papers_models_are_asked_as_the_paper_asks() -> None:
    params = load_params(REPO, profile="cradle")
    assert (params.votes.max_output_tokens, params.votes.context_tokens, params.few_shot.examples["posts"]) == (
        1024,
        4096,
        5,
    )
    kinds: dict[str, list[str]] = {}
    for name in params.predict.rows["posts"]:
        spec = kind.spec(params, name)
        kinds.setdefault(spec.kind, []).append(name)
        if isinstance(spec, Local):
            assert (spec.prompt, spec.max_length) == ("evaluation", 4096)
        if isinstance(spec, Prompted):
            assert (spec.examples, spec.shots, spec.splits, spec.runs) == (5, "few_shot", ("validation", "test"), None)
    assert {name: len(names) for name, names in kinds.items()} == {"prompted": 9, "local": 3, "votes": 3, "ensemble": 1}
    tuned = {kind.weights(params, name) for name in params.train.rows["posts"].models}
    assert tuned == {kind.weights(params, name) for name in kinds["local"]}, "the bases of Table 8"
