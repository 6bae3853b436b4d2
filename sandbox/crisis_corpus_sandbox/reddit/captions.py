"""Compose memes and their titles from labels: what expresses each label, and the sentences that express none.

The phrases are invented, euphemistic and short; they name no act, no place and no means. A model can learn them, and
they do not harm a reader. Codes are those of SPEC.md 1.1 (FigSIM) and the strings of SPEC.md 1.4 (CRADLE). The words
of other sentences are common, short and easy to read for OCR engines, because the ground truth counts words: the word
splitter of the OCR readers leaves all words of eight letters or more intact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from crisis_corpus_sandbox.reddit import split
from crisis_corpus_sandbox.reddit.draw import wording
from crisis_corpus_sandbox.reddit.label_quotas import Figsim

# FigSIM: code -> phrases of a caption. The last label of each category (None, no-context-required) carries nothing.
PHRASES: dict[str, tuple[str, ...]] = {
    "F1": split(
        "life is a leaky boat|my mind is a foggy road|this week is a long tunnel|my heart is an empty shelf|"
        "sleep is a locked garden|hope is a wet paper kite"
    ),
    "F2": split(
        "feeling blue like my crayon|no point said the broken pencil|running low like the printer|"
        "i lose interest like a bank|full of issues like old magazines"
    ),
    "F3": split(
        "what a lovely day truly|best week ever of course|so much fun as always|living the dream for sure|"
        "totally fine as usual|great news for nobody|wow i am so lucky"
    ),
    "SS1": ("wishing to fade away", "i would rather be fog", "wishing i could vanish", "i wish i was a ghost"),
    "SS2": ("thinking of vanishing again", "thoughts of leaving it all", "the dark thought is back"),
    "SS3": ("my goodbye is already planned", "i picked a farewell date", "the goodbye list is ready"),
    "SS4": ("i tried to vanish once", "my last goodbye fell through", "back from my failed exit"),
    "SS5": ("gone and deeply missed", "we said the last farewell", "the empty chair remembers him"),
    "SR1": ("like in a cartoon ending", "a comic book kind of exit", "drawn in a silly style"),
    "SR2": ("at the real quiet place", "just a plain photo of it", "right at that old corner"),
    "SR3": ("but my dog needs me", "my friends keep me here", "therapy starts on friday", "then mum called me"),
    "SR4": ("nobody ever asks me", "everyone laughed at me", "the bills keep piling up", "i feel like a burden"),
    "SR5": ("my friend told me so", "she says about her brother", "asking for my cousin"),
    "C2": ("fans know that episode", "as the old meme said", "you had to see part two"),
}
# CRADLE: crisis type -> phrases of a title or body, with {when} for the temporal marker.
CRISES: dict[str, tuple[str, ...]] = {
    "suicideideation_active": ("{when} i am making plans to not be around", "{when} i think of my own goodbye"),
    "suicideideation_passive": ("{when} i wish to simply not exist", "{when} it would be fine to never wake up"),
    "selfharm": ("{when} i am unkind to my own body", "{when} i take it out on myself"),
    "domesticviolence": ("{when} my partner makes home unsafe", "{when} i am scared of my partner at home"),
    "rape": ("{when} somebody ignored my no", "{when} someone did not stop when i said no"),
    "sexualharassment": ("{when} unwanted remarks follow me around", "{when} a colleague makes unwanted comments"),
    "childabuse_endangerment": ("{when} a grown up here is cruel to a kid", "{when} a kid is not safe with an adult"),
}
MOMENTS = {
    "ongoing": ("these days", "right now", "every week lately", "still today"),
    "past": ("years ago", "back in school", "when i lived in the old flat", "long before i moved"),
}
CALM = split(
    "just a silly picture about mondays|made this during a slow lunch|hope this makes someone smile|"
    "found this in my drafts|rate my drawing please|a small one for the weekend"
)
# Label or crisis type or temporal marker -> the pictogram that carries it in a picture.
PICTOGRAMS: dict[str, str] = dict(
    pair.split()
    for pair in split(
        "F1 boat|F2 coin|F3 upside_smile|SS1 moon|SS2 thought|SS3 calendar|SS4 door|SS5 chair|SR1 mask|SR2 pin|"
        "SR3 lifebuoy|SR4 storm|SR5 pair|C2 film|suicideideation_active arrow|suicideideation_passive cloud|"
        "selfharm plaster|domesticviolence house|rape stop|sexualharassment speech|childabuse_endangerment kite|"
        "no_crisis sun|ongoing clock|past hourglass"
    )
)


CAPTIONS: dict[str, tuple[str, ...]] = {
    "es": (
        "cuando suena el despertador y todavía tienes mucho sueño",
        "mi gato me mira mientras lloro por el trabajo del lunes",
        "nadie me preguntó por qué estoy tan cansado esta semana",
    ),
    "fr": (
        "quand le réveil sonne et que tu veux encore dormir",
        "mon chat me regarde pendant que je cherche mes clés",
        "personne ne m'a demandé pourquoi je suis si fatigué",
    ),
    "de": (
        "wenn der Wecker klingelt und du noch müde bist",
        "niemand hat mich gefragt warum ich heute so still bin",
        "meine Katze schaut mir zu während ich die Rechnung suche",
    ),
    "it": (
        "quando suona la sveglia e vorrei soltanto dormire ancora",
        "il mio gatto mi guarda mentre cerco le chiavi di casa",
        "nessuno mi ha chiesto perché sono così stanco oggi",
    ),
    "pt": (
        "quando o despertador toca e você ainda está com muito sono",
        "ninguém me perguntou por que estou tão cansado hoje",
        "meu gato olha para mim enquanto procuro as chaves",
    ),
    "nl": (
        "wanneer de wekker gaat en je nog lang niet wakker bent",
        "niemand vroeg mij waarom ik vandaag zo stil ben",
        "mijn kat kijkt toe terwijl ik mijn sleutels zoek",
    ),
    "pl": (
        "kiedy dzwoni budzik a ty nadal chcesz spać",
        "nikt mnie nie zapytał dlaczego jestem dzisiaj taki zmęczony",
        "mój kot patrzy na mnie kiedy szukam kluczy do domu",
    ),
    "sv": (
        "när klockan ringer och du fortfarande vill sova vidare",
        "ingen frågade mig varför jag är så trött idag",
        "min katt tittar på mig medan jag letar efter nycklarna",
    ),
    "tr": (
        "çalar saat çaldığında hala uyumak istediğin o sabah",
        "bugün neden bu kadar yorgun olduğumu kimse sormadı",
        "anahtarlarımı ararken kedim sessizce bana bakıyor",
    ),
    "ru": (
        "когда звонит будильник а ты всё ещё хочешь спать",
        "никто не спросил почему я сегодня такой уставший",
        "мой кот смотрит на меня пока я ищу ключи",
    ),
    "uk": ("коли дзвонить будильник а ти все ще хочеш спати", "ніхто не запитав чому я сьогодні такий втомлений"),
    "bg": ("когато будилникът звъни а ти още искаш да спиш", "никой не ме попита защо днес съм толкова уморен"),
}


def caption(number: int) -> tuple[str, str]:
    """Return the language and caption for a number; consecutive numbers go through all languages, then captions."""
    languages = sorted(CAPTIONS)
    language = languages[number % len(languages)]
    return language, CAPTIONS[language][number // len(languages) % len(CAPTIONS[language])]


WHO = split(
    "my boss|my cat|the teacher|my alarm clock|the neighbor|my grandma|the printer|my landlord|the whole team|"
    "our manager|my sister|the waiter|my doctor|the bus driver|my roommate|a tiny goblin|the yellow moon|"
    "my old laptop|the librarian|our tour guide|the new intern|a sleepy pigeon|my future self|the group chat"
)
DOES = split(
    "steals|ignores|forgets|hides|praises|questions|borrows|judges|haunts|misses|repeats|paints|follows|answers|"
    "rejects|polishes|delays|admires|escapes|counts|guards|cancels|deletes|rescues"
)
DOING = split(
    "hiding|avoiding|counting|chasing|missing|carrying|folding|washing|painting|feeding|calling|fixing|guarding|"
    "praising|dodging|reading|hugging|packing|selling|burying|polishing|ignoring|watching|borrowing"
)
THINGS = split(
    "breakfast|cookie|email|corner|report|kettle|plans|blanket|ticket|energy|chair|homework|silence|promise|"
    "pillow|laundry|umbrella|password|meeting|sandwich|calendar|garden|guitar|bicycle|mirror|jacket|basket|"
    "window|letter|puzzle|suitcase|lamp|drawing|budget|mattress|balloon|cactus|pencil|helmet|wallet"
)
WHICH = split(
    "last|quiet|weekly|spare|second|broken|empty|heavy|purple|lonely|frozen|secret|tiny|golden|dusty|soft|"
    "crooked|silent|muddy|hollow|gentle|rusty|clumsy|velvet"
)
WHEN = split(
    "on monday morning|after midnight|before the exam|during lunch|all winter long|in the rain|"
    "at three in the morning|on the last day of school|behind the curtains|under the table|for no reason|"
    "near the station|since last summer|while it snows|next to the fridge|on a rainy friday|"
    "before the first coffee|at the family dinner|in the waiting room|during the fire drill|"
    "until the lights go out|on the night train"
)
MOODS = split("tired|lonely|sleepy|hopeful|nervous|grumpy|restless|worried|bored|gloomy|cheerful|confused")
SLOTS = {
    "who": WHO, "does": DOES, "doing": DOING, "thing": THINGS, "which": WHICH, "when": WHEN, "mood": MOODS
}  # fmt: skip
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
LABELS = split(
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
    return pattern.format(**{name: rng.choice(words) for name, words in SLOTS.items()})


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
        word = parts[place]
        unlike = [w for w in _CLASS_OF[word] if words_apart(w, word) >= LEAST_DIFFERENCE * max(len(w), len(word))]
        parts[place] = rng.choice([w for w in unlike if w not in parts])
    return " ".join(parts)


def words_apart(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the edit distance of two texts in words (Levenshtein), which FigSIM 3.1's rule uses."""
    row = list(range(len(right) + 1))
    for i, word in enumerate(left, start=1):
        before, row[0] = row[0], i
        for j, other in enumerate(right, start=1):
            before, row[j] = row[j], min(before + (word != other), row[j] + 1, row[j - 1] + 1)
    return row[-1]


# Phrases per caption in addition to its plain sentence, one if that is long; a text-only meme carries all its labels.
MOST_PHRASES = 2
MOST_STICKERS = 6
STYLES = ("capitals",) * 8 + ("bar",) * 4 + ("tweet",) * 3 + ("panels",) * 3 + ("labels",) * 2
TEXT_STYLES = ("tweet", "bar")
EDITABLE = ("capitals", "capitals", "bar", "tweet", "panels")


@dataclass(frozen=True, slots=True)
class Composition:
    """The texts of a meme before drawing: ``plain`` expresses no label, ``phrases`` express the labels.

    If the meme is ``editable``, its plain sentence has at least four words that may be replaced.
    """

    style: str
    plain: str
    phrases: tuple[str, ...]
    stickers: tuple[str, ...]
    title: str
    carriers: dict[str, str]
    editable: bool

    def blocks(self, plain: str | None = None) -> tuple[str, ...]:
        """Return the text blocks to draw on the meme; ``plain`` replaces its neutral sentence if given."""
        sentence = self.plain if plain is None else plain
        marked = " ".join(self.phrases)
        if self.style == "textless":
            return ()
        if self.style == "labels":
            return wording(self.style, tuple(sentence.split("|")) + self.phrases)
        if self.style in TEXT_STYLES:
            return wording(self.style, (f"{sentence} {marked}".strip(),))
        if not marked:
            words = sentence.split(" ")
            half = len(words) // 2
            return wording(self.style, (" ".join(words[:half]), " ".join(words[half:])))
        return wording(self.style, (sentence, marked))


def compose(labels: Figsim, crises: Sequence[str], *, rng: Random, editable: bool = False) -> Composition:
    """Return the texts and stickers of a meme that express every label in ``labels`` (FigSIM) and ``crises`` (CRADLE).

    FigSIM's modality rules: text-only memes carry their labels in the caption, image-only ones in pictograms,
    complementary ones in both or in turn. CRADLE's labels are carried by the title, the picture or both.
    """
    editable = editable and labels.modality != "M3"
    carriers = _carriers(labels, most=1 if editable else MOST_PHRASES, rng=rng)
    for crisis in crises:
        carriers[crisis] = "text" if labels.modality == "M2" else rng.choice(("text", "picture", "both"))
    stickers = [PICTOGRAMS[c] for c in labels.carried() if carriers[c] != "text"]
    for crisis in crises:
        marks = _crisis_stickers(crisis)
        if carriers[crisis] != "text" and len(stickers) + len(marks) > MOST_STICKERS:
            carriers[crisis] = "text"
        elif carriers[crisis] != "text":
            stickers += marks
    phrases = tuple(rng.choice(PHRASES[c]) for c in labels.carried() if carriers[c] != "picture")
    if labels.modality == "M3":
        style = "textless"
    elif editable:
        style = rng.choice(TEXT_STYLES if labels.modality == "M2" else EDITABLE)
    else:
        style = rng.choice(TEXT_STYLES if labels.modality == "M2" or len(phrases) > MOST_PHRASES else STYLES)
    plain = _plain(style, phrases=phrases, editable=editable, rng=rng)
    spoken = [c for c in crises if carriers[c] != "picture"]
    return Composition(style, plain, phrases, tuple(stickers), title(spoken, rng=rng), carriers, editable)


def title(crises: Sequence[str], *, rng: Random) -> str:
    """Return a post title that expresses the CRADLE labels ``crises``, or a neutral sentence without labels."""
    text = ", ".join(_crisis_phrase(c, rng=rng) for c in crises) or sentence(rng, short=True)
    text = text[:1].upper() + text[1:]
    return text + rng.choice(("", "", "", "", "", "", " 😴", " ☕", " … naïve, I know", " (à la café)", " — “again”"))


def body(crises: Sequence[str], *, rng: Random) -> str:
    """Return a few paragraphs for a text post that express the CRADLE labels ``crises``."""
    crisis_lines = (_crisis_phrase(c, rng=rng) for c in crises)
    lines = [sentence(rng), *crisis_lines, sentence(rng)]
    return "\n\n".join(f"{line[:1].upper()}{line[1:]}." for line in lines)


def _carriers(labels: Figsim, *, most: int, rng: Random) -> dict[str, str]:
    carried = labels.carried()
    if labels.modality != "M1":
        return dict.fromkeys(carried, "text" if labels.modality == "M2" else "picture")
    order = list(carried)
    rng.shuffle(order)
    by: dict[str, str] = {}
    for i, code in enumerate(order):
        spoken = sum(c != "picture" for c in by.values())
        by[code] = "picture" if spoken >= most else ("both", "picture", "text")[(i + rng.randrange(2)) % 3]
    if order and all(c == by[order[0]] != "both" for c in by.values()):
        by[order[0]] = "both"
    return {code: by[code] for code in carried}


def _plain(style: str, *, phrases: Sequence[str], editable: bool, rng: Random) -> str:
    if style == "textless":
        return ""
    if style == "labels":
        return "|".join(rng.sample(LABELS, max(1, 3 - len(phrases))))
    if editable:
        return sentence_for_edits(rng)
    return sentence(rng, short=len(phrases) > 1)


def _crisis_stickers(crisis: str) -> list[str]:
    kind, _, when = crisis.rpartition("_")
    return [PICTOGRAMS[crisis]] if crisis == "no_crisis" else [PICTOGRAMS[kind], PICTOGRAMS[when]]


def _crisis_phrase(crisis: str, *, rng: Random) -> str:
    if crisis == "no_crisis":
        return rng.choice(CALM)
    kind, _, when = crisis.rpartition("_")
    return rng.choice(CRISES[kind]).format(when=rng.choice(MOMENTS[when]))
