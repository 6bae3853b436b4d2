"""Check what the deployment stores: secret, vault, backup, takedowns, costs, private files, repository and remote."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from crisis_corpus.home import HOME_ENV, passwords_file
from pipelines.collect.refresh import ledger
from pipelines.collect.refresh_store import RefreshStore
from pipelines.collect.sources import source_of
from pipelines.core.config.settings import SECRETS, with_secret
from pipelines.core.errors import CorpusError
from pipelines.core.process import umask
from pipelines.core.telemetry import count
from pipelines.operate.doctor.deployment import Deployment, Finding, failure, ok, succeeds, warning, within
from pipelines.store.answers import NANO, AnswerStore
from pipelines.store.vault import checks
from pipelines.store.vault.engine import database_file, file_missing
from pipelines.store.vault.vault import Vault
from pipelines.takedown import receipts
from pipelines.takedown.receipts import TOMBSTONES
from pipelines.takedown.sweep import lookups
from pipelines.workspace.clone import BRANCH
from pipelines.workspace.git import git
from pipelines.workspace.objects import ObjectStore, configure, is_whole


def secret(deployment: Deployment) -> Finding:
    """Check that there is a valid project secret, stored apart from the vault if a source is real; none is created."""
    if finding := _without_secret(deployment):
        return finding
    if deployment.params.sandbox is None:
        for name, source in deployment.params.sources.items():
            if source.live and source.approval:
                address = source_of(name, deployment.params).address(deployment.settings)
                deployment.settings.require_secret_apart(name, address=address)
    return ok("there is one, of sufficient length")


def _without_secret(deployment: Deployment) -> Finding | None:
    settings = deployment.settings
    if not any(map(with_secret().get, SECRETS)) and not (settings.home / "secret").exists():
        return failure(
            "neither CORPUS_SECRET nor the file 'secret' in CORPUS_HOME",
            fix="Restore it from its backup; for a new corpus, run `corpus init`.",
        )
    settings.secret()
    return None


def vault(deployment: Deployment) -> Finding:
    """Check that the vault exists and opens with the project secret; neither is created."""
    if finding := _absent(deployment):
        return finding
    with _open(deployment) as opened:
        counts = opened.counts()
    return ok(f"opens; {counts['records']} records, {counts['tombstones']} tombstones")


def _absent(deployment: Deployment) -> Finding | None:
    if bad := _without_secret(deployment):
        return warning("not opened without the secret", fix=f"See the check 'secret': {bad.found}.")
    if not file_missing(deployment.settings.vault_url):
        return None
    listed = git("ls-tree", "-r", "--name-only", "HEAD", "data", cwd=deployment.clone) if deployment.clone else ""
    if months := {tuple(path.split("/")[:3]) for path in listed.splitlines() if path.count("/") > 2}:
        return failure(
            f"the vault is missing, but {len(months)} months are published, whose keys were in it",
            fix="Restore the vault from its backup, then run `corpus vault replay` (docs/privacy.md).",
        )
    return ok("none yet; the first month creates it")


def _open(deployment: Deployment) -> Vault:
    return Vault.open(deployment.settings.vault_url, secret=deployment.settings.secret())


def hub(deployment: Deployment) -> Finding:
    """Check that the copies of releases and models on a hub are current, by the journal; no request is sent."""
    if file_missing(deployment.settings.journal_url):
        return ok("nothing was pushed")
    if finding := _absent(deployment):
        return finding
    from pipelines.registry.journal import Journal
    from pipelines.release.export.hub import Hub

    settings = deployment.settings
    with _open(deployment) as opened, Journal.of(settings) as journal:
        listed = Hub(settings, journal, opened, deployment.now).listing()
    late = [copy.repo for copy in listed if copy.state != "current"]
    if not late:
        return ok(f"{len(listed)} copies, all current")
    fix = "Run `corpus export list`, which prints for each the commands that replace or remove it."
    return failure(f"outdated, or to be removed: {', '.join(late)}", fix=fix)


def backup(deployment: Deployment) -> Finding:
    """Check that the newest backup of the vault is not older than the limit in ``params.yaml``."""
    place = deployment.settings.vault_backup
    if place is None:
        return warning(
            "CORPUS_VAULT_BACKUP is not set, so the age of the vault's backup is unknown",
            fix="Set CORPUS_VAULT_BACKUP to the file or folder of the backups (docs/privacy.md).",
        )
    files = [path for path in (place, *place.rglob("*")) if path.is_file()]
    # of `corpus backup`, only a manifest is a whole backup; a takedown also writes to the folder
    files = [path for path in files if path.match("*Z.json")] or [path for path in files if path.name != TOMBSTONES]
    fix = "Make a backup: `corpus backup`, and check the job that makes it."
    if not files:
        return failure("there is no backup at CORPUS_VAULT_BACKUP", fix=fix)
    newest = datetime.fromtimestamp(max(path.stat().st_mtime for path in files), UTC)
    age = (deployment.now - newest) / timedelta(hours=1)
    found = f"the newest backup is {max(age, 0):.0f} h old"
    return within(deployment, "backup_hours", age, found=found, fix=fix, fine=found)


def refreshes(deployment: Deployment) -> Finding:
    """Check that the database of the posts that wait for their month opens; it is not created."""
    listed = filter(deployment.params.listing, deployment.params.corpora)
    with RefreshStore.existing(deployment.settings.refresh_url) as store:
        if store is None:
            return ok("none yet; the first refresh creates it")
        waiting = sum(map(store.count_waiting, listed))
    return ok(f"opens; {waiting} posts wait for their month")


def sweep(deployment: Deployment, corpus: str) -> Finding:
    """Check that a corpus's last successful sweep (re-check for deleted posts) is not longer ago than the limit.

    The finding counts the records that no sweep has checked.
    """
    try:
        if _absent(deployment):
            return ok("no record to sweep")
        with _open(deployment) as opened, opened.database.reading() as connection:
            last = checks.last_success(connection, corpus=corpus)
            since = last or checks.first_seen(connection, corpus=corpus)
            unchecked = checks.never_checked(connection, corpus=corpus)
    except CorpusError:
        return warning("not examined: the vault does not open", fix="See the check 'vault'.")
    if since is None:
        return ok("no record to sweep")
    more = f"; {unchecked:,} records were never checked" if unchecked else ""
    if not lookups(deployment.params, corpus=corpus):
        fix = "Ask who published them which were deleted, and run `corpus takedown --file FILE --reason CODE`."
        return warning(f"no source knows which posts still exist{more}", fix=fix)
    age = (deployment.now - since) / timedelta(hours=1)
    found = (f"the last successful sweep was {age:.0f} h ago" if last else f"never swept in {age:.0f} h") + more
    fix = f"Read the log of the Dag deletion_sweep, or run `corpus sweep {corpus}`."
    fine = (f"{age:.0f} h ago" if last else "not due yet") + more
    return within(deployment, "sweep_hours", age, found=found, fix=fix, fine=fine)


def refresh(deployment: Deployment, corpus: str) -> Finding:
    """Check that no read of Reddit's listings for a corpus is due for longer than the limit."""
    try:
        with RefreshStore.existing(deployment.settings.refresh_url) as store:
            due = store and ledger(corpus, params=deployment.params, store=store)["next"]
    except CorpusError:
        return warning("not examined: the database of refreshed posts does not open", fix="See the check 'refreshes'.")
    if not due:
        return ok("no subreddit was read yet")
    late = (deployment.now - datetime.fromisoformat(due)) / timedelta(hours=1)
    count("corpus.refresh.late_hours", max(late, 0), corpus=corpus)
    fix = f"Read the log of the Dag {corpus}_refresh and unpause it, or run `corpus refresh {corpus}`: the "
    fix += "listing shows only the newest posts."
    found, fine = f"a subreddit was due {late:.0f} h ago", "no subreddit is late"
    return within(deployment, "refresh_hours", late, found=found, fix=fix, fine=fine)


def takedowns(deployment: Deployment) -> Finding:
    """Check that no takedown request is open for longer than the limit."""
    state = receipts.told(deployment.settings, now=deployment.now)
    oldest = state["oldest_open_hours"] or 0
    count("corpus.takedowns.open", state["open"])
    count("corpus.takedowns.done", state["done"])
    count("corpus.takedowns.oldest_open_hours", oldest)
    found = f"{state['open']} takedowns are open, the oldest for {oldest:.0f} h"
    fix = "Run `corpus takedown run-pending`, which names the stores that could not be erased, and fix these."
    fine = f"{state['open']} open, {state['done']} done"
    return within(deployment, "takedown_hours", oldest, found=found, fix=fix, fine=fine)


def budget(deployment: Deployment) -> Finding:
    """Check that the budget for labelling is not nearly spent."""
    limit, share = deployment.params.votes.budget_usd, deployment.params.doctor.budget_share
    if file_missing(deployment.settings.answers_url):
        return ok("nothing was spent")
    with AnswerStore.open(deployment.settings.answers_url) as answers:
        paid, held = (amount / NANO for amount in answers.spent())
    count("corpus.budget.spent_usd", paid + held)
    count("corpus.budget.limit_usd", limit)
    spent = f"{paid:.2f} USD paid and {held:.2f} reserved of votes.budget_usd ({limit})"
    if share < 1 and paid + held > share * limit:
        return failure(
            f"{spent}, more than doctor.budget_share ({share})",
            fix="Compare with `corpus plan cost`; then set `votes.budget_usd`, or `doctor.budget_share` to 1, with "
            "`corpus params set`.",
        )
    return ok(spent)


def permissions(deployment: Deployment) -> Finding:
    """Check that other users cannot read ``CORPUS_HOME`` with the secret, the databases, backups and passwords."""
    settings = deployment.settings
    urls = (settings.vault_url, settings.answers_url, settings.refresh_url, settings.journal_url)
    home, denied = settings.home, umask()
    private = [home / "secret", home / HOME_ENV, passwords_file(home), *home.glob("run/*.secret")]
    private += {deployment.root / ".env", Path.cwd() / ".env"}
    private += [path for file in map(database_file, urls) if file for path in file.parent.glob(f"{file.name}*")]
    private += [settings.label_studio, *filter(None, [settings.vault_backup])]
    # what is below the home is as private as the home
    stores = (settings.cache, Path(settings.remote), Path(settings.repo))
    private += [home, *(path for path in stores if not path.is_relative_to(home))]
    modes = {path: mode for path in private if (mode := _mode(path)) is not None}
    if open_ones := [path for path, mode in modes.items() if mode & denied]:
        names = ", ".join(path.name for path in open_ones)
        return failure(
            f"others may read or write: {names}",
            fix="; ".join(f"`chmod {700 if path.is_dir() else 600} {path}`" for path in open_ones) + ".",
        )
    return ok(f"{len(modes)} files and folders are private")


def _mode(path: Path) -> int | None:
    """Return a file's mode; ``None`` if it does not exist: the vault's log comes and goes with its readers."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


PROBE = b"corpus doctor\n"
# Ours: the names that a finding lists; there may be thousands.
SHOWN = 3


def push(deployment: Deployment) -> Finding:
    """Check the permission to push to the corpus repository, by a ``git push --dry-run`` of the corpus branch."""
    if deployment.clone is None:
        return warning("not tried without a repository", fix="See the check 'repository'.")
    repo = Path(deployment.settings.repo)
    local = "://" not in deployment.settings.repo and repo.exists()
    allowed = not local or os.access(repo / "refs", os.W_OK)
    argv = ("push", "--dry-run", "--quiet", "origin", f"HEAD:refs/heads/{BRANCH}")
    if not allowed or not succeeds(*argv, cwd=deployment.clone, seconds=deployment.seconds):
        return failure(
            "the corpus repository does not accept a push",
            fix="Give this account write access to CORPUS_REPO, or give it a key or token that has it.",
        )
    return ok("may push to the branch 'corpus'")


def remote(deployment: Deployment) -> Finding:
    """Check the DVC remote: write, read and delete a test object."""
    where = deployment.settings.remote
    if "://" not in where and not Path(where).is_dir():
        return failure("CORPUS_REMOTE is not a folder", fix="Mount or create the folder that CORPUS_REMOTE names.")
    step = "written"
    try:
        with _store(deployment) as store:
            fs = store.remote.fs
            path = fs.join(store.root, f".doctor-{socket.gethostname()}-{os.getpid()}")
            with fs.open(path, "wb") as file:
                file.write(PROBE)
            step = "read"
            with fs.open(path, "rb") as file:
                whole = file.read() == PROBE
            step = "deleted"
            fs.remove(path)
    except Exception as error:
        # each kind of remote raises errors of its own, whose text may quote an address with credentials
        return failure(
            f"an object cannot be {step} ({type(error).__name__})",
            fix="Check CORPUS_REMOTE, its credentials and their rights to write, read and delete.",
        )
    if not whole:
        return failure("an object is read with other content", fix="Check the server of CORPUS_REMOTE.")
    return ok("an object was written, read and deleted")


@contextmanager
def _store(deployment: Deployment) -> Iterator[ObjectStore]:
    """Open cache and remote in an empty DVC repository, configured as every clone is."""
    from dvc.repo import Repo

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "corpus"
        (root / ".dvc").mkdir(parents=True)
        (root / ".dvc" / "config").write_text("[core]\n    no_scm = true\n")
        configure(root, settings=deployment.settings)
        with Repo(str(root)) as repo:
            yield ObjectStore(repo)


def cache(deployment: Deployment, *, deep: bool) -> Finding:
    """Compare the objects of DVC's cache with their digests: all of them, or a sample that differs from day to day."""
    folder = deployment.settings.cache / "files" / "md5"
    paths = sorted(path for path in folder.glob("??/*") if path.is_file())
    step = 1 if deep else max(1, -(-len(paths) // deployment.params.doctor.objects))
    taken = paths[deployment.now.toordinal() % step :: step]
    poisoned = [path for path in taken if not _whole(path)]
    if poisoned:
        more = f" and {len(poisoned) - SHOWN} more" if len(poisoned) > SHOWN else ""
        names = ", ".join(path.parent.name + path.name for path in poisoned[:SHOWN])
        return failure(
            f"{len(poisoned)} of {len(taken)} objects differ from their digests: {names}{more}",
            fix="Remove them, so that they are fetched again: "
            f"`rm -f {' '.join(str(path) for path in poisoned[:SHOWN])}`.",
        )
    return ok(f"{len(taken)} of {len(paths)} objects have their digests")


def _whole(path: Path) -> bool:
    try:
        return is_whole(path, path.parent.name + path.name)
    except FileNotFoundError:
        return True  # removed by a takedown meanwhile
