"""Define the sentences of generated posts: mild ones about a crisis, without act, place or means, and other talk.

``STATEMENTS`` express a CRADLE label each. ``MENTIONS`` are about another person and ``DENIALS`` deny a crisis: both
use the same words but carry no label, so that the posts are hard to classify by their words alone.
"""

from __future__ import annotations

from crisis_corpus_sandbox.reddit import split

# Slots. A time next to a verb of another tense is intended: "it began years ago and goes on" is ongoing.
SLOTS: dict[str, tuple[str, ...]] = {
    "now": (
        "these days", "right now", "lately", "at the moment", "most nights", "for weeks now", "again this month",
        "even now",
    ),
    "then": (
        "years ago", "back in school", "when I lived in the old flat", "long before I moved", "in my first job",
        "as a student", "in my teens", "two summers back",
    ),
    "partner": ("my husband", "my wife", "my boyfriend", "my girlfriend", "my partner", "the man I live with"),
    "ex": ("my ex", "my former husband", "the man I lived with", "my first girlfriend"),
    "someone": ("someone I trusted", "a friend of a friend", "my date", "somebody I knew"),
    "worker": ("my boss", "a colleague", "a customer", "my neighbour", "a classmate", "the man at the front desk"),
    "adult": ("my stepfather", "my aunt", "my uncle", "a grown up at home", "my mother's boyfriend"),
    "kid": ("my little sister", "my nephew", "the kid next door", "my younger brother"),
}  # fmt: skip
STATEMENTS: dict[str, tuple[str, ...]] = {
    "suicideideation_active_ongoing": (
        "{now} I am planning how to say goodbye to everyone",
        "I have picked a date and after it I do not mean to be here",
        "{now} I am making a plan to not be around any more",
        "I am writing my farewell letters {now}",
        "it was only a thought {then} but {now} I mean to go through with it",
        "I keep going over the plan to leave this life",
        "my mind is made up and I will not see the spring",
        "{now} I want to end my own story and I know how I would do it",
        "I have put my things in order so that nobody has work with them after I go",
    ),
    "suicideideation_active_past": (
        "{then} I had a plan to not be around any more",
        "{then} I wrote farewell letters to everyone",
        "I had picked a date {then} and I am glad that it went by",
        "there was a time {then} when I meant to leave this life",
        "{now} I am better but {then} I came close to going for good",
        "{then} my mind was made up and a friend talked me out of my plan",
        "I still have the letters in which I said goodbye {then}",
    ),
    "suicideideation_passive_ongoing": (
        "{now} I wish I simply did not exist",
        "I would not mind if I never woke up again",
        "{now} I hope to fall asleep and just stay asleep",
        "I keep thinking that everyone would be better off without me",
        "I have no plan and I would never do anything but {now} I want to stop being",
        "most mornings I am sorry that I woke up",
        "{now} I feel done with being alive",
        "being gone sounds like rest to me {now}",
        "it has been like this since {then} that I would rather not be here at all",
    ),
    "suicideideation_passive_past": (
        "{then} I wished I simply did not exist",
        "{then} I used to hope that I would not wake up",
        "I remember how {then} being gone sounded like rest to me",
        "{now} I like waking up but {then} I did not want to be here at all",
        "{then} I thought that everyone would be better off without me",
        "there were months {then} when I felt done with being alive",
    ),
    "selfharm_ongoing": (
        "{now} I take it out on myself",
        "I am hurting myself again",
        "{now} I cannot stop being rough with my own body",
        "I wear long sleeves so that nobody sees what I do to myself",
        "I was clean for a year and {now} I went back to hurting myself",
        "when it gets loud in my head I hurt myself to make it quiet",
        "what began {then} has not stopped and my arms show it",
        "the old urge won {now} and I am ashamed of the new marks",
        "I do that thing to my skin again when nobody is home",
    ),
    "selfharm_past": (
        "{then} I used to take it out on myself",
        "I have not hurt myself since {then}",
        "{then} I was rough with my own body",
        "I used to hurt myself and {now} I am clean",
        "the old marks on my arms are from {then}",
        "{then} I wore long sleeves so that nobody saw what I did to myself",
        "I stopped hurting myself a while back and people still ask about the marks",
    ),
    "domesticviolence_ongoing": (
        "{now} I am afraid of {partner}",
        "{partner} makes home unsafe {now}",
        "I walk on tiptoe around {partner} because of the temper",
        "{partner} shoves me when the day went badly",
        "{partner} takes my money and my phone and scares me {now}",
        "it started {then} and {partner} still gets rough with me",
        "I sleep with a chair against the door because of {partner}",
        "{partner} says sorry each time and then it happens again",
    ),
    "domesticviolence_past": (
        "{then} I was afraid of {ex}",
        "{ex} made home unsafe {then}",
        "I left {ex} because of the shoving and the shouting",
        "{ex} used to get rough with me when the day went badly",
        "{now} I have a place of my own and {ex} cannot scare me any more",
        "I used to walk on tiptoe around {ex}",
        "{then} I slept with a chair against the door because of {ex}",
        "a loud voice is enough to put me back in that house with {ex}",
    ),
    "rape_ongoing": (
        "{partner} does not stop when I say no and it goes on {now}",
        "{now} {partner} takes what I do not want to give",
        "I say no and {partner} goes on as if I had not said it",
        "it began {then} and {partner} still forces it on me",
        "{now} I am made to go through with it at night though I never agree",
    ),
    "rape_past": (
        "{then} {someone} did not stop when I said no",
        "I said no {then} and it did not matter to {someone}",
        "{then} {someone} forced it on me",
        "I froze and {someone} took that for a yes",
        "{now} I can say it aloud that I never agreed to that night with {someone}",
        "{someone} went on though I had asked to be taken home",
        "I was asleep at the party and {someone} did not care that I could not agree",
        "{then} it was done to me against my will and I told nobody",
    ),
    "sexualharassment_ongoing": (
        "{now} {worker} makes unwanted comments about my body",
        "{worker} keeps sending me messages that I never asked for",
        "{worker} stares and whistles when I walk by {now}",
        "I asked {worker} to stop touching my shoulder and it goes on",
        "{worker} turns every talk into a dirty joke about me",
        "I change my way home because {worker} follows me with remarks",
        "it began {then} and {worker} still will not leave me alone with the remarks",
    ),
    "sexualharassment_past": (
        "{then} {worker} made unwanted comments about my body",
        "{worker} kept sending me messages that I never asked for until I moved away",
        "I left that place because {worker} would not keep his hands to himself",
        "{then} {worker} stared and whistled when I walked by",
        "{now} I work elsewhere but {worker} used to turn every talk into a dirty joke about me",
        "I never reported the remarks that {worker} made {then}",
    ),
    "childabuse_endangerment_ongoing": (
        "{adult} is cruel to {kid} {now}",
        "{now} {kid} is not safe with {adult}",
        "{kid} flinches when {adult} comes in and nobody does anything",
        "I am still at school and {adult} scares me every evening",
        "{adult} leaves {kid} alone for days without food in the house",
        "{kid} told me what {adult} does when the door is shut",
    ),
    "childabuse_endangerment_past": (
        "as a child I was not safe with {adult}",
        "{then} {adult} was cruel to me when I was little",
        "growing up I learned to hide from {adult}",
        "{now} I am grown but I still flinch when I think of what {adult} did to me as a kid",
        "when I was small {adult} left me alone for days",
        "I was a child and {adult} did what no adult should do",
    ),
}
# No label: about a character in a book, a person's work, another person.
FRAMES = (
    "in the show I watch", "my cousin wrote an essay about how", "the book on my table tells how",
    "they taught us in training that it happens when", "the podcast last night was about a time when",
    "for a play I read a scene in which", "my sister who is a nurse says it is common that",
)  # fmt: skip
MENTIONS: dict[str, tuple[str, ...]] = {
    "suicideideation_active": (
        "a man has picked a date and writes farewell letters",
        "someone makes a plan to leave this life and a friend talks him out of it",
        "people put their things in order before they go",
    ),
    "suicideideation_passive": (
        "somebody wishes she did not exist",
        "an old man hopes to fall asleep and stay asleep",
        "people think that everyone would be better off without them",
    ),
    "selfharm": (
        "a girl hurts herself and wears long sleeves",
        "people take it out on themselves when it gets loud in their head",
        "he went back to hurting himself after a year clean",
    ),
    "domesticviolence": (
        "a woman is afraid of her husband",
        "a man sleeps with a chair against the door because of his wife",
        "the partner says sorry each time and then it happens again",
    ),
    "rape": (
        "somebody does not stop when she says no",
        "people freeze and it is taken for a yes",
        "it was done to him against his will and he told nobody",
    ),
    "sexualharassment": (
        "a boss makes unwanted comments",
        "a customer stares and whistles at the waitress",
        "she gets messages that she never asked for",
    ),
    "childabuse_endangerment": (
        "a kid is not safe with an adult at home",
        "a stepfather is cruel to the children",
        "a child flinches when a grown up comes in",
    ),
}
# No label: the poster denies it.
DENIALS: dict[str, tuple[str, ...]] = {
    "suicideideation_active": ("before anyone asks I have no plan to go anywhere",),
    "suicideideation_passive": ("I do want to wake up tomorrow I am only worn out",),
    "selfharm": ("no I have never hurt myself and I am not about to",),
    "domesticviolence": ("my partner is kind to me and home is safe",),
    "rape": ("nobody has ever forced anything on me",),
    "sexualharassment": ("my boss and my colleagues are decent people",),
    "childabuse_endangerment": ("my nephew is fine and everyone at home is good to him",),
}


VOCABULARY: dict[str, tuple[str, ...]] = {
    "thing": split(
        "kettle|umbrella|bicycle|guitar|laundry|homework|blanket|sandwich|calendar|garden|jacket|suitcase|cactus|"
        "pencil|helmet|wallet|lantern|pillow|puzzle|violin|radio|teapot|notebook|camera|scarf|sofa|bookshelf|oven|"
        "ladder|postcard|piano|carpet|toaster|balcony light|crossword|houseplant|record player|sewing machine"
    ),
    "which": split(
        "old|spare|broken|empty|purple|dusty|crooked|rusty|clumsy|velvet|second|borrowed|wooden|yellow|tiny|heavy|"
        "striped|wobbly|faded|squeaky|secondhand|unfinished"
    ),
    "place": split(
        "library|bakery|station|laundrette|harbour|museum|canteen|office|supermarket|playground|market|garage|"
        "swimming pool|bus stop|waiting room|cinema|campus|allotment|post office|rooftop|cellar|stairwell"
    ),
    "person": split(
        "my mum|my dad|my brother|my roommate|my landlord|an old friend|my grandmother|my teacher|my manager|"
        "the neighbours|my cousin|my therapist|my doctor|my flatmate|my sister|a friend from school|my team"
    ),
    "other": split(
        "the postman|the caretaker|my old coach|the woman next door|my godmother|the new tenant|a stranger|"
        "the librarian|the bus driver|my penpal"
    ),
    "feeling": split(
        "tired|lonely|restless|worried|numb|nervous|sad|confused|hopeful|guilty|bored|overwhelmed|calm|lost|angry|"
        "homesick|anxious|ashamed|grateful|worn out"
    ),
    "day": split(
        "on monday|after midnight|before the exam|during lunch|all winter|in the rain|on my day off|at the weekend|"
        "before the first coffee|on the night bus|since the move|after work|on sunday evening|between two shifts"
    ),
    "doing": split(
        "fixing|cleaning|painting|packing|looking for|carrying|selling|washing|drawing|counting|borrowing|sorting|"
        "repairing|hiding|watching|returning"
    ),
}
SLOTS |= VOCABULARY
TALK = (
    "I spent the evening {doing} the {which} {thing} and felt {feeling} {day}",
    "{person} asked about the {which} {thing} and I did not know what to say",
    "{now} I feel {feeling} and I cannot say why",
    "{then} I lived near the {place} and knew everyone there",
    "I have not talked to {person} since the thing with the {which} {thing}",
    "the {place} was closed {day} so I walked home with my {thing}",
    "I cannot sleep and end up {doing} the {which} {thing} {day}",
    "does anyone else feel {feeling} when they see a {which} {thing}",
    "{person} says that I should go out more {day}",
    "work was long and {person} forgot the {thing} at the {place}",
    "I do not want to be judged I only want to tell someone about the {place}",
    "sorry for the long post I am {feeling} and it is late",
    "{then} {person} gave me a {which} {thing} and I still have it",
    "I cried at the {place} {day} over a {which} {thing}",
    "my days are all the same {doing} a {thing} at the {place}",
    "{now} {person} and I only talk about the {which} {thing}",
    "I keep {doing} the {thing} because it stops me from thinking",
    "nobody at the {place} noticed that I was {feeling}",
    "the doctor says I should rest but the {which} {thing} will not mend itself",
    "I am afraid of the phone {day} and of the {place} too",
    "{person} and {other} argued about the {which} {thing} {day}",
    "at home everything is about the {thing} and I stay in my room",
    "I said no when {person} wanted to borrow my {which} {thing}",
    "my boss wants me at the {place} {day} and I feel {feeling}",
    "I used to enjoy {doing} a {thing} but {now} it leaves me {feeling}",
    "some nights I lie awake and think of the {place} and the {which} {thing}",
    "is it normal to feel {feeling} {day} or is it only me",
    "thank you for reading about my {which} {thing}",
    "{person} sent me a message about the {place} and I left it unread",
    "it hurts that {person} gave the {which} {thing} away",
    "I made a plan for the week and it ended at the {place} {day}",
    "for a year I have been saving for a {which} {thing}",
    "I wore a {which} jacket to the {place} and felt {feeling}",
    "as a kid I was always {doing} a {thing} with {person}",
    "the man at the {place} shouted about a {which} {thing} and everyone went quiet",
    "I stopped going to the {place} {then} because it made me {feeling}",
    "I woke up {feeling} and spent the morning {doing} the {thing}",
    "I moved out {then} and left the {which} {thing} behind",
    "my girlfriend thinks the {place} is where we should meet {day}",
    "tomorrow I have to bring the {which} {thing} to the {place}",
    "I do not know how to stop feeling {feeling} {day}",
    "there is a {which} {thing} in the hall that reminds me of {person}",
)
TITLES = (
    "feeling {feeling} {day}",
    "I need to talk about the {which} {thing}",
    "does anyone else feel {feeling}",
    "{person} and the {which} {thing}",
    "I do not know what to do {day}",
    "a long week at the {place}",
    "is this normal",
    "please tell me I am not alone {day}",
    "just wanted to say this somewhere",
    "{feeling} and awake {day}",
    "what would you do about {person}",
    "thoughts from the {place}",
    "I had to get this off my chest",
)
