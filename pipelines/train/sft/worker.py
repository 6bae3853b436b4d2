"""Run one of several processes that fine-tune a model together; started by :mod:`pipelines.train.sft.launch`."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

from pipelines.process import hide_messages
from pipelines.train.sft import launch
from pipelines.train.sft.sft import tune


def main() -> None:
    """Run this process's part of a fine-tuning on several GPUs, with the arguments that the parent process passed."""
    handed = Path(os.environ[launch.GIVEN])
    launch.leave_with(handed)
    # the parent's own memory, which no other user can write
    given = pickle.loads(handed.read_bytes())  # noqa: S301
    found = tune(given, say=lambda epoch: launch.tell(said=epoch))
    if not launch.rank():
        launch.tell(found=found)


if __name__ == "__main__":
    hide_messages()
    main()
