"""Define the sentences of generated posts that express no label, about tiredness, work, family and small things."""

from __future__ import annotations


def _of(text: str) -> tuple[str, ...]:
    return tuple(text.split("|"))


VOCABULARY: dict[str, tuple[str, ...]] = {
    "thing": _of(
        "kettle|umbrella|bicycle|guitar|laundry|homework|blanket|sandwich|calendar|garden|jacket|suitcase|cactus|"
        "pencil|helmet|wallet|lantern|pillow|puzzle|violin|radio|teapot|notebook|camera|scarf|sofa|bookshelf|oven|"
        "ladder|postcard|piano|carpet|toaster|balcony light|crossword|houseplant|record player|sewing machine"
    ),
    "which": _of(
        "old|spare|broken|empty|purple|dusty|crooked|rusty|clumsy|velvet|second|borrowed|wooden|yellow|tiny|heavy|"
        "striped|wobbly|faded|squeaky|secondhand|unfinished"
    ),
    "place": _of(
        "library|bakery|station|laundrette|harbour|museum|canteen|office|supermarket|playground|market|garage|"
        "swimming pool|bus stop|waiting room|cinema|campus|allotment|post office|rooftop|cellar|stairwell"
    ),
    "person": _of(
        "my mum|my dad|my brother|my roommate|my landlord|an old friend|my grandmother|my teacher|my manager|"
        "the neighbours|my cousin|my therapist|my doctor|my flatmate|my sister|a friend from school|my team"
    ),
    "other": _of(
        "the postman|the caretaker|my old coach|the woman next door|my godmother|the new tenant|a stranger|"
        "the librarian|the bus driver|my penpal"
    ),
    "feeling": _of(
        "tired|lonely|restless|worried|numb|nervous|sad|confused|hopeful|guilty|bored|overwhelmed|calm|lost|angry|"
        "homesick|anxious|ashamed|grateful|worn out"
    ),
    "day": _of(
        "on monday|after midnight|before the exam|during lunch|all winter|in the rain|on my day off|at the weekend|"
        "before the first coffee|on the night bus|since the move|after work|on sunday evening|between two shifts"
    ),
    "doing": _of(
        "fixing|cleaning|painting|packing|looking for|carrying|selling|washing|drawing|counting|borrowing|sorting|"
        "repairing|hiding|watching|returning"
    ),
}
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
