"""Define the exceptions of this package; each states what failed and what to do next (:mod:`crisis_corpus.errors`)."""

from __future__ import annotations

from pathlib import Path

from crisis_corpus.errors import BadParams as BadParams
from crisis_corpus.errors import ConfigError as ConfigError
from crisis_corpus.errors import CorpusError as CorpusError
from crisis_corpus.errors import RegistryError as RegistryError

CorpusError.catalogues.append(Path(__file__).with_name("errors.toml"))


def name_of(error: BaseException) -> str:
    """Return the code of one of our errors, else the name of its class."""
    return error.code if isinstance(error, CorpusError) else type(error).__name__


class SourceError(CorpusError):
    """A source of posts or images cannot be read, so nothing of this step was committed."""

    exit_code = 69


class DataError(CorpusError):
    """Stored data is missing, damaged or inconsistent."""

    exit_code = 65


class LabellingError(CorpusError):
    """Labelling by models cannot continue."""

    exit_code = 75


class NoSecret(ConfigError):
    """There is no project secret in ``CORPUS_HOME``, so this folder is not the home of a corpus."""


class SourceNotApproved(ConfigError):
    """``params.yaml`` has no ethics approval for a source, no access basis for a live one, or an ended approval."""


class UseNotApproved(ConfigError):
    """Records of a source may not be used so: its approval does not name the use, or has ended."""


class EngineMissing(ConfigError):
    """An OCR engine lacks its program, its models or its credentials."""


class SourceThrottled(SourceError):
    """A source of posts or images refused a request because of its rate limit; retry later."""


class SourceUnavailable(SourceError):
    """A source of posts or images failed, possibly temporarily."""


class SourceRefused(SourceError):
    """A source of posts or images rejected the credentials or the request; retrying does not help."""


class SealBroken(DataError):
    """A sealed (encrypted) value of a table cannot be decrypted with its record's key."""


class VaultUnavailable(DataError):
    """The vault's database is busy, unreachable or refuses a write."""


class CommitLost(DataError):
    """Another process pushed to the corpus branch first, so this process's commit was not pushed."""


class StepFailed(CorpusError):
    """A command that was run in a clone of the corpus repository failed."""

    message = "{command} exited with {returncode}."
    remedy = "Correct the error that this command printed above, then repeat the command."


class GitFailed(StepFailed):
    """A git command failed."""


class BudgetSpent(LabellingError):
    """The next request to a labeller could cost more than the remaining budget; all answers received are kept."""


class LabellerRefused(LabellingError):
    """A labeller's provider rejects the API key, the model or the account; retrying does not help."""


class AnnotationError(CorpusError):
    """An annotation round cannot continue."""
