"""Detect posts whose text addresses a model instead of a reader (prompt injection).

Detection only queues a post for review and never drops it. A false alarm costs little, so the patterns are broad. They
are English: other languages in Latin letters, encodings that are not listed here and paraphrases pass. The stage
``injection_test`` measures what passes, with attacks (``pipelines.label.attacks``) written without this module.
"""

from __future__ import annotations

import base64
import codecs
import re
import unicodedata

MACHINE = (
    r"(?:a\.?i\.?|llms?|(?:large )?language model|gpt(?:-?\d+)?|chatgpt|claude|gemini|chat ?bot|(?:ai )?assistant"
    r"|classifier|annotat(?:or|ion model)|labell?er|grader|(?:labell?ing|annotating) (?:model|system|machine)"
    r"|moderation (?:bot|system|model)|automated (?:system|reader|rater))"
)
START = r"(?:^|[\n.!?\"'(\[<-] {0,3})"
CALM = r"(?:\bno[_ -]?crisis\b(?! (?:\w+)?line)|\bnon-?crisis\b|\bno labels?\b|\bempty (?:list|set|array)\b)"
# name: a pattern over lower-case text without invisible characters
PATTERNS: dict[str, str] = {
    # the classic: earlier instructions shall not count
    "override": r"\b(?:ignore|disregard|forget|override|bypass|skip|set aside|stop following|pay no attention to"
    r"|do(?:n't| not) (?:follow|apply|obey|use))\b[^.!?\n]{0,40}\b(?:instructions?|prompts?|guidelines?"
    r"|directi(?:on|ve)s?|above|preceding|(?:the|this|your|original|set) task"
    r"|rules (?:mentioned|given|stated|above|before)"
    r"|(?:previous|prior|earlier|your|these|those|system) (?:rules|text|messages?|orders?))\b"
    r"|\binstead of (?:labell?|classify|annotat|grad|judg)ing\b",
    # another task in place of the given one
    "new_task": r"\b(?:new|updated|real|actual|revised) (?:instructions?|tasks?|guidelines?)\b\s{0,3}[:\-–—]"
    r"|\byour (?:new |real |actual |only )?(?:task|instructions?) (?:is|are) (?:now|to)\b"
    r"|\b(?:begin|start)(?:ning)?(?: of)?(?: a)? new (?:conversation|session|chat|context|prompt)\b",
    # tokens by which chat templates mark the speaker
    "role_token": r"<[|｜][^\s|｜>]{1,40}[|｜]>|\[/?inst\]|<</?sys>>|</?s>|<(?:start|end)_of_turn>|</?think(?:ing)?>"
    r"|<(?:bos|eos|pad|unk)>|</?tool_(?:call|response)s?>|(?<!#)#{2,}+ ?(?:system|instructions?|response|assistant)\b"
    r"|[<\[]/?(?:system|user|assistant|instructions?)[>\]]",
    # a speaker's name at the start of a line or a sentence
    "role_line": rf"{START}(?:system|assistant|developer|human|user|instructions?)(?: (?:message|prompt|note))? ?:",
    # text addressed to a machine reader
    "addresses_model": rf"\b(?:dear|hey|hi|hello|attention|note (?:to|for)|message (?:to|for)|instructions? (?:to|for)"
    rf"|if you(?:'re| are)|you(?:'re| are)(?: now)?|as|act as|to whichever|to any|to the|for)"
    rf",? (?:an? |the |any |every |whatever |all )?(?:helpful |expert |careful |impartial )?{MACHINE}"
    r"(?:\b(?! (?:manager|teacher|professor|coach|director|nurse))|(?= readers?))"
    rf"|{START}(?:chatgpt|gpt-?\d{{0,2}}|llm|ai|assistant),"
    r"|\bwho(?:m|so)?ever (?:evaluates|labels|classifies|annotates|grades|rates|processes) (?:this|it)\b",
    # orders to the labeller
    "orders_answerer": r"\byou (?:must|shall|will|should|are to|have to)(?: now| only| always){0,2}"
    r" (?:(?:answer|respond|reply) (?:with|only|every|exactly|in|no_crisis)|output|(?:label|classify|annotate|ignore)"
    r" (?:this|it|the|every|all)\b)|\b(?:stop reading|end your answer) here\b"
    r"|\bdo(?:n't| not) (?:label|classify|annotate|flag) (?:this|it)\b|\b(?:assign|add|give) (?:it )?(?:no|any) label",
    # demands on the answer
    "dictates_answer": r"\b(?:answer|reply|respond|output|return|print|write|label|mark|classify|tag|categori[sz]e"
    rf"|annotate|rate|grade|treat|flag|choose|pick)\b[^.!?\n]{{0,60}}(?:{CALM}|\bjson\b"
    r"|\bas (?:safe|harmless|benign|fiction)\b|[\"“']labels?[\"”'])"
    r"|\b(?:say|put(?: down)?|pick|choose|answer|reply|output|return|respond with) (?:none"
    r"|the last (?:option|label))\b",
    "states_answer": r"\b(?:correct|expected|final|gold|proper) (?:answer|labels?|output|class|category)\b"
    r"|\b(?:right|only|true) (?:labels?|output|category)\b|\blabels? (?:for|of) this (?:post|text|meme|message)\b"
    r"|\b(?:labels?|answer|output|class(?:ification)?|category) (?:is|are|should be|must be) (?:none|empty"
    r"|no[_ -]?crisis)\b"
    r"|\bno labels? (?:should|must|shall|needs? to|is|are|appl(?:y|ies))\b"
    r"|\bthis (?:post|text|meme|message) (?:is|was|has been|should be|must be|shall be|needs to be)"
    r"(?: already)? (?:labell?ed|classified|annotated|tagged|marked)\b",
    # claims that the post is not a real one
    "plays_down": r"\b(?:(?:this|the) (?:post|text|message)|the above|everything above) is (?:just |only |merely )?"
    r"(?:an? )?(?:test|fiction|example|sample|placeholder)\b",
    # labels in the spelling of a scheme
    "label_string": r"\bno_crisis\b|\b[a-z]{3,40}(?:_[a-z]{3,20}){0,2}_(?:ongoing|past)\b",
    # an answer in the requested format, or a fence around one
    "answer_shape": r"\{\s{0,9}[\"'“”]?[a-z_]{1,20}[\"'“”]?\s{0,9}:|`{3}",
    # a fake end of the post
    "delimiter": rf"{START}(?:end|start|beginning) of (?:the )?(?:post|input|document|data|prompt|context|examples?)\b"
    r"|</?(?:post|text|data|document|input|examples?)>|[=#~]{10,}|\b[0-9a-f]{16,64}\b",
    # borrowed authority and modes
    "authority": r"\b(?:developer|debug|maintenance|admin|god|dan) mode\b|\bjailbreak\b|\b(?:research|labell?ing"
    r"|annotation|safety) team (?:has|have|says?|said|asks?|wants?|checked|confirmed)\b"
    r"|\bi(?:'m| am) (?:the |your )?(?:developer|administrator|creator|programmer) (?:of|behind)\b",
    # questions about the model's prompt
    "asks_prompt": r"\b(?:system prompt|your (?:hidden |initial |original )?(?:prompt|instructions))\b",
    # text hidden from readers: tag characters, direction overrides, long runs of base64, spaced letters
    "hidden": r"[\U000e0020-\U000e007f]{4,}|[\u202a-\u202e\u2066-\u2069]|\b[a-z0-9+/]{60,}={0,2}"
    r"|\b(?:[a-z][ ._-]){5,}[a-z]\b",
}
COMPILED = {name: re.compile(pattern) for name, pattern in PATTERNS.items()}
# Digits that stand for letters, in words that have both letters and digits.
MIXED = re.compile(r"\b(?=[a-z]*[0-9])(?=[0-9]*[a-z])[a-z0-9]{2,30}\b")
LETTERS = str.maketrans("013457", "oieast")
INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
BREAK = re.compile(r"(?<=[.!?])\s+|\n+")
WORD = re.compile(r"[a-z]+")

# Letters of other scripts that look like Latin ones (a selection of Unicode's confusables, TR39), below their letter.
LOOKALIKES = str.maketrans(
    {
        other: others[0]
        for others in """aаɑαᴀ bвьβʙ cсϲςᴄҫ dԁđᴅ eеєεᴇ fғƒ gɡցɢ hһհʜн iіιıɩɪ jјϳյᴊ kкκᴋ lӏłʟ mмᴍ nпηոɴ oоοσօøᴏ pрρᴘ qԛզ
            rгʀ sѕꜱ tтτᴛ uυսᴜ vνѵᴠ wԝωᴡ xхχ yуγүʏ zᴢ""".split()  # noqa: SIM905
        for other in others[1:]
    }
)
OTHER = (
    "\u0370-\u03ff\u0400-\u052f\u0530-\u058f\u0590-\u05ff\u0600-\u06ff\u0900-\u0eff\u10a0-\u11ff\u13a0-\u13ff"
    "\u3040-\u30ff\u4e00-\u9fff\uab70-\uabbf\uac00-\ud7af"
)
# Forms of writing that a post of an English corpus has no reason for, over lower-case text.
SCRIPTS = {
    # a word of two scripts
    "mixed_script": re.compile(rf"\b(?=\w*[a-z])(?=\w*[{OTHER}])\w{{4,}}"),
    # several letters of another script
    "other_script": re.compile(rf"(?:[{OTHER}]\W?){{6}}"),
}
ENCODED = "encoded"
NAMES = (*PATTERNS, *SCRIPTS, ENCODED)
BASE64 = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{16,}={0,2}")
HEX = re.compile(r"\b(?:[0-9a-fA-F]{2} ?){12,}\b")
# Ours: of the commonest English words those with three letters and more.
COMMON = frozenset("the and you that for with this not are was all have but they from your his her one what".split())  # noqa: SIM905


def marks(text: str) -> tuple[str, ...]:
    """Return the names of the prompt-injection patterns that match the text, in the order of ``NAMES``."""
    normal = INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    plain = normal.lower().replace("’", "'")
    bare = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))
    forms = {plain, bare.translate(LOOKALIKES)}
    forms |= {MIXED.sub(lambda word: word.group().translate(LETTERS), form) for form in forms}
    found = {name for name, pattern in COMPILED.items() if any(pattern.search(form) for form in forms)}
    found |= {name for name, pattern in SCRIPTS.items() if pattern.search(plain)}
    if _encoded(normal):
        found.add(ENCODED)
    return tuple(name for name in NAMES if name in found)


def _encoded(text: str) -> bool:
    """Return whether a part of the text is base64 or hexadecimal of words, or all of it rot13 or reversed English."""
    parts = [_base64(found) for found in BASE64.findall(text)]
    digits = [found.replace(" ", "") for found in HEX.findall(text)]
    parts += [bytes.fromhex(found) for found in digits if len(found) % 2 == 0]
    if any(part.isascii() and part.decode().isprintable() and b" " in part for part in parts):
        return True
    return any(
        _common(hidden) > max(_common(sentence), 1) or _common(hidden) > 2
        for sentence in BREAK.split(text)
        for hidden in (codecs.encode(sentence, "rot13"), sentence[::-1])
    )


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    except ValueError:
        return b""


def _common(sentence: str) -> int:
    return len(COMMON & set(WORD.findall(sentence.lower())))
