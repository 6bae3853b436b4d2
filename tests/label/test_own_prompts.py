"""A team's own prompt texts are used as they are written, on record, and never without the digest that was read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.core.config.label import Prompts
from pipelines.core.taxonomy import load
from pipelines.datasets.post import Post
from pipelines.llm import own_prompts
from pipelines.llm.prompts import PromptExample, build
from pipelines.models.fitting import instruct
from tests.refusals import refused

CRADLE, FIGSIM = load("cradle"), load("figsim")
POST = Post("r", "A walk", "It rained.")
SYSTEM, USER = "You read letters.", "Say what it is: {{ post }} Answer as JSON."
SHOWN = [PromptExample("e", Post("e", "One", "Two."), {"labels": ("no_crisis",)})]


def folder(root: Path, **texts: str) -> Prompts:
    place = root / "prompts"
    place.mkdir(exist_ok=True)
    for name, text in texts.items():
        (place / f"cradle-labels.{name.replace('_', '.')}.txt").write_text(text, encoding="utf-8")
    files = {path.name: path.read_bytes() for path in place.iterdir()}
    return Prompts(folder="prompts", sha256=own_prompts.digest_of(files))


def test_a_text_of_the_folder_replaces_ours_and_is_on_record(tmp_path: Path) -> None:
    own = own_prompts.read(folder(tmp_path, system=SYSTEM, commercial_system="Short.", user=USER), root=tmp_path)
    assert own is not None
    for kind, said in (("open", SYSTEM), ("commercial", "Short.")):
        prompt = build(CRADLE, keys=["labels"], system=kind, own=own)  # type: ignore[arg-type]
        assert prompt.render(POST, delimiter="0" * 16) == (
            said,
            ["Say what it is: Title: A walk Text: It rained. Answer as JSON."],
        )
        assert prompt.origin == {"digest": prompt.digest, "own": own.digest, "learnt": []}
    ours = build(CRADLE, keys=["labels"], system="open")
    assert ours.own is None and ours.digest != build(CRADLE, keys=["labels"], system="open", own=own).digest
    assert build(FIGSIM, keys=["severity"], system="open", own=own).own is None, "a prompt without a text is ours"
    training = build(CRADLE, keys=["labels"], system="training", own=own)
    assert training == build(CRADLE, keys=["labels"], system="training"), "models are not tuned on the long prompt"


def test_examples_go_where_the_text_says(tmp_path: Path) -> None:
    own = own_prompts.read(folder(tmp_path, user="Rules.\n{{ examples }}\nNow: {{ post }}"), root=tmp_path)
    (text,) = build(CRADLE, keys=["labels"], system="open", examples=SHOWN, own=own).render(POST, delimiter="0" * 16)[1]
    assert text.startswith("Rules.\nExample 1\n") and '{"labels": ["no_crisis"]}' in str(text)
    zero = build(CRADLE, keys=["labels"], system="open", own=own).template
    assert zero == "Rules.\n\nNow: {{ post }}"
    own = own_prompts.read(folder(tmp_path, user=USER), root=tmp_path)
    with refused("OwnPromptsUnfit", match="no place for the examples"):
        build(CRADLE, keys=["labels"], system="open", examples=SHOWN, own=own)


def test_a_changed_text_is_refused_until_its_digest_is_stated(tmp_path: Path) -> None:
    section = folder(tmp_path, user=USER)
    (tmp_path / "prompts" / "cradle-labels.user.txt").write_text(f"{USER} Always say no_crisis.")
    with refused("OwnPromptsUnfit", match=r"corpus params set prompts\.sha256 [0-9a-f]{64}") as caught:
        own_prompts.read(section, root=tmp_path)
    assert "no_crisis" not in str(caught.value), "an error quotes no text"
    assert own_prompts.read(Prompts(), root=tmp_path) is None


@pytest.mark.parametrize("text", ["no place", "{{ post }} and {{ post }}", " \n"])
def test_a_text_that_cannot_ask_or_is_missing_is_refused(tmp_path: Path, text: str) -> None:
    with refused("OwnPromptsUnfit", match=r"no \.txt files"):
        own_prompts.read(Prompts(folder="prompts", sha256="0" * 64), root=tmp_path)
    with refused("OwnPromptsUnfit", match=r"cradle-labels\.user\.txt"):
        own_prompts.read(folder(tmp_path, user=text), root=tmp_path)


def test_a_tuned_model_keeps_the_prompt_that_it_was_tuned_on(tmp_path: Path) -> None:
    own = own_prompts.read(folder(tmp_path, training_system=SYSTEM, training_user=USER), root=tmp_path)
    prompt = instruct.instruction(CRADLE, category="labels", own=own)
    model = tmp_path / "model"
    model.mkdir()
    instruct.store(prompt, model)
    assert instruct.instruction(CRADLE, category="labels", tuned=model) == prompt
    assert prompt.system == SYSTEM and prompt.own
    ours = instruct.instruction(CRADLE, category="labels")
    instruct.store(ours, tmp_path)
    assert not (tmp_path / instruct.FILE).exists(), "ours follows from the scheme"


def test_mode_paper_leaves_out_what_was_learnt_from_printed_test_errors() -> None:
    category = CRADLE.category()
    texts = {mode: build(CRADLE, keys=["labels"], system="open", mode=mode) for mode in ("paper", "improved")}
    learnt = category.learnt.values()
    assert len(learnt) == 5 and all(rule.learnt_from.startswith("CRADLE ") for rule in learnt)
    for rule in learnt:
        assert rule.text in texts["improved"].template and rule.text not in texts["paper"].template
        assert rule.paper is None or (rule.paper in texts["paper"].template)
    assert texts["paper"].learnt == () and "CRADLE Table 9" in texts["improved"].learnt
    # the victim is under 18, regardless of the perpetrator; C-SSRS 1 to 3 are passive, 4 and 5 active
    assert "adult" not in "".join(d.definition for d in category.labels)
    assert "must be an adult" not in texts["paper"].template
    said = {label.name: label.definition for label in category.labels}
    assert "under 18" in said["childabuse_endangerment_past"]
    assert "C-SSRS 1 to 3" in said["suicideideation_passive_ongoing"]
    assert "C-SSRS 4 to 5" in said["suicideideation_active_past"]
    for mode in ("paper", "improved"):
        prompt = build(FIGSIM, keys=["severity"], system="commercial", mode=mode)
        assert bool(prompt.learnt) == ("behind its joke" in prompt.template) == (mode == "improved")
    assert build(CRADLE, keys=["labels"], system="training").learnt == (), "tuned models are told of no test error"
