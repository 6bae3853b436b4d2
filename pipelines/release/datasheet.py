"""The datasheet of a release (Gebru et al. 2021), with the numbers of what is in it and of what is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEFT_OUT = {
    "without_labels": "without labels",
    "taken_down": "taken down before the release was made",
    "no_address": "known by no Reddit id, so that nobody could fetch them",
    "suppressed": "with metadata that too few authors share",
}
FILES = {
    "figsim": "`annotations.csv` (id, image of a gallery counted from 0, labels) and `splits.csv`",
    "cradle": "One file a split; `agreement` says whether people gave the labels (`gold`), all models of the ensemble "
    "(`unanimous`) or most of them (`consensus`, which the paper's consensus subset joins with `unanimous`)",
}


def write(facts: Mapping[str, Any]) -> str:
    """Return ``DATASHEET.md`` of a release with these facts, those of its manifest; no id stands in it."""
    counts = facts["counts"]
    metadata = [c for c in facts["columns"] if c in ("month", "subreddit")]
    return f"""# {facts["title"]}

Release `{facts["release"]}` of corpus `{facts["corpus"]}` at data commit `{facts["data_commit"]}`.
Contact: {facts["contact"]}. Terms: `LICENSE.txt`.

## Motivation
Labels for research on how people speak of crises. It holds no post: ids, labels and splits, and the means to fetch the
posts again from Reddit with access of your own.

## Composition
{counts["items"]} items of {counts["records"]} posts, labelled after the scheme `{facts["scheme"]}`.
{FILES[facts["form"]]}.

{_table("split", counts["splits"])}

{_labels(counts["labels"])}

Left out: {_left_out(counts["left_out"])}.

## Collection and labelling
Public submissions of subreddits, scrubbed, deduplicated and split so that near-duplicates and posts of one author stay
on one side. People labelled what is marked gold; where models voted, the file says how far they agreed.

## What could identify somebody
- **Ids are this release's own.** They are in no other release, and lead to nothing without the key.
- **The key** (handed to you apart) opens the addresses in `fetch.csv`. Do not pass it on, and do not publish addresses.
- **Metadata** ({", ".join(metadata) or "none"}): every combination is shared by {facts["k"]} authors or more; \
{_coarse(counts)}
- **Labels are not made coarse.** For {counts["alone"]} of {counts["records"]} posts, split, labels and metadata \
together are those of no other. Two releases that say the same could be joined on these, and on no others.
- No author and no group of near-duplicates is released.

## Fetching the items
    export REDDIT_CLIENT_ID=… REDDIT_CLIENT_SECRET=… REDDIT_USER_AGENT="python:my-study:v1 (by /u/…)"
    python hydrate.py . --key {facts["release"]}.key --out items

It needs Python 3.11 and nothing else, goes on where it was when interrupted, and prints what is left by label and
split. `ok` is what was labelled; `changed` is no longer that, and is not kept.

## Maintenance
People delete posts and ask us to. Get `removal.csv` again before every use and run `hydrate.py --removal`: what is on
it is neither asked for nor kept. `hydrate.py --again` also drops what has gone from Reddit since. Whoever wants a post
taken out writes to the contact above.

## Uses
Not for finding, contacting, scoring or moderating individual people.
"""


def _table(head: str, counts: Mapping[str, int]) -> str:
    return "\n".join([f"| {head} | items |", "|---|---|", *(f"| {name} | {n} |" for name, n in counts.items())])


def _labels(counts: Mapping[str, Mapping[str, int]]) -> str:
    return "\n\n".join(_table(category, found) for category, found in counts.items())


def _left_out(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{n} items {LEFT_OUT[why]}" for why, n in counts.items())


def _coarse(counts: Mapping[str, Any]) -> str:
    levels = ", ".join(f"{n} items by {level.replace('+', ' and ')}" for level, n in counts["levels"].items())
    return f"{levels or 'none is given'}."
