"""Define what expresses a label in the offline Reddit: mild phrases in the text, pictograms in the picture.

The phrases are invented, euphemistic and short; they name no act, no place and no means. A model can learn them, and
they do not harm a reader. Codes are those of SPEC.md 1.1 (FigSIM) and the strings of SPEC.md 1.4 (CRADLE). The
sentences of longer posts are in ``statements.py``.
"""

from __future__ import annotations

# FigSIM: code -> phrases of a caption. The last label of each category (None, no-context-required) carries nothing.
PHRASES: dict[str, tuple[str, ...]] = {
    "F1": (
        "life is a leaky boat",
        "my mind is a foggy road",
        "this week is a long tunnel",
        "my heart is an empty shelf",
        "sleep is a locked garden",
        "hope is a wet paper kite",
    ),
    "F2": (
        "feeling blue like my crayon",
        "no point said the broken pencil",
        "running low like the printer",
        "i lose interest like a bank",
        "full of issues like old magazines",
    ),
    "F3": (
        "what a lovely day truly",
        "best week ever of course",
        "so much fun as always",
        "living the dream for sure",
        "totally fine as usual",
        "great news for nobody",
        "wow i am so lucky",
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
WHEN = {
    "ongoing": ("these days", "right now", "every week lately", "still today"),
    "past": ("years ago", "back in school", "when i lived in the old flat", "long before i moved"),
}
CALM = (
    "just a silly picture about mondays",
    "made this during a slow lunch",
    "hope this makes someone smile",
    "found this in my drafts",
    "rate my drawing please",
    "a small one for the weekend",
)
# Label or crisis type or temporal marker -> the pictogram that carries it in a picture.
PICTOGRAMS: dict[str, str] = {
    "F1": "boat",
    "F2": "coin",
    "F3": "upside_smile",
    "SS1": "moon",
    "SS2": "thought",
    "SS3": "calendar",
    "SS4": "door",
    "SS5": "chair",
    "SR1": "mask",
    "SR2": "pin",
    "SR3": "lifebuoy",
    "SR4": "storm",
    "SR5": "pair",
    "C2": "film",
    "suicideideation_active": "arrow",
    "suicideideation_passive": "cloud",
    "selfharm": "plaster",
    "domesticviolence": "house",
    "rape": "stop",
    "sexualharassment": "speech",
    "childabuse_endangerment": "kite",
    "no_crisis": "sun",
    "ongoing": "clock",
    "past": "hourglass",
}
