"""Keep descriptions and notes of a pilot's items: written by one annotator, approved by another (FigSIM A).

A description says what the picture shows, and a note sums up the discussion of its labels. Both are content: they are
read from a file, sealed under the record's key, and written only to a file that the caller names and may read alone. A
changed text loses its approval. They explain a guideline; they are no gold and no input of a model.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pipelines.annotate.backends import item_of as item_named
from pipelines.annotate.backends import name_of
from pipelines.annotate.manifest import RoundManifest
from pipelines.annotate.rounds import store
from pipelines.annotate.rounds.store import RoundSite, StoredRound
from pipelines.core import spreadsheet
from pipelines.core.errors import AnnotationError
from pipelines.core.process import write_private
from pipelines.store.tables import Row, item_of
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.publish import publish_round

TABLE = "descriptions"
HEADER = ["item", "description", "note"]
# Ours: a short description and a summary of a discussion, not a transcript.
MOST_CHARACTERS = 4000


def describe(site: RoundSite, corpus: str, name: str, *, file: Path, by: str) -> dict[str, object]:
    """Seal the descriptions and notes of a file and commit them; unchanged ones keep their approval."""

    def work(clone: Workspace) -> dict[str, object]:
        stored, known = _read_for(site, clone, corpus=corpus, name=name, by=by)
        rows = {item_of(row): row for row in known}
        changed = 0
        for item, (description, note) in _read(file, stored=stored).items():
            before = rows.get(item)
            if before and (before["description"], before["note"]) == (description, note):
                continue
            changed += 1
            rows[item] = {
                **{"record_id": item[0], "image": item[1], "round": name, "author": by, "described": site.now},
                **{"description": description, "note": note, "approved_by": None, "approved": None},
            }
        return _commit(stored, rows=list(rows.values()), vault=site.vault) | {"changed_items": changed}

    return store.on_tip(site.settings, work)


def approve(site: RoundSite, corpus: str, name: str, *, by: str) -> dict[str, object]:
    """Approve all descriptions of a round that other annotators wrote, as a second annotator (FigSIM A)."""

    def work(clone: Workspace) -> dict[str, object]:
        stored, rows = _read_for(site, clone, corpus=corpus, name=name, by=by)
        waiting = [row for row in rows if row["approved_by"] is None and row["author"] != by]
        own = sum(row["approved_by"] is None and row["author"] == by for row in rows)
        if not waiting:
            raise _wrong(stored.manifest, detail=f"nothing of another annotator waits for approval ({own} of your own)")
        for row in waiting:
            row |= {"approved_by": by, "approved": site.now}
        return _commit(stored, rows=rows, vault=site.vault) | {"own": own}

    return store.on_tip(site.settings, work)


def export(site: RoundSite, corpus: str, name: str, *, to: Path) -> dict[str, object]:
    """Write the round's items with their descriptions and notes, empty where there are none, to a private file."""
    with workspace(site.settings) as clone:
        stored = store.read(clone, corpus=corpus, name=name, vault=site.vault)
        if to.exists():
            raise _wrong(stored.manifest, detail=f"{to.name} exists already and is not replaced")
        rows = {item_of(row): row for row in of_round(stored, vault=site.vault)}
        out = io.StringIO()
        lines = csv.writer(out)
        lines.writerow([*HEADER, "author", "approved_by"])
        for item in sorted({item_of(row) for row in stored.assigned}):
            row = rows.get(item, {})
            lines.writerow(
                [
                    name_of(item),
                    *(spreadsheet.cell(row.get(key) or "") for key in ("description", "note", "author", "approved_by")),
                ]
            )
        write_private(to, out.getvalue())
        return {"corpus": corpus, "round": name, **_counts(list(rows.values()), stored=stored)}


def of_round(stored: StoredRound, *, vault: Vault) -> list[Row]:
    """Return the decrypted descriptions of a round, without those of records that were taken down."""
    return [
        row for row in store.rows(stored.folder, name=TABLE, vault=vault) if str(row["record_id"]) not in stored.gone
    ]


def lacking(stored: StoredRound, *, vault: Vault) -> int:
    """Return how many items of a round that must be described have no approved description; 0 for other rounds."""
    if not stored.manifest.described:
        return 0
    done = {item_of(row) for row in of_round(stored, vault=vault) if row["approved_by"] is not None}
    return len({item_of(row) for row in stored.assigned} - done)


def _commit(stored: StoredRound, *, rows: Sequence[Row], vault: Vault) -> dict[str, object]:
    written = store.write(stored.folder, rows, name=TABLE, vault=vault)
    manifest = stored.manifest
    commit = publish_round(
        stored.clone, corpus=manifest.corpus, name=manifest.round, event="described", written=written
    )
    return {"corpus": manifest.corpus, "round": manifest.round, **_counts(rows, stored=stored), **commit}


def _counts(rows: Sequence[Row], *, stored: StoredRound) -> dict[str, object]:
    approved = sum(row["approved_by"] is not None for row in rows)
    return {"size": len({item_of(row) for row in stored.assigned}), "described": len(rows), "approved": approved}


def _read_for(
    site: RoundSite, clone: Workspace, *, corpus: str, name: str, by: str
) -> tuple[StoredRound, list[dict[str, object]]]:
    """Return a round and its descriptions, for a person who must take part in it."""
    stored = store.read(clone, corpus=corpus, name=name, vault=site.vault)
    if by not in {*stored.manifest.annotators, stored.manifest.adjudicator}:
        raise _wrong(stored.manifest, detail="the person named with --by takes no part in the round")
    return stored, [dict(row) for row in of_round(stored, vault=site.vault)]


def _read(file: Path, *, stored: StoredRound) -> Mapping[tuple[str, int], tuple[str, str]]:
    known: Collection[tuple[str, int]] = {item_of(row) for row in stored.assigned}
    described: dict[tuple[str, int], tuple[str, str]] = {}
    try:
        lines = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8-sig")), strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _wrong(stored.manifest, detail=f"the file cannot be read ({type(error).__name__})") from None
    if not lines or set(HEADER) - set(lines[0]):
        raise _wrong(stored.manifest, detail="the file lacks the columns item, description and note")
    for number, line in enumerate(lines, start=2):
        texts = [spreadsheet.text((line[key] or "").strip()) for key in ("description", "note")]
        if not any(texts):
            continue
        try:
            item = item_named((line["item"] or "").strip())
        except ValueError:
            raise _wrong(stored.manifest, detail=f"line {number} names no item") from None
        if item not in known or item in described or not all(texts) or max(map(len, texts)) > MOST_CHARACTERS:
            detail = f"line {number} is of no item of the round, repeats one, or has no or too long a text"
            raise _wrong(stored.manifest, detail=detail)
        described[item] = (texts[0], texts[1])
    return described


def _wrong(manifest: RoundManifest, *, detail: str) -> AnnotationError:
    return AnnotationError("BadDescriptions", corpus=manifest.corpus, name=manifest.round, detail=detail)
