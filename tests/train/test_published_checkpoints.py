"""Checkpoints that an independent script trained, as rows: what the stage predicts is what the script predicts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.core import rows
from pipelines.core.config.settings import Settings
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.evaluate.report import report
from pipelines.llm import own_prompts
from pipelines.models.base_files import identified
from pipelines.models.kinds.checkpoint import Causal, Checkpoint
from pipelines.models.kinds.checkpoint.asking import read
from pipelines.models.label_map import LabelMap
from tests.contexts import context_of
from tests.refusals import refused
from tests.train import small_untuned
from tests.train.small_posts import TASK, SmallPosts
from tests.train.small_untuned import ASKED, LABELS, asked, rows_of, run

# their names, in another order than ours
THEIRS = {f"Class{number}": label for number, label in enumerate(reversed(LABELS))}
NAMES = {label: name for name, label in THEIRS.items()}


@dataclass(frozen=True)
class Published:
    folder: Path
    told: dict[str, Any]

    def entry(self, name: str, **changed: Any) -> Checkpoint:
        base = str(self.folder / name)
        [identity] = identified([(base, None)])
        given = {
            "labels": dict(THEIRS),
            "digest": identity["digest"],
            "max_tokens": 256,
            "text": "{{ title }} {{ body }}",
        }
        return Checkpoint(kind="checkpoint", base=base, **given | changed)


@pytest.fixture(scope="module")
def published(original: SmallPosts, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Return the checkpoints, trained on all posts, those of test included, and the script's predictions."""
    folder, posts = tmp_path_factory.mktemp("published"), original.posts
    texts = {r: f"{post.title} {post.body}" for r, post in posts.items()}
    labels = {r: sorted(NAMES[label] for label in post.labels) for r, post in posts.items()}
    (folder / "data.json").write_text(json.dumps({"names": [*THEIRS], "texts": texts, "labels": labels}))
    script = Path(__file__).with_name("independent_checkpoints.py")
    subprocess.run([sys.executable, "-I", str(script), str(folder)], check=True, capture_output=True)
    return Published(folder, json.loads((folder / "predictions.json").read_text()))


def test_a_classifier_with_other_names_and_order_predicts_as_its_authors(
    posts: SmallPosts, settings: Settings, published: Published
) -> None:
    spec = published.entry("sigmoid", thresholds=0.5)
    metrics = run(posts, settings, spec=spec)
    made = rows_of(posts)
    assert len(made) == ASKED and metrics["bases"] == [{"name": "sigmoid", "revision": None, "digest": spec.digest}]
    for record_id, row in made.items():
        scores = dict(zip(THEIRS.values(), published.told["sigmoid"][record_id], strict=True))
        assert row["scores"] == pytest.approx([scores[label] for label in LABELS], abs=1e-5)
        above = {label for label, score in scores.items() if score >= 0.5}
        crises = above - {"no_crisis"}
        assert row["outcome"] == "vote" and set(row["labels"]) == (crises or {"no_crisis"})
    right = sum(set(row["labels"]) == posts.posts[r].labels for r, row in made.items())
    assert right > ASKED / 2, "the labels are not shuffled: it was trained on these posts"


def test_its_row_is_in_the_report_beside_another(posts: SmallPosts, settings: Settings, published: Published) -> None:
    spec = published.entry("sigmoid", thresholds=0.5)
    run(posts, settings, spec=spec)
    params = small_untuned.params_of(posts, spec)
    section = params.predict.model_copy(update={"rows": {"posts": ("it", "gpt")}})
    params = params.model_copy(update={"predict": section})
    (posts.root / rows.FILE).write_text(rows.text(params, root=posts.root))
    assert "pipelines/models/kinds/checkpoint" in rows.read(posts.root).answer("posts", "labels-it").code
    context = context_of("posts", params=params, settings=settings, vault=posts.vault, root=posts.root)
    evaluate.run(context, sampling=Sampling(20, 1))
    report.run(context)
    page = (posts.snapshot / "report" / "report.html").read_text()
    assert "trained elsewhere on unknown data" in page and str(published.folder) not in page


def test_classes_are_merged_and_left_out(posts: SmallPosts, settings: Settings, published: Published) -> None:
    told = {r: published.told["softmax"][r] for r in asked(posts)}
    best = {r: [*THEIRS][row.index(max(row))] for r, row in told.items()}
    left, merged, into, *_ = sorted({*best.values()}, key=lambda name: (THEIRS[name] == "no_crisis", name))
    labels = {**THEIRS, left: None, merged: THEIRS[into]}
    metrics = run(posts, settings, spec=published.entry("softmax", labels=labels))
    made = rows_of(posts)
    for record_id, name in best.items():
        row, target = made[record_id], labels[name]
        assert (row["outcome"], row["labels"]) == (("vote", [target]) if target else ("abstained", []))
        both = sum(p for p, n in zip(told[record_id], THEIRS, strict=True) if n in (merged, into))
        assert row["scores"][LABELS.index(THEIRS[into])] == pytest.approx(both, abs=1e-5)
    counted = sum(metrics["outcomes"][split].get("abstained", 0) for split in ("dev", "test"))
    assert counted == sum(name == left for name in best.values()) > 0


@pytest.mark.parametrize("name", ["causal", "chat"])
def test_a_causal_model_is_asked_with_its_own_prompt(
    posts: SmallPosts, settings: Settings, published: Published, name: str
) -> None:
    texts = {"theirs.user.txt": "Post: {{ post }} Label:"}
    folder = posts.root / "own"
    folder.mkdir()
    (folder / "theirs.user.txt").write_text(texts["theirs.user.txt"])
    digest = own_prompts.digest_of({file: text.encode() for file, text in texts.items()})
    prompts = posts.params.prompts.model_copy(update={"folder": "own", "sha256": digest})
    with_prompts = SmallPosts(
        posts.root, posts.vault, posts.params.model_copy(update={"prompts": prompts}), posts.posts
    )
    # a label that the map lacks cannot be read
    gone = next(iter(sorted(published.told["causal"].values())[0].split(" ; ")))
    labels = {theirs: ours for theirs, ours in THEIRS.items() if theirs != gone}
    causal = Causal(prompt="theirs", chat=name == "chat", separator=";", max_new_tokens=12)
    metrics = run(with_prompts, settings, spec=published.entry(name, labels=labels, causal=causal))
    made, mapped = rows_of(posts), LabelMap(labels, TASK, "it")
    for record_id in asked(posts):
        row, answer = made[record_id], published.told["causal"][record_id].split(" ; ")
        if {*answer} <= labels.keys():
            assert (row["outcome"], row["labels"]) == ("vote", sorted(mapped.named(answer)[1]))
        else:
            assert (row["outcome"], row["labels"]) == ("malformed", [])
    assert sum(metrics["outcomes"]["dev"].values()) == 11
    with refused("OwnPromptsUnfit", match=r"no prompt other.*other\.user\.txt"):
        spec = published.entry(name, causal=Causal(prompt="other"))
        run(with_prompts, settings, spec=spec)


@pytest.mark.parametrize(
    ("text", "outcome", "labels"),
    [
        ("Label: no; grief", "vote", {"rape_past"}),
        ('Label: "GRIEF"', "vote", {"rape_past"}),
        ("<think>a person mourns</think>\nLabel: grief", "vote", {"rape_past"}),
        ("Label: ", "vote", {"no_crisis"}),
        ("Label: other", "abstained", set()),
        ("Label: grief; anger", "malformed", set()),
        ("grief", "malformed", set()),
        ("", "malformed", set()),
        ("I'm sorry, but no. Label: grief", "refused", set()),
        ("Label: no, as I cannot help with this request", "refused", set()),
        ("<think>I must not answer this.</think>Label: no", "refused", set()),
    ],
)
def test_a_refusal_is_no_vote_and_what_cannot_be_read_is_none(text: str, outcome: str, labels: set[str]) -> None:
    known = {"no": "no_crisis", "": "no_crisis", "grief": "rape_past", "other": None}
    causal = Causal(prompt="x", answer=r"Label: ?(.*)", separator=";")
    assert read(text, causal=causal, mapped=LabelMap(known, TASK, "it")) == (outcome, labels)


@pytest.mark.parametrize(
    ("code", "said", "changed"),
    [
        ("CheckpointAltered", r"models\.it\.digest [0-9a-f]{64}", {"digest": "0" * 64}),
        ("CheckpointAltered", "do not have the digest", {"digest": None}),
        (
            "BadParams",
            r"sadness is not a label.*Class0, Class1.*no_crisis",
            {"labels": {**THEIRS, "Class3": "sadness"}},
        ),
        ("BadParams", r"each label of the model once.*Class14", {"labels": {"Class1": "no_crisis"}, "thresholds": 0.5}),
        ("BaseUnfit", "set thresholds", {"thresholds": None}),
        ("BaseUnfit", "512 tokens at most", {"max_tokens": 513}),
        ("BaseUnfit", "have none", {"image": True}),
    ],
)
def test_what_does_not_fit_is_refused_with_both_sides(
    posts: SmallPosts, settings: Settings, published: Published, code: str, said: str, changed: dict[str, Any]
) -> None:
    with refused(code, match=said):
        run(posts, settings, spec=published.entry("sigmoid", **{"thresholds": 0.5} | changed))
    assert not (posts.snapshot / "predictions").exists()


@pytest.mark.parametrize("unsafe", ["pytorch_model.bin", "adapter_config.json"])
def test_only_a_whole_model_in_safetensors_is_loaded(
    posts: SmallPosts, settings: Settings, published: Published, tmp_path: Path, unsafe: str
) -> None:
    other = Published(tmp_path, {})
    shutil.copytree(published.folder / "sigmoid", tmp_path / "it")
    if unsafe.endswith("bin"):
        (tmp_path / "it" / "model.safetensors").rename(tmp_path / "it" / unsafe)
    else:
        (tmp_path / "it" / unsafe).write_text("{}")
    with refused("BaseUnfit", match="no whole model in safetensors"):
        run(posts, settings, spec=other.entry("it", thresholds=0.5))
