"""Describe a draft release for the person who approves it: its risks against their limits, and its contents."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pipelines.config.release import METADATA, Release
from pipelines.release import datasheet

WITHIN, OVER = "within", "**over: cannot be approved**"


def text(facts: Mapping[str, Any], *, terms: Release, live: Collection[str], other_columns: Sequence[str] = ()) -> str:
    """Return Markdown with a draft's risk in words, its measures beside their limits, and its counts.

    Args:
        facts: the manifest of the draft.
        terms: the limits, of the parameters with which the draft was made.
        live: the approved releases of the corpus that are not retired; only these are limited.
        other_columns: earlier releases of the corpus with other columns.
    """
    counts = facts["counts"]
    lines = [
        f"Draft **{facts['release']}** of `{facts['corpus']}` at commit `{facts['data_commit'][:12]}`:"
        f" {counts['items']:,} items of {counts['records']:,} posts. Columns: {', '.join(facts['columns'])}. No posts,"
        " no authors and no Reddit ids are in it.",
        "\n#### Risk that a post or its author is recognised\n",
        datasheet.risk(facts),
        "\n| measure | this draft | limit | |\n|---|---|---|---|",
        *_measures(facts, terms=terms, live=live),
        "",
        *_notes(facts, other_columns=other_columns),
        "\n#### Contents\n\n| split | items |\n|---|---|",
        *(f"| {split} | {items:,} |" for split, items in counts["splits"].items()),
        "\n| left out | items |\n|---|---|",
        *(f"| {datasheet.LEFT_OUT[why]} | {items:,} |" for why, items in counts["left_out"].items()),
    ]
    if counts["levels"]:
        lines += ["\n| metadata are as fine as | items |\n|---|---|"]
        lines += [f"| {level.replace('+', ' and ')} | {items:,} |" for level, items in counts["levels"].items()]
    return "\n".join(lines)


def _measures(facts: Mapping[str, Any], *, terms: Release, live: Collection[str]) -> Iterator[str]:
    counts = facts["counts"]
    alone = counts["alone"] / counts["records"]
    yield (
        f"| `max_alone`: posts with a combination of values that no other post has | {counts['alone']:,} of"
        f" {counts['records']:,} ({alone:.1%}) | {terms.max_alone:.1%} | {_said(alone <= terms.max_alone)} |"
    )
    for other, share in sorted(facts["joined"].items()):
        known = share is not None
        measured = f"{share:.1%}" if known else "not measured: its package is elsewhere"
        limited = f"{terms.max_joined:.1%}" if other in live else "none: it is retired"
        fits = other not in live or (known and share <= terms.max_joined)
        yield f"| `max_joined`: posts matched with release `{other}` | {measured} | {limited} | {_said(fits)} |"
    if counts["smallest"]:
        metadata = " and ".join(column for column in facts["columns"] if column in METADATA)
        yield (
            f"| `k`: authors who share the rarest combination of {metadata} | {counts['smallest']:,} |"
            f" {facts['k']:,} or more | {_said(counts['smallest'] >= facts['k'])} |"
        )


def _notes(facts: Mapping[str, Any], *, other_columns: Sequence[str]) -> Iterator[str]:
    if not facts["joined"]:
        yield "This is the corpus's first release, so that there is none with which its posts could be matched."
    if facts["counts"]["smallest"]:
        yield (
            f"`k` protects authors by month and subreddit only: at least {facts['k']} authors share each combination,"
            " but labels are released unchanged."
        )
    if other_columns:
        yield (
            f"Releases with other columns are out ({', '.join(other_columns)}): who has both knows more of a post than"
            " `k` allows for."
        )
    yield "What is released cannot be called back: later takedowns reach consumers only through the removal list."


def _said(fits: bool) -> str:
    return WITHIN if fits else OVER
