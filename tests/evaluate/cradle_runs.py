"""A snapshot that is CRADLE's in its numbers: gold with the counts of Table 11, answers with those of Tables 13 to 16.

The paper prints no posts. Which posts carry which labels, and which answers are wrong, is made up here so that every
label's true positives, false positives and misses, the number of posts that are exactly right, and the 14 posts that
Gemini's filter blocked with their 21 labels (SPEC 1.5) are the paper's. Jaccard is not: it needs the posts themselves.
"""

from itertools import chain

from pipelines.core.taxonomy import load
from pipelines.evaluate.report import recomputed
from tests.evaluate.printed import paper

Sets = dict[str, frozenset[str]]
CATEGORY = load("cradle").category()
NO, RAPE, HARASSED = "no_crisis", "rape_past", "sexualharassment_past"
ABUSE_NOW, ABUSE = "childabuse_endangerment_ongoing", "childabuse_endangerment_past"
BLOCKED = [*[{RAPE, ABUSE}] * 5, {RAPE, ABUSE_NOW}, {RAPE, "sexualharassment_ongoing"}, *[{HARASSED}] * 6, {NO}]


def gold() -> Sets:
    """Return the sets of 600 test posts; the first 14 are those that Gemini blocked."""
    sets = [set(labels) for labels in BLOCKED]
    left = paper("cradle").support(CATEGORY)
    for label in chain.from_iterable(BLOCKED):
        left[label] -= 1
    sets += [{NO} for _ in range(left.pop(NO))]
    crises = [label for label, n in left.items() for _ in range(n)]
    rest: list[set[str]] = [set() for _ in range(600 - len(sets))]
    for i, label in enumerate(crises):
        rest[i % len(rest)].add(label)
    return {f"post{i:03d}": frozenset(labels) for i, labels in enumerate([*sets, *rest])}


def answers(key: str, truth: Sets) -> tuple[Sets, dict[str, str]]:
    """Return what a model of the paper could have said, and the outcome of what it did not answer."""
    lost = dict.fromkeys(list(truth)[: len(BLOCKED)], "refused") if paper("cradle").lost(key) else {}
    asked = {record: labels for record, labels in truth.items() if record not in lost}
    said = {record: set(labels) for record, labels in asked.items()}
    wrong: dict[str, None] = {}
    misses = sum(counts[2] for counts in recomputed.counts(paper("cradle"), key, category=CATEGORY).values())
    most = len(asked) - recomputed.exact_hits(paper("cradle"), key, task="labels")
    for label, (_, _, lacking) in recomputed.counts(paper("cradle"), key, category=CATEGORY).items():
        carriers = [record for record in asked if label in said[record]]
        # where there are more misses than wrong posts some must fall on one post, else none need
        if misses > most:
            carriers.sort(key=lambda record: (record not in wrong, -len(asked[record])))
        else:
            carriers.sort(key=lambda record: (record in wrong, len(asked[record])))
        for record in carriers[:lacking]:
            said[record].discard(label)
            wrong[record] = None
    room = most - len(wrong)
    if room < 0:
        raise ValueError(f"{key}: more posts are wrong than may be")
    for label, (_, more, _) in recomputed.counts(paper("cradle"), key, category=CATEGORY).items():
        fresh = [record for record in asked if label not in asked[record] and record not in wrong][: min(room, more)]
        again = [record for record in wrong if label not in asked[record] and label not in said[record]]
        for record in [*fresh, *again[: more - len(fresh)]]:
            said[record].add(label)
            wrong[record] = None
        room -= len(fresh)
    return {record: frozenset(labels) for record, labels in {**dict.fromkeys(lost, ()), **said}.items()}, lost
