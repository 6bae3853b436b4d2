"""Fine-tuning for real, on a tiny Qwen3: what is learnt, kept and written, and that a kill leaves no trace."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerControl, TrainerState

from pipelines.core.errors import BadParams
from pipelines.models.backbones import opened
from pipelines.models.fitting import adapter, instruct
from pipelines.models.kinds.sft.trainer import Keeper
from tests.refusals import refused
from tests.train.silver_posts import leaks
from tests.train.small_tuning import SCHEME, SPEC, TASK, a_run, answers, posts

LEARNING = {
    "train": posts(64, split="train"), "validation": posts(16, split="validation"), "epochs": 14,
    "learning_rate": 0.006, "checkpoint_steps": 1000,
}  # fmt: skip


def curve(fitted: Any) -> list[float]:
    return [loss for line in fitted.history for loss in (line["train_loss"], line["validation_loss"])]


def weights(folder: Path) -> dict[str, Any]:
    return dict(load_file(folder / "model.safetensors"))


def loss_of(folder: Path, *, split: str) -> float:
    """Return the mean loss of an answer token by the plainest means: one post at a time, the library's own loss."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    prompt = instruct.instruction(SCHEME, category=TASK.key)
    total = count = 0.0
    for example in posts(9, split=split):
        asked = instruct.conversation(example.text, prompt=prompt, tokenizer=tokenizer, max_length=768, room=32)
        answer = tokenizer(instruct.completion(example.labels or frozenset(), task=TASK))["input_ids"]
        ids = torch.tensor([[*asked, *answer, tokenizer.eos_token_id]])
        labels = ids.clone()
        labels[0, : len(asked)] = -100
        with torch.no_grad():
            total += float(model(input_ids=ids, labels=labels).loss) * (len(answer) + 1)
        count += len(answer) + 1
    return total / count


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("learnt")
    return folder / "out", a_run(folder, **LEARNING)


@pytest.mark.faults
def test_it_learns_more_than_the_majority_and_than_its_base_knows(learnt: tuple[Path, Any], tmp_path: Path) -> None:
    test = posts(24, split="test")
    majority = sum(example.labels == {TASK.labels[0]} for example in test)
    tuned = sum(said == example.labels for said, example in zip(answers(learnt[0], test), test, strict=True))
    with opened(SPEC.base, seed=1, folder=tmp_path) as place:
        untuned = sum(said == example.labels for said, example in zip(answers(place, test), test, strict=True))
    assert majority == 12
    assert tuned >= majority + 4
    assert untuned == 0


def test_the_weights_are_those_of_the_epoch_with_the_least_validation_loss(tmp_path: Path) -> None:
    """What begins to know the words is taught other meanings, and is worst by the old ones after a later epoch."""
    a_run(tmp_path / "first", **LEARNING | {"epochs": 5})
    turned = {label: TASK.labels[n - 1] for n, label in enumerate(TASK.labels)}
    other = [replace(e, labels=frozenset({turned[min(e.labels or ())]})) for e in posts(20, split="train")]
    base = str(tmp_path / "first" / "out")
    fitted = a_run(tmp_path, base=base, train=other, epochs=3, learning_rate=0.002, warmup=1)
    losses = [line["validation_loss"] for line in fitted.history]
    assert fitted.epoch == 1 + losses.index(min(losses)) < 3, "the test needs a best epoch before the last"
    assert loss_of(tmp_path / "out", split="validation") == pytest.approx(min(losses), rel=1e-4)
    assert loss_of(tmp_path / "checkpoints" / "checkpoint-9", split="validation") == pytest.approx(losses[2], rel=1e-4)
    assert [line["epoch"] for line in fitted.history] == [1, 2, 3]
    assert fitted.steps == fitted.history[-1]["step"] == 9


@dataclass(frozen=True)
class Plain:
    """A run with nothing special: its folder, its result, and what it told while it ran."""

    folder: Path
    fitted: Any
    said: tuple[dict[str, float], ...]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    folder, said = tmp_path_factory.mktemp("plain"), list[dict[str, float]]()
    fitted = a_run(folder, say=said.append)
    return Plain(folder, fitted, tuple(said))


@pytest.mark.parametrize("changed", [{}, {"batch": 2, "accumulation": 4}], ids=["at-once", "accumulated"])
def test_a_step_is_the_same_packed_padded_or_accumulated(plain: Plain, tmp_path: Path, changed: dict[str, int]) -> None:
    assert curve(a_run(tmp_path, packing=False, **changed)) == pytest.approx(curve(plain.fitted), rel=1e-4)


def test_the_learning_rate_falls_linearly_after_its_warm_up(tmp_path: Path) -> None:
    fitted = a_run(tmp_path, epochs=4, warmup=0.25, learning_rate=0.001)
    # the rate of an epoch's last step, of 12 with 3 of warm-up
    assert [line["learning_rate"] for line in fitted.history] == pytest.approx([2e-3 / 3, 7e-3 / 9, 4e-3 / 9, 1e-3 / 9])


def test_the_printed_result_is_the_returned_one(plain: Plain) -> None:
    assert list(plain.said) == plain.fitted.history
    assert plain.fitted.truncated == 0
    assert plain.fitted.tokens > 2 * 20 * 300


def test_long_posts_are_cut_and_counted(tmp_path: Path) -> None:
    train = posts(20, split="train")
    long = [replace(example, text=example.text * 40) for example in train[:3]]
    fitted = a_run(tmp_path, train=[*long, *train[3:]], epochs=1)
    assert fitted.truncated == 3 and fitted.tokens < 20 * SPEC.max_length


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("adapted")
    return folder, a_run(folder, tuning="lora", learning_rate=0.02, epochs=3)


def test_an_adapter_is_kept_beside_its_base_and_loaded_on_it(adapted: tuple[Path, Any], tmp_path: Path) -> None:
    from peft import PeftModel

    out = adapted[0] / "out"
    ids = torch.tensor([[5, 300, 41, 900, 7]])
    with opened(SPEC.base, seed=1, folder=tmp_path) as place, torch.no_grad():
        base = AutoModelForCausalLM.from_pretrained(place)
        before = base(input_ids=ids).logits
        expected = PeftModel.from_pretrained(base, str(out))(input_ids=ids).logits
        found = adapter.loaded(str(out), base=SPEC.base)[0].eval()(input_ids=ids).logits
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert (found - before).abs().max() > 0.01
    assert curve(adapted[1])[-1] < curve(adapted[1])[1], "nothing was learnt"
    assert not (out / "model.safetensors").exists() and (out / adapter.COPY / "model.safetensors").exists()
    assert json.loads((out / adapter.CONFIG).read_text())["base_model_name_or_path"] == adapter.COPY


def test_everything_is_safetensors_and_checkpoints_are_for_their_owner(adapted: tuple[Path, Any], plain: Plain) -> None:
    for folder in (adapted[0], plain.folder):
        kinds = {p.suffix for p in (folder / "out").rglob("*") if p.is_file()}
        assert kinds == {".safetensors", ".json", ".jinja"}
        assert (folder / "checkpoints").stat().st_mode & 0o077 == 0


def test_weights_are_learnt_in_float32_and_kept_in_the_base_s_format(tmp_path: Path) -> None:
    """Trap 2: in bfloat16 a learning rate of 8e-6 changes nothing."""
    with opened(SPEC.base, seed=1, folder=tmp_path) as place:
        base = AutoModelForCausalLM.from_pretrained(place, dtype=torch.bfloat16)
        AutoTokenizer.from_pretrained(place).save_pretrained(tmp_path / "base")
    base.save_pretrained(tmp_path / "base")
    a_run(tmp_path, base=str(tmp_path / "base"), learning_rate=8e-6, epochs=1)
    (checkpoint,) = (tmp_path / "checkpoints").iterdir()
    kept, before, out = weights(checkpoint), weights(tmp_path / "base"), weights(tmp_path / "out")
    name = "model.layers.1.mlp.up_proj.weight"
    assert kept[name].dtype == torch.float32
    assert out[name].dtype == before[name].dtype == torch.bfloat16
    moved = (kept[name] - before[name].float()).abs()
    assert 0 < float(moved.mean()) < 1e-4
    assert torch.equal(out[name], kept[name].bfloat16())


@leaks
def test_examples_of_another_split_are_refused_before_anything_is_made(tmp_path: Path, part: str, split: str) -> None:
    given = posts(8, split=part)
    given[5] = replace(given[5], split=split)
    with refused("LeakRefused"):
        a_run(tmp_path, **{part: given})
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_tuned_is_refused(tmp_path: Path) -> None:
    for part in ("train", "validation"):
        with refused("NothingToTune", match=part):
            a_run(tmp_path, **{part: []})
    with pytest.raises(BadParams, match="rank"):
        a_run(tmp_path, tuning="lora", rank=None)
    with refused("NoRoom"):
        a_run(tmp_path, max_length=200)
    hidden = [replace(example, labels=None) for example in posts(8, split="train")]
    with refused("LeakRefused"):
        a_run(tmp_path, train=hidden)


def test_a_base_whose_tokens_lose_the_answer_is_refused(tmp_path: Path) -> None:
    from transformers import BertTokenizer

    from pipelines.models import base_files

    with opened(SPEC.base, seed=1, folder=tmp_path) as place:
        AutoModelForCausalLM.from_pretrained(place).save_pretrained(tmp_path / "base")
    lossy = BertTokenizer(vocab=dict(base_files.vocabulary()), eos_token="[SEP]")
    lossy.chat_template = base_files.TEMPLATE
    lossy.save_pretrained(tmp_path / "base")
    with refused("BaseUnfit", match="does not decode an answer"):
        a_run(tmp_path, base=str(tmp_path / "base"), max_length=3000)


def test_a_loss_that_is_no_number_ends_the_run(tmp_path: Path) -> None:
    with refused("TuningDiverged", match="learning_rate"):
        a_run(tmp_path, learning_rate=1e30, warmup=0, epochs=1)


def test_a_checkpoint_of_anything_else_is_not_gone_on_from(plain: Plain, tmp_path: Path) -> None:
    shutil.copytree(plain.folder, tmp_path, dirs_exist_ok=True)
    said: list[dict[str, float]] = []
    a_run(tmp_path, epochs=2, say=said.append)
    assert not said, "the same run has nothing left to do"
    changed = [replace(example, text=example.text + " now") for example in posts(20, split="train")]
    for change in ({"seed": 2}, {"learning_rate": 0.001}, {"train": changed}):
        said.clear()
        a_run(tmp_path, epochs=2, say=said.append, **change)
        assert len(said) == 2


def test_a_checkpoint_that_was_being_written_is_not_gone_on_from(plain: Plain, tmp_path: Path) -> None:
    from pipelines.models.kinds.sft.trainer import WHOLE

    shutil.copytree(plain.folder, tmp_path, dirs_exist_ok=True)
    for path in (tmp_path / "checkpoints").glob(f"checkpoint-*/{WHOLE}"):
        path.unlink()
        (path.parent / "model.safetensors").write_bytes(b"half")
    assert a_run(tmp_path, epochs=2).history == plain.fitted.history


def test_no_checkpoint_is_made_between_an_epoch_s_last_step_and_its_validation() -> None:
    """A run that goes on from there would skip the validation: ``test_sft_processes.py`` kills one."""
    keeper, control = Keeper(key="", every=1, task=TASK.key, say=lambda line: None), TrainerControl()
    # two epochs of three steps
    plan = SimpleNamespace(steps=[[()] * 3] * 2)
    keeper.tuner = SimpleNamespace(steps=SimpleNamespace(plan=plan))  # type: ignore[assignment]
    asked = []
    for step in range(1, 7):
        control.should_save = False
        keeper.on_step_end(None, TrainerState(global_step=step), control)
        asked += [step] if control.should_save else []
    assert asked == [1, 2, 4, 5]
    keeper.on_epoch_end(None, TrainerState(global_step=6), control)
    assert control.should_evaluate and control.should_save
