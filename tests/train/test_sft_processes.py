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

from pipelines.train.sft import launch
from tests.train.small_tuning import a_run, job

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
        [sys.executable, str(script), *argv], env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    assert done.stdout.split() == ["0", *["-9", "0"] * len(KILLED)]
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
    for name in ("model.safetensors", "adapter/adapter_model.safetensors"):
        assert (tries / moment / "out" / name).read_bytes() == (tries / "calm" / "out" / name).read_bytes()


@pytest.mark.faults
def test_it_goes_on_and_does_not_begin_again(tries: Path) -> None:
    assert [
        len(made(tries / name)["said"]) for name in ("calm", "while it judges the second", "in the last epoch")
    ] == [3, 2, 1]


@pytest.mark.faults
def test_two_processes_tune_what_one_does_and_are_handed_their_posts_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    said: list[dict[str, float]] = []
    found = launch.group(job(tmp_path / "two"), processes=2, gpu=False, say=said.append)
    assert said == found["history"]
    alone = a_run(tmp_path / "one")
    assert found["tokens"] == alone.tokens
    for line, expected in zip(found["history"], alone.history, strict=True):
        assert line == pytest.approx(expected, rel=1e-4)
    one, two = (dict(load_file(tmp_path / name / "out/model.safetensors")) for name in ("one", "two"))
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-3, atol=2e-4)


@pytest.mark.faults
def test_a_group_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MODULE", "pipelines.nowhere")
    with pytest.raises(launch.GroupFailed, match="status 1"):
        launch.group(job(tmp_path), processes=2, gpu=False, say=lambda line: None)


def test_each_gpu_gets_a_process_and_a_process_of_a_group_begins_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus, of, expected in [(0, None, 1), (1, None, 1), (4, None, 4), (4, "4", 1)]:
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        monkeypatch.delenv("WORLD_SIZE", raising=False)
        if of:
            monkeypatch.setenv("WORLD_SIZE", of)
        assert launch.processes() == expected


def test_the_command_is_one_that_accelerate_takes_and_shares_the_weights_out() -> None:
    from accelerate.commands.launch import launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    line = launch.command(4, gpu=True)
    assert line[:3] == [sys.executable, "-m", "accelerate.commands.launch"]
    asked = launch_command_parser().parse_args(line[3:])
    assert (asked.num_processes, asked.module, asked.training_script) == (4, True, "pipelines.train.sft.worker")
    environment = prepare_multi_gpu_env(asked)
    assert environment["ACCELERATE_MIXED_PRECISION"] == "bf16"
    assert environment["ACCELERATE_USE_FSDP"] == "true"
    assert environment["FSDP_VERSION"] == "2"
    assert environment["FSDP_STATE_DICT_TYPE"] == "FULL_STATE_DICT"
    assert environment["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "true"
    assert asked.master_port not in ("0", "29500"), "a free port, so that two groups on one machine do not meet"


@pytest.mark.faults
def test_a_process_of_a_group_ends_with_the_one_that_began_it() -> None:
    waits = "import sys, time; from pathlib import Path; from pipelines.train.sft.launch import leave_with; "
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
