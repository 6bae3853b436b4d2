"""``python -m pipelines``: the same commands as ``corpus``, run from a clone's root."""

from pipelines.forkclient import delegate

delegate()

from pipelines.cli.main import main  # noqa: E402 - a command that is delegated imports nothing

main()
