"""Define the exceptions of this package; each states what failed and what to do next (:mod:`crisis_corpus.errors`)."""

from __future__ import annotations

from crisis_corpus.errors import BadParams as BadParams
from crisis_corpus.errors import ConfigError as ConfigError
from crisis_corpus.errors import CorpusError as CorpusError
from crisis_corpus.errors import RegistryError as RegistryError


class SourceError(CorpusError):
    """A source of posts or images cannot be read, so nothing of this step was committed."""

    exit_code = 69


class DataError(CorpusError):
    """Stored data is missing, damaged or inconsistent."""

    exit_code = 65


class LabellingError(CorpusError):
    """Labelling by models cannot continue."""


class BadWindow(ConfigError):
    """A partition key is not a month in the form ``YYYY-MM``."""

    message = "'{key}' is not a month."
    remedy = "Use YYYY-MM, such as 2022-12."
    exit_code = 64


class UnknownName(ConfigError):
    """An argument names a corpus, labeller, model or the like that is not defined."""

    message = "There is no {kind} '{name}'; known: {known}."
    remedy = "Repeat the command with one of the known names."
    exit_code = 64


class ExtraMissing(ConfigError):
    """A Python package is not installed, because its extra was left out."""

    message = "The Python package '{package}' is not installed."
    remedy = (
        "Run `pip install 'crisis-corpus[core]'`, with further extras as needed: `airflow` (the embedded one), `gpu`, "
        "`quantized`, `names`, `s3`, `gs`, `azure`, `ssh`."
    )


class NotConfirmed(ConfigError):
    """A command that destroys keys or data was not confirmed."""

    message = "Nothing was changed: the command {what}, and this was not confirmed."
    remedy = "Repeat the command with --yes, or run it at a terminal and type the number that it asks for."
    exit_code = 64


class BadArgument(BadParams):
    """An argument of a command is malformed."""

    remedy = "Nothing was changed: correct the argument and repeat the command."
    exit_code = 64


class NoCorpus(ConfigError):
    """There is no corpus repository (the git repository with the corpus branch) to read."""

    message = "There is no corpus repository at {place}."
    remedy = (
        "Create an empty one with `corpus init`, fill one with simulated data with `make demo`, or set CORPUS_REPO to "
        "the path of an existing one."
    )


class NoSecret(ConfigError):
    """There is no project secret in ``CORPUS_HOME``, so this folder is not the home of a corpus."""

    message = "There is no project secret in {home}."
    remedy = "Run `corpus init` to create a corpus, or set CORPUS_HOME to the home of an existing one."


class NoVault(ConfigError):
    """The vault of a corpus (the database of its encryption keys) does not exist."""

    message = "There is no vault at {place}."
    remedy = (
        "Create a corpus there with `corpus init`, set CORPUS_HOME to the home of an existing one, or restore the "
        "vault from its backup."
    )


class SourceNotApproved(ConfigError):
    """``params.yaml`` has no ethics approval for a source, no access basis for a live one, or an ended approval."""

    message = "Source '{source}' may not be read: {detail}."
    remedy = (
        'State on whose word it is read: `corpus params set sources.{source}.ethics "BOARD, REFERENCE" --reason …` for '
        "every source; a live one also needs access_basis, approval, retention_days and an expires date in the future."
    )


class EngineMissing(ConfigError):
    """An OCR engine lacks its program, its models or its credentials."""

    message = "OCR engine '{engine}' cannot start: {detail}."
    remedy = "To use this engine, {install}. To use another engine, set ocr.engine in params.yaml."


class SandboxMissing(ConfigError):
    """This system can confine no child process, so a malicious picture could read files and open connections."""

    message = "Pictures are not read, because the process that reads them has no complete sandbox (only: {detail})."
    remedy = (
        "Run `apt-get install bubblewrap`, or use Linux 5.13 or later with Landlock. To read pictures without a "
        "sandbox, set images.decode.sandbox and images.ocr.sandbox to accepted_without in params.yaml."
    )


class VaultMismatch(ConfigError):
    """The project secret is not the one with which the vault was created or last rotated."""

    message = (
        "The {which} part of the secret differs from the secret with which this vault was created or last rotated."
    )
    remedy = "Set CORPUS_SECRET to that secret, or restore the file 'secret' in CORPUS_HOME; see docs/privacy.md."


class SourceThrottled(SourceError):
    """A source of posts or images refused a request because of its rate limit; retry later."""

    message = "Source '{source}' limits the rate and accepts the next request in {retry_after:.0f} s."
    remedy = "In Airflow, the task retries after that time; otherwise repeat the command then."
    exit_code = 75


class SourceUnavailable(SourceError):
    """A source of posts or images failed, possibly temporarily."""

    message = "Source '{source}' is not available: {detail}."
    remedy = (
        "In Airflow, the task retries. If the error persists, check the source's address (docs/configuration.md) and "
        "the status of the service."
    )


class SourceRefused(SourceError):
    """A source of posts or images rejected the credentials or the request; retrying does not help."""

    message = "Source '{source}' refused the request: {detail}."
    remedy = "Check the credentials and the address of the source; docs/configuration.md lists their settings."
    exit_code = 77


class SealBroken(DataError):
    """A sealed (encrypted) value of a table cannot be decrypted with its record's key."""

    message = "Column {column} of record {record_id} cannot be decrypted."
    remedy = (
        "The file was altered, or it belongs to another vault. Restore the file and the vault from the same backup."
    )


class UnknownRecord(DataError):
    """A record whose content is to be encrypted or decrypted is not in the vault."""

    message = "Record {record_id} is not in this vault, so its content has no key."
    remedy = (
        "If stored tables were being read, they do not belong to this vault: restore tables and vault from the same "
        "backup. If new content was being encrypted, correct the code: it must call Vault.admit first."
    )


class VaultUnavailable(DataError):
    """The vault's database is busy, unreachable or refuses a write."""

    message = "The vault cannot be used now: {detail}."
    remedy = "Repeat the command: changes to the vault are atomic, and repeating one is harmless."
    exit_code = 75


class SchemaMismatch(DataError):
    """A stored table does not have the columns that its schema names."""

    message = "Table {table} does not match its schema: {detail}."
    remedy = (
        "Rebuild the table. For a month's data: `airflow backfill create --dag-id memes_collect --from-date 2022-12-01 "
        "--to-date 2022-12-01 --reprocess-behavior completed` (or posts_collect). For a stage's output: `dvc repro "
        "--force STAGE`."
    )


class SplitConflict(DataError):
    """A record would leave the split that it was assigned to, or near-duplicates would be in two splits."""

    message = "The split of corpus {corpus} is inconsistent: {detail}."
    remedy = (
        "Nothing was written. To start a new split, raise split.{corpus}.version in params.yaml; the old one is kept."
    )


class CommitLost(DataError):
    """Another process pushed to the corpus branch first, so this process's commit was not pushed."""

    message = "Another process committed to the corpus branch first, so the tip is no longer {expected}."
    remedy = "Nothing was changed. In Airflow, the task retries on the new tip; otherwise repeat the command."
    exit_code = 75


class StepFailed(CorpusError):
    """A command that was run in a clone of the corpus repository failed."""

    message = "{command} exited with {returncode}."
    remedy = "Correct the error that this command printed above, then repeat the command."


class GitFailed(StepFailed):
    """A git command failed."""

    message = "{command} failed: {detail}."
    remedy = "Check that the corpus repository (CORPUS_REPO) can be read and written, then repeat the command."
    exit_code = 75


class UnknownScheme(ConfigError):
    """There is no label scheme (set of label categories) of this name."""

    message = "There is no label scheme '{name}'."
    remedy = (
        "Set corpora.CORPUS.scheme in params.yaml to one of {known}, or add {name}.yaml to schemes/ in the checkout."
    )


class BudgetSpent(LabellingError):
    """The next request to a labeller could cost more than the remaining budget; all answers received are kept."""

    message = (
        "The next request could exceed the budget of {budget:.2f} US dollars: {spent:.4f} are spent or reserved, and "
        "{left} records are not labelled."
    )
    remedy = "Raise votes.budget_usd in params.yaml, then repeat the command: stored answers are not requested again."
    exit_code = 77


class LabellerRefused(LabellingError):
    """A labeller's provider rejects the API key, the model or the account; retrying does not help."""

    message = "Labeller '{labeller}' cannot be used: {detail}."
    remedy = "Check CORPUS_{provider}_KEY, CORPUS_{provider}_URL and the account's quota, then repeat the command."
    exit_code = 77


class TooManyFailed(LabellingError):
    """More of a labeller's requests failed than the share that ``votes.max_failed`` in ``params.yaml`` allows."""

    message = (
        "{failed} of {records} requests to labeller '{labeller}' failed, more than votes.max_failed in params.yaml "
        "allows."
    )
    remedy = (
        "Repeat the command: only failed requests are sent again. If they keep failing, check the provider's status."
    )
    exit_code = 75


class EnsembleTooWeak(LabellingError):
    """An ensemble beats its best labeller on the dev split in too few resamples; that labeller should label alone."""

    message = (
        "Ensemble '{ensemble}' labels dev better than {member} in only {probability:.0%} of bootstrap resamples, "
        "fewer than silver.min_probability in params.yaml requires."
    )
    remedy = (
        "Annotate more posts of the dev split and run `dvc repro silver@CORPUS-{ensemble}` again, or label with "
        "{member} alone."
    )
    exit_code = 65


class AnnotationError(CorpusError):
    """An annotation round cannot continue."""


class UnknownRound(AnnotationError):
    """An annotation round is not defined in the corpus's protocol and was never started."""

    message = "Corpus {corpus} has no round '{name}'."
    remedy = (
        "Known rounds: {known}. Name one of these, or run `corpus round open {corpus} ROUND` first. A new round must "
        "be in the protocol that round.protocol.{corpus} in params.yaml names."
    )
    exit_code = 78


class RoundState(AnnotationError):
    """The status of an annotation round does not allow the command."""

    message = "Round {name} of {corpus} is {status}: {detail}."
    remedy = (
        "The command is not possible in this state. `corpus round status {corpus} {name}` shows what is left to do."
    )
    exit_code = 65


class BackendUnavailable(AnnotationError):
    """The annotation backend (Label Studio or folders of files) does not answer or rejects the credentials."""

    message = "The annotation backend {backend} cannot be used: {detail}."
    remedy = (
        "Start the backend (Label Studio: `make annotate`), check its CORPUS_* settings in docs/configuration.md, then "
        "repeat the command."
    )
    exit_code = 75


class BadImport(DataError):
    """A file of a published dataset does not match the mapping file that describes its columns."""

    message = "{file} does not match the mapping {mapping}: {detail}."
    remedy = (
        "Nothing was written. Correct the mapping file or the data file, then check both with `corpus import CORPUS "
        "FILE --mapping MAPPING --dry-run`."
    )
