"""Recipes for fewer GPUs, on a CPU: a base of 4 bits and moments of 8, with bitsandbytes from ``.quantized``.

bitsandbytes is beside the environment, because every import of peft would load it; the runs are a process of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.models.kinds.sft import architecture, preflight
from tests.train.small_tuning import SPEC

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / ".quantized"
pytestmark = pytest.mark.faults

RUNS = {
    "plain": {},
    "adamw8bit": {"optimizer": "adamw8bit"},
    "lora": {"tuning": "lora", "learning_rate": 0.02, "dropout": 0.0},
    "nf4": {"tuning": "lora", "learning_rate": 0.02, "dropout": 0.0, "quantization": "nf4"},
}
# One process for all runs: importing the libraries takes longer than a run.
SCRIPT = """
import json, sys
from pathlib import Path
import torch
from small_tuning import SCHEME, TASK, a_run, posts
from pipelines.models.fitting.generate import Generator
from pipelines.models.kinds.sft import trainer

facts, began = {}, trainer.Keeper.on_train_begin

def looked(self, *given, **options):
    began(self, *given, **options)
    model = self.tuner.model
    facts["trained"] = sorted({str(p.dtype) for p in model.parameters() if p.requires_grad})
    states = [w.quant_state for w in model.parameters() if getattr(w, "quant_state", None)]
    scales = sum(s.absmax.numel() + 4 * s.state2.absmax.numel() for s in states)
    facts["bytes"] = scales + sum(w.numel() * w.itemsize for w in model.parameters())

trainer.Keeper.on_train_begin = looked
found, folder = {}, Path(sys.argv[1])
for name, changes in json.loads(sys.argv[2]).items():
    fitted = a_run(folder / name, **changes)
    state = torch.load(folder / name / "checkpoints/checkpoint-6/optimizer.pt", weights_only=True)["state"]
    moments = []
    for slot in state.values():
        slots = [slot, *(v for v in slot.values() if isinstance(v, dict))]
        kept = ("exp_avg", "exp_avg_sq", "state1", "state2", "absmax1", "absmax2")
        moments += [t for each in slots for n, t in each.items() if n in kept]
    generator = Generator(
        folder / name / "out", task=TASK, scheme=SCHEME, max_length=768, max_new_tokens=32, batch=8, folder=folder
    )
    said = generator.posteriors(posts(4, split="test"))
    losses = [line["validation_loss"] for line in fitted.history]
    found[name] = facts | {
        "losses": losses, "parameters": fitted.parameters, "sums": said.sum(1).tolist(),
        "moments": sum(t.numel() * t.itemsize for t in moments),
        "quantized": type(next(m for m in generator._model.modules() if hasattr(m, "in_features"))).__name__,
    }
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not (LIBRARY / "bitsandbytes").is_dir():
        pytest.fail("there is no .quantized; `make test-faults` installs it from quantized.lock")
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests/train", LIBRARY)))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path_factory.mktemp("runs")), json.dumps(RUNS)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, check=True,
        timeout=580,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(("reduced", "whole"), [("nf4", "lora"), ("adamw8bit", "plain")])
def test_a_recipe_for_fewer_gpus_learns_about_what_the_paper_s_does(
    runs: dict[str, Any], reduced: str, whole: str
) -> None:
    assert runs[reduced]["losses"] == pytest.approx(runs[whole]["losses"], rel=0.05)
    assert runs[reduced]["losses"] != runs[whole]["losses"], "nothing was reduced"
    assert runs[reduced]["losses"][1] < runs[reduced]["losses"][0]
    assert runs[reduced]["parameters"] == runs[whole]["parameters"]


@pytest.mark.parametrize("name", RUNS)
def test_weights_and_moments_take_the_computed_memory(runs: dict[str, Any], name: str) -> None:
    spec = SPEC.model_copy(update=RUNS[name])
    sizes = architecture.of(spec.base, revision=None)
    expected = preflight.estimated(name, spec=spec, sizes=sizes, gpus=1, card=None)
    # a tensor's last block of scales may be incomplete
    assert runs[name]["bytes"] == pytest.approx(expected.gpu["weights"], rel=0.01)
    assert runs[name]["moments"] == pytest.approx(expected.gpu["optimizer"], rel=0.01)


def test_an_adapter_on_four_bits_is_learnt_in_float32_and_used_on_four_bits(runs: dict[str, Any]) -> None:
    assert runs["nf4"]["trained"] == ["torch.float32"]
    assert runs["nf4"]["quantized"] == "Linear4bit" and runs["lora"]["quantized"] == "Linear"
    assert runs["nf4"]["sums"] == pytest.approx([1] * 4)
