"""Write the datasheet of a release (Gebru et al. 2021), with counts of released and left-out items."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pipelines.config.release import METADATA, Release

LEFT_OUT = {
    "without_labels": "without labels",
    "taken_down": "taken down before the release was made",
    "no_address": "without a Reddit id, so that they cannot be fetched",
    "suppressed": "with metadata that too few authors share",
}
FILES = {
    "figsim": "`annotations.csv` (id, image of a gallery counted from 0, labels) and `splits.csv`",
    "cradle": "One file per split; `agreement` is `gold` for labels given by people, `unanimous` for labels given by "
    "all models of the ensemble, `consensus` for labels given by most (the paper's consensus subset has both)",
}


def write(facts: Mapping[str, Any]) -> str:
    """Return the text of a release's ``DATASHEET.md``, built from its manifest (``facts``), without ids."""
    counts, schedule = facts["counts"], facts["removal"]
    metadata = [c for c in facts["columns"] if c in ("month", "subreddit")]
    return f"""# {facts["title"]}

Release `{facts["release"]}` of corpus `{facts["corpus"]}` at data commit `{facts["data_commit"]}`.
Contact: {facts["contact"]}. Terms: `LICENSE.txt`.

## Motivation
Labels for research on how people write about crises. It contains no posts, only ids, labels and splits, and a script
that fetches the posts again from Reddit with your own access.

## Composition
{counts["items"]} items of {counts["records"]} posts, labelled with the scheme `{facts["scheme"]}`.
{FILES[facts["form"]]}.

{_table("split", counts["splits"])}

{_labels(counts["labels"])}

Left out: {_left_out(counts["left_out"])}.

## Collection and labelling
Public submissions to subreddits, scrubbed, deduplicated and split so that near-duplicates and posts of one author are
in the same split. Gold labels were given by people; where models voted, the file states how far they agreed.

## Re-identification risk
- **Ids are specific to this release.** They are in no other release and cannot be resolved without the key. Posts can
  still be matched by their values:
- **The key** (handed over separately) decrypts the addresses in `fetch.csv`. Do not share it or publish addresses.
- **Metadata** ({", ".join(metadata) or "none"}): every combination is shared by {facts["k"]} authors or more; \
{_coarse(counts)}
- **Labels and splits are not generalised.** {risk(facts)}
- **Removals are published in batches** every {schedule["every_days"]} days, of {schedule["at_least"]} posts or more. \
A smaller batch is published if a post would otherwise wait for more than {schedule["at_most_days"]} days. With the \
lists of two releases, the posts of a batch may be matched, the more easily the smaller it is, and with copies of both \
packages by their values.
- Authors and groups of near-duplicates are not released.

## Fetching the items
    export REDDIT_CLIENT_ID=… REDDIT_CLIENT_SECRET=… REDDIT_USER_AGENT="python:my-study:v1 (by /u/…)"
    python hydrate.py . --key {facts["release"]}.key --out items

It needs only Python 3.11, resumes where it stopped when interrupted, and prints the remaining items by label and split.
Outcome `ok`: the post is the one that was labelled; `changed`: it differs from it, and is not kept.

## Maintenance
People delete posts, and ask us to delete posts. Get the current `removal.json` before every use and run
`hydrate.py --removal`: posts on the list are not fetched, and stored copies are removed. `hydrate.py --again` also
removes posts that were deleted from Reddit since. To have a post removed, write to the contact above.

## Uses
Not for finding, contacting, scoring or moderating individual people.
"""


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


def _table(head: str, counts: Mapping[str, int]) -> str:
    return "\n".join([f"| {head} | items |", "|---|---|", *(f"| {name} | {n} |" for name, n in counts.items())])


def _labels(counts: Mapping[str, Mapping[str, int]]) -> str:
    return "\n\n".join(_table(category, items) for category, items in counts.items())


def _left_out(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{n} items {LEFT_OUT[why]}" for why, n in counts.items())


def _coarse(counts: Mapping[str, Any]) -> str:
    levels = ", ".join(f"{n} items by {level.replace('+', ' and ')}" for level, n in counts["levels"].items())
    return f"{levels or 'no metadata is released'}."


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
        risk(facts),
        "\n| measure | this draft | limit | |\n|---|---|---|---|",
        *_measures(facts, terms=terms, live=live),
        "",
        *_notes(facts, other_columns=other_columns),
        "\n#### Contents\n\n| split | items |\n|---|---|",
        *(f"| {split} | {items:,} |" for split, items in counts["splits"].items()),
        "\n| left out | items |\n|---|---|",
        *(f"| {LEFT_OUT[why]} | {items:,} |" for why, items in counts["left_out"].items()),
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
