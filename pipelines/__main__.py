"""``python -m pipelines``: the same commands as ``corpus``, run from a clone's root."""

from pipelines.cli.main import main

main()
