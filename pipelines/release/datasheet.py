"""Write the datasheet of a release (Gebru et al. 2021), with counts of released and left-out items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    said = (
        f"{alone} of {records} posts ({alone / records:.1%}) have a combination of pictures, split, labels and "
        "metadata that no other post has. A person who has the same values from elsewhere, such as another release of "
        "this corpus, can match these posts without the key, and narrow other posts down to those that share theirs."
    )
    for other, share in sorted(facts["joined"].items()):
        found = "was not measured, because that package is elsewhere" if share is None else f"is {share:.1%}"
        said += f" The share of posts that this attack matches with release `{other}` {found}."
    return said


def _table(head: str, counts: Mapping[str, int]) -> str:
    return "\n".join([f"| {head} | items |", "|---|---|", *(f"| {name} | {n} |" for name, n in counts.items())])


def _labels(counts: Mapping[str, Mapping[str, int]]) -> str:
    return "\n\n".join(_table(category, found) for category, found in counts.items())


def _left_out(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{n} items {LEFT_OUT[why]}" for why, n in counts.items())


def _coarse(counts: Mapping[str, Any]) -> str:
    levels = ", ".join(f"{n} items by {level.replace('+', ' and ')}" for level, n in counts["levels"].items())
    return f"{levels or 'no metadata is released'}."
