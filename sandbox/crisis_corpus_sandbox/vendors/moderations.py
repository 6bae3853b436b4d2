"""Simulate three moderation systems in their vendors' wire formats: OpenAI, Azure AI Content Safety, a guard model.

The flag rates by severity are near those of FigSIM's Table 2, and figurative texts get lower scores (its Figure 3), so
that a demo's tables look like an audit. A picture alone is judged by chance: nothing here looks at pictures. Each
function rejects what the real vendor rejects, and leaves out a part of some answers (``Temper.malformed``).
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from crisis_corpus_sandbox.reddit import seeded
from crisis_corpus_sandbox.vendors.mind import LETTERS_PER_TOKEN, Temper, reading
from crisis_corpus_sandbox.vendors.protocols import MADE, Body, Rejected, images_of, last_asked, name_of, text_of

# FigSIM T2: the rate of flags for self-harm by severity (None to death), and of any other flag among the others.
RATES = {
    "openai": ((0.143, 0.243, 0.475, 0.497, 0.575, 0.5), 0.08),
    "azure": ((0.304, 0.271, 0.619, 0.56, 0.661, 0.633), 0.15),
    "guard": ((0.304, 0.312, 0.386, 0.509, 0.428, 0.333), 0.03),
}
# Ours: how much of its severity a figurative text loses.
FIGURATIVE_LOSS = 0.4
TYPICAL = 2
OPENAI = (
    "harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent", "self-harm",
    "self-harm/intent", "self-harm/instructions", "sexual", "sexual/minors", "violence", "violence/graphic",
)  # fmt: skip
SEEN = frozenset({"self-harm", "self-harm/intent", "self-harm/instructions", "sexual", "violence", "violence/graphic"})
AZURE = ("Hate", "SelfHarm", "Sexual", "Violence")
AZURE_CHARACTERS, AZURE_BYTES, AZURE_SIDES = 10_000, 4 * 2**20, (50, 7_200)
OTHER_CODE = {"openai": "violence", "azure": "Violence", "guard": "S1"}


@dataclass(frozen=True, slots=True)
class ItemView:
    """What a simulated system sees in one item: flags, their strength, and the draw of the rest."""

    rng: Random
    self_harm: bool
    other: bool
    strength: float


def look(vendor: str, *, text: str, image: bytes, seed: int) -> ItemView:
    """Judge an item: the same item always gets the same judgement."""
    read = reading(text)
    codes = [int(code[2:]) for code in read.codes if code.startswith("SS")]
    crises = any("suicide" in label or "selfharm" in label for label in read.labels)
    level = max(codes, default=TYPICAL if crises or not text else 0)
    digest = hashlib.sha256(image).hexdigest() if image else ""
    rng = seeded(seed, vendor, "moderation", read.digest if text else "", digest)
    rates, other = RATES[vendor]
    figurative = any(code.startswith("F") for code in read.codes)
    strength = rng.random() * (1 - FIGURATIVE_LOSS if figurative else 1)
    return ItemView(rng, rng.random() < rates[level], rng.random() < other, strength)


def openai_moderation(body: Body, *, temper: Temper, seed: int) -> tuple[int, Body]:
    """Return status and body of OpenAI's endpoint ``moderations`` for a text, or parts with at most one picture."""
    model = str(body.get("model") or "omni-moderation-latest")
    content = body["input"]
    parts = [content] if isinstance(content, str) else content
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    if images_of(parts) > 1:
        raise Rejected("Only one image is accepted.", param="input", code="too_many_images")
    text, image = text_of(parts), _data(parts)
    if image and not model.startswith("omni-moderation"):
        raise Rejected("This model does not accept images.", param="input", code="invalid_value")
    seen = look("openai", text=text, image=image, seed=seed)
    if seen.rng.random() < temper.malformed:
        return 200, {"id": f"modr-{name_of(text, seed)}", "model": model, "results": []}
    flags = {"self-harm": seen.self_harm, "self-harm/intent": seen.self_harm and seen.strength > 0.5}
    flags |= {"violence": seen.other}
    high, low = 0.5 + 0.45 * seen.strength, 0.4 * seen.strength
    scores = {name: round(high if flags.get(name) else low * seen.rng.random(), 6) for name in OPENAI}
    kinds = [kind for kind, there in (("text", text), ("image", image)) if there]
    applied = {name: [k for k in kinds if k == "text" or name in SEEN] for name in OPENAI}
    result: Body = {
        "flagged": any(flags.values()),
        "categories": {name: bool(flags.get(name)) for name in OPENAI},
        "category_scores": scores,
        "category_applied_input_types": applied,
    }
    return 200, {"id": f"modr-{name_of(text, seed)}", "model": model, "results": [result]}


class AzureContentSafety:
    """The errors of Azure AI Content Safety."""

    KINDS: ClassVar = {
        "key": (401, "401", "Access denied due to invalid subscription key or wrong API endpoint."),
        "quota": (403, "403", "Out of call volume quota for this resource (insufficient_quota)."),
        "throttled": (429, "TooManyRequests", "Requests have exceeded the rate limit of the current tier."),
        "overloaded": (503, "ServerBusy", "The server is busy."),
        "missing": (404, "404", "Resource not found"),
        "invalid": (400, "InvalidRequestBody", "The request body is invalid."),
    }

    def fail(self, kind: str, *, message: str = "", param: str | None = None, code: str | None = None) -> Body:
        _, usual, text = self.KINDS[kind]
        return {"error": {"code": code or usual, "message": message or text, "details": []}}


def azure_analysis(body: Body, *, kind: str, temper: Temper, seed: int) -> tuple[int, Body]:
    """Return status and body of Azure's analysis; ``kind`` is ``text:analyze`` or ``image:analyze``."""
    text, image = (str(body["text"]), b"") if kind == "text:analyze" else ("", _azure_image(body))
    eight = body.get("outputType", "FourSeverityLevels") == "EightSeverityLevels"
    if len(text) > AZURE_CHARACTERS or not (text or image):
        raise Rejected("The length of the text is out of range.", code="InvalidRequestBody")
    seen = look("azure", text=text, image=image, seed=seed)
    severity = 2 + int(seen.strength * 5.999)
    severities = {"SelfHarm": severity if seen.self_harm else int(seen.strength < 0.3), "Violence": 2 * seen.other}
    analysis: list[Body] = [{"category": name, "severity": int(severities.get(name, 0))} for name in AZURE]
    for entry in analysis:
        entry["severity"] -= 0 if eight else entry["severity"] % 2
    if seen.rng.random() < temper.malformed:
        analysis.pop(seen.rng.randrange(len(AZURE)))
    return 200, {**({"blocklistsMatch": []} if text else {}), "categoriesAnalysis": analysis}


def guard_completion(body: Body, *, temper: Temper, seed: int) -> tuple[int, Body]:
    """Return status and body of a guard model's chat completion: "safe", or "unsafe" and a line of codes."""
    content = last_asked(body.get("messages") or [])
    text, model = text_of(content), str(body.get("model") or "")
    if images_of(content) and "guard-3-8b" in model.lower():
        raise Rejected("This model does not support images.", code="invalid_value")
    seen = look("guard", text=text, image=_data(content), seed=seed)
    codes = [*(["S11"] if seen.self_harm else []), *([OTHER_CODE["guard"]] if seen.other else [])]
    said: str | None = "\n\nunsafe\n" + ",".join(sorted(codes)) if codes else "\n\nsafe"
    ended, chance = "stop", seen.rng.random()
    if chance < temper.malformed:
        said = "I cannot say."
    elif chance < temper.malformed + temper.refuses_any:
        said, ended = None, "content_filter"
    message: Body = {"role": "assistant", "content": said}
    tokens = 300 + len(text) // LETTERS_PER_TOKEN
    return 200, {
        "id": f"chatcmpl-{name_of(model, text)}",
        "object": "chat.completion",
        "created": MADE,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": ended}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5},
    }


def judged(vendor: str, kind: str, *, body: Body, temper: Temper, seed: int) -> tuple[int, Body] | None:
    """Return status and body of a moderation answer, or ``None`` if the request is none of these three formats."""
    if kind == "moderations":
        return openai_moderation(body, temper=temper, seed=seed)
    if vendor == "azure":
        return azure_analysis(body, kind=kind, temper=temper, seed=seed)
    return guard_completion(body, temper=temper, seed=seed) if vendor == "guard" else None


def _data(parts: Any) -> bytes:
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, Mapping) and part.get("type") == "image_url":
            return base64.b64decode(part["image_url"]["url"].partition(";base64,")[2], validate=True)
    return b""


def _azure_image(body: Body) -> bytes:
    """Return a picture within Azure's limits of bytes and sides."""
    from PIL import Image

    image = base64.b64decode(body["image"]["content"], validate=True)
    try:
        with Image.open(io.BytesIO(image)) as picture:
            sides = picture.size
    except OSError:
        raise Rejected("The image format is not supported.", code="InvalidImageFormat") from None
    if len(image) > AZURE_BYTES or not (AZURE_SIDES[0] <= min(sides) and max(sides) <= AZURE_SIDES[1]):
        raise Rejected("The given image is out of range.", code="InvalidImageSize")
    return image
