"""A tuning as processes: killed at any moment and tried again, or several that share one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pipelines.core.errors import BadParams
from pipelines.models.kinds.sft import launch, recipe
from pipelines.models.kinds.sft.launch import Shards
from tests.refusals import refused
from tests.train.small_tuning import SPEC, a_run, job

ROOT = Path(__file__).resolve().parents[2]

# 3 steps an epoch and a pass for each, and one to judge: 12 in all
KILLED = {"while it judges the first epoch": 4, "while it judges the second": 8, "in the last epoch": 11}


@pytest.fixture(scope="module")
def tries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that are killed, and tried again; each with one that nothing disturbs."""
    folder = tmp_path_factory.mktemp("tries")
    argv = [str(folder / "calm"), "0"]
    for name, moment in KILLED.items():
        argv += [str(folder / name), str(moment), str(folder / name), "0"]
    path = [str(ROOT), str(ROOT / "tests/train")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
    script = ROOT / "tests/train/small_tuning.py"
    done = subprocess.run(
        [sys.executable, str(script), *argv], env=env, capture_output=True, text=True, check=False, timeout=900
    )
    assert (done.returncode, done.stdout.split()) == (0, ["0", *["-9", "0"] * len(KILLED)]), done.stderr[-2000:]
    return folder


def made(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "made.json").read_text())
    return found


@pytest.mark.faults
@pytest.mark.parametrize("moment", KILLED)
def test_a_run_that_is_killed_and_tried_again_has_the_curve_of_an_undisturbed_one(tries: Path, moment: str) -> None:
    calm, again = (made(tries / name) for name in ("calm", moment))
    assert again["history"] == calm["history"]
    assert again["epoch"] == calm["epoch"]
    weights = [(tries / name / "out/adapter_model.safetensors").read_bytes() for name in ("calm", moment)]
    assert weights[0] == weights[1]


@pytest.mark.faults
def test_it_goes_on_and_does_not_begin_again(tries: Path) -> None:
    names = ("calm", "while it judges the second", "in the last epoch")
    assert [len(made(tries / name)["said"]) for name in names] == [3, 2, 1]


def grouped(folder: Path, patch: pytest.MonkeyPatch, **changes: Any) -> dict[str, Any]:
    """Fine-tune in two processes that divide the model, on a CPU over gloo."""
    patch.setenv("PYTHONPATH", str(ROOT))
    patch.setenv("OMP_NUM_THREADS", "1")
    said: list[dict[str, float]] = []
    found = launch.group(job(folder, **changes), processes=2, say=said.append)
    assert said == found["history"]
    return found


@pytest.mark.faults
def test_two_processes_share_an_adapter_s_base_and_learn_what_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``test_sft_command.py`` has the same for all weights; here it is LoRA, whose base is divided and not trained."""
    changes = {"tuning": "lora", "learning_rate": 0.02, "dropout": 0.0}
    found = grouped(tmp_path / "two", monkeypatch, **changes)
    alone = a_run(tmp_path / "one", **changes)
    assert (found["tokens"], found["parameters"]) == (alone.tokens, alone.parameters)
    assert sum(found["held"]) == alone.parameters and max(found["held"]) <= 1.01 * alone.parameters / 2
    for line, expected in zip(found["history"], alone.history, strict=True):
        assert line == pytest.approx(expected, rel=1e-4)
    one, two = (dict(load_file(tmp_path / name / "out/adapter_model.safetensors")) for name in ("one", "two"))
    assert set(one) == set(two)
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-3, atol=2e-4)
    written = [json.loads((tmp_path / name / "out/adapter_config.json").read_text()) for name in ("one", "two")]
    assert written[0] == written[1]


@pytest.mark.faults
def test_a_group_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MODULE", "pipelines.nowhere")
    with pytest.raises(launch.GroupFailed, match="status 1"):
        launch.group(job(tmp_path), processes=2, say=lambda line: None)


@pytest.mark.faults
def test_a_group_whose_processes_hold_copies_fails_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """On a CPU, accelerate replicates the model, whatever its variables say: a worker that lets it is caught."""
    (tmp_path / "copies.py").write_text(
        "from pipelines.models.kinds.sft import launch, sft\n"
        "launch.enable_sharding = lambda accelerator: False\nsft.main()\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{tmp_path}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(launch, "MODULE", "copies")
    said: list[dict[str, float]] = []
    with pytest.raises(launch.GroupFailed):
        launch.group(job(tmp_path / "run"), processes=2, say=said.append)
    assert "of 639808 parameters, the 2 processes hold 639808, 639808" in capfd.readouterr().err
    assert not said and not list((tmp_path / "run").rglob("checkpoint-*"))


@pytest.mark.parametrize("held", [(100, 100), (34, 34, 34, 0), (50, 50, 0), (60, 40)])
def test_only_an_even_division_is_accepted(held: tuple[int, ...]) -> None:
    with refused("NotSharded", match=f"of 100 parameters, the {len(held)} processes hold"):
        Shards(100, held).check()
    for even in [(100,), (50, 50), (34, 33, 33), (52, 48)]:
        Shards(100, even).check()


def test_each_gpu_gets_a_process_unless_another_number_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus, asked, expected in [(0, None, 1), (1, None, 1), (4, None, 4), (4, 2, 2), (0, 3, 3)]:
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        assert launch.processes(asked) == expected
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(BadParams, match="there are 2 GPUs"):
        launch.processes(3)


@pytest.mark.parametrize("changes", [{"tuning": "lora", "quantization": "nf4"}, {"optimizer": "adamw8bit"}])
def test_what_cannot_be_divided_runs_in_one_process(changes: dict[str, Any]) -> None:
    with pytest.raises(BadParams, match="runs in one process, not in 2"):
        recipe.processes(SPEC.model_copy(update=changes), asked=2)
    # the test environment has no bitsandbytes
    with refused("ExtraMissing", match="quantized"):
        recipe.processes(SPEC.model_copy(update=changes), asked=None)


def test_accelerate_reads_the_sharding_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.utils import FullyShardedDataParallelPlugin
    from torch.distributed.fsdp import CPUOffloadPolicy
    from torch.distributed.run import get_args_parser

    line = launch.command(4)
    assert line[:3] == [sys.executable, "-m", "torch.distributed.run"]
    asked = get_args_parser().parse_args(line[3:])
    assert (asked.nproc_per_node, asked.module, asked.training_script) == ("4", True, "pipelines.models.kinds.sft.sft")
    assert asked.standalone, "a free port, so that two groups on one machine do not meet"
    for offload in (None, "cpu"):
        environment = launch.sharding(SPEC.model_copy(update={"offload": offload}), gpu=True)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        plugin = FullyShardedDataParallelPlugin()
        assert (plugin.fsdp_version, plugin.reshard_after_forward, plugin.cpu_ram_efficient_loading) == (2, True, True)
        assert plugin.state_dict_type.name == "SHARDED_STATE_DICT"
        assert isinstance(plugin.cpu_offload, CPUOffloadPolicy) == (offload == "cpu")
        assert environment["ACCELERATE_USE_FSDP"] == "true" and environment["ACCELERATE_MIXED_PRECISION"] == "bf16"


@pytest.mark.faults
def test_a_process_of_a_group_ends_with_the_one_that_began_it() -> None:
    waits = "import sys, time; from pathlib import Path; from pipelines.models.kinds.sft.launch import leave_with; "
    waits += "leave_with(Path(sys.argv[1])); print('on', flush=True); time.sleep(60)"
    parent = subprocess.Popen(["sleep", "60"])
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", waits, f"/proc/{parent.pid}/fd"]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout and child.stdout.readline() == "on\n"
        time.sleep(1.5)
        assert child.poll() is None
        parent.kill()
        parent.wait()
        assert child.wait(timeout=20) == 75
