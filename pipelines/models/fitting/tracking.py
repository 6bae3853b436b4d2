"""Track a training run in MLflow: numbers and digests, never weights, texts or pictures, and always an end status.

A run is identified by its key, not by its process: a retry continues the run of a killed attempt. An interrupt or
SIGTERM ends the run as KILLED at once. After SIGKILL, the next run of the experiment on the same machine ends the runs
that dead processes left RUNNING.

Besides its inputs, a run's numbers depend on libraries, device, precision and threads: the run's environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from pipelines.core.config.settings import Settings
from pipelines.core.errors import RegistryError
from pipelines.models.fitting.training_records import trained_on

if TYPE_CHECKING:
    from pipelines.datasets.example import Example

KEY, PROCESS = "key", "process"
# 128 + SIGTERM, as a shell reports it
TERMINATED = 143
# Those that compute; the versions of all libraries that a stage imports are its parameters (``libraries.yaml``).
LIBRARIES = ("accelerate", "numpy", "peft", "scipy", "tokenizers", "torch", "transformers", "trl")

Value = str | int | float | bool


class TrackingUnavailable(RegistryError):
    """MLflow does not answer or rejects a training run's data; the checkpoint of the run is kept."""


# MLflow's column for the digest of a dataset has 36 characters.
DIGEST_LENGTH = 32


@dataclass(frozen=True)
class LoggedData:
    """The records that a run learns from or is measured on, as MLflow shows them: no record, no id.

    Args:
        name: such as ``memes/severity``.
        commit: the commit of the corpus branch from which the records can be read.
        splits: the examples by context (``training``, ``validation``, ``test``).
    """

    name: str
    commit: str
    splits: Mapping[str, Sequence[Example]]

    def entities(self) -> Iterator[Any]:
        """Yield MLflow's description of each split that has records, with the digest of their ids."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        for context, examples in self.splits.items():
            if examples:
                listed = trained_on([example.item[0] for example in examples])
                source = json.dumps({"corpus_commit": self.commit, "digest": listed.digest})
                profile = json.dumps({"num_rows": listed.records})
                shown = Dataset(self.name, listed.digest[:DIGEST_LENGTH], "corpus", source, None, profile)
                yield DatasetInput(shown, [InputTag("mlflow.data.context", context)])


@dataclass(frozen=True)
class Log:
    """The log of a training run in MLflow; without a tracking server, calls are accepted and nothing is stored.

    Args:
        run_id: MLflow's id of the run; ``None`` without a server.
    """

    run_id: str | None
    _client: Any = field(default=None, repr=False)
    _said: dict[str, set[tuple[int, float]]] = field(default_factory=dict, repr=False)
    _new: bool = field(default=False, repr=False)

    def metrics(self, values: Mapping[str, float], *, step: int = 0) -> None:
        """Log the run's metrics of one step (an epoch) unless an earlier attempt of the run logged them."""
        if self.run_id is None:
            return
        with _translated():
            new = {name: float(v) for name, v in values.items() if (step, float(v)) not in self._known(name)}
            if not new:
                return
            from mlflow.entities import Metric

            # one request for all metrics: an epoch has ten
            now = int(time.time() * 1000)
            self._client.log_batch(self.run_id, metrics=[Metric(name, v, now, step) for name, v in new.items()])
            for name, value in new.items():
                self._said[name].add((step, value))

    def _known(self, name: str) -> set[tuple[int, float]]:
        if name not in self._said:
            # a new run has no history to query
            history = () if self._new else self._client.get_metric_history(self.run_id, name)
            self._said[name] = {(m.step, m.value) for m in history}
        return self._said[name]


@contextmanager
def run(
    settings: Settings,
    *,
    experiment: str,
    key: str,
    params: Mapping[str, Value],
    tags: Mapping[str, str],
    name: str = "",
    data: LoggedData | None = None,
) -> Iterator[Log]:
    """Start or continue the MLflow run with ``key``, and end it as FINISHED, FAILED or, if interrupted, KILLED.

    A SIGTERM inside the block becomes a ``SystemExit``, so that the run is ended (main thread only). A finished run, or
    one with the same key and other parameters, is not continued: a new run is created.

    Args:
        key: what the run trains, such as ``figurative-bert-1-<data commit>``.
        params: plain values, no content.
        tags: such as ``data_commit``, no content.
        name: what people read in MLflow's lists, such as ``bert on severity, seed 1``; default: the key.
    """
    if not settings.mlflow_tracking_uri:
        yield Log(None)
        return
    from mlflow import MlflowClient

    # the server is the registry, too
    client = MlflowClient(settings.mlflow_tracking_uri, settings.mlflow_tracking_uri)
    with _terminable():
        with _translated():
            place = _experiment(client, name=experiment)
            _close_abandoned(client, experiment=place)
            marks = {**tags, KEY: key, PROCESS: _process(os.getpid())}
            texts = {name: str(value) for name, value in params.items()}
            log = _opened(client, experiment=place, name=name or key, params=texts, marks=marks)
            if data:
                client.log_inputs(log.run_id, datasets=[*data.entities()])
        status = "FAILED"
        try:
            yield log
            status = "FINISHED"
        except (KeyboardInterrupt, SystemExit):
            status = "KILLED"
            raise
        finally:
            # an error inside the block matters more than a failure to report it to MLflow
            with suppress(*(() if status == "FINISHED" else (TrackingUnavailable,))), _translated():
                log._client.set_terminated(log.run_id, status)


def _opened(client: Any, *, experiment: str, name: str, params: dict[str, str], marks: dict[str, str]) -> Log:
    """Return the unfinished run with this key and these parameters, or a new one."""
    from mlflow.entities import Param, RunTag

    known = client.search_runs([experiment], f"tags.{KEY} = '{marks[KEY]}'", order_by=["attributes.start_time DESC"])
    same = [
        old.info.run_id for old in known if old.info.status != "FINISHED" and params.items() >= old.data.params.items()
    ]
    run_id: str = same[0] if same else client.create_run(experiment, run_name=name, tags=marks).info.run_id
    values = [Param(name, value) for name, value in params.items()]
    client.log_batch(run_id, params=values, tags=[RunTag(name, value) for name, value in marks.items()])
    if same:
        client.update_run(run_id, status="RUNNING")
    return Log(run_id, client, _new=not same)


def _experiment(client: Any, *, name: str) -> str:
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        # tasks of a matrix start together: another task may create it first
        with suppress(MlflowException):
            client.create_experiment(name)
        experiment = client.get_experiment_by_name(name)
    return str(experiment.experiment_id)


def _close_abandoned(client: Any, *, experiment: str) -> None:
    """End as KILLED the running runs whose process was on this machine and no longer exists."""
    running, token = [], None
    while token != "":
        page = client.search_runs([experiment], "attributes.status = 'RUNNING'", page_token=token)
        running += page
        token = page.token or ""
    for old in running:
        process = old.data.tags.get(PROCESS, "")
        machine, _, number = process.partition("-")
        pid = number.partition("-")[0]
        if machine == _machine() and pid.isdigit() and process != _process(int(pid)):
            client.set_terminated(old.info.run_id, "KILLED")


def _machine() -> str:
    space = Path("/proc/self/ns/pid")
    name = f"{socket.gethostname()} {space.readlink() if space.exists() else ''}"
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def _process(pid: int) -> str:
    """Return a name that distinguishes a process from a later one with the same PID: machine, PID, start time."""
    began = ""
    with suppress(OSError, IndexError):
        # proc(5): the name, which may hold anything, ends with the last bracket; then state, and field 22 is the start
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        began = "" if fields[0] in "ZX" else fields[19]
    return f"{_machine()}-{pid}-{began}"


@contextmanager
def _translated() -> Iterator[None]:
    """Turn MLflow's exceptions into an error that contains no value of the run."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        raise TrackingUnavailable(detail=str(error.error_code)) from None
    except OSError as error:
        raise TrackingUnavailable(detail=type(error).__name__) from None


@contextmanager
def _terminable() -> Iterator[None]:
    """Raise an exception at SIGTERM, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        # only once: a second SIGTERM must not interrupt the cleanup
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def environment() -> dict[str, Any]:
    """Return this process's ``device``, ``devices`` (count), ``precision``, ``threads`` and ``libraries`` (versions).

    No machine is named.
    The values are equal for runs on equal machines, so that the results of the same inputs stay equal.
    """
    import torch

    gpu = torch.cuda.is_available()
    half = gpu and torch.cuda.is_bf16_supported()
    return {
        "device": "cuda" if gpu else "cpu",
        "devices": torch.cuda.device_count() if gpu else 1,
        "precision": "bfloat16" if half else "float32",
        "threads": torch.get_num_threads(),
        "libraries": {name: metadata.version(name) for name in LIBRARIES if util.find_spec(name)},
    }


def environment_tags() -> dict[str, str]:
    """Return device, precision, threads and library versions (:func:`environment`) as tags of an MLflow run."""
    facts = environment()
    libraries = facts.pop("libraries")
    return {name: str(value) for name, value in {**facts, **libraries}.items()}
