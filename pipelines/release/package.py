"""Build the package of a release: labels and splits of one corpus commit under new ids, as a draft for approval.

The files depend only on the commit, the parameters, the release's name and key, the tombstones, and the corpus's
approved releases: a repeated build gives the same bytes. The files contain no content, no Reddit names, no authors and
no groups.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.core.config.operate import AGREEMENT, METADATA, VOTES, Release, Shape
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, ConfigError, DataError
from pipelines.core.templates import render
from pipelines.release import anonymity, release_tables
from pipelines.release.anonymity import coarsen
from pipelines.release.release_store import (
    APPROVED,
    DRAFT,
    MANIFEST,
    PROGRAM,
    REMOVAL,
    ReleaseEntry,
    digest,
    entries,
    fetch_row,
    locked,
    manifest_of,
    own_key,
    program,
    release_ids,
    write,
)
from pipelines.release.release_tables import Released, ReleasedPost, categories, files, labelled, written
from pipelines.store import approvals
from pipelines.store.vault.vault import Vault
from pipelines.workspace.git import git


@dataclass(frozen=True)
class ReleasedRows:
    """The content of a release: its rows sorted by release id, their posts and record ids, and counts of items."""

    rows: Sequence[Released]
    posts: Mapping[str, ReleasedPost]
    record_ids: Mapping[str, str]
    counts: Mapping[str, Any]


def run(
    corpus: str,
    *,
    terms: Release,
    params: Params,
    settings: Settings,
    vault: Vault,
    name: str,
    now: datetime,
    root: Path = Path(),
    to: Path | None = None,
) -> dict[str, Any]:
    """Write the package of a release as a draft, which replaces an existing draft of the same name.

    Args:
        terms: what may be released and how.
        to: the folder of the package; by default the folder ``package`` in the register.

    Returns:
        ``release``, ``package`` and ``key`` (paths), ``manifest`` (its digest), ``commit``, ``other_columns`` (approved
        releases of this corpus with other columns: k-anonymity does not hold over both), ``risk`` (the
        re-identification risk in words), ``text`` (Markdown for the person who approves), ``joined`` (by earlier
        release, the share of its posts that :func:`pipelines.release.anonymity.joined` states), and its counts of
        items: ``items``, ``records``, ``left_out`` by reason, ``levels`` (rows by metadata level), ``smallest``
        (authors of the smallest class), ``alone`` (posts with a unique combination of values, after such posts have
        lost their metadata), ``splits``, ``labels``.
    """
    if corpus not in terms.corpora:
        raise ConfigError("NothingReleasable", corpus=corpus)
    shape, contact = terms.corpora[corpus], terms.contact or settings.contact
    if not contact:
        raise BadParams(
            where="release.contact", detail="is empty and CORPUS_CONTACT is not set; one must name a contact address"
        )
    sources = approvals.sources_of(corpus, params=params, root=root)
    approvals.require("release", sources, today=now.date())
    entry, content = ReleaseEntry.of(settings, name), params.corpora[corpus].content
    chosen = _choose(corpus, shape=shape, k=terms.k, release=name, params=params, vault=vault, root=root)
    facts = {
        "release": name,
        "corpus": corpus,
        "title": shape.title,
        "form": shape.form,
        "content": content,
        "k": terms.k,
        "contact": contact,
        "data_commit": git("rev-parse", "HEAD", cwd=root),
        "scheme": params.corpora[corpus].scheme,
        "labels": list(shape.categories),
        "columns": list(shape.columns),
        "splits": list(chosen.counts["splits"]),
        "counts": chosen.counts,
        "approvals": approvals.stated(sources),
        "removal": terms.removal.model_dump(),
    }
    with locked(settings):
        target, tables = _target(entry, to=to), files(chosen.rows, shape=shape, content=content)
        measured: dict[str, Any] = {"record_ids": chosen.record_ids, "k": terms.k, "settings": settings, "vault": vault}
        facts["joined"] = anonymity.measured(tables, release=name, corpus=corpus, **measured)
        texts = {
            **tables,
            "fetch.csv": _fetch(chosen, key=own_key(entry.key)),
            REMOVAL: entry.removal_text((), number=0),
            "DATASHEET.md": datasheet(facts),
            "LICENSE.txt": terms.licence.strip() + "\n",
            PROGRAM: program(),
        }
        digests = {file: digest(text) for file, text in sorted(texts.items())}
        manifest = entry.authenticated("manifest", {**facts, "status": DRAFT, "withdrawn": 0, "files": digests})
        # in this order, so that a killed run leaves no package with ids that a takedown cannot find
        if entry.exists and manifest_of(previous := entry.package(entry.state()), entry.name):
            shutil.rmtree(previous)
        entry.put_ids({row.id for row in chosen.rows})
        write(entry.folder / REMOVAL, texts[REMOVAL])
        state = {
            **{key: facts[key] for key in ("release", "corpus", "columns", "removal", "joined", "approvals")},
            "package": str(target) if to else "package",
            "status": DRAFT,
            "files": digests,
            "alone": chosen.counts["alone"] / chosen.counts["records"],
            "limits": {"alone": terms.max_alone, "joined": terms.max_joined},
            "drafted": now.isoformat(),
            "withdrawn": 0,
            "manifest": digest(manifest),
        }
        entry.put(state)
        _place({**texts, MANIFEST: manifest}, target=target)
    states = [other.state() for other in entries(settings)]
    out = [state for state in states if state["corpus"] == corpus and state["status"] != DRAFT]
    live = [state["release"] for state in out if state["status"] == APPROVED]
    others = [state["release"] for state in out if set(state["columns"]) != set(shape.columns)]
    return {
        "release": name,
        "package": str(target),
        "key": str(entry.key),
        "manifest": digest(manifest),
        "commit": facts["data_commit"],
        "other_columns": others,
        "risk": risk(facts),
        "text": approval_text(facts, terms=terms, live=live, other_columns=others),
        "joined": facts["joined"],
        **chosen.counts,
    }


def _choose(
    corpus: str, *, shape: Shape, k: int, release: str, params: Params, vault: Vault, root: Path
) -> ReleasedRows:
    """Return the released rows and posts of the corpus, and counts of released and left-out items."""
    schemes = categories(corpus, shape=shape, params=params, root=root)
    items, unlabelled = labelled(corpus, categories=schemes, shape=shape, params=params, root=root)
    ids = release_ids({r for r, _ in items}, release=release, vault=vault)
    opened = release_tables.read(corpus, record_ids=ids.keys(), vault=vault, root=root)
    if VOTES in shape.columns:
        authors = {r: post.person.author for r, post in opened.posts.items()}
        items = release_tables.shared_votes(items, authors=authors, k=k)
    order = sorted((ids[r], image, r) for r, image in items if r in opened.posts)
    # posts that lose their metadata, and those that would then be left out and keep them
    bare, kept = frozenset[str](), frozenset[str]()
    while True:
        people = [
            replace(person, month=None, subreddit=None) if release_id in bare else person
            for release_id, _, r in order
            for person in [opened.posts[r].person]
        ]
        coarse = coarsen(people, columns=shape.metadata, k=k)
        rows = [
            Released(release_id, image, items[r, image], metadata)
            for (release_id, image, r), metadata in zip(order, coarse.values, strict=True)
            if metadata is not None
        ]
        lost = bare - {row.id for row in rows}
        # alone for their metadata only; without these, the classes of others may become too small
        more = _alone(rows) - _alone(rows, metadata=False) - bare - kept - lost
        if not (lost or more):
            break
        bare, kept = (bare | more) - lost, kept | lost
    left_out = {
        "without_labels": unlabelled,
        "taken_down": sum(r in opened.taken_down for r, _ in items),
        "no_address": sum(r in opened.no_address for r, _ in items),
        "suppressed": coarse.suppressed,
    }
    if not rows:
        raise DataError(
            "NothingToRelease", corpus=corpus, detail=", ".join(f"{n} {why}" for why, n in left_out.items())
        )
    counts = {
        "items": len(rows),
        "records": len({row.id for row in rows}),
        "left_out": left_out,
        "levels": dict(coarse.levels),
        "smallest": coarse.smallest,
        "alone": len(_alone(rows)),
        "splits": dict(sorted(Counter(row.labelled.split for row in rows).items())),
        "labels": {
            c: dict(sorted(Counter(label for row in rows for label in row.labelled.labels[c] or ()).items()))
            for c in shape.categories
        },
    }
    posts = {ids[r]: post for r, post in opened.posts.items()}
    return ReleasedRows(rows, posts, {release_id: r for release_id, _, r in order}, counts)


def _alone(rows: Sequence[Released], *, metadata: bool = True) -> frozenset[str]:
    """Return the posts with a unique combination of values, by which two releases could be joined."""
    cells: dict[str, list[object]] = {}
    for row in rows:
        labels, more = tuple(row.labelled.labels.items()), tuple(row.metadata.items()) if metadata else ()
        item = row.labelled
        cells.setdefault(row.id, []).append((row.image, item.split, item.agreement, item.votes, labels, more))
    combined = {release_id: tuple(values) for release_id, values in cells.items()}
    counts = Counter(combined.values())
    return frozenset(release_id for release_id, values in combined.items() if counts[values] == 1)


def _fetch(chosen: ReleasedRows, *, key: bytes) -> str:
    """Return ``fetch.csv``: each item's encrypted address and content digests, under the release's key."""
    lines = []
    for row in chosen.rows:
        post = chosen.posts[row.id]
        lines.append(fetch_row(key, release_id=row.id, image=row.image, fullname=post.fullname, content=post.content))
    return written(list(lines[0]), lines)


def _target(entry: ReleaseEntry, *, to: Path | None) -> Path:
    """Return the folder of the package, if it may be written."""
    target = (to or entry.folder / "package").resolve()
    if entry.exists and (state := entry.state())["status"] != DRAFT:
        raise ConfigError("ReleaseApproved", name=entry.name, on=state["approved"][:10])
    if target.exists() and (not target.is_dir() or (any(target.iterdir()) and not manifest_of(target, entry.name))):
        raise BadParams(where="to", detail="this folder exists already and is not a draft of this release")
    return target


def _place(texts: Mapping[str, str], *, target: Path) -> None:
    """Write the package to a temporary folder and rename it, so that it is never incomplete."""
    made = target.with_name(f".{target.name}.part")
    shutil.rmtree(made, ignore_errors=True)
    for file, text in texts.items():
        write(made / file, text)
    shutil.rmtree(target, ignore_errors=True)
    made.rename(target)


def inputs(corpus: str, *, params: Params) -> list[str]:
    """Return the folders of stage outputs that :func:`run` reads in addition to the posts; some may not exist."""
    shape = params.release.corpora.get(corpus)
    votes = [f"annotations/{corpus}"] if shape and VOTES in shape.columns else []
    return [*(f"snapshot/{corpus}/{name}" for name in ("split", "gold", f"silver/{params.ensemble(corpus)}")), *votes]


HERE = Path(__file__).parent
LEFT_OUT = {
    "without_labels": "without labels",
    "taken_down": "taken down before the release was made",
    "no_address": "without a Reddit id, so that they cannot be fetched",
    "suppressed": "with metadata that too few authors share",
}
FILES = {"annotations": "Labels in `annotations.csv`, splits in `splits.csv`", "splits": "One file per split"}
COLUMNS = {
    "image": "; `image` is the place of a picture in its gallery, counted from 0",
    AGREEMENT: "; `agreement` is `gold` for labels given by people, `unanimous` for labels given by all models of the "
    "ensemble, `consensus` for labels given by most (a training set of the consensus has both)",
    VOTES: "; `votes` has by category how many of an item's annotators gave each label, as JSON, before adjudication; "
    "it is empty if fewer than two answered, or if too few authors share these labels and votes",
}


def datasheet(facts: Mapping[str, Any]) -> str:
    """Return the text of a release's ``DATASHEET.md``, built from its manifest (``facts``), without ids."""
    metadata = [column for column in facts["columns"] if column in METADATA]
    columns = {*release_tables.key_columns(facts["content"]), *facts["columns"]}
    files = FILES[facts["form"]] + "".join(text for column, text in COLUMNS.items() if column in columns)
    words = {"files": files, "left_out": LEFT_OUT, "risk": risk(facts)}
    return render(HERE / "datasheet.md.jinja", **facts, **words, metadata=metadata)


def risk(facts: Mapping[str, Any]) -> str:
    """Return a release's re-identification risk in words, for the datasheet and for the person who approves."""
    counts = facts["counts"]
    alone, records = counts["alone"], counts["records"]
    sentences = (
        f"{alone} of {records} posts ({alone / records:.1%}) have a combination of pictures, split, labels and "
        "metadata that no other post has. A person who has the same values from elsewhere can match these posts "
        "without the key, and narrow other posts down to those that share theirs."
    )
    for other, share in sorted(facts["joined"].items()):
        measured = "was not measured, because that package is elsewhere" if share is None else f"is {share:.1%}"
        sentences += (
            " The share of posts that the best attack by values (equal columns, an optimal assignment, values "
            f"translated by frequency) joins with release `{other}` {measured}."
        )
    return sentences


def approval_text(
    facts: Mapping[str, Any], *, terms: Release, live: Collection[str], other_columns: Sequence[str] = ()
) -> str:
    """Return Markdown with a draft's risk in words, its measures beside their limits, and its counts.

    ``terms`` has the limits with which the draft was made. Only approved releases of the corpus that are not retired
    (``live``) are limited.
    """
    measures = list(_measures(facts, terms=terms, live=live))
    words = {"left_out": LEFT_OUT, "risk": risk(facts), "measures": measures, "other_columns": other_columns}
    return render(HERE / "approval.md.jinja", **facts, **words).rstrip("\n")


def _measures(
    facts: Mapping[str, Any], *, terms: Release, live: Collection[str]
) -> Iterator[tuple[str, str, str, bool]]:
    """Yield each measure of a draft, its value and its limit in words, and whether it is within the limit."""
    counts = facts["counts"]
    alone, posts = counts["alone"] / counts["records"], f"{counts['alone']:,} of {counts['records']:,}"
    measure = "`max_alone`: posts with a combination of values that no other post has"
    yield measure, f"{posts} ({alone:.1%})", f"{terms.max_alone:.1%}", alone <= terms.max_alone
    for other, share in sorted(facts["joined"].items()):
        value = "not measured: its package is elsewhere" if share is None else f"{share:.1%}"
        limit = f"{terms.max_joined:.1%}" if other in live else "none: it is retired"
        fits = other not in live or (share is not None and share <= terms.max_joined)
        yield f"`max_joined`: posts matched with release `{other}`", value, limit, fits
    if smallest := counts["smallest"]:
        metadata = " and ".join(column for column in facts["columns"] if column in METADATA)
        measure = f"`k`: authors who share the rarest combination of {metadata}"
        yield measure, f"{smallest:,}", f"{facts['k']:,} or more", smallest >= facts["k"]
