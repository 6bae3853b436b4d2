"""``python -m pipelines``: the same commands as ``corpus``, run from a clone's root."""

from pipelines.cli import main

main()
