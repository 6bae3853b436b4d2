"""Import a published dataset as gold, splits and, if it has texts or pictures, posts (``corpus import``).

Labels and splits go to ``annotations/<corpus>/<dataset>/`` as CSV files of ids, for ``gold.<corpus>.published`` and
``split.<corpus>.published``; texts and pictures are read, scrubbed, sealed and filtered by the same steps as Reddit's
posts. Labels from models are written to ``silver.csv``: they are not gold. Nothing is committed if more than 1 % of the
rows are invalid, or more than the share that ``--allow-bad`` gives.
A count that differs from the paper's is reported and does not stop the import.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.annotate.imports.commit import Import, picture_file
from pipelines.annotate.imports.join import joined
from pipelines.annotate.imports.mapping import Answers, CountComparison, DatasetMapping, compare_counts, totals
from pipelines.annotate.imports.mapping import read as read_mapping
from pipelines.annotate.imports.published_files import File, read_files
from pipelines.annotate.imports.rows import ONE_PART, UNLABELLED, GatheredEntries, gather, missing_columns, plain_names
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, DataError
from pipelines.core.taxonomy import Scheme, load
from pipelines.store import tables
from pipelines.store.exclusions import by_reason
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import workspace

if TYPE_CHECKING:
    from rich.console import Console

# Ours: a few invalid lines are common in published files; more than 1 % means that the mapping is wrong.
MAX_BAD = 0.01
# Ours: lines shown per reason, enough to find the fault.
SHOWN = 20
CONFLICT = (
    "conflict: rows of one item differ. If only their labels do, `conflict: majority`, `all` or `first` in the mapping "
    "takes what more than half of the rows have, every label, or the first row"
)
Report = dict[str, Any]
Parts = dict[str, list[Answers]]


@dataclass(frozen=True)
class ReadDataset:
    """The content of a published dataset's files; ``lines`` compare its counts with those that its paper states.

    ``parts`` has the answers of the items of each part.
    """

    files: list[File]
    gathered: GatheredEntries
    parts: Parts
    lines: list[CountComparison]
    refusal: str | None


def run(
    corpus: str,
    *,
    files: Sequence[Path],
    mapping: str,
    params: Params,
    settings: Settings,
    vault: Vault,
    now: datetime,
    dry_run: bool = False,
    allow_bad: float = MAX_BAD,
    pictures: Path | None = None,
    console: Console | None = None,
    root: Path = Path(),
) -> Report:
    """Import the files of one dataset into a corpus and commit them; with ``dry_run``, only read and report.

    ``mapping`` is the name of an included mapping or the path of a file; ``allow_bad`` is the share of rows that may be
    invalid; ``pictures`` is the folder with the pictures that the files name (default: that of the first file);
    ``console`` receives the counts before anything is committed (default: stderr). ``root`` has the parameters and a
    team's own label schemes.

    The report (:func:`describe`) is extended, after an import, by what was committed (``commit.publish``).
    """
    loaded = read_mapping(mapping, root=root)
    scheme = _fit(corpus, mapping=loaded, params=params, root=root)
    read = read_all(files, mapping=loaded, scheme=scheme, allow_bad=allow_bad)
    show(read, mapping=loaded, console=console)
    if read.refusal and not dry_run:
        raise DataError("BadImport", file=_names(read.files), mapping=loaded.dataset, detail=read.refusal)
    folder = pictures or (files[0] if files[0].is_dir() else files[0].parent)
    given = _pictures(read, mapping=loaded, folder=folder)
    # an entry with a Reddit id gets the record id of the collected post
    entries = read.gathered.entries
    ids = [vault.record_id(e.name, domain="post" if e.reddit else "import") for e in entries]
    gone = vault.tombstoned(sorted(set(ids)))
    of_reddit = {identity for identity, e in zip(ids, entries, strict=True) if e.reddit} - gone
    here, left_out = _collected(corpus, of_reddit, settings=settings)
    report = describe(read, mapping=loaded, scheme=scheme) | {
        "corpus": corpus,
        "dry_run": dry_run,
        "tombstoned": sum(identity in gone for identity in ids),
        "matched": len(here),
        "dropped": left_out,
        "not_collected": len(of_reddit - here) - sum(left_out.values()),
    }
    if params.corpora[corpus].content == "images":
        report["pictures"] = given if loaded.columns.picture else sum(identity in here for identity in ids)
    if dry_run:
        return report
    kept = {(identity, e.image): e for identity, e in zip(ids, entries, strict=True) if identity not in gone}
    record = {key: report[key] for key in ("mapping", "digests", "items", "tombstoned", "matches", "differences")}
    # numbers only: the lines of a published file name people
    record |= {"left_out": read.gathered.bad_rows, "cut": len(read.gathered.cut)}
    record["members"] = dict(sorted(Counter(entry.split for entry in entries if entry.split is not None).items()))
    record |= {"source": loaded.source, "rights": loaded.rights} | {
        key: report[key] for key in ("pictures",) if key in report
    }
    return report | Import(corpus, kept, loaded, params, settings, vault, now, folder).publish(record)


def _collected(corpus: str, posts: set[str], *, settings: Settings) -> tuple[set[str], dict[str, int]]:
    """Return which of these posts a corpus has, and how many others it dropped, by reason."""
    if not posts:
        return set(), {}
    with workspace(settings, folders=["data"]) as clone:
        for name in ("records.parquet", "drops.parquet"):
            clone.checkout_months(corpus, name)
        months = clone.path / "data" / corpus
        records = tables.concat(list(months.glob("*/records.parquet")), name="records", columns=["record_id"])
        drops = tables.concat(list(months.glob("*/drops.parquet")), name="drops", columns=["record_id", "reason"])
    here = posts & set(records["record_id"].to_pylist())
    reasons = dict(zip(drops["record_id"].to_pylist(), drops["reason"].to_pylist(), strict=True))
    return here, by_reason(reasons[record_id] for record_id in posts & reasons.keys() - here)


def _pictures(read: ReadDataset, *, mapping: DatasetMapping, folder: Path) -> int:
    """Return how many items have a picture in the files or in the folder; refuse a folder that has none of them."""
    named = [entry.picture for entry in read.gathered.entries if entry.picture]
    count = sum(picture.cell is not None or picture_file(picture, folder=folder) is not None for picture in named)
    if named and not count:
        detail = f"0 of {len(named):,} items have a picture: {folder} has none of the files; pass --pictures FOLDER"
        raise DataError("BadImport", file=_names(read.files), mapping=mapping.dataset, detail=detail)
    return count


def check(corpus: str, mapping: Path, *, files: Sequence[Path], root: Path) -> None:
    """Refuse a mapping that does not fit the label scheme of a corpus below ``root``, or files of labels."""
    loaded, scheme = read_mapping(str(mapping), root=root), load(corpus, root=root)
    if files and (refusal := read_all(files, mapping=loaded, scheme=scheme).refusal):
        raise DataError("BadLabels", file=", ".join(path.name for path in files), detail=refusal)


def read_all(
    files: Sequence[Path], *, mapping: DatasetMapping, scheme: Scheme, allow_bad: float = MAX_BAD
) -> ReadDataset:
    """Read the files of a dataset, and compare their counts with those in its paper."""
    tables = joined(read_files(files, layout=mapping), mapping=mapping)
    read = sorted(tables, key=lambda f: (f.name, f.digest))
    gathered = gather(read, mapping=mapping, scheme=scheme)
    detail = "" if gathered.rows else "it has no rows"
    if missing := missing_columns([file for file in read if file.size], mapping=mapping):
        known = ", ".join(dict.fromkeys(name for file in read for name in plain_names(file)))
        detail = f"no column for {', '.join(missing)}; columns of the file: {known or 'none with a plain name'}"
    if detail:
        raise DataError("BadImport", file=_names(read), mapping=mapping.dataset, detail=detail)
    named = mapping.parts or ONE_PART
    parts: Parts = {part: [e.answers for e in gathered.entries if part in e.parts] for part in named}
    lines = [
        line
        for part, expected in mapping.expected.items()
        if parts[part]
        for line in compare_counts(expected, parts[part], part=part, scheme=scheme)
    ]
    return ReadDataset(read, gathered, parts, lines, _refusal(gathered, allowed=allow_bad))


def describe(read: ReadDataset, *, mapping: DatasetMapping, scheme: Scheme) -> Report:
    """Return the report of an import: counts, digests, label names and line numbers, without the content of rows.

    ``cut`` are rows of which only the complete posts are imported, ``reddit`` items that may match collected posts,
    ``rules`` items that break a rule of the scheme beyond the hard rules, and ``absent`` parts that only the paper has.
    """
    differences = [str(line) for line in read.lines if not line.matches]
    return {
        "dataset": mapping.dataset,
        "mapping": mapping.digest,
        "digests": {file.name: file.digest for file in read.files},
        "rows": read.gathered.rows,
        "items": len(read.gathered.entries),
        "bad": {reason: _places(places) for reason, places in read.gathered.bad.items()},
        "cut": _places(read.gathered.cut),
        "repeated": read.gathered.repeated,
        "reddit": sum(entry.reddit for entry in read.gathered.entries),
        "unknown_labels": read.gathered.unknown,
        "rules": read.gathered.rules,
        "parts": {
            part: {"items": len(items), "labels": totals(items, scheme=scheme)}
            for part, items in read.parts.items()
            if items
        },
        "table": [asdict(line) | {"matches": line.matches} for line in read.lines],
        "absent": [part for part in mapping.expected if not read.parts[part]],
        "differences": differences,
        "matches": not differences if read.lines else None,
        "refused": read.refusal,
    }


def sentence(report: Report, *, pictures: bool) -> str:
    """Return what an import found, in one line; ``pictures``: with how many items have one."""
    line = f"{report['rows']:,} rows: {report['items']:,} items, {report['tombstoned']:,} of them taken down before"
    if pictures:
        line += f"; {report['pictures']:,} of {report['items']:,} items have a picture"
    if report["reddit"]:
        why = ", ".join(f"{reason}: {count:,}" for reason, count in report["dropped"].items())
        line += f"; {report['matched']:,} match posts of the corpus"
        line += f", {sum(report['dropped'].values()):,} are of posts that it dropped ({why})" if why else ""
        line += f", {report['not_collected']:,} are of other posts"
    return f"{line}."


def next_step(report: Report, *, mapping: DatasetMapping, params: Params) -> str:
    """Return the next command after an import, in a sentence."""
    corpus = report["corpus"]
    gold = f"annotations/{corpus}/{mapping.dataset}/gold.csv"
    if report["dry_run"]:
        return "Nothing was written. Next: the same command without --dry-run."
    if report["not_collected"] and not report["matched"] and not mapping.columns.body:
        return f"The labels wait for their posts. Next: corpus run {corpus} --months FIRST..LAST collects them."
    if report["gold"] and params.gold[str(corpus)].published != gold:
        return f"Next: corpus params set gold.{corpus}.published {gold} --reason TEXT makes them gold."
    # posts that come with the file need no month of a source
    only = " --months none" if mapping.columns.body or mapping.columns.picture else ""
    return f"Next: corpus run {corpus}{only} goes on with them."


def show(read: ReadDataset, *, mapping: DatasetMapping, console: Console | None = None) -> None:
    """Print the paper's counts, the imported counts, what the mapping assumes, and what was left out."""
    from rich.console import Console
    from rich.table import Table

    console = console or Console(stderr=True)
    table = Table(title=f"{mapping.title} ({mapping.source})")
    for name in ("Part", "Count", "Paper", "Found", ""):
        table.add_column(name, justify="right" if name in ("Paper", "Found") else "left")
    for line in read.lines:
        note = "" if line.matches else f"differs by {line.found - line.expected:+,}"
        table.add_row(line.part, line.what, f"{line.expected:,}", f"{line.found:,}", note)
    if read.lines:
        console.print(table)
    notes = [f"{name}: {text.strip()}" for name in ("tried", "assumed") if (text := getattr(mapping, name))]
    notes += [f"{file.name}: {file.grid.note}" for file in read.files if file.grid.note]
    notes += [f"left out, {reason}: {_summary(places)}" for reason, places in read.gathered.bad.items()]
    notes += [CONFLICT for reason in read.gathered.bad if reason == "conflict"]
    notes += [f"cut off, complete posts kept: {_summary(cut)}" for cut in [read.gathered.cut] if cut]
    for note in notes:
        console.print(note, markup=False, highlight=False)
    if read.lines:
        differing = sum(not line.matches for line in read.lines)
        console.print(f"{differing} of {len(read.lines)} counts differ from the paper's")


def _fit(corpus: str, *, mapping: DatasetMapping, params: Params, root: Path) -> Scheme:
    section = params.corpora.get(corpus)
    if section is None:
        detail = f"there is no such corpus; define it in params.yaml to import {mapping.dataset} into it"
        raise BadParams(where=f"corpora.{corpus}", detail=detail)
    if section.scheme != mapping.scheme:
        detail = f"the corpus has label scheme {section.scheme}, but {mapping.dataset} has {mapping.scheme}"
        raise BadParams(where=f"corpora.{corpus}.scheme", detail=detail)
    if mapping.columns.picture and section.content != "images":
        detail = f"{mapping.dataset} has pictures, but this corpus has texts"
        raise BadParams(where=f"corpora.{corpus}.content", detail=detail)
    if mapping.columns.body and not mapping.columns.picture and section.content != "texts":
        detail = (
            f"{mapping.dataset} has texts and no pictures, but this corpus has images. If they are the texts of "
            "pictures, name the column of the pictures as columns.picture in the mapping; without columns.body, only "
            "labels are imported"
        )
        raise BadParams(where=f"corpora.{corpus}.content", detail=detail)
    return load(mapping.scheme, root=root)


def _refusal(gathered: GatheredEntries, *, allowed: float) -> str | None:
    if not gathered.entries and UNLABELLED in gathered.bad:
        return "no row has a label"
    if gathered.bad_rows <= allowed * gathered.rows:
        return None
    reasons = "; ".join(f"{reason}: {_summary(places)}" for reason, places in gathered.bad.items())
    share = f"more than the share of {allowed:g} that may be left out (`corpus import --allow-bad`)"
    return f"{gathered.bad_rows:,} of {gathered.rows:,} rows are invalid, {share} ({reasons})"


def _summary(places: Sequence[tuple[str, int]]) -> str:
    shown = ", ".join(f"{name}:{line}" for name, line in places[:3])
    return f"{len(places):,} rows ({shown}{', ...' if len(places) > 3 else ''})"


def _places(places: Sequence[tuple[str, int]]) -> dict[str, object]:
    return {"rows": len(places), "lines": [f"{name}:{line}" for name, line in places[:SHOWN]]}


def _names(files: Sequence[File]) -> str:
    return ", ".join(file.name for file in files)
