"""Estimate how many requests a row sends to a labeller, their tokens and cost, before there is a corpus.

Prompts are the real ones; the items in them are typical ones (:data:`pipelines.backfill.POST_CHARACTERS`, one picture a
meme). ``corpus estimate`` counts the corpus itself, with stored answers, once it is split.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.backfill import POST_CHARACTERS
from pipelines.config.label import RemoteLabeller
from pipelines.config.params import Params
from pipelines.datasets.post import Post
from pipelines.label.memes import meme_labels, rationales
from pipelines.llm import costs
from pipelines.llm.capabilities import capabilities, price
from pipelines.llm.prompting.prompts import Prompt, PromptExample, build
from pipelines.taxonomy import Scheme

# What the size of a request counts as one picture, whatever is in it.
PICTURE = b"\x89PNG"


@dataclass(frozen=True)
class RequestPlan:
    """Requests of a row, the tokens that they read and write, and their expected and highest cost in US dollars."""

    requests: int = 0
    tokens: int = 0
    usd_expected: float = 0.0
    usd_at_most: float = 0.0

    def __add__(self, other: RequestPlan) -> RequestPlan:
        """Return the sum of two plans."""
        return RequestPlan(
            self.requests + other.requests,
            self.tokens + other.tokens,
            round(self.usd_expected + other.usd_expected, 2),
            round(self.usd_at_most + other.usd_at_most, 2),
        )


def post(*, picture: bool) -> Post:
    """Return a typical item: a post, or a meme without words."""
    return Post("", title="", body="" if picture else "a" * POST_CHARACTERS, images=(PICTURE,) if picture else ())


def of(
    name: str, *, scheme: Scheme, key: str, examples: int, items: int, room: int, picture: bool, params: Params
) -> RequestPlan:
    """Return the requests of a labeller for ``items`` items, one category of labels each.

    Args:
        name: the labeller.
        scheme: the label scheme of the corpus.
        key: the category that is asked about.
        examples: the number of examples in the prompt.
        items: the number of requests.
        room: the most tokens of a visible answer.
        picture: whether items are pictures.
        params: describes the labeller and its provider.

    Raises:
        PriceUnknown: the price of the labeller's model is not known.
    """
    labeller = params.labellers[name]
    if not isinstance(labeller, RemoteLabeller):
        return RequestPlan()
    shown = [
        PromptExample(str(i), post(picture=picture), {key: scheme.category(key).names[:1]}) for i in range(examples)
    ]
    prompt = build(scheme, keys=[key], system=labeller.system, examples=shown)
    return _sum(name, prompt, labeller=labeller, items=items, room=room, picture=picture, params=params)


def remarks(name: str, *, items: int, params: Params) -> RequestPlan:
    """Return the requests of a labeller that explains ``items`` memes, for models that read its explanations."""
    labeller = params.labellers[name]
    if not isinstance(labeller, RemoteLabeller):
        return RequestPlan()
    prompt = rationales.prompt_for(labeller)
    room = rationales.OUTPUT_TOKENS
    return _sum(name, prompt, labeller=labeller, items=items, room=room, picture=True, params=params)


def room_of(*, picture: bool, params: Params) -> int:
    """Return the most tokens of a visible answer: FigSIM's (T10) or CRADLE's (4.1)."""
    return meme_labels.MAX_OUTPUT_TOKENS if picture else params.votes.max_output_tokens


def _sum(
    name: str, prompt: Prompt, *, labeller: RemoteLabeller, items: int, room: int, picture: bool, params: Params
) -> RequestPlan:
    api = params.providers[labeller.provider].api
    can, paid = capabilities(labeller.model, api=api), price(labeller.model, api=api, given=labeller.price, name=name)
    system, parts = prompt.render(post(picture=picture), delimiter="0" * 16)
    cap = room * can.max_tokens_factor
    one = costs.size(system, parts, schema=prompt.schema, cap=cap, factor=can.max_tokens_factor)
    share = costs.BATCH_SHARE if params.votes.batch and can.batch else 1
    return RequestPlan(
        requests=items,
        tokens=items * (one.read + one.written),
        usd_expected=round(share * items * costs.usd(paid, read=one.read, written=one.written), 2),
        usd_at_most=round(items * costs.usd(paid, read=one.read_at_most, written=one.written_at_most), 2),
    )
