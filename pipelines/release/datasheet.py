"""Write the datasheet of a release (Gebru et al. 2021), and the text for the person who approves a draft."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.core.config.operate import AGREEMENT, METADATA, Release
from pipelines.core.templates import render
from pipelines.release import release_tables

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
}


def write(facts: Mapping[str, Any]) -> str:
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
        "metadata that no other post has. A person who has the same values from elsewhere, such as another release of "
        "this corpus, can match these posts without the key, and narrow other posts down to those that share theirs."
    )
    for other, share in sorted(facts["joined"].items()):
        measured = "was not measured, because that package is elsewhere" if share is None else f"is {share:.1%}"
        sentences += f" The share of posts that this attack matches with release `{other}` {measured}."
    return sentences


def text(facts: Mapping[str, Any], *, terms: Release, live: Collection[str], other_columns: Sequence[str] = ()) -> str:
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
