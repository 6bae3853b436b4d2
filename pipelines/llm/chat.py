"""OpenAI's client, short of the walk through its parameter types that each request would pay for."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from openai import AsyncOpenAI, NotGiven, Omit
from openai.resources.chat import AsyncChat
from openai.resources.chat.completions import AsyncCompletions
from openai.types.chat import ChatCompletion


class Completions(AsyncCompletions):
    """Chat completions whose parameters are sent as they are.

    The SDK looks for dates and files to convert in every message by every type that it could have, a quarter of all
    time that a request takes. Ours hold plain JSON, so there is nothing to convert.
    """

    async def create(  # type: ignore[override]
        self, *, extra_headers: Any = None, extra_body: Any = None, timeout: Any = None, **given: Any
    ) -> ChatCompletion:
        """Send one request; one time limit holds for all, so ``timeout`` is the client's."""
        body = {name: value for name, value in given.items() if not isinstance(value, Omit | NotGiven)}
        return await self._client.post(
            "/chat/completions",
            cast_to=ChatCompletion,
            body=body | (extra_body or {}),
            options={"headers": extra_headers or {}},
        )


class Chat(AsyncChat):
    """The chat endpoints with :class:`Completions`."""

    @cached_property
    def completions(self) -> Completions:
        """Return the completions."""
        return Completions(self._client)


class Plain(AsyncOpenAI):
    """The client with :class:`Chat`."""

    @cached_property
    def chat(self) -> Chat:
        """Return the chat endpoints."""
        return Chat(self)
