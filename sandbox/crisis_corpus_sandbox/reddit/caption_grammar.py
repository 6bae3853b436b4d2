"""Generate and edit the offline Reddit's English captions: a small grammar of mild office, sleep and Monday talk.

All words are this project's own. They are common, short, and easy to read for OCR engines, because the ground truth
counts words: the word splitter of the OCR readers leaves all words of eight letters or more intact.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


def _of(text: str) -> tuple[str, ...]:
    return tuple(text.split("|"))


WHO = _of(
    "my boss|my cat|the teacher|my alarm clock|the neighbor|my grandma|the printer|my landlord|the whole team|"
    "our manager|my sister|the waiter|my doctor|the bus driver|my roommate|a tiny goblin|the yellow moon|"
    "my old laptop|the librarian|our tour guide|the new intern|a sleepy pigeon|my future self|the group chat"
)
DOES = _of(
    "steals|ignores|forgets|hides|praises|questions|borrows|judges|haunts|misses|repeats|paints|follows|answers|"
    "rejects|polishes|delays|admires|escapes|counts|guards|cancels|deletes|rescues"
)
DOING = _of(
    "hiding|avoiding|counting|chasing|missing|carrying|folding|washing|painting|feeding|calling|fixing|guarding|"
    "praising|dodging|reading|hugging|packing|selling|burying|polishing|ignoring|watching|borrowing"
)
THINGS = _of(
    "breakfast|cookie|email|corner|report|kettle|plans|blanket|ticket|energy|chair|homework|silence|promise|"
    "pillow|laundry|umbrella|password|meeting|sandwich|calendar|garden|guitar|bicycle|mirror|jacket|basket|"
    "window|letter|puzzle|suitcase|lamp|drawing|budget|mattress|balloon|cactus|pencil|helmet|wallet"
)
WHICH = _of(
    "last|quiet|weekly|spare|second|broken|empty|heavy|purple|lonely|frozen|secret|tiny|golden|dusty|soft|"
    "crooked|silent|muddy|hollow|gentle|rusty|clumsy|velvet"
)
WHEN = _of(
    "on monday morning|after midnight|before the exam|during lunch|all winter long|in the rain|"
    "at three in the morning|on the last day of school|behind the curtains|under the table|for no reason|"
    "near the station|since last summer|while it snows|next to the fridge|on a rainy friday|"
    "before the first coffee|at the family dinner|in the waiting room|during the fire drill|"
    "until the lights go out|on the night train"
)
MOODS = _of("tired|lonely|sleepy|hopeful|nervous|grumpy|restless|worried|bored|gloomy|cheerful|confused")
PATTERNS = (
    "{who} {does} the {which} {thing} {when}",
    "when {who} {does} my {which} {thing}",
    "me {doing} the {which} {thing} {when}",
    "{mood} but still {doing} my {which} {thing}",
    "how it feels {doing} a {which} {thing} {when}",
    "nobody asked why i was {doing} the {which} {thing}",
    "another day of {doing} my {thing} {when}",
    "{who} {does} every {thing} and i stay {mood}",
    "we spent an hour {doing} one {which} {thing}",
    "please stop {doing} my {which} {thing} {when}",
)
SHORT = ("me {doing} my {thing}", "{who} {does} the {thing}", "so {mood} {when}", "my {which} {thing}")
LABELS = _of(
    "me|my weekend|my bed|one more email|my hopes|the deadline|monday|my coffee|adult life|my sleep|"
    "the to do list|my savings|one small task|my diet|the group project|my battery|the news|my old dreams|"
    "a tiny nap|my inbox"
)
# One class of words per editable position, so that an edited caption remains a sentence.
CLASSES = (DOES, DOING, THINGS, WHICH, MOODS)
_CLASS_OF = {word: kind for kind in CLASSES for word in kind}
# A comparison that tolerates a wrong letter must still see an edit as a different word.
LEAST_DIFFERENCE = 0.6


def sentence(rng: Random, *, short: bool = False) -> str:
    """Return a random lower-case caption of 4 to 13 words, or of 3 to 8 words with ``short``."""
    pattern = rng.choice(SHORT if short else PATTERNS)
    return pattern.format(
        who=rng.choice(WHO),
        does=rng.choice(DOES),
        doing=rng.choice(DOING),
        thing=rng.choice(THINGS),
        which=rng.choice(WHICH),
        when=rng.choice(WHEN),
        mood=rng.choice(MOODS),
    )


def sentence_for_edits(rng: Random) -> str:
    """Return a random caption with at least four words that :func:`edit` may replace."""
    extra = f"{rng.choice(WHO)} {rng.choice(DOES)} the {rng.choice(WHICH)} {rng.choice(THINGS)}"
    another = rng.choice([thing for thing in THINGS if not extra.endswith(thing)])
    return f"{extra} and {rng.choice(DOES)} my {another}"


def edit(caption: str, *, words: int, rng: Random) -> str:
    """Return ``caption`` with exactly ``words`` words replaced by others of the same word class."""
    parts = caption.split(" ")
    places = [i for i, part in enumerate(parts) if part in _CLASS_OF]
    for place in sorted(rng.sample(places, words)):
        choices = [w for w in _CLASS_OF[parts[place]] if w not in parts and _unlike(w, parts[place])]
        parts[place] = rng.choice(choices)
    return " ".join(parts)


def words_apart(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the edit distance of two texts in words (Levenshtein), which FigSIM 3.1's rule uses."""
    row = list(range(len(right) + 1))
    for i, word in enumerate(left, start=1):
        before, row[0] = row[0], i
        for j, other in enumerate(right, start=1):
            before, row[j] = row[j], min(before + (word != other), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def _unlike(word: str, other: str) -> bool:
    return words_apart(word, other) >= LEAST_DIFFERENCE * max(len(word), len(other))
