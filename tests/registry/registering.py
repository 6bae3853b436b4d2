"""Registers a saved model in processes of its own that are killed after a step; started by a test.

One line of JSON in (``home``, ``secret``, ``terms``, ``name``, ``folder``, ``step``), one number out: how the process
ended.
"""

import gc
import json
import os
import signal
import sys
from pathlib import Path

import alembic.config
import mlflow.pyfunc
import pyarrow.dataset
import sqlalchemy.dialects.sqlite
import sqlalchemy.orm
from mlflow.store.db import utils
from mlflow.store.model_registry import sqlalchemy_workspace_store as versions
from mlflow.store.tracking import sqlalchemy_workspace_store as runs

from pipelines.config.models import Promote
from pipelines.config.params import load as load_params
from pipelines.config.settings import Settings
from pipelines.packaging.register import put
from pipelines.registry.candidate import Context
from pipelines.registry.journal import Journal
from pipelines.registry.versions import Registry
from pipelines.vault.vault import Vault

REPO = Path(__file__).resolve().parents[2]
# imported once, before the first process is forked
USED = (mlflow.pyfunc, pyarrow.dataset, alembic.config, sqlalchemy.dialects.sqlite, utils, versions, runs)


def act(asked):
    def say(done):
        if done == asked["step"]:
            os.kill(os.getpid(), signal.SIGKILL)

    home = asked["home"]
    os.chdir(home)
    os.environ |= {"CORPUS_HOME": home, "MLFLOW_TRACKING_URI": f"sqlite:///{home}/mlflow.sqlite"}
    settings = Settings.from_env()
    vault = Vault.open(settings.vault_url, secret=bytes.fromhex(asked["secret"]))
    with vault, Journal.of(settings) as journal:
        terms = Promote.model_validate(asked["terms"])
        context = Context(Registry.open(settings), journal, load_params(REPO), terms, settings, vault, Path(home))
        put(asked["name"], Path(asked["folder"]), context=context, who="tester", why="a test", say=say)


sqlalchemy.orm.configure_mappers()
# a collection would visit, and so copy, all that a forked process shares with this one
gc.disable()
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        act(json.loads(line))
        os._exit(0)
    sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
    sys.stdout.flush()
