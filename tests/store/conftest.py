"""A checkout with the files that a corpus repository needs, and a local S3 server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.workspace.git import git
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SERVER = Path(__file__).with_name("s3_server.py")
S3 = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    # none of these: the keys of the person who runs the test are not used
    "AWS_CONFIG_FILE": os.devnull + "/none",
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull + "/none",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    profiles = (f"profiles/{name}.yaml" for name in ("sandbox", "cradle"))
    made = ("dvc.yaml", "pipelines/libraries.yaml", "pipelines/stages.yaml")
    code = ("params.yaml", "catalogue.yaml", *made, ".dvc/config", ".dvc/.gitignore")
    for name in (*code, *profiles):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    git("init", "--quiet", "-b", "main", cwd=folder)
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "-m", "code", cwd=folder)
    return folder


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    """The port of a local S3 server with a bucket."""
    import boto3

    port = free_port()
    with subprocess.Popen([sys.executable, str(SERVER), str(port)], stderr=subprocess.DEVNULL) as server:
        try:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in S3.items():
                    patch.setenv(name, value)
                client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}")
                deadline = time.monotonic() + 60
                while True:
                    try:
                        client.create_bucket(Bucket="bucket")
                        break
                    except Exception:
                        assert server.poll() is None and time.monotonic() < deadline, "the S3 server does not answer"
                        time.sleep(0.2)
            yield port
        finally:
            server.kill()


@pytest.fixture
def s3(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket on a local S3 server; the endpoint and its keys are in the environment of the test."""
    for name, value in {**S3, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}"}.items():
        monkeypatch.setenv(name, value)
    return "s3://bucket/corpus"
