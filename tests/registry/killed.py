"""Registers, promotes, rolls back and withdraws in processes that are killed after a step; started by a test.

One line of JSON in (``what``, ``step``, ``home``, ``secret``, ``terms``, ``name``, ``given``), one number out: how the
process ended. What takes long to import or to read is so once, before the first is forked.
"""

import gc
import json
import os
import signal
import sys
from pathlib import Path

import alembic.config
import mlflow.pyfunc
import pandas as pd
import pyarrow.dataset
import scipy.stats
import sqlalchemy.dialects.sqlite
import sqlalchemy.orm
from mlflow.store.db import utils
from mlflow.store.model_registry import sqlalchemy_workspace_store as versions
from mlflow.store.tracking import sqlalchemy_workspace_store as runs
from mlflow.utils import requirements_utils

from pipelines.core.config.models import Promote
from pipelines.core.config.params import load as load_params
from pipelines.core.config.settings import Settings
from pipelines.datasets import items
from pipelines.registry.candidate import Context
from pipelines.registry.journal import Journal
from pipelines.registry.packaging.register import put
from pipelines.registry.promotion import promote
from pipelines.registry.versions import Registry
from pipelines.store.vault.vault import Vault

REPO = Path(__file__).resolve().parents[2]
USED = (
    mlflow.pyfunc, pd, pyarrow.dataset, scipy.stats, alembic.config, sqlalchemy.dialects.sqlite, utils, versions, runs,
    items,
)  # fmt: skip


def act(asked):
    def say(done):
        if done == asked["step"]:
            os.kill(os.getpid(), signal.SIGKILL)

    home = asked["home"]
    os.chdir(home)
    os.environ |= {"CORPUS_HOME": home, "MLFLOW_TRACKING_URI": f"sqlite:///{home}/mlflow.sqlite"}
    settings, params = Settings.from_env(), load_params(REPO)
    vault = Vault.open(settings.vault_url, secret=bytes.fromhex(asked["secret"]))
    with vault, Journal.of(settings) as journal:
        terms = Promote.model_validate(asked["terms"])
        context = Context(Registry.open(settings), journal, params, terms, settings, vault, Path(home))
        function = put if asked["what"] == "put" else getattr(promote, asked["what"])
        given = asked["given"] | ({"folder": Path(asked["given"]["folder"])} if "folder" in asked["given"] else {})
        function(asked["name"], context=context, say=say, **given)


sqlalchemy.orm.configure_mappers()
# who loads a model reads the metadata of all installed packages
requirements_utils._init_modules_to_packages_map()
# a collection would visit, and so copy, all that a forked process shares with this one
gc.disable()
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        act(json.loads(line))
        os._exit(0)
    sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
    sys.stdout.flush()
