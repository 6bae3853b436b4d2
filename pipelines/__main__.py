"""Start the command ``corpus``, also as ``python -m pipelines`` from the root of a clone."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command in ``sys.argv``; if the packages of an extra are missing, print which extra to install."""
    from pipelines.core.process import hide_messages, report

    hide_messages()
    try:
        from pipelines.cli.main import main
        from pipelines.core.config.settings import take_secret

        take_secret()
        main()
    except ModuleNotFoundError as error:
        from pipelines.core.errors import ConfigError

        if (error.name or "").partition(".")[0] in ("", "pipelines", "crisis_corpus"):
            report(error)
            sys.exit(1)
        missing = ConfigError("ExtraMissing", package=error.name)
        sys.stderr.write(f"{missing.code}: {missing}\n")
        sys.exit(missing.exit_code)


if __name__ == "__main__":
    from pipelines.core.forkserver import delegate

    delegate()  # a command that is delegated imports nothing
    run()
