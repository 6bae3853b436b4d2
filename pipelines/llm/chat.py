"""Subclass OpenAI's client so that chat requests skip its slow conversion of parameters by type."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from openai import AsyncOpenAI, NotGiven, Omit
from openai.resources.chat import AsyncChat
from openai.resources.chat.completions import AsyncCompletions
from openai.types.chat import ChatCompletion


class Completions(AsyncCompletions):  # type: ignore[misc]
    """OpenAI's chat completions without changes to the parameters.

    The SDK searches every message for dates and files to convert, by every type that it could have, which takes a
    quarter of a request's time. Our messages are plain JSON, so there is nothing to convert.
    """

    async def create(
        self, *, extra_headers: Any = None, extra_body: Any = None, timeout: Any = None, **given: Any
    ) -> ChatCompletion:
        """Send one chat request and return the completion; ``timeout`` is ignored: the client's own limit applies."""
        body = {name: value for name, value in given.items() if not isinstance(value, Omit | NotGiven)}
        return await self._client.post(
            "/chat/completions",
            cast_to=ChatCompletion,
            body=body | (extra_body or {}),
            options={"headers": extra_headers or {}},
        )


class Chat(AsyncChat):  # type: ignore[misc]
    """OpenAI's chat endpoints with the faster :class:`Completions`."""

    @cached_property
    def completions(self) -> Completions:
        """The endpoint of chat completions."""
        return Completions(self._client)


class Plain(AsyncOpenAI):  # type: ignore[misc]
    """OpenAI's client that sends the parameters of chat requests unchanged (see :class:`Completions`)."""

    @cached_property
    def chat(self) -> Chat:
        """The chat endpoints."""
        return Chat(self)
