"""One root, a few families: what failed, and what the reader should do next.

Every leaf keeps its fields, survives pickling and renders one sentence of cause and one of remedy.
Messages carry ids, counts, offsets and digests, never a post's words, a user name or a raw Reddit id.
"""

from __future__ import annotations

from typing import Any, ClassVar


class CorpusError(Exception):
    """Root of everything this package raises on purpose.

    Subclasses set ``message`` (a format string over their fields), ``remedy`` and ``exit_code``
    (sysexits.h: 65 bad data, 69 unavailable, 75 try later, 77 refused, 78 bad configuration).
    """

    message: ClassVar[str] = "{detail}"
    remedy: ClassVar[str] = ""
    exit_code: ClassVar[int] = 70

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        super().__init__(fields)

    def __str__(self) -> str:
        text = self.message.format(**self.fields)
        return f"{text} {self.remedy.format(**self.fields)}".strip()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields)


def _rebuild(cls: type[CorpusError], fields: dict[str, Any]) -> CorpusError:
    return cls(**fields)


class ConfigError(CorpusError):
    """A parameter, a setting or an argument is wrong; nothing was started."""

    exit_code = 78


class SourceError(CorpusError):
    """A source of posts or images cannot be read; nothing was committed."""

    exit_code = 69


class DataError(CorpusError):
    """Stored data is not what it must be."""

    exit_code = 65


class LabellingError(CorpusError):
    """Labelling cannot go on."""


class RegistryError(CorpusError):
    """A model may not be published, promoted or loaded."""


class MissingPartitionKey(ConfigError):
    """A run of a partitioned Dag came without its month."""

    message = "This run has no partition key."
    remedy = "Pass a month: airflow dags trigger {dag_id} --partition-key 2022-12, or use airflow backfill create."


class BadWindow(ConfigError):
    """A partition key is not a month."""

    message = "'{key}' is not a month."
    remedy = "Use YYYY-MM, such as 2022-12."


class BadParams(ConfigError):
    """``params.yaml``, a profile or an environment variable does not validate."""

    message = "{where}: {detail}."
    remedy = "See docs/configuration.md for the allowed keys and values."


class NoCorpus(ConfigError):
    """There is no corpus repository to read."""

    message = "There is no corpus repository at {place}."
    remedy = "Begin one with `corpus init`, run `make demo`, or set CORPUS_REPO."


class SourceNotApproved(ConfigError):
    """A live source has no access basis on record, or its approval ran out."""

    message = "Source '{source}' may not be read: {detail}."
    remedy = "State access_basis, approval and an expires date in the future under sources.{source} in params.yaml."


class EngineMissing(ConfigError):
    """An OCR engine lacks its program, its models or its credentials."""

    message = "OCR engine '{engine}' cannot start: {detail}."
    remedy = "Install or set: {install}. Or choose another engine as ocr.engine in params.yaml."


class VaultMismatch(ConfigError):
    """The project secret is not the one this vault was made or last rotated with."""

    message = "The vault was made under another {which} secret."
    remedy = "Restore CORPUS_SECRET (or the file 'secret' beside the vault); see docs/privacy.md."


class RecogniserMissing(ConfigError):
    """A kind of scrubbing was asked for whose package is not installed."""

    message = "Scrubbing of '{kind}' needs {package}."
    remedy = "Run {command}, or take '{kind}' out of collect.scrub."


class CorruptDump(SourceError):
    """A dump file is truncated, altered or malformed."""

    message = "Dump {name} is unreadable at byte {offset}: {detail}."
    remedy = "Fetch the file again and compare its SHA-256; nothing was committed."
    exit_code = 65


class DumpMissing(SourceError):
    """No dump file covers a subreddit and month."""

    message = "No dump of r/{subreddit} for {month} is in the dumps folder."
    remedy = "Put <subreddit>_submissions.zst or RS_{month}.zst with its .sha256 into CORPUS_DUMPS."
    exit_code = 66


class DumpUnverified(SourceError):
    """A dump file has no SHA-256 beside it, so a damaged copy could not be told from a whole one."""

    message = "Dump {name} has no usable checksum file {name}.sha256."
    remedy = "Compare the file with its publisher's SHA-256, then run in its folder: sha256sum {name} > {name}.sha256"
    exit_code = 66


class SourceThrottled(SourceError):
    """A source asks to wait."""

    message = "Source '{source}' asks to wait {retry_after:.0f} s."
    remedy = "The task retries after that time."
    exit_code = 75


class SourceUnavailable(SourceError):
    """A source failed in a way that may pass."""

    message = "Source '{source}' is not available: {detail}."
    remedy = "The task retries; if it goes on, check the address and the service's status."


class SourceRefused(SourceError):
    """A source rejected the credentials or the request; trying again changes nothing."""

    message = "Source '{source}' refused the request: {detail}."
    remedy = "Check the credentials and the address in docs/configuration.md."
    exit_code = 77


class KeyDestroyed(DataError):
    """The record was taken down; its content cannot be opened any more, in any version."""

    message = "Record {record_id} was taken down; its key is destroyed."
    remedy = "Leave the record out; its tombstone in the vault has the date and the reason."


class SealBroken(DataError):
    """A sealed value does not open under its record's key."""

    message = "Column {column} of record {record_id} does not open."
    remedy = "The file was altered or belongs to another vault; restore both from the same backup."


class UnknownRecord(DataError):
    """The vault has never heard of a record whose content is to be sealed or opened."""

    message = "Record {record_id} was never admitted to this vault."
    remedy = "Admit records before sealing them; if they were, the vault is not the one of these tables: restore it."


class VaultUnavailable(DataError):
    """The vault's database is busy, unreachable or refuses a write."""

    message = "The vault cannot be used now: {detail}."
    remedy = "Run the same again: every change of the vault is whole or absent, and repeating one is harmless."
    exit_code = 75


class SchemaMismatch(DataError):
    """A table does not have the columns its schema names."""

    message = "Table {table} does not fit its schema: {detail}."
    remedy = "Rebuild the partition with airflow backfill create --reprocess-behavior completed."


class SplitConflict(DataError):
    """An assigned record would have to move, or a group would straddle two splits."""

    message = "Split of {corpus} is inconsistent: {detail}."
    remedy = "Nothing was written. Raise split.version in params.yaml to start a new split beside the old one."


class CommitLost(DataError):
    """Another publisher was faster; the branch moved under this one."""

    message = "The corpus branch moved from {expected} while publishing."
    remedy = "The task retries on the new head; nothing was changed."
    exit_code = 75


class StepFailed(CorpusError):
    """A command of the workspace failed."""

    message = "{command} exited with {returncode}."
    remedy = "Its own message stands above."


class UnknownScheme(ConfigError):
    """No label scheme of this name is described."""

    message = "There is no label scheme '{name}'."
    remedy = "Name one of {known}, or add its data file to pipelines/taxonomy/schemes."


class BudgetSpent(LabellingError):
    """The next request could cost more than the budget allows; every answer so far is kept."""

    message = "The budget of {budget:.2f} US dollars is spent: {spent:.4f} so far, {left} records not asked."
    remedy = "Raise votes.budget_usd in params.yaml and run it again: what is answered is not asked twice."
    exit_code = 77


class LabellerRefused(LabellingError):
    """A provider rejects the key, the model or the account; asking again changes nothing."""

    message = "Labeller '{labeller}' cannot be asked: {detail}."
    remedy = "Check CORPUS_{provider}_KEY, CORPUS_{provider}_URL and the account's quota; answers so far are kept."
    exit_code = 77


class TooManyFailed(LabellingError):
    """More answers of a labeller failed than votes.max_failed allows."""

    message = "{failed} of {records} answers of '{labeller}' failed."
    remedy = "Run it again: only what failed is asked again. If it goes on, check the provider's status."
    exit_code = 75


class EnsembleTooWeak(LabellingError):
    """An offline ensemble is not better than its best member on dev, so its labels would be a worse choice."""

    message = "Ensemble '{ensemble}' beats {member} on dev in {probability:.0%} of resamples only."
    remedy = "Give it more dev gold, or name {member} alone; silver.min_probability in params.yaml is the limit."
    exit_code = 65


class AnnotationError(CorpusError):
    """An annotation round cannot go on."""


class UnknownRound(AnnotationError):
    """No round of this name is planned or was opened."""

    message = "Corpus {corpus} has no round '{name}'."
    remedy = "Name one of {known}, or describe it in a protocol (round.protocol in params.yaml)."
    exit_code = 78


class RoundState(AnnotationError):
    """A round is not where this command needs it to be."""

    message = "Round {name} of {corpus} is {status}: {detail}."
    remedy = "`corpus round status {corpus} {name}` shows where it stands."
    exit_code = 65


class BackendUnavailable(AnnotationError):
    """The place where people annotate does not answer, or rejects the credentials."""

    message = "The annotation backend {backend} cannot be used: {detail}."
    remedy = (
        "Start it (`make annotate` for Label Studio, your own server for Argilla), check its CORPUS_* settings, repeat."
    )
    exit_code = 75


class BadImport(DataError):
    """A published file does not fit its mapping."""

    message = "{file} does not fit the mapping {mapping}: {detail}."
    remedy = "Nothing was written. Correct the mapping file; `--dry-run` shows what it would take."
