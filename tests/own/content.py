"""Write small Reddit dumps with labels, dirt and a known truth: two text sets (`pictures` writes the third set).

`python tests/own/content.py FOLDER` writes `texts`, and `second` with `--second`. All classes share one vocabulary.
"""

import argparse
import csv
import itertools
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import yaml
import zstandard

words = SimpleNamespace(**yaml.safe_load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8")))

KINDS, SHARES = ("self works", "self fails", "other works", "other fails"), (0.32, 0.26, 0.22, 0.20)
EVENTS = ("sows", "picks", "loses", "shares")
BOARD, OTHERS, SECOND = "shedwheels", ("kettleclub", "windowsillherbs"), "allotmentdiary"
HEADS = (15, 12, 10, 8, 7, 6, 5, 4, 4, 3, 3, 3, *[2] * 15)  # posts of the authors who post more than once
NOISE, LOYALTY = 0.10, 0.6  # share of wrong labels; share of an author's posts in the author's usual class
AUTUMN, WINTER = (datetime(2022, 11, 1, tzinfo=UTC), datetime(2023, 1, 1, tzinfo=UTC)), "yj0000"
SPRING, LATER = (datetime(2023, 2, 1, tzinfo=UTC), datetime(2023, 5, 1, tzinfo=UTC)), "10q0000"


@dataclass(frozen=True)
class Truth:
    """What a correct import of one set contains; every key is a Reddit id without its prefix."""

    labels: dict[str, str]  # the true class of each labelled post in the dump; of `second`, joined by `;`
    written: dict[str, str]  # the class in labels.csv, in its canonical spelling; for a disputed post, the first row
    noisy: frozenset[str]  # posts whose written class is wrong
    keep: frozenset[str]  # labelled posts that must be in the corpus
    drop: dict[str, str]  # labelled posts that must not, with the reason: copy, deleted, language, not a picture, ...
    either: frozenset[str]  # labelled posts that a policy may keep or drop: disputed labels, the animated picture
    copies: dict[str, str]  # near-duplicates and their originals; the earliest post is the original
    unknown: frozenset[str]  # ids that labels.csv names and the dump lacks
    authors: dict[str, str]  # of every labelled post; "[deleted]" where the dump hides it
    majority: float  # share of the most frequent written class in `keep`


@dataclass
class Draft:
    """A post before its id is known."""

    title: str
    body: str
    author: str
    kind: str  # empty: not labelled
    at: int
    board: str
    why: str = ""  # reason to drop it
    original: "Draft | None" = None
    url: str = ""
    id: str = ""


def _base36(number: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    return (_base36(number // 36) if number >= 36 else "") + digits[number % 36]


def number_posts(drafts: list[Draft], *, first: str, step: int) -> None:
    """Sort by time, make the times unique, and give ids that grow with time as Reddit's do."""
    drafts.sort(key=lambda draft: draft.at)
    for before, draft in itertools.pairwise(drafts):
        draft.at = max(draft.at, before.at + 1)
    for draft in drafts:
        draft.id = _base36(int(first, 36) + 5 * (draft.at - drafts[0].at) + step)


def cast(rng: random.Random, sizes: Sequence[int], kinds: Sequence[str], shares: Sequence[float]) -> list[list[str]]:
    """Return an author and a class per post, shuffled."""
    posts = []
    for number, size in enumerate(sizes):
        name = rng.choice(words.names) + rng.choice(words.surnames)
        usual = rng.choices(kinds, shares)[0]
        loyal = [usual if rng.random() < LOYALTY else rng.choices(kinds, shares)[0] for _ in range(size)]
        posts += [[f"{name}{100 + number * 7}", kind] for kind in loyal]
    rng.shuffle(posts)
    return posts


def _story(rng: random.Random, kind: str) -> str:
    """Describe one repair now and, in some posts, another one earlier, which the class does not depend on."""
    actor, end = kind.split()
    part, bike = rng.choice(words.parts), rng.choice(words.bikes)

    def repair(who: str, how: str, when: list[str]) -> str:
        said = [rng.choice(pool) for pool in (when, words.actors[who], words.verbs, [f"the {part}"], words.beside[who])]
        return " ".join(filter(None, said)) + f", and {rng.choice(words.ends[how])}."

    told = [repair(actor, end, words.now)]
    if rng.random() < 0.85:
        told[0] += f" As of now, {rng.choice(words.ends[end])}."
    if rng.random() < 0.33:
        other = actor if rng.random() < 0.3 else {"self": "other", "other": "self"}[actor]
        told.append(repair(other, end if rng.random() < 0.3 else {"works": "fails", "fails": "works"}[end], words.then))
    chosen = rng.sample(words.fillers, rng.randint(1, 3))
    told += [s.format(part=rng.choice(words.parts), bike=bike, n=rng.randint(2, 90)) for s in chosen]
    rng.shuffle(told)
    return str(rng.choice(["\r\n", "\n\n", " ", " "])).join(told) + str(rng.choice(words.spice))


def other_posts(rng: random.Random, count: int, span: int) -> list[Draft]:
    """Draft unlabelled posts of the other subreddits."""
    made = []
    for _ in range(count):
        fills = {"a": rng.choice(words.things), "b": rng.choice(words.things), "n": rng.randint(2, 90)}
        title, body = (line.format(**fills) for line in rng.sample(words.chatter, 2))
        made.append(Draft(title, body, f"Leaf{rng.randint(1, 90)}", "", rng.randrange(span), rng.choice(OTHERS)))
    return made


def _submission(rng: random.Random, draft: Draft, start: datetime) -> dict[str, object]:
    link = f"/r/{draft.board}/comments/{draft.id}/{'_'.join(draft.title.lower().split()[:5])}/"
    author, board, now = sum(draft.author.encode()) ** 2, sum(draft.board.encode()), int(start.timestamp()) + draft.at
    made: dict[str, object] = {
        "id": draft.id, "author": draft.author, "author_fullname": "t2_" + _base36(36**5 + author),
        "subreddit": draft.board, "subreddit_id": "t5_" + _base36(10**7 + board), "subreddit_type": "public",
        "created_utc": now, "retrieved_on": now + 90_000, "title": draft.title, "selftext": draft.body,
        "is_self": not draft.url, "url": draft.url or "https://www.reddit.com" + link, "permalink": link,
        "domain": draft.url.split("/")[2] if draft.url else "self." + draft.board, "over_18": False, "spoiler": False,
        "num_comments": rng.randrange(40), "score": int(rng.paretovariate(1)) % 5000, "upvote_ratio": 0.9,
        "removed_by_category": {"deleted": "deleted", "removed": "moderator"}.get(draft.why), "edited": False,
        "link_flair_text": None, "stickied": False, "locked": False, "is_video": False,
    }  # fmt: skip
    if draft.author == "[deleted]":
        made.pop("author_fullname")
    if draft.original and draft.board != draft.original.board:
        made["crosspost_parent"] = "t3_" + draft.original.id
    return made


def write_dump(folder: Path, rng: random.Random, drafts: list[Draft], start: datetime, name: str) -> None:
    """Write one file per month, or one in all where `name` has no %; the last file has one broken line."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[str]] = {}
    for draft in drafts:
        made = _submission(rng, draft, start)
        month = datetime.fromtimestamp(int(str(made["created_utc"])), UTC)
        files.setdefault(month.strftime(name), []).append(json.dumps(made, ensure_ascii=rng.random() < 0.5))
    last = list(files.values())[-1]
    last.insert(len(last) // 2, last[0][: len(last[0]) // 2])
    for file, lines in files.items():
        (folder / file).write_bytes(zstandard.compress("".join(line + "\n" for line in lines).encode()))


def _wrong(rng: random.Random, kind: str, kinds: Sequence[str]) -> str:
    return rng.choice([other for other in kinds if other != kind])


def write_labels(
    folder: Path, rng: random.Random, drafts: list[Draft], kinds: Sequence[str], header: Sequence[str]
) -> Truth:
    """Write labels.csv with noise, unknown ids, an untidy row and two rows that disagree; return the truth."""
    posts = [draft for draft in drafts if draft.kind]
    noisy = {draft.id for draft in rng.sample(posts, round(NOISE * len(posts)))}
    written = {draft.id: _wrong(rng, draft.kind, kinds) if draft.id in noisy else draft.kind for draft in posts}
    copies = {draft.id: draft.original.id for draft in drafts if draft.original}
    touched = {*noisy, *copies, *copies.values()}
    plain = [draft.id for draft in posts if not draft.why and draft.id not in touched]
    untidy, disputed = rng.sample(plain, 2)
    unknown = [_base36(int(drafts[-1].id, 36) + 1 + n) for n in range(4)]
    rows = [(id_, kind.title() + "  " if id_ == untidy else kind, rng.choice("AB")) for id_, kind in written.items()]
    rows += [(id_, rng.choice(kinds), "B") for id_ in unknown]
    rng.shuffle(rows)
    rows.append((disputed, _wrong(rng, written[disputed], kinds), "C"))
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *(row[: len(header)] for row in rows)])
    drop = {draft.id: draft.why for draft in posts if draft.why not in ("", "animated")}
    either = frozenset({disputed} | {draft.id for draft in posts if draft.why == "animated"})
    keep = frozenset(written) - frozenset(drop) - either
    majority = Counter(written[id_] for id_ in keep).most_common(1)[0][1] / len(keep)
    labels, authors = {draft.id: draft.kind for draft in posts}, {draft.id: draft.author for draft in posts}
    return Truth(labels, written, frozenset(noisy), keep, drop, either, copies, frozenset(unknown), authors, majority)


def _mark(rng: random.Random, drafts: list[Draft], reasons: dict[str, int]) -> None:
    """Turn some posts into deleted, removed, foreign or short ones."""
    causes = [why for why, count in reasons.items() for _ in range(count)]
    for draft, why in zip(rng.sample(drafts, len(causes)), causes, strict=True):
        draft.why = why
        if why in ("deleted", "removed"):
            draft.body = f"[{why}]"
            draft.author = draft.author if why == "removed" and rng.random() < 0.5 else "[deleted]"
        elif why == "language":
            draft.title, draft.body = words.foreign[sum(post.why == why for post in drafts) - 1]
        else:
            draft.title, draft.body = rng.choice(words.parts), rng.choice(words.tiny)


def copy_of(draft: Draft, rng: random.Random, *, title: str, body: str, author: str, board: str = "") -> Draft:
    later, why = draft.at + rng.randrange(3600, 400_000), "" if board else "copy"
    return Draft(title, body, author, "" if board else draft.kind, later, board or draft.board, why, draft)


def texts(folder: Path, *, seed: int) -> Truth:
    """Write two months of dumps with 300 posts on bicycle repairs: who did the latest one, and whether it works."""
    rng, span = random.Random(seed), int((AUTUMN[1] - AUTUMN[0]).total_seconds())
    drafts = []
    for author, kind in cast(rng, [*HEADS, *[1] * (284 - sum(HEADS))], KINDS, SHARES):
        title = f"{rng.choice(words.parts).capitalize()} of the {rng.choice(words.bikes)}"
        title += rng.choice(["", " 🚲", ", a report", "?"])
        drafts.append(Draft(title, _story(rng, kind), author, kind, rng.randrange(span * 9 // 10), BOARD))
    _mark(rng, drafts, {"deleted": 6, "removed": 6, "language": 2, "short": 5})
    chosen = rng.sample([draft for draft in drafts if not draft.why], 22)
    others = other_posts(rng, 260, span)
    for number, post in enumerate(chosen[:16]):
        edited = number % 2 == 0
        body = post.body + ("\n\nEDIT: a word." if edited else " Not my bike.")
        title, author = (post.title, post.author) if edited else (post.title + " (x-post)", f"Magpie{number}")
        drafts.append(copy_of(post, rng, title=title, body=body, author=author))
    for post in chosen[16:]:
        others.append(
            copy_of(post, rng, title=post.title, body=post.body, author=post.author, board=rng.choice(OTHERS))
        )
    drafts += others
    number_posts(drafts, first=WINTER, step=0)
    write_dump(folder, rng, drafts, AUTUMN[0], "RS_%Y-%m.zst")
    return write_labels(folder, rng, drafts, KINDS, ("post", "kind", "coder"))


def second(folder: Path, *, seed: int) -> Truth:
    """Write one dump of three months with 240 posts by 60 authors on what the author did on a plot, if anything."""
    rng, span = random.Random(seed), int((SPRING[1] - SPRING[0]).total_seconds())
    sizes = Counter([*range(60), *rng.choices(range(60), [1 / (n + 1) for n in range(60)], k=180)])
    kinds = [";".join(kinds) for n in range(4) for kinds in itertools.combinations(EVENTS, n)]
    drafts = []
    for author, kind in cast(rng, list(sizes.values()), kinds, [2.5, 3, 3, 2, 3, *[1] * 10]):
        told = rng.sample(words.plot, rng.randint(1, 3))
        for event in EVENTS:
            if event in kind.split(";"):
                told.append(f"{rng.choice(words.now)} I {rng.choice(words.deeds[event])}.")
            elif rng.random() < 0.33:
                told.append(f"{rng.choice(words.elsewhere)} {rng.choice(words.deeds[event])}.")
        rng.shuffle(told)
        told = [line.format(crop=rng.choice(words.crops), n=rng.randint(2, 28)) for line in told]
        body = rng.choice([" ", "\r\n"]).join(told)
        title = f"{rng.choice(words.crops).capitalize()}, plot {rng.randint(1, 99)}"
        drafts.append(Draft(title, body, author, kind or "none", rng.randrange(span), SECOND))
    _mark(rng, drafts, {"removed": 4, "short": 2})
    number_posts(drafts, first=LATER, step=2)
    write_dump(folder, rng, drafts, SPRING[0], f"{SECOND}_submissions.zst")
    return write_labels(folder, rng, drafts, ["none", *kinds[1:]], ("submission", "labels"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--second", action="store_true", help="write the multi-label set")
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    (second if options.second else texts)(options.folder, seed=options.seed)
