"""Import and load a model without side effects on its files.

This module is stored with every model version and imports nothing else of this project.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# MLflow writes the name and number of a version into this file of a copy that it has downloaded.
COPY = "registered_model_meta"
# Tag of a version that was withdrawn, or is stale; the journal decides, and plain MLflow sees only the tag.
STANDING, WITHDRAWN = "standing", "withdrawn"


@contextmanager
def opening() -> Iterator[None]:
    """Turn off the writing of bytecode and garbage collection while a model is loaded.

    Compiled files would change the recorded digest of the files. Garbage collection takes one fifth of the time that
    importing the libraries takes, and frees nothing.
    """
    compiling, collecting = sys.dont_write_bytecode, gc.isenabled()
    sys.dont_write_bytecode = True
    gc.disable()
    try:
        yield
    finally:
        sys.dont_write_bytecode = compiling
        if collecting:
            gc.enable()


def require_in_service(version: Path) -> None:
    """Refuse a withdrawn version, and warn of a stale one, that plain MLflow has loaded from a registry.

    The client asks the journal before, and leaves no file of this name.
    """
    if not (version / COPY).is_file():
        return
    import yaml
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED

    about = yaml.safe_load((version / COPY).read_text())
    name, number = str(about["model_name"]), str(about["model_version"])
    remedy = f"Load the champion: crisis_corpus.load('{name}')."
    try:
        said = MlflowClient().get_model_version(name, number).tags.get(STANDING)
    except MlflowException as error:
        said = f"not known to be in service ({error.error_code})"
    if said == WITHDRAWN:
        raise MlflowException(f"Version {number} of '{name}' was withdrawn. {remedy}", error_code=PERMISSION_DENIED)
    if said:
        warnings.warn(f"Version {number} of '{name}' is {said}. {remedy}", stacklevel=2)
