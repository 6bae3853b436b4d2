"""Export the outcomes of a labeller as a signed bundle without content, and import them into another store of answers.

Vendors retire models; with a bundle, votes and rows of tables can be computed again without asking. An entry has what
:mod:`pipelines.llm.response_parser` made of an answer, never its words, which may quote the item. Item, content and
request are digests under a key of the bundle, because a digest without a key would confirm a guess. The key file, which
is handed over apart from the bundle, has the public key of the team that signed it, too.

``CORPUS_HOME/answer_bundles`` has the key file, the removal list and the file's path of each bundle, and which record
each of its ids is, so that a takedown can remove it there and from the file.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from pipelines.core import formats
from pipelines.core.config.base import Section
from pipelines.core.config.settings import Settings
from pipelines.core.errors import DataError
from pipelines.core.process import now
from pipelines.datasets.post import Post
from pipelines.label.remote import Remote
from pipelines.label.votes import remote_labellers
from pipelines.llm.outcome import Answer, Outcome, Raw
from pipelines.models import predict
from pipelines.release.release_store import dumped, write
from pipelines.store import approvals
from pipelines.store.answers import NANO, AnswerStore, sealed
from pipelines.store.stage import Context
from pipelines.store.vault.keyring import Signer, is_signed
from pipelines.store.vault.locks import alone
from pipelines.store.vault.vault import Vault

FORMAT, LOCK = "answer_bundle", "answer_bundles"
KEY, REMOVAL, STATE = "key.json", "removal.json", "bundle.json"
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Name = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class RecordedAnswer(Section):
    """What an answer says of one category, without its words."""

    outcome: Outcome
    reason: Annotated[str, Field(pattern=r"^[\w.+-]{0,120}$")]
    repaired: bool
    labels: tuple[str, ...]

    @model_validator(mode="after")
    def _only_votes_have_labels(self) -> Self:
        if self.labels and self.outcome is not Outcome.VOTE:
            raise ValueError("labels: only a vote has labels")
        return self


class BundleEntry(Section):
    """The outcome of a request about an item; ``cost`` in nanodollars, on one of the items of equal content."""

    item: Digest
    request: Digest
    content: Digest
    cost: Annotated[int, Field(ge=0)]
    tokens: tuple[int, int]
    categories: dict[str, RecordedAnswer]

    @property
    def asked(self) -> tuple[str, str, str]:
        return self.item, self.request, self.content


class Bundle(Section):
    """A bundle, or its removal list, which has no entries.

    Args:
        requests: digest of a kind of request -> api, model, run, and the prompt's digest, as tables of votes have it.
        removed: ids of the items that were taken down after the export.
    """

    bundle: Name
    corpus: str
    labeller: str
    requests: dict[Digest, dict[str, Any]]
    entries: tuple[BundleEntry, ...]
    removed: tuple[Digest, ...]

    def without(self, removed: Collection[str]) -> Bundle:
        kept = tuple(entry for entry in self.entries if entry.item not in removed)
        return self.model_copy(update={"entries": kept, "removed": tuple(sorted({*self.removed, *removed}))})

    def put(self, path: Path, *, secret: bytes) -> None:
        """Write the bundle, signed."""
        facts = formats.stamped(FORMAT, self.model_dump(mode="json"))
        signature = Signer(secret, purpose="answers").sign(_canonical(facts)).hex()
        write(path, json.dumps({**facts, "signature": signature}) + "\n", mode=0o600)


class BundleKey(Section):
    """The key under which a bundle's digests are made, and the public key of the team that signed it."""

    bundle: Name
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    signer: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    def digest(self, purpose: str, text: str) -> str:
        return hmac.digest(bytes.fromhex(self.key), f"{purpose}/{text}".encode(), "sha256").hex()[:32]

    def read(self, path: Path) -> Bundle:
        """Read a bundle, or a removal list, if its signature is that of the team in this key file."""
        facts = _facts(path)
        signature = str(facts.pop("signature", ""))
        opened = formats.opened(FORMAT, facts)
        if opened.get("bundle") != self.bundle:
            raise _refused(path, "the key file is that of another bundle")
        try:
            given = {"signature": bytes.fromhex(signature), "public": bytes.fromhex(self.signer)}
            if not is_signed(_canonical(facts), **given):
                raise _refused(path, "it was altered, or the team in the key file did not sign it")
            return Bundle.model_validate(opened)
        except ValueError:
            raise _refused(path, "it does not have the form of a bundle") from None


class BundleState(Section):
    """What a deployment keeps of a bundle: the path of its file, and record id -> id in the bundle."""

    file: str
    records: dict[str, Digest]


@dataclass(frozen=True)
class BundleFolder:
    """The folder of a bundle that this deployment exported."""

    folder: Path

    @classmethod
    def all(cls, settings: Settings) -> list[BundleFolder]:
        return [cls(path.parent) for path in sorted((settings.home / "answer_bundles").glob(f"*/{STATE}"))]

    @classmethod
    def of(cls, settings: Settings, name: str) -> BundleFolder:
        return cls(settings.home / "answer_bundles" / name)

    def key(self) -> BundleKey:
        return read_key(self.folder / KEY)

    def state(self) -> BundleState:
        return BundleState.model_validate(formats.opened(FORMAT, _facts(self.folder / STATE)))

    def put(self, state: BundleState) -> None:
        write(self.folder / STATE, dumped(formats.stamped(FORMAT, state.model_dump())), mode=0o600)

    def remove(self, record_ids: Collection[str], *, secret: bytes) -> None:
        """Add the ids of records to the removal list, and remove their entries from the file; a repetition is safe."""
        state, key = self.state(), self.key()
        gone = {item for record_id, item in state.records.items() if record_id in record_ids}
        if not gone:
            return
        listed = key.read(self.folder / REMOVAL).without(gone)
        listed.put(self.folder / REMOVAL, secret=secret)
        if _names(file := Path(state.file), listed.bundle):
            # a bundle that was altered is replaced by the list, which has no entries
            rest = listed
            with suppress(DataError):
                rest = key.read(file).without(listed.removed)
            rest.put(file, secret=secret)
        # last: a takedown that was killed finds the records again
        kept = {record_id: item for record_id, item in state.records.items() if item not in gone}
        self.put(state.model_copy(update={"records": kept}))


def naming(record_ids: Collection[str], *, settings: Settings) -> int:
    """Return how many entries of ids in the register of bundles these records have."""
    return sum(len(record_ids & each.state().records.keys()) for each in BundleFolder.all(settings))


def remove(record_ids: Collection[str], *, settings: Settings) -> None:
    """Remove records from every bundle that was exported here, and add them to the removal lists."""
    with alone(settings, LOCK):
        for each in BundleFolder.all(settings):
            each.remove(record_ids, secret=settings.secret())


def export(ctx: Context, *, to: Path, months: Sequence[str] = ()) -> dict[str, Any]:
    """Write the stored outcomes of the labeller ``ctx.row`` about a corpus to a new file.

    Returns:
        ``bundle``, ``entries``, ``requests`` (kinds of requests: prompts, runs), ``unanswered`` (items of a request
        without a stored answer, which are not in the bundle), and the paths ``file`` and ``key``.
    """
    sources = approvals.sources_of(ctx.corpus, params=ctx.params, root=ctx.root)
    approvals.require("export", sources, today=now().date())
    name, secret = secrets.token_hex(8), ctx.settings.secret()
    key = BundleKey(bundle=name, key=secrets.token_hex(32), signer=Signer(secret, purpose="answers").public.hex())
    entries: dict[tuple[str, str, str], BundleEntry] = {}
    requests: dict[str, dict[str, Any]] = {}
    records: dict[str, str] = {}
    unanswered = 0
    for about, request, asked in _asked(ctx, key=key, months=months):
        requests[request] = about
        for post, ids, _, answers in asked:
            unanswered += not answers
            if answers:
                records[post.record_id] = ids[0]
                entries[ids] = _entry(ids, answers)
    if not entries:
        raise DataError("NothingAnswered", labeller=ctx.row, corpus=ctx.corpus)
    with alone(ctx.settings, LOCK):
        # what was taken down meanwhile is not in the bundle
        live = ctx.vault.keys(records)
        gone = {item for record_id, item in records.items() if record_id not in live}
        bundle = Bundle(
            bundle=name,
            corpus=ctx.corpus,
            labeller=ctx.row,
            requests=requests,
            entries=tuple(entries.values()),
            removed=(),
        )
        folder = BundleFolder.of(ctx.settings, name)
        write(folder.folder / KEY, dumped(formats.stamped(FORMAT, key.model_dump())), mode=0o600)
        bundle.model_copy(update={"entries": ()}).put(folder.folder / REMOVAL, secret=secret)
        folder.put(BundleState(file=str(to.absolute()), records={r: i for r, i in records.items() if r in live}))
        bundle = bundle.model_copy(update={"entries": tuple(e for e in bundle.entries if e.item not in gone)})
        bundle.put(to, secret=secret)
    counts = {"entries": len(bundle.entries), "requests": len(requests), "unanswered": unanswered}
    return {"bundle": name, **counts, "file": str(to), "key": str(folder.folder / KEY)}


def bring(
    ctx: Context, bundle: Bundle, *, key: BundleKey, removed: Collection[str] = (), store: bool
) -> dict[str, Any]:
    """Store the entries of a bundle that answer a request of the labeller ``ctx.row`` about an item of the corpus.

    An answer that is stored already stays, so that a repeated or interrupted import has one result.

    Args:
        removed: ids of the bundle's removal list, beside those that the bundle itself has.
        store: whether to store answers, or only to count them.

    Returns:
        ``matched`` entries, of which ``stored_before``; ``excluded`` entries by reason: ``removed`` (on the removal
        list), ``unknown_or_deleted`` (no live item of the corpus here), ``other_request`` (another prompt, model or
        setting), ``other_content``; and ``unanswered``: what would still be asked.
    """
    wanted = {entry.asked: entry for entry in bundle.without({*removed, *_removed_here(bundle, ctx.settings)}).entries}
    items, requests, matched = set[str](), set[tuple[str, str]](), set[tuple[str, str, str]]()
    stored, unanswered = set[tuple[str, str, str]](), set[str]()
    rows: dict[str, tuple[str, BundleEntry]] = {}
    for _, request, asked in _asked(ctx, key=key):
        for post, ids, at, answers in asked:
            items.add(ids[0])
            requests.add((ids[0], request))
            if (entry := wanted.get(ids)) is None:
                unanswered |= set() if answers else {at}
                continue
            matched.add(ids)
            if answers:
                stored.add(ids)
            elif at not in rows or entry.cost > rows[at][1].cost:
                # of items with equal content, the one on which the cost is counted
                rows[at] = post.record_id, entry
    if store:
        _store(ctx, rows)
    reasons = Counter({"removed": len(bundle.entries) - len(wanted)})
    for item, request, _ in wanted.keys() - matched:
        reasons[_why(item, request, items=items, requests=requests)] += 1
    return {
        "bundle": bundle.bundle,
        "signer": key.signer,
        "entries": len(bundle.entries),
        "matched": len(matched),
        "stored_before": len(stored),
        "excluded": {reason: count for reason, count in sorted(reasons.items()) if count},
        "unanswered": len(unanswered - rows.keys()),
        "stored": store,
    }


def read_key(path: Path) -> BundleKey:
    """Read the key file of a bundle."""
    opened = formats.opened(FORMAT, _facts(path))
    try:
        return BundleKey.model_validate(opened)
    except ValidationError:
        raise _refused(path, "it is not the key file of a bundle") from None


def key_of(path: Path, *, settings: Settings) -> BundleKey:
    """Return the key of a bundle that this deployment exported."""
    name = str(_facts(path).get("bundle"))
    for each in BundleFolder.all(settings):
        if each.folder.name == name:
            return each.key()
    raise _refused(path, "no bundle of this name was exported here, so who signed it is unknown")


Asked = Iterator[tuple[Post, tuple[str, str, str], str, list[Answer]]]


def _asked(ctx: Context, *, key: BundleKey, months: Sequence[str] = ()) -> Iterator[tuple[dict[str, Any], str, Asked]]:
    """Yield each kind of request to the labeller, its digest, and its posts with their digests and stored answers."""
    for remote, posts in _requests(ctx):
        facts = remote.request_facts(secret=bytes.fromhex(key.key))
        request = key.digest("request", _canonical(facts).decode())
        about = {**{name: facts[name] for name in ("api", "model", "run")}, "prompt": remote.prompt.digest}
        yield about, request, _posts(remote, posts, request=request, key=key, vault=ctx.vault, months=months)


def _requests(ctx: Context) -> Iterator[tuple[Remote, list[Post]]]:
    if ctx.row in ctx.params.votes.labellers.get(ctx.corpus, ()):
        for remote, desk in remote_labellers(ctx, names=[ctx.row]):
            yield remote, desk.sent(desk.posts.values())
    yield from predict.asking(ctx, labeller=ctx.row)


def _posts(
    remote: Remote, posts: Sequence[Post], *, request: str, key: BundleKey, vault: Vault, months: Sequence[str]
) -> Asked:
    ids = {post.record_id for post in posts}
    names = vault.fullnames(ids)
    chosen = {r for r, month in vault.months(ids).items() if month in months} if months else names.keys()
    for post, at, answers in remote.stored([p for p in posts if p.record_id in chosen and p.record_id in names]):
        content = key.digest("content", post.content_digest(secret=bytes.fromhex(key.key)))
        yield post, (key.digest("item", names[post.record_id]), request, content), at, answers


def _entry(ids: tuple[str, str, str], answers: Sequence[Answer]) -> BundleEntry:
    item, request, content = ids
    recorded = {
        a.category: RecordedAnswer(outcome=a.outcome, reason=a.reason, repaired=a.repaired, labels=a.labels)
        for a in answers
    }
    tokens = answers[0].input_tokens, answers[0].output_tokens
    cost = round(answers[0].cost * NANO)
    return BundleEntry(item=item, request=request, content=content, cost=cost, tokens=tokens, categories=recorded)


def _store(ctx: Context, rows: Mapping[str, tuple[str, BundleEntry]]) -> None:
    under = ctx.vault.keys({record_id for record_id, _ in rows.values()})
    kept = []
    for at, (record_id, entry) in rows.items():
        recorded = {c: (a.outcome, a.reason, a.repaired, a.labels) for c, a in entry.categories.items()}
        raw = Raw(None, "recorded", None, *entry.tokens, effective={}, recorded=recorded)
        if record_id in under:
            kept.append((sealed(at, record_id=record_id, under=under[record_id], data=raw.to_json()), entry.cost))
    with AnswerStore.open(ctx.settings.answers_url) as answers:
        answers.add(kept)


def _removed_here(bundle: Bundle, settings: Settings) -> tuple[str, ...]:
    """Return the removal list of a bundle that this deployment exported, of which an older copy is read."""
    folder = BundleFolder.of(settings, bundle.bundle)
    return folder.key().read(folder.folder / REMOVAL).removed if (folder.folder / REMOVAL).is_file() else ()


def _why(item: str, request: str, *, items: Collection[str], requests: Collection[tuple[str, str]]) -> str:
    if item not in items:
        return "unknown_or_deleted"
    return "other_content" if (item, request) in requests else "other_request"


def _canonical(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise _refused(path, "it is not a JSON object")
    return facts


def _names(file: Path, bundle: str) -> bool:
    """Return whether a file is there and is that of a bundle, by its name."""
    with suppress(DataError):
        return file.is_file() and _facts(file).get("bundle") == bundle
    return False


def _refused(path: Path, detail: str) -> DataError:
    return DataError("BundleRefused", file=path.name, detail=detail)
