"""Takes down in processes of its own that are killed after a step; started by a test.

One line of JSON in (``home``, ``secret``, ``posts``, ``step``), one number out: how the process ended. What takes long
to import is imported once, before the first is forked.
"""

import json
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import dvc.repo

from pipelines.annotate.backends import _labelling_config, files
from pipelines.core.config.operate import Takedown
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.store.vault.vault import Vault
from pipelines.takedown import takedown
from pipelines.takedown.object_versions import Objects
from pipelines.takedown.selection import Criteria, select
from pipelines.workspace.clone import workspace

REPO = Path(__file__).resolve().parents[2]
USED = (dvc.repo, files, _labelling_config)


def act(asked):
    def say(done):
        if done == asked["step"]:
            os.kill(os.getpid(), signal.SIGKILL)

    os.environ |= {"CORPUS_HOME": asked["home"], "CORPUS_SECRET": asked["secret"]}
    settings = Settings.from_env()
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        with workspace(settings) as clone, Objects.opened(clone) as objects:
            selection = select(Criteria(records=asked["posts"]), vault=vault, objects=objects, params=load(REPO))
        terms, now = Takedown(withdraw_share=0.01), datetime(2023, 1, 3, tzinfo=UTC)
        deletion = takedown.Deletion(settings=settings, vault=vault, terms=terms, now=now, say=say)
        deletion.run(selection, reason="request-7", who="a person")


for line in sys.stdin:
    pid = os.fork()
    if not pid:
        # what DVC prints is no answer
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        act(json.loads(line))
        os._exit(0)
    sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
    sys.stdout.flush()
