"""Check this machine: versions, clock, disk, memory, GPU and OCR engine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from pipelines.collect.sources import source_of
from pipelines.core.config.params import Params
from pipelines.core.config.settings import HOME_ENV, of_home
from pipelines.models.kind import spec
from pipelines.operate.doctor.deployment import Deployment, Finding, failure, ok, warning
from pipelines.operate.doctor.servers import sources

LOCKED = ("apache-airflow", "dvc", "mlflow")
PYTHON = (3, 11)
GB = 10**9
GPU_SECONDS = 8
TINY = "tiny:"


def variables(deployment: Deployment) -> Finding:
    """Tell which variables come from ``corpus.env`` in the home, and which of its variables the environment has."""
    values = of_home(deployment.settings.home)
    used = [name for name, value in values.items() if os.environ.get(name) == value]
    others = ", ".join(sorted(values.keys() - {*used}))
    found = f"from {HOME_ENV}: {', '.join(used) or 'none'}"
    return ok(f"{found}; the environment has another value of {others}" if others else found)


def versions(deployment: Deployment) -> Finding:
    """Compare the installed versions of Python, git, DVC, Airflow and MLflow with the tested ones."""
    if sys.version_info[:2] != PYTHON:
        present = ".".join(map(str, sys.version_info[:2]))
        return failure(f"Python {present}, not 3.11", fix="Install Python 3.11, then run `make setup` again.")
    if shutil.which("git") is None:
        return failure("git is not on PATH", fix="Install git.")
    try:
        lock = (deployment.root / "requirements.lock").read_text()
    except OSError:
        return ok("there is no requirements.lock to compare with")
    locked = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE))
    wrong = [f"{name} {_installed(name)}, not {locked[name]}" for name in LOCKED if _installed(name) != locked[name]]
    if wrong:
        return failure("; ".join(wrong), fix="Run `uv pip install --no-deps --require-hashes -r requirements.lock`.")
    return ok(f"Python 3.11, git, {', '.join(f'{name} {locked[name]}' for name in LOCKED)}")


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def clock(deployment: Deployment) -> Finding:
    """Compare the clock with the time in the HTTP response of a server, first of the sources, then of MLflow."""
    import requests

    for name, address in _servers(deployment):
        try:
            answer = requests.head(address, timeout=deployment.seconds / 4, allow_redirects=False)
            # uvicorn behind MLflow sends the header twice, and requests joins both with a comma
            sent = parsedate_to_datetime(", ".join(answer.headers["Date"].split(", ")[:2]))
        except (requests.RequestException, KeyError, ValueError, TypeError):
            continue
        skew = abs((deployment.now - sent).total_seconds()) - answer.elapsed.total_seconds()
        if skew > deployment.params.doctor.skew_seconds:
            fix = "Synchronise the clock: `timedatectl set-ntp true`."
            return failure(f"{skew:.0f} s from the clock of {name}", fix=fix)
        return ok(f"agrees with {name}")
    return ok("no server to compare with")


def _servers(deployment: Deployment) -> Iterator[tuple[str, str]]:
    settings, params = deployment.settings, deployment.params
    used = {name for corpus in params.corpora.values() for name in corpus.sources}
    for name in sources(params):
        source = source_of(name, params)
        configured = name in used or all(map(os.environ.get, source.variables))
        if configured and (address := source.address(settings)).startswith("http"):
            yield f"source {name}", address
    if (settings.mlflow_tracking_uri or "").startswith("http"):
        yield "MLflow", str(settings.mlflow_tracking_uri)


def places(deployment: Deployment) -> Mapping[str, Path]:
    """Return by name the folders whose file systems need free space."""
    settings = deployment.settings
    folders = {"home": settings.home, "cache": settings.cache}
    return folders if "://" in settings.remote else folders | {"remote": Path(settings.remote)}


def disk(deployment: Deployment, name: str) -> Finding:
    """Compare the free space of a folder's file system with the limit in ``params.yaml``."""
    path = places(deployment)[name]
    if not path.exists():
        return failure(f"the folder of CORPUS_{name.upper()} does not exist", fix="Mount it, or run `corpus init`.")
    free = shutil.disk_usage(path).free / GB
    if free < deployment.params.doctor.free_gb:
        return failure(
            f"{free:.1f} GB free, less than doctor.free_gb ({deployment.params.doctor.free_gb:g})",
            fix=f"Free space there, or move the folder and set CORPUS_{name.upper()}.",
        )
    return ok(f"{free:.1f} GB free")


def memory(deployment: Deployment) -> Finding:
    """Compare the available memory of this machine with the limit in ``params.yaml``."""
    free = psutil.virtual_memory().available / GB
    if free < deployment.params.doctor.memory_gb:
        return warning(
            f"{free:.1f} GB available, less than doctor.memory_gb ({deployment.params.doctor.memory_gb:g})",
            fix="Lower the slots of the pools `images` and `gpu` in Airflow, or add memory.",
        )
    return ok(f"{free:.1f} GB available")


def large(params: Params) -> list[str]:
    """Return the configured models that are too large to run without a GPU."""
    used = {name: spec(params, name) for name in params.used_models}
    return sorted(name for name, m in used.items() if m.large and not m.named.startswith(TINY))


def bases(deployment: Deployment) -> Finding:
    """Check that the configured models pin a commit of each base model on the Hugging Face hub."""
    params = deployment.params
    loose = {
        name
        for name in params.used_models
        for base, revision in spec(params, name).bases
        if revision is None and not base.startswith(TINY) and not Path(base).is_absolute()
    }
    if loose:
        fix = "Run `corpus params set models.NAME.revision COMMIT` (docs/models.md), or remove these from the lists."
        return warning(f"base models without a revision, which are refused: {', '.join(sorted(loose))}", fix=fix)
    return ok("every base model on the hub has a revision")


def gpu(deployment: Deployment) -> Finding:
    """Check that a GPU answers if a configured model needs one."""
    wanted = ", ".join(large(deployment.params))
    fix = "Run queue `gpu` on a host with a GPU, or remove these from train.rows and predict.rows."
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=GPU_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return warning(f"no GPU on this host; needed by {wanted}", fix=fix) if wanted else ok("no model needs one")
    names = done.stdout.strip().splitlines()
    if done.returncode or not names:
        driver = "Reinstall or reload the driver, until `nvidia-smi` lists the GPU."
        return failure("nvidia-smi fails", fix=driver) if wanted else warning("nvidia-smi fails", fix=driver)
    return ok(f"{len(names)} GPU(s)")


def ocr(deployment: Deployment) -> Finding:
    """Check that the OCR engine starts, and which sandbox the processes that read pictures get."""
    from pipelines.collect.read.confined_engine import open_engine
    from pipelines.collect.read.decode import Decoder

    images = deployment.params.images
    consent = deployment.params.consents.get(images.ocr.engine)
    open_engine(images.ocr, consent=consent, allowed=deployment.params.distributions)
    with Decoder(images.decode) as decoder:
        return ok(f"{images.ocr.engine} opens; pictures are decoded under {', '.join(decoder.layers)}")
